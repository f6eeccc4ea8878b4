"""Distinct names for the results of one report."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from canaria._core.errors import shown


def told_apart(names: Sequence[str], files: Sequence[str] | None = None) -> list[str]:
    """A distinct name for each result. Shared names are replaced by file names, or numbered.

    Example:
        >>> told_apart(["training run", "training run", "scores"], ["a.json", "b.json", "c.json"])
        ['a', 'b', 'scores']
        >>> told_apart(["training run", "training run"])
        ['training run (1)', 'training run (2)']
    """
    told = list(names)
    if files is not None:
        told = _replaced(
            told, ["standard input" if file == "-" else _plain(Path(file).stem) for file in files]
        )
        told = _replaced(told, [_plain(file) for file in files])
    while len(set(told)) < len(told):
        told = _replaced(told, [f"{name} ({place})" for place, name in enumerate(told, start=1)])
    return told


def _replaced(names: list[str], others: list[str]) -> list[str]:
    """Replace each name that occurs more than once by the other one."""
    times = Counter(names)
    return [name if times[name] == 1 else other for name, other in zip(names, others, strict=True)]


def _plain(file: str) -> str:
    """A file's name on one line, without terminal control characters."""
    return shown(file)[1:-1]
