"""The wealth of bets on every stake at once: its logarithm, and where along a path it can be largest."""

import math
from typing import Final

import numpy as np
from scipy import special

from canaria._core import binomial, effort
from canaria._core.arrays import Floats, Hits, Integers, Numbers

_QUICKLY: Final = 0.9
"""Points are left out all at once as long as a pass leaves at most this share of them."""
_BETA_ERROR: Final = 1e-9
"""Relative, of an incomplete beta function (proofs, Rounding 1)."""
_CHORDS: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 20.0, math.inf)
"""Ends of the chords, in units in which the integrand falls by a factor e; the last one reaches to p."""
_ALIKE: Final = 1e-9
"""Logarithms this close count as equal: a difference quotient would lose too many digits."""


def log_mixture(correct: Numbers, taken: Numbers, epsilon: Numbers, highest: Numbers = 1.0) -> Floats:
    """Ln of the average over q in [p, highest] of q^h (1-q)^m / (p^h (1-p)^m), from below (Theorem 11 (a)).

    The integral of q^h (1-q)^m over [p, 1] is B(h+1, m+1) Pr[Beta(h+1, m+1) >= p], and B(h+1, m+1) over
    p^h (1-p)^m is 1 / ((h + m + 1) Pr[Binomial(h + m, p) = h]). If `highest` is below 1, a second tail is
    subtracted. The two tails may be nearly equal, so the difference is lowered by their errors; if that
    leaves little, the integral by chords is larger (Theorem 11 (c)).
    """
    wrong = binomial.failure(epsilon)
    possible = np.where(wrong > 0, wrong, 0.5)
    beyond = np.asarray(1.0 - highest)
    effort.spend(2 * effort.CALL)
    effort.spend_on_tails(correct, taken, wrong)
    log_pmf = binomial.log_pmf(correct, taken, epsilon)
    above = special.betainc(taken - correct + 1.0, correct + 1.0, possible)
    capped = beyond > 0
    if np.any(capped):
        effort.spend_on_tails(correct, taken, beyond)
        effort.spend(effort.CALL + 10 * len(_CHORDS) * effort.RATIO * above.size)
        less = special.betainc(taken - correct + 1.0, correct + 1.0, beyond)
        above = np.where(capped, np.maximum(above * (1 - _BETA_ERROR) - less * (1 + _BETA_ERROR), 0.0), above)
    with np.errstate(divide="ignore"):
        log_ratio = np.log(above) - np.log((possible - beyond) * (taken + 1.0)) - log_pmf
    if np.any(capped):
        wrongs = np.asarray(taken - correct, dtype=np.float64)
        chords = _by_chords(correct, wrongs, possible, np.where(capped, beyond, possible / 2))
        log_ratio = np.where(capped, np.maximum(log_ratio, chords), log_ratio)
    return np.where(wrong > 0, log_ratio, 0.0)


def _by_chords(right: Numbers, wrong: Numbers, start: Floats, end: Floats) -> Floats:
    """Ln of the average of the likelihood ratio by chords, over failures 1 - q from `end` up to `start`.

    h ln q + m ln(1 - q) is concave, so it lies above its chords. It is largest at `end` and falls off from
    there by its slope, so there the chords are short.
    """
    slope = np.maximum(right / (1 - end) - wrong / end, 1 / (start - end))
    total, last = np.full(np.broadcast(slope, start).shape, -np.inf), _log_ratio(right, wrong, start, end)
    before = np.broadcast_to(end, total.shape)
    # A piece between two places adds its length times the mean of an exponential along its chord. With a the
    # difference of the logarithms at its ends, ln of that mean is the larger one plus ln((1 - e^-a) / a).
    for chord in _CHORDS:
        place = np.minimum(end + chord / slope, start)
        here = _log_ratio(right, wrong, start, place)
        apart = np.abs(last - here)
        mean = np.maximum(last, here) + np.where(
            apart > _ALIKE, np.log(-np.expm1(-np.maximum(apart, _ALIKE)) / np.maximum(apart, _ALIKE)), -apart
        )
        with np.errstate(divide="ignore"):
            total = np.logaddexp(total, mean + np.log((place - before) / (start - end)))
        before, last = place, here
    return total


def _log_ratio(right: Numbers, wrong: Numbers, claimed: Floats, failure: Floats) -> Floats:
    """Ln of q^h (1-q)^m / (p^h (1-p)^m), for 1 - p = `claimed` and 1 - q = `failure`."""
    gained = np.log1p((claimed - failure) / (1 - claimed))
    return np.asarray(right * gained + wrong * np.log(failure / claimed))


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
    """The points, with rising x, that are corners of the upper hull.

    A point on or below the line between two others is not a corner. Points below the line between their
    neighbours are left out all at once, again and again; when few are left out, the rest goes one by one.
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
