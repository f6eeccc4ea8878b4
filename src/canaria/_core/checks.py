"""Argument checks: every message is one line with the name, the value and what is allowed."""

import math
from typing import Any, Final, SupportsFloat, cast

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.errors import InputError, TrainingDivergedError, nearest, shown
from canaria._core.membership import Membership, UnknownWordError

ADJACENCIES: Final = ("add-remove", "replace", "unspecified")
LARGEST: Final = 10**15
"""The largest count. Above it, doubles lose digits that bounds need."""


def integer(name: str, value: object, low: int, high: int = LARGEST, top: str = "") -> int:
    """Check that `value` is an integer between `low` and `high` (which `top` names in the message)."""
    allowed = f"an integer of at least {low}"
    if high != LARGEST or (isinstance(value, int) and value > LARGEST):
        allowed = f"an integer between {low} and {top}{' = ' if top else ''}{high}"
    if isinstance(value, int | np.integer) and not isinstance(value, bool) and low <= value <= high:
        return int(value)
    raise InputError(f"{name} must be {allowed}, got {shown(value)}")


def real(name: str, value: object) -> float:
    """Check that `value` is a number, and not NaN."""
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(cast("SupportsFloat", value))
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise InputError(f"{name} must be a number, got {shown(value)}")
    return number


def nonnegative(name: str, value: object) -> float:
    """Check that `value` is a number of at least 0 (infinity is allowed); -0 becomes 0."""
    number = real(name, value)
    if number < 0:
        raise InputError(f"{name} must be at least 0, got {shown(value)}")
    return abs(number)


def positive(name: str, value: object) -> float:
    """Check that `value` is a number above 0, and not infinite."""
    number = real(name, value)
    if not 0 < number < math.inf:
        raise InputError(f"{name} must be positive and finite, got {shown(value)}")
    return number


def delta(value: object) -> float:
    """Check a delta: a number in [0, 1]."""
    number = real("delta", value)
    if not 0 <= number <= 1:
        raise InputError(f"delta must be between 0 and 1, got {shown(value)}")
    return number


def sample_rate(value: object, name: str = "sample_rate") -> float:
    """Check the probability that an element is in a batch: above 0 and at most 1."""
    number = real(name, value)
    if not 0 < number <= 1:
        raise InputError(f"{name} must be above 0 and at most 1, got {shown(value)}")
    return number


def truth(name: str, value: object) -> bool:
    """Check that `value` is a boolean, not merely truthy or falsy."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    raise InputError(f"{name} must be True or False, got {shown(value)}")


def same_index(name: str, values: object, other_name: str, others: object) -> None:
    """Check that two pandas Series have equal row labels in the same order; other types have no labels."""
    labels: Any = getattr(values, "index", None)
    other_labels: Any = getattr(others, "index", None)
    if hasattr(labels, "equals") and hasattr(other_labels, "equals") and not labels.equals(other_labels):
        raise InputError(
            f"{name} and {other_name} must have the same row labels in the same order, as they are taken by "
            f"their place; align them, or pass {name}.to_numpy()"
        )


def confidence(value: object) -> float:
    """Check a confidence: a number strictly between 0 and 1."""
    number = real("confidence", value)
    # A confidence may be so small that the level, 1 - confidence, rounds to 1.
    if not (0 < number < 1 and 1 - number < 1):
        meant = f"; did you mean {number / 100:g}?" if 1 < number < 100 else ""
        raise InputError(f"confidence must be strictly between 0 and 1, got {shown(value)}{meant}")
    return number


def adjacency(value: object) -> str:
    """Check the name of an adjacency."""
    if value not in ADJACENCIES:
        allowed = ", ".join(map(repr, ADJACENCIES))
        raise InputError(
            f"adjacency must be one of {allowed}, got {shown(value)}{nearest(value, ADJACENCIES)}"
        )
    return str(value)


def vector(name: str, values: npt.ArrayLike, *, infinite: bool = False) -> Floats:
    """Check a one-dimensional sequence of numbers without NaN; `infinite` allows infinities."""
    try:
        given = np.asarray(values)
        if isinstance(values, np.ma.MaskedArray) or given.dtype.kind not in "biufO":
            raise TypeError
        array = given.astype(np.float64, copy=False)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise InputError(f"{name} must be a sequence of plain numbers, got {shown(values)}") from None
    if array.ndim != 1:
        raise InputError(f"{name} must be one-dimensional, got shape {array.shape}")
    bad = np.isnan(array) if infinite else ~np.isfinite(array)
    if bad.any():
        where = int(np.argmax(bad))
        allowed = "numbers" if infinite else "finite numbers"
        raise InputError(f"{name} must hold {allowed}, got {array[where]} at position {where}")
    return array


def integers(name: str, values: npt.ArrayLike) -> Integers:
    """Check a vector of integers."""
    array = vector(name, values)
    if (array != np.rint(array)).any() or (np.abs(array) > LARGEST).any():
        raise InputError(f"{name} must hold integers, got {shown(values)}")
    return array.astype(np.int64)


def two_valued(name: str, values: npt.ArrayLike) -> Hits:
    """Check a vector of booleans, 0/1, -1/+1, or words such as yes/no, and return it as booleans."""
    words = _words(values)
    if words is not None:
        return _meanings(name, words)
    array = vector(name, values)
    # 0 and -1 together are refused: it is not known which of them means excluded.
    negative = bool((array == -1).any())
    low = -1 if negative else 0
    bad = (array != 1) & (array != low)
    if bad.any():
        where = int(np.argmax(bad))
        raise InputError(f"{name} must hold 0/1, -1/+1 or booleans, got {array[where]:g} at position {where}")
    return np.asarray(array == 1)


def _words(values: npt.ArrayLike) -> list[object] | None:
    """The elements, if some of them are words; else None."""
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        return None
    if given.ndim != 1 or isinstance(values, np.ma.MaskedArray) or given.dtype.kind not in "USTO":
        return None
    listed: list[object] = (
        given.tolist() if isinstance(values, np.ndarray) else list(cast("list[object]", values))
    )
    return listed if any(isinstance(word, str | bytes) for word in listed) else None


def _meanings(name: str, words: list[object]) -> Hits:
    way, included = Membership(), np.zeros(len(words), np.bool_)
    for where, word in enumerate(words):
        try:
            included[where] = way.read(word)
        except UnknownWordError as error:
            raise InputError(f"{name} {error} at position {where}") from None
    return included


def hits(values: npt.ArrayLike) -> Hits:
    """Check the hits of an audit, which mark right guesses: at least one, two-valued."""
    seen = two_valued("hits", values)
    if len(seen) == 0:
        raise InputError("hits must hold at least one guess, got none")
    return seen


def elements(value: object, guesses: int) -> int:
    """Check the number of elements, at least one per guess; by default exactly that."""
    return guesses if value is None else integer("elements", value, guesses)


def same_length(name: str, length: int, other: str, expected: int) -> None:
    """Check that two sequences are equally long."""
    if length != expected:
        raise InputError(f"{name} must be as long as {other}, got {length} and {expected}")


def require_converged(*seen: Floats) -> None:
    """Check that the values observed in training are finite."""
    if not all(np.isfinite(values).all() for values in seen):
        raise TrainingDivergedError(
            "the noisy sums are not finite: training diverged, there is nothing to audit"
        )


def assign(instance: object, **values: object) -> None:
    """Set the fields of a frozen dataclass once. Arrays are copied and become read-only."""
    for name, value in values.items():
        stored = value
        if isinstance(value, np.ndarray):
            stored = value.copy()
            stored.flags.writeable = False
        object.__setattr__(instance, name, stored)
