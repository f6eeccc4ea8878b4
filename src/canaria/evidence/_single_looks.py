"""Claims that a ranking refutes by the tails of single looks, without a walk.

This is "Many claims at once" of Theorem 7. Both functions bound A + (1 - A) B / E[N] from above for many
claims at once, in arrays of looks by claims. A claim is refuted if the bound is at most the level. The first
bound is cheaper, the second closer.
"""

from typing import Final

import numpy as np

from canaria._core import binomial
from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.binomial import NOT_ZERO
from canaria.evidence.boundaries import PER_EXCESS, counts_below, first_counts, most_likely, scores

_LIKELY: Final = 0.4
"""The largest level for which `counts_below` is good."""
_SHARES: Final = np.array([0.4, 0.6, 0.75, 0.9])[:, None]
"""Numbers of flips at which E[N] is bounded, as shares of the smallest excess over a mean."""


def clearly_refuted(counts: Integers, grid: Integers, epsilons: Floats, budget: Floats, level: float) -> Hits:
    """Whether bounds on tails refute each claim; only one tail of each claim is computed.

    Let j* be the look at which a bound on the score is smallest, and tau' its score, so tau <= tau'.
    """
    looks = grid[:, None]
    excess = counts[:, None] - looks * binomial.success(epsilons)
    charged = budget / (PER_EXCESS * np.maximum(excess, NOT_ZERO))
    best = (most_likely(counts[:, None], looks, epsilons) + charged).argmin(axis=0)
    smallest = scores(counts[best], grid[best], epsilons, budget) * binomial.ROUND_UP
    possible = smallest <= min(level, _LIKELY)
    # A <= J' tau': no look is crossed more often than tau'. What is left of the level is for delta.
    smallest = np.where(possible, smallest, _LIKELY)
    boundary = counts_below(looks, smallest, epsilons, budget)
    reachable = boundary <= looks
    left = level - reachable.sum(axis=0) * smallest
    possible &= left > 0
    if budget.any():
        # E[N] >= (f + 1) Pr[N > f], by Markov. The rule refutes if B / E[N] is at most what is left, so f + 1
        # is 1.5 B / left: this has room for a Pr[N > f] down to two thirds.
        flips = np.maximum(np.ceil(1.5 * budget / np.where(possible, left, 1.0)) - 1, 0)
        lowered = (most_likely(boundary - flips, looks, epsilons) * reachable).sum(axis=0)
        left -= budget / ((flips + 1) * np.maximum(1 - lowered, NOT_ZERO))
    return np.asarray(possible & (left >= level * (1 - 1 / binomial.ROUND_UP)))


def surely_refuted(counts: Integers, grid: Integers, epsilons: Floats, budget: Floats, level: float) -> Hits:
    """Whether A' + B / sum_i (f_i - f_{i-1}) Pr[N > f_i] refutes each claim, by tails at single looks."""
    looks = grid[:, None]
    smallest = scores(counts[:, None], looks, epsilons, budget).min(axis=0)
    possible = smallest <= level
    smallest = np.where(possible, smallest, 1.0) * binomial.ROUND_UP
    boundary = first_counts(looks, smallest, epsilons, budget)
    reachable = boundary <= looks
    # A' is the union bound, less the least chance of being above the boundary at both of two neighbouring
    # looks, which the union bound counts twice.
    crossed = binomial.tail(boundary, looks, epsilons) * reachable
    again = binomial.tail(np.diff(boundary, axis=0), np.diff(looks, axis=0), epsilons)
    twice = (crossed[:-1] * again * reachable[1:]).sum(axis=0)
    chances = crossed.sum(axis=0) * binomial.ROUND_UP - twice / binomial.ROUND_UP**2
    if budget.any():
        # Pr[N > f] falls with f, so any f_1 < f_2 < ... bound E[N] from below.
        excess = np.where(reachable, boundary - looks * binomial.success(epsilons), np.inf).min(axis=0)
        flips = np.maximum(1, np.rint(_SHARES * np.minimum(excess, looks[-1])).astype(np.int64))
        lowered = (binomial.tail(boundary - flips[:, None], looks, epsilons) * reachable).sum(axis=1)
        stays = np.maximum(1 - lowered * binomial.ROUND_UP, 0.0)
        fewest = (np.diff(flips, axis=0, prepend=-1) * stays).sum(axis=0)
        chances = chances + budget / np.maximum(fewest, NOT_ZERO)
    return np.asarray(possible & (chances * binomial.ROUND_UP <= level))
