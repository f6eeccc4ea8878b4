"""Exact laws of sums of binomials: windows that hold all but a sliver, and boundary crossing.

A sliver that is left out is always added to the probability of the event, so that p-values err
upward.
"""

import math
from typing import Any, Final

import numpy as np
from scipy import fft, special

from canaria._validate import Floats, Integers
from canaria.evidence import _binomial

SLIVER: Final = 1e-22
_LOG_SLIVER: Final = math.log(2 / SLIVER)
_DIRECT: Final = 200_000
_FFT_ERROR: Final = 1e-15


def windows(trials: Integers, epsilon: float) -> list[tuple[int, Floats]]:
    """For each number of trials: (lowest count, probabilities) of Binomial(trials, p(epsilon)).

    Each window leaves out at most SLIVER by Bernstein's inequality.
    """
    wrong = float(_binomial.failure(epsilon))
    variance = trials * wrong * (1 - wrong)
    reach = _LOG_SLIVER / 3 + np.sqrt(_LOG_SLIVER**2 / 9 + 2 * _LOG_SLIVER * variance)
    low = np.maximum(0, np.floor(trials * (1 - wrong) - reach)).astype(np.int64)
    high = np.minimum(trials, np.ceil(trials * (1 - wrong) + reach)).astype(np.int64)
    sizes = high - low + 1
    ends = np.cumsum(sizes)
    counts = np.arange(ends[-1]) - np.repeat(ends - sizes - low, sizes)
    chances = np.exp(_binomial.log_pmf(counts, np.repeat(trials, sizes), epsilon))
    return list(zip(low.tolist(), np.split(chances, ends[:-1]), strict=True))


def convolve(left: Floats, right: Floats) -> tuple[Floats, float]:
    """The convolution of two laws and a bound on the total absolute error."""
    if len(left) * len(right) <= _DIRECT:
        return np.convolve(left, right), 0.0
    size = len(left) + len(right) - 1
    padded = fft.next_fast_len(size, real=True)
    product = fft.irfft(fft.rfft(left, padded) * fft.rfft(right, padded), padded)[:size]
    return np.maximum(product, 0.0), _FFT_ERROR


def crossing(looks: Integers, boundary: Integers, epsilon: float) -> float:
    """Pr[Y_k >= c for some look (k, c)], Y_k the sum of k independent Bernoulli(p(epsilon))."""
    reachable = boundary <= looks
    if not reachable.any():
        return 0.0
    return crossing_of(windows(np.diff(looks[reachable], prepend=0), epsilon), boundary[reachable])


def crossing_of(steps: list[tuple[int, Floats]], boundary: Integers) -> float:
    """The same for a walk whose steps between looks have the given laws, and looks that can all be crossed.

    The walk goes from look to look: convolve with the law of the step, absorb what has crossed.
    """
    if boundary.min() <= 0:
        return 1.0
    alive, lowest, crossed = np.ones(1), 0, len(boundary) * SLIVER
    for (low, chances), limit in zip(steps, boundary.tolist(), strict=True):
        alive, error = convolve(alive, chances)
        lowest += low
        kept = max(0, limit - lowest)
        crossed += float(alive[kept:].sum()) + error
        alive = alive[:kept]
        thin = int(np.searchsorted(np.cumsum(alive), SLIVER))
        alive, lowest, crossed = alive[thin:], lowest + thin, crossed + SLIVER
        if len(alive) == 0:
            break
    return min(1.0, crossed)


def smallest_counts(looks: Integers, level: Any, epsilon: Any) -> Integers:
    """For each k the smallest c with Pr[Binomial(k, p(epsilon)) >= c] <= level (k + 1 if none).

    Arguments are broadcast. It is mostly one of the two counts about the normal approximation corrected for
    skewness; where three tails do not show that, bisection.
    """
    wrong = _binomial.failure(epsilon)
    deviations = -special.ndtri(np.minimum(level, 0.5))
    spread = np.sqrt(looks * wrong * (1 - wrong))
    skewness = (deviations**2 - 1) * (2 * wrong - 1) / 6
    centre = np.ceil(looks * (1 - wrong) + deviations * spread + skewness + 0.5)
    never = np.exp(looks * np.log1p(-wrong)) > level
    likely = np.where(never, looks + 1, np.clip(centre, 2, looks + 1)).astype(np.int64)
    near = likely - np.arange(2, -1, -1).reshape(3, *likely.ndim * [1])
    rare = _binomial.tail(near, looks, epsilon) <= level
    found = rare[-1] & ~rare[0]
    high = np.where(found, np.where(rare[1], near[1], near[2]), looks + 1)
    low = np.where(found, high - 1, 0)
    looks, level, epsilon = np.broadcast_arrays(looks, level, epsilon)
    while (apart := high - low > 1).any():
        middle = (low[apart] + high[apart]) // 2
        rare = _binomial.tail(middle, looks[apart], epsilon[apart]) <= level[apart]
        low[apart], high[apart] = np.where(rare, low[apart], middle), np.where(rare, middle, high[apart])
    return high


def greedy_flips(crossings: Floats, lowered: Integers, budget: float) -> tuple[float, int]:
    """Spend the budget of flips on the cheapest misses (the greedy delta rule).

    `crossings[i]` is the rejection probability after `lowered[i]` flips, rising. What is newly rejected
    between two entries, or after the last, is charged the fewest flips that it can have needed. Returns the
    probability, and the entry after which the budget runs out: were later ones higher, it would be the same.
    """
    prices = lowered + 1
    costs = np.append(0.0, np.cumsum(np.diff(crossings) * prices[:-1]))
    last = int(np.searchsorted(costs[1:], budget))
    return float(crossings[last] + (budget - costs[last]) / prices[last]), last
