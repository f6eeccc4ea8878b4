"""The boundary of a ranking: which count at each look is as extreme as the counts seen (Theorem 7).

The score of a count c at look j is its tail Pr[Binomial(k_j, p) >= c] plus B / (10 (c - k_j p)), a charge for
delta. With tau the smallest score of the looks, the boundary c_j is the first count at look j with a score of
at most tau.
"""

import math
from typing import Final

import numpy as np
from scipy import special

from canaria._core import binomial
from canaria._core.arrays import Floats, Integers, Numbers
from canaria._core.binomial import NOT_ZERO
from canaria.evidence import _walks

PER_EXCESS: Final = 10.0
"""A look with an excess of x hits over their mean is charged B / (10 x) for delta; 6 to 20 are as good."""
_ALL_FLIPS: Final = 12
"""Up to this many flips, all boundaries are walked to."""
MOST_BOUNDARIES: Final = 10
"""The number of boundaries that are walked to if there are more than `_ALL_FLIPS`."""
_FLIPS_FROM, _FLIPS_TO = -2.5, 1.2
"""Nearly all walks need their last flip between these standard deviations from the easiest look."""
_MARGIN, _SMALL, _UP_TO = 1e-6, 0.1, 10**8
"""Rounding adds less than the first to deviations above the second, for up to this many trials."""


def scores(counts: Integers, looks: Integers, epsilon: Numbers, budget: Numbers) -> Floats:
    """Tail, plus what delta is charged for the excess over the mean; infinite without an excess."""
    tails = binomial.tail(counts, looks, epsilon)
    if not np.any(budget):
        return tails
    excess = counts - looks * binomial.success(epsilon)
    charged = budget / (PER_EXCESS * np.where(excess > 0, excess, 1.0))
    return np.where(excess > 0, tails + charged, np.inf)


def first_counts(looks: Integers, level: Numbers, epsilon: Numbers, budget: Numbers) -> Integers:
    """For each look the first count whose score is at most the level, `looks + 1` if there is none.

    Bisection between two counts: one at which the tail or the charge alone is above the level, and one at
    which the level is split into a share for the charge and the rest for the tail.
    """
    # No smaller count will do: its tail or its charge alone is above the level.
    least = _least_counts(looks, level, level, epsilon, budget)
    if not np.any(budget):
        return least
    looks, level, epsilon, budget = np.broadcast_arrays(looks, level, epsilon, budget)
    # The share is about the charge at `least`, so that the two ends are close together.
    excess = np.maximum(least - looks * binomial.success(epsilon), budget / (PER_EXCESS * level) + NOT_ZERO)
    share = np.clip(budget / (PER_EXCESS * excess), level * _MARGIN, level / 2)
    low, high = least - 1, _least_counts(looks, level - share, share, epsilon, budget)
    while (apart := high - low > 1).any():
        middle = (low[apart] + high[apart]) // 2
        fine = scores(middle, looks[apart], epsilon[apart], budget[apart]) <= level[apart]
        low[apart], high[apart] = np.where(fine, low[apart], middle), np.where(fine, middle, high[apart])
    return np.asarray(high)


def _least_counts(
    looks: Integers, tail: Numbers, charge: Numbers, epsilon: Numbers, budget: Numbers
) -> Integers:
    """For each look the first count whose tail is at most `tail` and whose charge is at most `charge`."""
    counts = _walks.smallest_counts(looks, tail, epsilon)
    if not np.any(budget):
        return counts
    charged = looks * binomial.success(epsilon) + budget / (PER_EXCESS * charge)
    enough = np.ceil(np.minimum(charged, looks + 1.0)).astype(np.int64)
    return np.asarray(np.maximum(counts, enough))


def deviations(counts: Numbers, looks: Integers, epsilon: Numbers) -> Floats:
    """G(c), the signed root of twice the relative entropy of c right guesses out of k, for 0 <= c <= k.

    With Q the upper tail of the normal law, Q(G(c)) <= Pr[Binomial(k, p) >= c] <= Q(G(c - 1)) for
    1 <= c <= k (Zubkov and Serov 2013).
    """
    right, wrong = looks * binomial.success(epsilon), looks * binomial.failure(epsilon)
    rest = looks - counts
    entropy = special.xlogy(counts, counts / right) + special.xlogy(rest, rest / wrong)
    return np.asarray(np.copysign(np.sqrt(2 * np.maximum(entropy, 0.0)), counts - right))


def most_likely(counts: Numbers, looks: Integers, epsilon: Numbers) -> Floats:
    """Upper bounds on Pr[Binomial(k, p) >= c] for c <= k, much cheaper than tails."""
    # Pr[Binomial(k, p) >= c] <= Q(G(c - 1)). Raised by the margin, the result is above Q also as computed.
    known = deviations(np.maximum(counts - 1, 0), looks, epsilon)
    tails = np.maximum(special.ndtr(_MARGIN - known), binomial.SMALLEST_TAIL)
    return np.where((counts >= 1) & (known > _SMALL) & (looks <= _UP_TO), tails, 1.0)


def counts_below(looks: Integers, level: Floats, epsilon: Floats, budget: Numbers) -> Integers:
    """For each look a count that is at most that of `first_counts`, without tails, for levels up to 0.4.

    A count c has a tail above the level at c - 1 if G(c - 1) is below Q^-1(level). Such a c is found by one
    step of Newton's method from the normal approximation, which is mostly less than one count away. If it
    turns out not to be one, the first count above the mean is taken, as its charge is infinite below.
    """
    wrong = binomial.failure(epsilon)
    mean, misses, limit = looks * binomial.success(epsilon), looks * wrong, -special.ndtri(level) - _MARGIN
    spread, skewness = np.sqrt(mean * wrong), (limit**2 - 1) * (2 * wrong - 1) / 6
    fewer = np.clip(misses - limit * spread - skewness, misses / 8, misses - np.minimum(misses / 8, spread))
    reached = deviations(looks - fewer, looks, epsilon)
    # By Newton's method in the number of misses: G^2 / 2 has the slope ln(c / (k - c)) - epsilon in c.
    fewer += (reached - limit) * reached / (np.log((looks - fewer) / fewer) - epsilon)
    counts = np.clip(np.floor(looks - fewer), 1, looks)
    too_likely = deviations(counts - 1, looks, epsilon) < limit
    counts = np.where(too_likely, counts, np.floor(mean) + 1)
    never = deviations(looks, looks, epsilon) < limit
    enough = np.ceil(mean + budget / (PER_EXCESS * level))
    counts = np.where(never, looks + 1, np.maximum(counts, enough))
    return np.where(looks <= _UP_TO, np.minimum(counts, looks + 1), 0).astype(np.int64)


def mean_to_reach(boundary: Integers, looks: Integers, epsilon: float, tails: Floats) -> float:
    """The least of E[(c_j - S_j)_+] over the looks, which E[N] cannot exceed, as N is the least over looks.

    For S ~ Binomial(k, p) it is (c - k p) (1 - Pr[S >= c]) + (1 - p) c Pr[S = c].
    """
    chances = np.exp(binomial.log_pmf(boundary, looks, epsilon))
    excess = boundary - looks * binomial.success(epsilon)
    return float((excess * (1 - tails) + binomial.failure(epsilon) * boundary * chances).min())


def flips_that_matter(looks: Integers, boundary: Integers, epsilon: float) -> Integers:
    """The numbers of flips f at which Pr[N > f] is computed: all of them if few, else some that matter.

    Pr[N > f] falls with f, so all f between two such numbers count with the larger one. That rounds E[N]
    down least if the numbers are where Pr[N > f] falls: about the excess of the easiest look.
    """
    top = int(boundary.min())
    if top <= _ALL_FLIPS:
        return np.arange(max(top, 1))
    wrong = float(binomial.failure(epsilon))
    excess, spread = boundary - looks * (1 - wrong), np.sqrt(looks * wrong * (1 - wrong))
    low = min(max(1.0, math.floor((excess + _FLIPS_FROM * spread).min())), top - 1)
    high = min(max(low, math.ceil((excess + _FLIPS_TO * spread).min())), top - 1)
    spaced = np.rint(np.linspace(low, high, MOST_BOUNDARIES - 1)).astype(np.int64)
    return np.unique(np.append(0, spaced))
