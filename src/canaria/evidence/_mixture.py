"""The wealth of bets on every stake at once: its logarithm, and where along a path it can be largest."""

import math
from typing import Final

import numpy as np
from scipy import special

from canaria._core import binomial, effort
from canaria._core.arrays import Floats, Hits, Integers, Numbers

_QUICKLY: Final = 0.9


def log_mixture(correct: Numbers, taken: Numbers, epsilon: Numbers) -> Floats:
    """Ln of the average over q in [p, 1] of q^h (1-q)^m / (p^h (1-p)^m).

    The integral of q^h (1-q)^m over [p, 1] is an incomplete beta function, and its complete part
    over p^h (1-p)^m is 1 / ((h + m + 1) Pr[Binomial(h + m, p) = h]).
    """
    wrong = binomial.failure(epsilon)
    possible = np.where(wrong > 0, wrong, 0.5)
    effort.spend(2 * effort.CALL)
    effort.spend_on_tails(correct, taken, wrong)
    with np.errstate(divide="ignore"):
        share = np.log(special.betainc(taken - correct + 1.0, correct + 1.0, possible))
    log_ratio = share - np.log(possible * (taken + 1.0)) - binomial.log_pmf(correct, taken, epsilon)
    return np.where(wrong > 0, log_ratio, 0.0)


def corners(hits: Hits) -> tuple[Integers, Integers]:
    """Right guesses and guesses at the corners of the convex hull of the path.

    Ln of the mixture is a logarithm of an integral of exponentials of functions linear in hits and misses, so
    it is convex in them, and largest at a corner. There are O(n^(2/3)) of them.
    """
    effort.spend(effort.CALL + 10 * effort.RATIO * len(hits))
    guesses, right = np.arange(1, len(hits) + 1), np.cumsum(hits, dtype=np.int64)
    places = np.unique(np.concatenate([_above(guesses, right), _above(guesses, -right)]))
    return right[places], guesses[places]


def _above(x: Integers, y: Integers) -> Integers:
    """Which points, x rising, are corners of the hull seen from above.

    One on or below the line between two others is none, so many can be left out at once; when that goes
    slowly, one by one.
    """
    kept, before = np.arange(len(x)), 2 * len(x)
    while 2 < len(kept) < _QUICKLY * before:
        before = len(kept)
        run, rise = np.diff(x[kept]), np.diff(y[kept])
        kept = kept[np.concatenate([[True], rise[:-1] * run[1:] > rise[1:] * run[:-1], [True]])]
    effort.spend(20 * effort.RATIO * len(kept))
    corners: list[tuple[int, int, int]] = []
    for point in zip(x[kept].tolist(), y[kept].tolist(), kept.tolist(), strict=True):
        while len(corners) > 1 and _is_below(corners[-1], corners[-2], point):
            corners.pop()
        corners.append(point)
    return np.array([place for _, _, place in corners])


def _is_below(middle: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...]) -> bool:
    """Whether a point is on or below the line between two others."""
    return (middle[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (middle[0] - left[0])


def most_lost(guesses: int) -> float:
    """At least what ln of the mixture can fall to below 0.

    Of q in [p, 1] the share 1 / (m + 1) next to p loses less than a factor e in m misses.
    """
    return 1 + math.log1p(guesses)
