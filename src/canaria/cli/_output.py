"""How a result is shown: a few lines for people, JSON for programs, an exit code for both."""

import shlex
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from canaria.claims import Claim
    from canaria.results.result import Result

_TYPED: Final = ContextVar[str]("typed")


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print the warnings of a computation as single lines on standard error, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"canaria: warning: {message}", err=True)


def finish(compute: Callable[[], "Result"], as_json: bool) -> NoReturn:
    """Compute a result, show it, and leave with code 1 if the claim is refuted."""
    with one_line_warnings():
        result = compute()
    typer.echo(result.to_json() if as_json else str(result))
    raise typer.Exit(1 if result.refuted else 0)


def claim_of(claimed: float | None, delta: float | None, family: str | None = None) -> "Claim | None":
    """The claim that a bound is held against; its delta is part of it. With a family, its claim of that ε."""
    from canaria._core.checks import nonnegative
    from canaria._core.errors import InputError
    from canaria.claims import ApproximateDP
    from canaria.claims.families import parse_family

    if claimed is None:
        return None
    if delta is None:
        raise InputError(
            "--claimed needs --delta, the delta of the claim: --delta 1e-5, say, or --delta 0 for pure DP"
        )
    epsilon = nonnegative("claimed", claimed)
    return ApproximateDP(epsilon, delta) if family is None else parse_family(family).at(epsilon, delta)


def require_another_file(out: Path | None, files: Sequence[str]) -> None:
    """Refuse to write over one of the files that are read."""
    from canaria._core.errors import InputError, shown

    if out is not None and any(file != "-" and _same_file(Path(file), out) for file in files):
        raise InputError(f"--out must not be one of the result files, got {shown(str(out))}")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


class Verbs(TyperGroup):
    """The verbs, which remember what was typed, by the user or by whoever calls `app` in Python."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Note the words before they are taken apart."""
        _TYPED.set(shlex.join(["canaria", *args]))
        return super().parse_args(ctx, args)


def command_line() -> str:
    """What the user typed."""
    return _TYPED.get()
