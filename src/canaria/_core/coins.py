"""Checks that hidden bits look like fair coins. Other bits cause a warning or an error.

The order of a list is no evidence against fair coins: lists are often sorted by membership or by class. It
matters if several rows share a coin, or if a game reveals bits in that order.
"""

import math
import warnings
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core.arrays import Bits, Hits
from canaria._core.checks import two_valued
from canaria._core.errors import InputError

IMPOSSIBLE: Final = 1e-6
"""Bits with a smaller probability under fair coins are refused, in one of a million honest audits."""
_UNLIKELY: Final = 1e-3
_MATCHED: Final = 40
"""With this many elements, strictly alternating neighbours cause a warning: 20 coins, about 1e-6."""
_FEWEST_RUNS: Final = 41
"""See `_require_coins_of_their_own`."""
_HOW_TO_TOSS: Final = (
    "toss one fair coin per canary, before training and independently of everything else, and include the "
    "canary only on heads (canaria.plant does)"
)
_ONE_ROW: Final = "give one row per canary, such as the mean of its scores (another order does not help)"


class UnfairCoinsError(InputError):
    """Raised for hidden bits that fair coins produce less than once in a million audits."""


class CoinWarning(UserWarning):
    """Issued for hidden bits that fair coins rarely produce.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> from canaria import audit_scores
        >>> included = np.arange(200) < 128  # fair coins rarely show 128 heads in 200
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     bound = audit_scores(np.random.default_rng(0).normal(size=200), included, rng=0)
        >>> [warning.category.__name__ for warning in caught]
        ['CoinWarning']
    """

    __module__ = "canaria.game"


def fair_chance(heads: int, tosses: int) -> float:
    """The probability that fair coins produce a split at least this uneven.

    >>> fair_chance(10, 10) == 2 * 0.5**10
    True
    """
    larger = max(heads, tosses - heads)
    return min(1.0, 2 * float(special.betainc(larger, tosses - larger + 1, 0.5)))


def checked_bits(values: npt.ArrayLike) -> Bits:
    """Check hidden bits, and convert them to -1/+1."""
    included = two_valued("bits", values)
    if len(included) == 0:
        raise InputError("bits must hold at least one element, got none")
    _require_fair_split(included)
    if len(included) >= _MATCHED and (included[1::2] != included[: len(included) // 2 * 2 : 2]).all():
        warnings.warn(
            f"bits differ within every pair of neighbours over {len(included)} elements (or alternate "
            f"strictly), as if one of two had always been included: that is not a fair coin; {_HOW_TO_TOSS}",
            CoinWarning,
            stacklevel=3,
        )
    else:
        _require_coins_of_their_own(included)
    return np.where(included, 1, -1).astype(np.int8)


def require_fair_rounds(revealed: Bits) -> None:
    """Check bits in the order in which rounds reveal them. The order must not depend on the bits."""
    _require_fair_split(revealed > 0)
    changes, pairs = _changes(revealed)
    if sorted_by_bits(revealed):
        raise UnfairCoinsError(
            f"rounds must be made without sight of the bits, got an order in which the bits change {changes} "
            f"times in {pairs} (fair coins: probability {fair_chance(changes, pairs):.1g}); shuffle a list "
            "sorted by the bits"
        )


def sorted_by_bits(hidden: Bits) -> bool:
    """Whether the order of a list is practically impossible for independent coins.

    Positions in such a list reveal the bits.

    Under fair coins, each two neighbours differ with probability 1/2, independently.
    """
    changes, pairs = _changes(hidden)
    return pairs > 0 and fair_chance(changes, pairs) < IMPOSSIBLE


def _changes(hidden: Bits) -> tuple[int, int]:
    """The number of neighbours that differ, and the number of pairs of neighbours."""
    return int((hidden[1:] != hidden[:-1]).sum()), len(hidden) - 1


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


def _require_coins_of_their_own(included: Hits) -> None:
    """Refuse several rows per canary, adjacent or block by block.

    With g rows per canary, the lengths of all runs are multiples of g. Fair coins as tossed show that in 41
    or more runs with probability below 3^-40; listed by groups, members first in each, below 2^-20, because
    the two runs of every group must fit. The same holds for a list that repeats a block with that many runs.
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
