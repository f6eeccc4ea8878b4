"""Argument checks: every message is one line with the name, the value and what is allowed."""

import difflib
import math
import warnings
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Hits = npt.NDArray[np.bool_]
Bits = npt.NDArray[np.int8]
Integers = npt.NDArray[np.int64]

ADJACENCIES: Final = ("add-remove", "replace", "unspecified")
IMPOSSIBLE: Final = 1e-6
"""Bits that fair coins show more rarely than this are refused: one honest audit in a million is, too."""
_UNLIKELY: Final = 1e-3
_ALTERNATING: Final = 40
_FEWEST_RUNS: Final = 41
_ONE_ROW: Final = "give one row per canary, such as the mean of its scores (another order does not help)"
_HOW_TO_TOSS: Final = (
    "toss one fair coin per canary, before training and independently of everything else, and include the "
    "canary only on heads (canaria.plant does)"
)
LARGEST: Final = 10**15
"""The largest count: above it, doubles lose the digits that bounds need."""
_SHOWN: Final = 60


class InputError(ValueError):
    """An argument, a file or a command that cannot be used; the message is one line."""

    __module__ = "canaria"


class UnfairCoinsError(InputError):
    """Hidden bits that fair coins show less than once in a million audits."""


class CoinWarning(UserWarning):
    """Hidden bits that fair coins hardly ever show."""

    __module__ = "canaria"


def shown(value: object) -> str:
    """Render a value on one line, cut to a length that fits in an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def nearest(word: object, known: Iterable[str]) -> str:
    """What was probably meant, to end an error message with; nothing if no known word is near.

    >>> nearest("xor-in-pair", ["xor", "xor-in-pairs"])
    "; did you mean 'xor-in-pairs'?"
    """
    close = difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def integer(name: str, value: Any, low: int, high: int = LARGEST, top: str = "") -> int:
    """Check that `value` is an integer between `low` and `high` (which `top` names)."""
    allowed = f"an integer of at least {low}"
    if high != LARGEST or (isinstance(value, int) and value > LARGEST):
        allowed = f"an integer between {low} and {top}{' = ' if top else ''}{high}"
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool | np.bool_)
    if not whole or value < low or value > high:
        raise InputError(f"{name} must be {allowed}, got {shown(value)}")
    return int(value)


def real(name: str, value: Any) -> float:
    """Check that `value` is a number, and not NaN."""
    try:
        number = math.nan if isinstance(value, str | bytes | bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if math.isnan(number):
        raise InputError(f"{name} must be a number, got {shown(value)}")
    return number


def nonnegative(name: str, value: Any) -> float:
    """Check that `value` is a number of at least 0 (infinity is one)."""
    number = real(name, value)
    if number < 0:
        raise InputError(f"{name} must be at least 0, got {shown(value)}")
    return number


def delta(value: Any) -> float:
    """Check a delta: a number in [0, 1]."""
    number = real("delta", value)
    if not 0 <= number <= 1:
        raise InputError(f"delta must be between 0 and 1, got {shown(value)}")
    return number


def confidence(value: Any) -> float:
    """Check a confidence: a number strictly between 0 and 1."""
    number = real("confidence", value)
    if not (0 < number < 1 and 1 - number < 1):
        raise InputError(f"confidence must be strictly between 0 and 1, got {shown(value)}")
    return number


def adjacency(value: Any) -> str:
    """Check the name of an adjacency."""
    if value not in ADJACENCIES:
        allowed = ", ".join(map(repr, ADJACENCIES))
        raise InputError(
            f"adjacency must be one of {allowed}, got {shown(value)}{nearest(value, ADJACENCIES)}"
        )
    return str(value)


def vector(name: str, values: Any, *, infinite: bool = False) -> Floats:
    """Check a one-dimensional sequence of numbers, none NaN; `infinite` lets infinities pass."""
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


def two_valued(name: str, values: Any) -> Hits:
    """Check a vector of booleans, 0/1 or -1/+1, and return it as booleans."""
    array = vector(name, values)
    negative = bool((array == -1).any())
    low = -1 if negative else 0
    bad = (array != 1) & (array != low)
    if bad.any():
        where = int(np.argmax(bad))
        raise InputError(f"{name} must hold 0/1, -1/+1 or booleans, got {array[where]:g} at position {where}")
    return np.asarray(array == 1)


def fair_chance(heads: int, tosses: int) -> float:
    """The probability that fair coins show as uneven a split, or a more uneven one.

    >>> fair_chance(10, 10) == 2 * 0.5**10
    True
    """
    from scipy import special

    larger = max(heads, tosses - heads)
    return min(1.0, 2 * float(special.betainc(larger, tosses - larger + 1, 0.5)))


def bits(values: Any) -> Bits:
    """Check hidden bits and return them as -1/+1: what fair coins hardly show is a warning or an error.

    The order of the list is no evidence against coins (members first is usual), unless it alternates.
    """
    included = two_valued("bits", values)
    if len(included) == 0:
        raise InputError("bits must hold at least one element, got none")
    _require_fair_split(included)
    if len(included) >= _ALTERNATING and (included[1::2] != included[: len(included) // 2 * 2 : 2]).all():
        warnings.warn(
            f"bits differ within every pair of neighbours over {len(included)} elements (or alternate "
            f"strictly), as if one of two had always been included: that is no coin; {_HOW_TO_TOSS}",
            CoinWarning,
            stacklevel=3,
        )
    else:
        _require_coins_of_their_own(included)
    return np.where(included, 1, -1).astype(np.int8)


def _require_coins_of_their_own(included: Hits) -> None:
    """Refuse several rows for each canary, next to each other or block by block.

    Rows of g to a canary come in runs whose lengths are multiples of g. Fair coins as tossed show that in 41
    or more runs with probability below 3^-40; listed by groups, members first in each, below 2^-20, because
    the two runs of every group must fit. The same goes for a list that repeats a block of so many runs.
    """
    total = len(included)
    ends = np.append(np.flatnonzero(included[1:] != included[:-1]) + 1, total)
    if len(ends) < _FEWEST_RUNS:
        return
    shared = int(np.gcd.reduce(np.diff(ends, prepend=0)))
    if shared > 1:
        raise UnfairCoinsError(
            f"bits must be independent fair coins, got {len(ends)} runs whose lengths are all multiples of "
            f"{shared}, as if {shared} rows shared a coin; {_ONE_ROW}"
        )
    small = [divisor for divisor in range(2, math.isqrt(total) + 1) if total % divisor == 0]
    for period in sorted({*small, *(total // divisor for divisor in small)}):
        runs = int(np.searchsorted(ends, period))
        if runs >= _FEWEST_RUNS and (included[period:] == included[:-period]).all():
            raise UnfairCoinsError(
                f"bits must be independent fair coins, got {total} that repeat the same {period} again and "
                f"again, as if {total // period} rows shared a coin; {_ONE_ROW}"
            )


def require_fair_rounds(revealed: Bits) -> None:
    """Check bits in the order in which rounds reveal them: an order made with sight of them tells them.

    For fair coins and rounds made without them, each two neighbours differ by a fair coin, independently.
    """
    included = revealed > 0
    _require_fair_split(included)
    changes, pairs = int((included[1:] != included[:-1]).sum()), len(included) - 1
    chance = fair_chance(changes, pairs) if pairs > 0 else 1.0
    if chance < IMPOSSIBLE:
        raise InputError(
            f"rounds must be made without sight of the bits, got an order in which the bits change {changes} "
            f"times in {pairs} (fair coins: probability {chance:.1g}); shuffle a list sorted by the bits"
        )


def sorted_by_bits(hidden: Bits) -> bool:
    """Whether a list is in an order that fair coins cannot explain: its positions tell the bits."""
    pairs = len(hidden) - 1
    return pairs > 0 and fair_chance(int((hidden[1:] != hidden[:-1]).sum()), pairs) < IMPOSSIBLE


def _require_fair_split(included: Hits) -> None:
    total, ones = len(included), int(included.sum())
    chance = fair_chance(ones, total)
    seen = f"{ones} included and {total - ones} excluded, which fair coins show with probability {chance:.1g}"
    if chance < IMPOSSIBLE:
        raise UnfairCoinsError(f"bits must be independent fair coins, got {seen}; {_HOW_TO_TOSS}")
    if chance < _UNLIKELY:
        warnings.warn(
            f"bits must be independent fair coins, got {seen}; unless that was chance, nothing is proved: "
            f"{_HOW_TO_TOSS}",
            CoinWarning,
            stacklevel=4,
        )


def generator(rng: Any, purpose: int) -> np.random.Generator:
    """Make a generator from a seed, a SeedSequence or a Generator (None: fresh).

    Its stream depends on `purpose`: a seed that was also used to flip the bits must not break ties by
    the same random numbers.
    """
    if isinstance(rng, np.random.Generator):
        sequence = np.random.SeedSequence(int(rng.integers(2**63)))
    elif isinstance(rng, np.random.SeedSequence):
        sequence = rng
    else:
        seed = None if rng is None else integer("rng", rng, 0, 2**63)
        sequence = np.random.SeedSequence(seed)
    own = np.random.SeedSequence(sequence.entropy, spawn_key=(*sequence.spawn_key, purpose))
    return np.random.default_rng(own)


def hits(values: Any) -> Hits:
    """Check the right and wrong guesses of an audit: at least one, two-valued."""
    seen = two_valued("hits", values)
    if len(seen) == 0:
        raise InputError("hits must hold at least one guess, got none")
    return seen


def elements(value: Any, guesses: int) -> int:
    """Check the number of elements: by default one for each guess, never fewer."""
    return guesses if value is None else integer("elements", value, guesses)


def same_length(name: str, length: int, other: str, expected: int) -> None:
    """Check that two sequences are equally long."""
    if length != expected:
        raise InputError(f"{name} must be as long as {other}, got {length} and {expected}")


def assign(instance: object, **values: Any) -> None:
    """Set the fields of a frozen dataclass once; arrays are copied and become read-only."""
    for name, value in values.items():
        stored = value
        if isinstance(value, np.ndarray):
            stored = value.copy()
            stored.flags.writeable = False
        object.__setattr__(instance, name, stored)
