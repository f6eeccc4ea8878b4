"""Boundaries: how extreme a count at a look is, which counts are as extreme, and flips that reach them."""

import math
from typing import Final

import numpy as np
from scipy import special

from canaria._core import binomial
from canaria._core.arrays import Floats, Integers, Numbers
from canaria.evidence import _walks

PER_EXCESS: Final = 10.0
"""A look with an excess of x hits over their mean is charged B / (10 x) of delta; 6 to 20 are as good."""
_ALL_FLIPS: Final = 12
FLIPS: Final = 10
"""So many boundaries are walked to where there are more than `_ALL_FLIPS`."""
_FLIPS_FROM, _FLIPS_TO = -2.5, 1.2
"""Between these deviations from the easiest look nearly all walks need their last flip."""

_TINY: Final = 1e-300
_MARGIN, _SMALL, _UP_TO = 1e-6, 0.1, 10**8
"""More than rounding adds to deviations above the second, with so many trials; no bounds otherwise."""


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

    Tail and charge must each be at most the level. A count will do if its charge is at most a share, and its
    tail at most the rest: the charge of the first such count, or half of the level. Bisection between them.
    """
    # No smaller count will do: its tail or its charge alone is above the level.
    least = _least_counts(looks, level, level, epsilon, budget)
    if not np.any(budget):
        return least
    looks, level, epsilon, budget = np.broadcast_arrays(looks, level, epsilon, budget)
    excess = np.maximum(least - looks * binomial.success(epsilon), budget / (PER_EXCESS * level) + _TINY)
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
    """For each look the first count whose tail and charge are at most these."""
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
    known = deviations(np.maximum(counts - 1, 0), looks, epsilon)
    tails = np.maximum(special.ndtr(_MARGIN - known), binomial.SMALLEST_TAIL)
    return np.where((counts >= 1) & (known > _SMALL) & (looks <= _UP_TO), tails, 1.0)


def counts_below(looks: Integers, level: Floats, epsilon: Floats, budget: Numbers) -> Integers:
    """For each look a count that `first_counts` is not below, without tails, for levels up to 0.4.

    One step of Newton's method from the normal approximation is mostly less than one count away. If the
    count before is not surely too likely, the mean it is.
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
    """The least of E[(c_j - S_j)_+] over the looks, which E[N] cannot exceed."""
    chances = np.exp(binomial.log_pmf(boundary, looks, epsilon))
    excess = boundary - looks * binomial.success(epsilon)
    return float((excess * (1 - tails) + binomial.failure(epsilon) * boundary * chances).min())


def flips_that_matter(looks: Integers, boundary: Integers, epsilon: float) -> Integers:
    """Numbers of flips at which boundaries are walked to: all of them if few, else some that matter.

    Pr[N > f] falls with f, so that each stretch between two of them counts with its last.
    """
    top = int(boundary.min())
    if top <= _ALL_FLIPS:
        return np.arange(max(top, 1))
    wrong = float(binomial.failure(epsilon))
    excess, spread = boundary - looks * (1 - wrong), np.sqrt(looks * wrong * (1 - wrong))
    low = min(max(1.0, math.floor((excess + _FLIPS_FROM * spread).min())), top - 1)
    high = min(max(low, math.ceil((excess + _FLIPS_TO * spread).min())), top - 1)
    spaced = np.rint(np.linspace(low, high, FLIPS - 1)).astype(np.int64)
    return np.unique(np.append(0, spaced))
