"""Checks a result against its own evidence, by recomputing everything that follows from it."""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from canaria._core.errors import InputError, shown
from canaria._core.files import checksum
from canaria._core.kinds import plain
from canaria.bounds import Bound, limits
from canaria.bounds.bound import bound_again, with_epsilon
from canaria.bounds.conformance import joined
from canaria.bounds.parts import CHANCE, CLAIM, Ladder
from canaria.bounds.result import Result
from canaria.files.read import Stored, read_result

_SAME: Final = 1e-8
_SAME_P_VALUE: Final = 1e-6
_DERIVED: Final = (
    "correct",
    "taken",
    "elements",
    "estimate",
    "method",
    "assumptions",
    "grid",
    "claimed",
    "refuted",
    "family",
    "last_refuted",
)


CHANGED: Final = (
    "the file was changed after it was written (its checksum does not fit): what does not follow from the "
    "evidence, such as the claim, names, facts and conformance, may not be as it was"
)


class Check(NamedTuple):
    """The outcome of checking a stored result.

    Attributes:
        stored: The stored epsilon.
        recomputed: The epsilon that the evidence gives.
        family: The family of claims that the bound is about; empty for a bound of any mechanism.
        faults: Differences between the stored and the recomputed values; empty if the result holds.
        changed: Whether the file was changed after it was written.

    Example:
        >>> from canaria.files import Check
        >>> Check(stored=1.63, recomputed=1.63, faults=()).holds
        True
    """

    stored: float
    recomputed: float
    faults: tuple[str, ...]
    family: str = ""
    changed: bool = False

    @property
    def holds(self) -> bool:
        """Whether the file is unchanged and its statements about the bound follow from the evidence."""
        return not self.faults and not self.changed

    @property
    def bound_holds(self) -> bool:
        """Whether the bound follows from the evidence. Other parts of the file may have been changed."""
        return not self.faults

    def to_dict(self) -> dict[str, Any]:
        """The outcome as plain data for JSON."""
        return {
            "stored": plain(self.stored),
            "recomputed": plain(self.recomputed),
            "holds": self.holds,
            "bound_holds": self.bound_holds,
            "faults": [*self.faults, *([CHANGED] if self.changed else [])],
        }


def load(source: str | Path) -> Result:
    """Read a result file and recompute its bound from the evidence.

    Args:
        source: The file that `Result.save` or the command line wrote; `-` is standard input.

    Raises:
        InputError: If the file cannot be read, is not a result, was changed, or does not hold.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from canaria import Counts, load, lower_bound
        >>> with TemporaryDirectory() as folder:
        ...     made = lower_bound(Counts(90, 100, 100)).result(name="survey")
        ...     load(made.save(f"{folder}/survey.json"))
        <Result survey: ε ≥ 1.630 at δ = 0, with 95% confidence; no claim>
    """
    return read_checked(source).result


def read_checked(source: str | Path) -> Stored:
    """Read a result and recompute its bound.

    Args:
        source: The path of the file; `-` is standard input.

    Raises:
        InputError: If the file cannot be read, is not a result, or does not hold.

    Example:
        ```python
        read_checked("result.json").result.verdict  # of the bound as it was recomputed
        ```
    """
    stored = read_result(source)
    again, faults, changed = _recomputed(stored)
    if faults:
        raise InputError(f"{source} does not hold: {'; '.join(faults)}")
    if changed:
        raise InputError(f"the bound of {source} holds, but {CHANGED}")
    return Stored(replace(stored.result, bound=again), stored.record)


def check(stored: Stored) -> Check:
    """Recompute the bound of a stored result, and all stored values that follow from the evidence.

    A stored bound below the recomputed one does not hold either: it could hide a refutation.

    Args:
        stored: A result as `read_result` returns it.

    Raises:
        InputError: If the computation takes too long.

    Example:
        >>> import tempfile, pathlib
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.files import check, read_result
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "result.json"
        >>> saved = Result(lower_bound(Counts(90, 100, 100)), name="survey").save(path)
        >>> found = check(read_result(saved))
        >>> found.holds, found.stored == found.recomputed
        (True, True)
    """
    again, faults, changed = _recomputed(stored)
    family = str(again.family) if again.condition else ""
    return Check(stored.result.bound.epsilon, again.epsilon, tuple(faults), family, changed)


class _Recomputed(NamedTuple):
    bound: Bound
    faults: list[str]
    changed: bool


def _recomputed(stored: Stored) -> _Recomputed:
    try:
        with limits.quick(stored.record, stored.result.bound.evidence, "a result"):
            return _compared(stored)
    except RecursionError:
        raise InputError("a result must not be nested so deeply") from None


def _compared(stored: Stored) -> _Recomputed:
    kept = stored.result.bound
    again = bound_again(kept, kept.delta, kept.confidence)
    faults = []
    if not _same(kept.epsilon, again.epsilon):
        faults.append(f"epsilon is stored as {kept.epsilon:g}, but its evidence gives {again.epsilon:g}")
    # Epsilon may differ by rounding, and other values with it: these are compared at the stored epsilon.
    as_stored = with_epsilon(again, kept.epsilon) if not faults else again
    fresh = as_stored.to_dict()
    result = replace(stored.result, bound=again)
    fresh["claimed"] = None if result.claimed is None else plain(result.claimed)
    fresh["refuted"] = result.refuted
    for name in _DERIVED:
        written, true = stored.record[name], fresh[name]
        if not _equal(written, true):
            faults.append(f"{name} is stored as {shown(written)}, but its evidence says {shown(true)}")
    faults += _misfits(replace(stored.result, bound=as_stored))
    faults += _mislabelled(stored)
    return _Recomputed(again, faults, stored.record["checksum"] != checksum(stored.record))


def _mislabelled(stored: Stored) -> list[str]:
    """Faults in the record's statements about itself and about training, besides the bound."""
    faults, record = [], stored.record
    if (found := stored.result.conformance) is not None:
        written = record["conformance"]["conforms"]
        if written is not found.conforms:
            faults.append(f"conforms is stored as {shown(written)}, but its p-value says {found.conforms}")
    if record["canaria"] != record["versions"].get("canaria", record["canaria"]):
        faults.append(f"canaria is stored as {shown(record['canaria'])}, but versions name another")
    return faults


def _equal(written: object, true: object) -> bool:
    """Whether a stored value is right. Numbers may differ by rounding, which varies between machines."""
    if _is_number(written) and _is_number(true):
        return _same(float(written), float(true))  # type: ignore[arg-type]
    return written == true and type(written) is type(true)


def _is_number(value: object) -> bool:
    # A file may contain an integer that is too large for a double.
    return isinstance(value, float) or (type(value) is int and abs(value) < 2**1023)


def _same(one: float, other: float) -> bool:
    return one == other or abs(one - other) <= _SAME * max(1.0, other)


def _misfits(result: Result) -> list[str]:
    """Stored parts besides the bound that are inconsistent with it."""
    faults, bound = [], result.bound
    if (histogram := result.histogram) is not None:
        counted = sum(histogram.included) + sum(histogram.excluded)
        if counted != bound.evidence.elements:
            faults.append(f"histogram counts {counted} scores of {bound.evidence.elements} elements")
    if result.rungs and bound.family is None and not _same(result.rungs[0].least or 0.0, bound.epsilon):
        faults.append(
            f"the first rung is stored as {result.rungs[0].least}, not as the bound {bound.epsilon:g}"
        )
    if result.ladder is not None:
        faults += _misfits_of_ladder(result.ladder, result.claimed, bound.epsilon)
    if (found := result.conformance) is not None and not math.isclose(
        joined(found.parts), found.p_value, rel_tol=_SAME_P_VALUE, abs_tol=1e-300
    ):
        faults.append(f"conformance is stored as p = {found.p_value:g}, but its parts give another")
    return faults


def _misfits_of_ladder(ladder: Ladder, claimed: float | None, bound: float) -> list[str]:
    """Faults of a ladder, which must start at the claim, fall, and end at the bound by a step of chance."""
    faults, levels = [], [ladder.epsilon, *(step.epsilon for step in ladder.steps)]
    if len(levels) == 1 or not _same(levels[-1], bound):
        faults.append(f"ladder ends at {levels[-1]:g}, not by steps at the bound {bound:g}")
    if ladder.top == CLAIM and (claimed is None or not _same(ladder.epsilon, claimed)):
        faults.append(f"ladder starts at {ladder.epsilon:g}, not at the claim {claimed}")
    if ladder.top == CLAIM and bound > ladder.epsilon + _SAME:
        faults.append(f"ladder leads from the claim {ladder.epsilon:g} up to {bound:g}")
    if any(step.gap == CHANCE for step in ladder.steps[:-1]):
        faults.append(f"ladder has {CHANCE!r} before its last step")
    if any(lower > upper + _SAME for upper, lower in pairwise(levels[:-1])):
        faults.append("ladder does not fall from step to step, before chance")
    return faults
