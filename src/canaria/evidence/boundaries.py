"""Boundaries: how extreme a count at a look is, which counts are as extreme, and flips that reach them."""

import math
from typing import Final

import numpy as np

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


def scores(counts: Integers, looks: Integers, epsilon: Numbers, budget: Numbers, mean: Numbers) -> Floats:
    """Tail, plus what delta is charged for an excess over the mean at the claim `mean`; infinite without."""
    tails = binomial.tail(counts, looks, epsilon)
    if not np.any(budget):
        return tails
    excess = counts - looks * binomial.success(mean)
    charged = budget / (PER_EXCESS * np.where(excess > 0, excess, 1.0))
    return np.where(excess > 0, tails + charged, np.inf)


def first_counts(
    looks: Integers, level: Numbers, epsilon: Numbers, budget: Numbers, mean: Numbers
) -> Integers:
    """For each look the first count whose score is at most the level, `looks + 1` if there is none.

    Both parts of the score must be at most the level, and a count at which both are at most half of it will
    do; bisection between the two.
    """
    if not np.any(budget):
        return least_counts(looks, level, epsilon, budget, mean)
    looks, level, epsilon, budget, mean = np.broadcast_arrays(looks, level, epsilon, budget, mean)
    low = least_counts(looks, level, epsilon, budget, mean) - 1
    high = least_counts(looks, np.asarray(level / 2), epsilon, budget, mean)
    while (apart := high - low > 1).any():
        middle = (low[apart] + high[apart]) // 2
        fine = scores(middle, looks[apart], epsilon[apart], budget[apart], mean[apart]) <= level[apart]
        low[apart], high[apart] = np.where(fine, low[apart], middle), np.where(fine, middle, high[apart])
    return np.asarray(high)


def least_counts(
    looks: Integers, level: Numbers, epsilon: Numbers, budget: Numbers, mean: Numbers
) -> Integers:
    """For each look the first count with both parts of its score at most the level, each by itself."""
    counts = _walks.smallest_counts(looks, level, epsilon)
    if not np.any(budget):
        return counts
    charged = looks * binomial.success(mean) + budget / (PER_EXCESS * level)
    enough = np.ceil(np.minimum(charged, looks + 1.0)).astype(np.int64)
    return np.asarray(np.maximum(counts, enough))


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
