"""What every kind of evidence offers, how kinds are written and read, what they assume in words."""

from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from canaria._validate import Floats, Hits, InputError, Integers, shown
from canaria.evidence._effort import Effort

FAIR_COINS: Final = "the hidden bits are independent fair coins"
COMMITTED: Final = "the number of guesses was fixed before the output was seen"
ALL_COUNTED: Final = "`elements` counts every hidden bit of the audit, guessed or not"
NOT_ADAPTIVE: Final = (
    "which elements are guessed, and in which order, depends on the output alone; "
    "a guess may use bits revealed before it, never its own"
)


class Tally(NamedTuple):
    """Right guesses and guesses taken."""

    correct: int
    taken: int


class Progress(NamedTuple):
    """Numbers of guesses, rising, and how many of so many were right."""

    taken: Integers
    correct: Integers


class Evidence(Protocol):
    """What was seen; it knows its p-value against a claim.

    `p_value(epsilon, delta)` bounds the probability that an (epsilon, delta)-DP mechanism would let
    a guesser do as well. `inversion` says how `lower_bound` may search for the last refuted claim:

    - "bisection": the p-value is monotone in epsilon;
    - "grid": it is not; walk a fixed grid upward from 0;
    - "late grid": the same, from the first grid point where the plain delta rule can reject.
    """

    @property
    def method(self) -> str: ...
    @property
    def inversion(self) -> str: ...
    @property
    def assumptions(self) -> tuple[str, ...]: ...
    @property
    def elements(self) -> int: ...
    def p_value(self, epsilon: float, delta: float = 0.0) -> float: ...
    def tally(self, epsilon: float) -> Tally: ...
    def to_dict(self) -> dict[str, Any]: ...


@runtime_checkable
class Screened(Protocol):
    """Evidence that can settle many claims cheaply.

    `screen` returns +1 where `p_value` is surely at most `level`, -1 where it is surely above, and 0
    where only `p_value` can tell.
    """

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]: ...


@runtime_checkable
class Capped(Protocol):
    """Evidence that knows, in closed form, a value that its bound cannot exceed."""

    def ceiling(self, level: float) -> float: ...


@runtime_checkable
class Decided(Protocol):
    """Evidence that can decide a claim for less than its p-value costs."""

    def refuted(self, epsilon: float, delta: float, level: float) -> bool: ...


@runtime_checkable
class Measured(Protocol):
    """Evidence that says beforehand, from its sizes alone, how long it is likely to take."""

    def effort(self, delta: float) -> Effort: ...


@runtime_checkable
class Bracketed(Protocol):
    """Evidence that knows bounds on its p-value at delta = 0 for less than the p-value costs.

    They may be rough where the p-value is above `beyond`.
    """

    def between(self, epsilon: float, beyond: float) -> tuple[float, float]: ...


@runtime_checkable
class Perfectible(Protocol):
    """Evidence that knows what the same audit would have shown with every guess right."""

    def perfect(self) -> Evidence: ...


@runtime_checkable
class Explained(Protocol):
    """Evidence that says what was fixed before bits were revealed, and how guesses went as their number grew.

    `progress` is for the eye: the guesses in the order in which they were taken, or the surest first.
    """

    def fixed(self) -> str: ...
    def progress(self, epsilon: float) -> Progress: ...


def progress_of(hits: Hits, first: int = 8, points: int = 60) -> Progress:
    """Right guesses among the first k hits, at up to `points` numbers k, geometric from `first` to all."""
    spaced = np.geomspace(min(first, len(hits)), len(hits), points)
    taken = np.unique(np.rint(spaced).astype(np.int64))
    return Progress(taken, np.cumsum(hits, dtype=np.int64)[taken - 1])


_Kind = TypeVar("_Kind", bound=type[Any])
_KINDS: Final[dict[str, type[Any]]] = {}


def kind(cls: _Kind) -> _Kind:
    """Make a class of evidence readable by `from_dict`, under its own name."""
    _KINDS[cls.__name__] = cls
    return cls


def to_dict(evidence: Evidence) -> dict[str, Any]:
    """Evidence as plain data, with its kind."""
    return {"kind": type(evidence).__name__, **evidence.to_dict()}


def from_dict(data: Any) -> Evidence:
    """Evidence from what `to_dict` wrote; anything else is an InputError."""
    name = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(name, str) or name not in _KINDS:
        raise InputError(f"evidence must be of a kind out of {', '.join(sorted(_KINDS))}, got {shown(name)}")
    fields = {key: value for key, value in data.items() if key != "kind"}
    read = getattr(_KINDS[name], "from_dict", _KINDS[name])
    try:
        evidence: Evidence = read(**fields)
    except TypeError:
        raise InputError(f"{name} cannot be read from the fields {shown(sorted(fields))}") from None
    return evidence
