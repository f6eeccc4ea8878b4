"""P-values for the laws that conformance tests: two-sided, and uniform if the law is true.

Counts are discrete. Their p-values are made uniform by adding a random share of the count's own probability.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import special, stats

from canaria._core.arrays import Floats, Integers
from canaria.bounds.conformance import sidak


def normal_scores(law: Any, counts: Integers, rng: np.random.Generator) -> Floats:
    """Normal scores of counts under their laws, randomised by a share of each count's own probability."""
    # Both tails are computed, and the smaller one inverted: one minus a small tail loses its digits.
    at = law.pmf(counts) * rng.random(len(counts))
    below, above = law.cdf(counts - 1) + at, law.sf(counts) + (law.pmf(counts) - at)
    tails = np.clip(np.minimum(below, above), 1e-300, 0.5)
    return np.asarray(np.where(below < above, special.ndtri(tails), -special.ndtri(tails)))


def normal(score: float) -> float:
    """The two-sided p-value of a standard normal value."""
    return float(2 * special.ndtr(-abs(score)))


def chi_squared(value: float, freedom: int) -> float:
    """The two-sided p-value of a sum of `freedom` squares of standard normal values."""
    return min(1.0, float(2 * min(special.chdtr(freedom, value), special.chdtrc(freedom, value))))


def beta(share: Floats, own: Floats | float, rest: Floats | float) -> Floats:
    """Two-sided p-values of shares that are Beta(own, rest)."""
    share = np.clip(share, 0.0, 1.0)
    below, above = special.betainc(own, rest, share), special.betaincc(own, rest, share)
    return np.asarray(np.minimum(1.0, 2 * np.minimum(below, above)))


def smallest(tails: Floats | Sequence[float]) -> tuple[float, int]:
    """The smallest of independent p-values, corrected for their number, and its place."""
    least = int(np.argmin(tails))
    return sidak(float(tails[least]), len(tails)), least


def binomial(count: int, trials: int, chance: float, rng: np.random.Generator) -> float:
    """The two-sided p-value of a count, made uniform by a random share of its own probability."""
    if trials == 0:
        return float(rng.random())
    at = float(np.exp(stats.binom.logpmf(count, trials, chance))) * float(rng.random())
    below = float(special.bdtr(count - 1, trials, chance)) if count > 0 else 0.0
    above = float(special.bdtrc(count, trials, chance)) if count < trials else 0.0
    whole = float(np.exp(stats.binom.logpmf(count, trials, chance)))
    return min(1.0, 2 * min(below + at, above + whole - at))


def signed_sums(sums: Floats, trials: Integers, rng: np.random.Generator) -> Floats:
    """Two-sided p-values of sums of `trials` fair signs, made uniform in the same way."""
    # A sum s of T signs has (T + s) / 2 positive ones. By symmetry both tails are twice the upper one.
    more = (trials + np.abs(sums)) / 2
    beyond = np.where(more < trials, special.bdtrc(more, trials, 0.5), 0.0)
    at = np.exp(stats.binom.logpmf(more, trials, 0.5))
    both = np.where(sums == 0, 1.0, 2.0)
    return np.minimum(1.0, 2 * beyond + rng.random(len(sums)) * both * at)


def extreme_sum(size: float, trials: int, ties: int, rng: np.random.Generator) -> float:
    """The smallest p-value among `ties` sums of fair signs that all have the largest size."""
    # The smallest of `ties` uniform random numbers.
    drawn = -math.expm1(math.log1p(-float(rng.random())) / max(ties, 1))
    more = (trials + size) / 2
    beyond = float(special.bdtrc(more, trials, 0.5)) if more < trials else 0.0
    at = float(np.exp(stats.binom.logpmf(more, trials, 0.5)))
    return min(1.0, 2 * beyond + drawn * (1.0 if size == 0 else 2.0) * at)
