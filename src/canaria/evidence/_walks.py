"""Exact laws of sums of binomials: windows that hold all but a sliver, and boundary crossing.

A sliver that is left out is always added to the probability of the event, so that p-values err
upward.
"""

import math
from typing import Final

import numpy as np
from scipy import fft, special

from canaria._core import binomial, effort
from canaria._core.arrays import Floats, Integers, Numbers

SLIVER: Final = 1e-22
"""The probability that a window leaves out, added to every crossing; far below any level."""
_DIRECT: Final = 200_000
"""Up to this many products a convolution is made directly, without the error of Fourier transforms."""
_FFT_ERROR: Final = 1e-15
"""The total error of a convolution by transforms, measured as at most 6e-16 (proofs, Rounding 5)."""


def windows(trials: Integers, epsilon: float) -> list[tuple[int, Floats]]:
    """For each number of trials: (lowest count, probabilities) of Binomial(trials, p(epsilon)).

    Each window leaves out at most SLIVER by Bernstein's inequality; beyond 10^9 trials, where the law itself
    is not good enough, its probabilities are raised.
    """
    low, high = _reach(trials, epsilon)
    sizes = high - low + 1
    effort.spend(3 * effort.CALL + effort.RATIO * float(sizes.sum()))
    ends = np.cumsum(sizes)
    counts = np.arange(ends[-1]) - np.repeat(ends - sizes - low, sizes)
    chances = np.exp(binomial.log_pmf(counts, np.repeat(trials, sizes), epsilon))
    chances *= np.repeat(binomial.round_more(trials), sizes)
    return list(zip(low.tolist(), np.split(chances, ends[:-1]), strict=True))


def _reach(trials: Integers, epsilon: float) -> tuple[Integers, Integers]:
    """The lowest and the highest count of windows that leave out at most a sliver."""
    wrong, log_sliver = float(binomial.failure(epsilon)), math.log(2 / SLIVER)
    variance = trials * wrong * (1 - wrong)
    # Bernstein: Pr[|Y - kp| >= r] <= 2 exp(-r^2 / (2 (variance + r / 3))), solved for r.
    reach = log_sliver / 3 + np.sqrt(log_sliver**2 / 9 + 2 * log_sliver * variance)
    low = np.maximum(0, np.floor(trials * (1 - wrong) - reach)).astype(np.int64)
    high = np.minimum(trials, np.ceil(trials * (1 - wrong) + reach)).astype(np.int64)
    return low, high


def convolve(left: Floats, right: Floats) -> tuple[Floats, float]:
    """The convolution of two laws and a bound on the total absolute error."""
    products = len(left) * len(right)
    if products <= _DIRECT:
        effort.spend(effort.CALL + effort.PRODUCT * products)
        return np.convolve(left, right), 0.0
    size = len(left) + len(right) - 1
    padded = fft.next_fast_len(size, real=True)
    effort.spend(2 * effort.CALL + effort.TRANSFORM * padded)
    product = fft.irfft(fft.rfft(left, padded) * fft.rfft(right, padded), padded)[:size]
    return np.maximum(product, 0.0), _FFT_ERROR


def crossing_of(steps: list[tuple[int, Floats]], boundary: Integers) -> float:
    """Pr[Y_k >= c for some look (k, c)], for a walk Y whose steps between looks have the given laws.

    All looks must be such that they can be crossed. The walk goes from look to look: convolve with the law of
    the step, absorb what has crossed. Whatever is left out on the way is added as if it had crossed: a sliver
    for the window of each step, one for the lower end that is dropped at each look, and the error of
    transforms (Rounding 4 and 5).
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
        # Walks far below the boundary: together they weigh less than a sliver, and make `alive` long.
        thin = int(np.searchsorted(np.cumsum(alive), SLIVER))
        alive, lowest, crossed = alive[thin:], lowest + thin, crossed + SLIVER
        if len(alive) == 0:
            break
    return min(1.0, crossed)


def least_crossing(looks: Integers, epsilon: float) -> float:
    """The least that a crossing comes to: its slivers, and the error of a transform that is sure to be made.

    Where crossings are as rare, nine spreads of the walk, or half of its places, are always alive.
    """
    low, high = _reach(np.diff(looks), epsilon)
    alive = np.minimum(9 * _spreads(looks, epsilon), looks / 2)[:-1]
    transforms = bool((alive * (high - low) > _DIRECT).any())
    return len(looks) * SLIVER + transforms * _FFT_ERROR


def effort_of_crossing(looks: Integers) -> float:
    """The seconds that a crossing takes at most: a law spans 20 spreads, and what is alive 13."""
    steps = np.diff(looks, prepend=0)
    low, high = _reach(steps, 0.0)
    points = float((high - low).sum())
    alive = float(np.minimum(13 * _spreads(looks, 0.0), looks).sum())
    return 2 * effort.CALL * len(steps) + effort.LOG_PMF * points + effort.TRANSFORM * (points + alive)


def _spreads(looks: Integers, epsilon: float) -> Floats:
    """The standard deviations of the walk at its looks."""
    wrong = float(binomial.failure(epsilon))
    return np.asarray(np.sqrt(looks * wrong * (1 - wrong)))


def smallest_counts(looks: Integers, level: Numbers, epsilon: Numbers) -> Integers:
    """For each k the smallest c with Pr[Binomial(k, p(epsilon)) >= c] <= level (k + 1 if none).

    Arguments are broadcast. It is mostly one of the two counts about the normal approximation corrected for
    skewness; where three tails do not show that, bisection.
    """
    wrong = binomial.failure(epsilon)
    effort.spend(2 * effort.CALL + 10 * effort.RATIO * np.size(looks + level + epsilon))
    # The normal quantile with its first Cornish-Fisher term.
    deviations = -special.ndtri(np.minimum(level, 0.5))
    spread = np.sqrt(looks * wrong * (1 - wrong))
    skewness = (deviations**2 - 1) * (2 * wrong - 1) / 6
    centre = np.ceil(looks * (1 - wrong) + deviations * spread + skewness + 0.5)
    never = np.exp(looks * np.log1p(-wrong)) > level
    # If the candidate is rare and the count two below it is not, the answer is the candidate or the one
    # below.
    likely = np.where(never, looks + 1, np.clip(centre, 2, looks + 1)).astype(np.int64)
    near = likely - np.arange(2, -1, -1).reshape(3, *likely.ndim * [1])
    rare = binomial.tail(near, looks, epsilon) <= level
    found = rare[-1] & ~rare[0]
    high = np.where(found, np.where(rare[1], near[1], near[2]), looks + 1)
    low = np.where(found, high - 1, 0)
    looks, level, epsilon = np.broadcast_arrays(looks, level, epsilon)
    while (apart := high - low > 1).any():
        middle = (low[apart] + high[apart]) // 2
        rare = binomial.tail(middle, looks[apart], epsilon[apart]) <= level[apart]
        low[apart], high[apart] = np.where(rare, low[apart], middle), np.where(rare, middle, high[apart])
    return high
