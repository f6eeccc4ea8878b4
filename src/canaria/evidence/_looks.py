"""The looks of each claim of a family: the numbers of guesses at which it is tested (Theorem 29).

Looks and shares are fixed by the family, the number of elements and a confidence. Validity does not depend on
how they are chosen. The main look of a claim is the number of guesses at which it can refute the smallest
leak. The other looks are for scores that fall off in another way than those of the family.
"""

import bisect
import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats, Integers
from canaria._core.kept import kept
from canaria.claims import Claim
from canaria.claims.families import Family, tested, written
from canaria.claims.lines import Lines
from canaria.evidence.base import Tally, lines_of

_MAIN, _SIDE, _ALL = 0.86, 0.05, 0.04
"""The shares of the main look, of each one three times as small or large, and of all guesses."""
_APART: Final = 3.0
"""The ratio of side looks to the main look."""
_FEWEST: Final = 6
"""The fewest guesses of a look."""
_RATIO: Final = 1.2
"""The ratio of neighbouring numbers of guesses that are tried."""
_NEAR: Final = 1.2
"""How far the main look may be, in logarithms, from that of the stretch before."""
_AS_GOOD: Final = 0.1
"""Numbers of guesses that need at most this much more leak are as good, in steps from a leak to the next."""
_ABOVE, _LEAST = 0.2, 0.3
"""A leak refutes if its mean misses are at most those that refute plus the first, or at most the second."""
_MOST_LOOKS: Final = 4
MOST_OF_LOOKS: Final = 1 + 2.0**-48
"""The most that the shares of looks may add up to: they are divided by their sum, which rounds."""
_METHOD: Final = 2
"""Another number for every change of how looks are chosen: plans are kept on disk."""


class Look(NamedTuple):
    """The first `taken` guesses, tested at a share of the error probability."""

    taken: int
    share: float


class Stretch(NamedTuple):
    """Claims of a family that share their looks, up to the one with the parameter `last`."""

    last: float
    looks: tuple[Look, ...]


def around(family: Family, elements: int, seen: Tally) -> list[Claim]:
    """The last tested claim that allows fewer right guesses on average than seen, and the next one."""
    share, right = seen.taken / elements, seen.correct / seen.taken
    claims = [family.claim(end) for end in tested(family, elements).tolist()]
    after = bisect.bisect_left(claims, right, key=lambda claim: float(lines_of(claim).mean_accuracy(share)))
    return claims[max(0, after - 1) : after + 1]


@lru_cache(maxsize=64)
def planned(family: Family, elements: int, confidence: float) -> tuple[Stretch, ...]:
    """The stretches of a family with their looks, the strongest claims first."""

    def made() -> Floats:
        return _plan(family, elements, confidence)

    def good(rows: Floats) -> bool:
        taken, shares = rows[:, 1::2], rows[:, 2::2]
        whole = (taken >= 0) & (taken <= elements) & (taken == np.rint(taken))
        fair = (shares >= 0).all() and (shares.sum(axis=1) <= MOST_OF_LOOKS).all()
        return bool(whole.all() and fair and np.array_equal(rows[:, 0], tested(family, elements)))

    # The name of a user's own family does not say what it is, so its plans are not kept on disk.
    built_in = type(family).__module__.startswith("canaria.")
    key = (_METHOD, written(family), elements, confidence)
    rows = kept("looks", key, made, good) if built_in else made()
    return tuple(
        Stretch(last, tuple(Look(int(k), w) for k, w in zip(row[::2], row[1::2], strict=True) if k > 0))
        for last, *row in rows.tolist()
    )


def _plan(family: Family, elements: int, confidence: float) -> Floats:
    """A row for each stretch: its last parameter, then its looks and their shares, filled up with 0."""
    ends = tested(family, elements)
    lines = [lines_of(family.claim(end)) for end in ends.tolist()]
    leaks = [lines_of(claim) for claim in family.leaks(elements)]
    rows = np.zeros((len(ends), 1 + 2 * _MOST_LOOKS))
    rows[:, 0] = ends
    mains = _main_looks(lines, leaks, elements, 1 - confidence)
    for row, of_end, main in zip(rows, lines, mains, strict=True):
        looks = np.ravel(_looks(of_end, elements, main, 1 - confidence))
        row[1 : 1 + len(looks)] = looks
    return rows


def _main_looks(lines: list[Lines], leaks: list[Lines], elements: int, level: float) -> list[int]:
    """The number of guesses of each stretch's main look, smoothed over its neighbours."""
    steps = math.floor(math.log(max(elements / _FEWEST, 1.0)) / math.log(_RATIO))
    sizes = np.unique(np.rint(_FEWEST * _RATIO ** np.arange(steps + 1)).astype(np.int64))
    sizes = np.minimum(sizes, elements)
    misses = 1 - np.stack([leak.mean_accuracy(sizes / elements) for leak in leaks])
    best: list[float] = []
    for of_end in lines:
        around = best[-1] if best else math.nan
        best.append(_best_size(of_end, elements, sizes, misses, level * _MAIN, around))
    # Neighbouring claims have about the same best number, and single ones jump by the rounding of counts:
    # claims without one are filled in by interpolation, and each takes the mean with those around it.
    logs = np.log(best)
    known = np.flatnonzero(np.isfinite(logs))
    if len(known) == 0:
        return [elements] * len(lines)
    filled = np.interp(np.arange(len(logs)), known, logs[known])
    smooth = [filled[max(0, i - 2) : i + 2].mean() for i in range(len(filled))]
    return [min(elements, max(1, round(math.exp(one)))) for one in smooth]


def _best_size(
    lines: Lines, elements: int, sizes: Integers, misses: Floats, level: float, around: float
) -> float:
    """The number of guesses at which the smallest leak refutes a claim; NaN if none does."""
    near = np.ones(len(sizes), dtype=np.bool_)
    if math.isfinite(around):
        near = np.abs(np.log(sizes / around)) < _NEAR
    needed = np.array(
        [
            _needed(lines, elements, size, of_size, level)
            for size, of_size in zip(sizes[near].tolist(), misses[:, near].T, strict=True)
        ]
    )
    if not np.isfinite(needed).any():
        return math.nan
    return float(np.exp(np.log(sizes[near][needed <= needed.min() + _AS_GOOD]).mean()))


def _needed(lines: Lines, elements: int, taken: int, misses: Floats, level: float) -> float:
    """The place of the first leak whose mean number of right guesses refutes the claim, interpolated."""
    least = _critical(lines, elements, taken, level)
    if not math.isfinite(least):
        return math.inf
    wanted = max(taken - least + _ABOVE, _LEAST) / taken
    enough = np.flatnonzero(misses <= wanted)
    if len(enough) == 0:
        return math.inf
    first = int(enough[0])
    if first == 0:
        return 0.0
    before, after = np.log(np.maximum(misses[first - 1 : first + 1], 1e-12))
    return float(first - 1 + (before - math.log(wanted)) / (before - after))


def _critical(lines: Lines, elements: int, taken: int, level: float) -> float:
    """The least number of right guesses that refutes, interpolated by p-values; infinite if none does.

    By the recursion alone, without the certificate: this only chooses looks, and validity does not depend on
    it.
    """
    from canaria.evidence import _curve_count

    if not _curve_count.excludes(elements, taken, taken, lines, level):
        return math.inf
    low, high = taken // 2 - 1, taken
    while high - low > 1:
        middle = (low + high) // 2
        if _curve_count.excludes(elements, taken, middle, lines, level):
            high = middle
        else:
            low = middle
    below, above = (
        math.log(_curve_count.published(elements, taken, right, lines)) for right in (high - 1, high)
    )
    return high - (math.log(level) - above) / (below - above) if below - above > 1e-9 else float(high)


def _looks(lines: Lines, elements: int, main: int, level: float) -> list[Look]:
    """The main look, those beside it that can refute at their share, and all guesses; shares add up to 1."""
    from canaria.evidence import _curve_count

    shares = {main: _MAIN}
    for size in (round(main / _APART), round(main * _APART)):
        fits = _FEWEST <= size <= elements / 1.5
        if fits and _curve_count.excludes(elements, size, size, lines, level * _SIDE):
            shares[size] = _SIDE
    if main * 1.5 < elements:
        shares[elements] = _ALL
    total = math.fsum(shares.values())
    return [Look(size, share / total) for size, share in shares.items()]
