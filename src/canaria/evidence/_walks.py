"""Exact laws of sums of binomials: windows that hold all but a sliver, and boundary crossing.

A sliver that is left out is always added to the probability of the event, so that p-values err
upward.
"""

import math
from functools import cached_property
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
_FINE: Final = 128
"""Points of a rough law for each of its standard deviations."""
_ROUGH_SLIVER, _OF_RAREST = 1e-16, 1e-6
"""A rough window leaves out the second times the rarest crossing that matters, or at least the first."""
_THINNED: Final = 64
"""The most places that are dropped from the end of a rough walk at a look; more are rarely negligible."""
_ROUGH_ERROR: Final = 1e-8
_ROUGH_UP_TO: Final = 10**10
"""Beyond this many trials, a sum of logarithms of ratios could err by more than `_ROUGH_ERROR`."""


def windows(trials: Integers, epsilon: float) -> list[tuple[int, Floats]]:
    """For each number of trials: (lowest count, probabilities) of Binomial(trials, p(epsilon)).

    Each window leaves out at most SLIVER by Bernstein's inequality; beyond 10^9 trials, where the law itself
    is not good enough, its probabilities are raised.
    """
    low, high = _reach(trials, epsilon, SLIVER)
    sizes = high - low + 1
    effort.spend(3 * effort.CALL + effort.RATIO * float(sizes.sum()))
    ends = np.cumsum(sizes)
    counts = np.arange(ends[-1]) - np.repeat(ends - sizes - low, sizes)
    chances = np.exp(binomial.log_pmf(counts, np.repeat(trials, sizes), epsilon))
    chances *= np.repeat(binomial.round_more(trials), sizes)
    return list(zip(low.tolist(), np.split(chances, ends[:-1]), strict=True))


def _reach(trials: Integers, epsilon: float, sliver: float) -> tuple[Integers, Integers]:
    """The lowest and the highest count of windows that leave out at most a sliver."""
    wrong, log_sliver = float(binomial.failure(epsilon)), math.log(2 / sliver)
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


def crossing(looks: Integers, boundary: Integers, epsilon: float) -> float:
    """Pr[Y_k >= c for some look (k, c)], Y_k the sum of k independent Bernoulli(p(epsilon))."""
    reachable = boundary <= looks
    if not reachable.any():
        return 0.0
    return crossing_of(windows(np.diff(looks[reachable], prepend=0), epsilon), boundary[reachable])


def crossing_of(steps: list[tuple[int, Floats]], boundary: Integers) -> float:
    """The same for a walk whose steps between looks have the given laws, and looks that can all be crossed.

    The walk goes from look to look: convolve with the law of the step, absorb what has crossed. Whatever is
    left out on the way is added as if it had crossed: a sliver for the window of each step, one for the lower
    end that is dropped at each look, and the error of transforms (Rounding 4 and 5).
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


def rough_windows(trials: Integers, epsilon: float, sliver: float) -> list[tuple[int, Floats]]:
    """The windows by ratios of neighbours, five times as fast; good to 1e-9, and leaving out a sliver.

    ln of the ratio of the probabilities of k and k - 1 right is epsilon + ln((n - k + 1) / k).
    """
    low, high = _reach(trials, epsilon, sliver)
    sizes = high - low + 1
    effort.spend(3 * effort.CALL + effort.RATIO * float(sizes.sum()))
    ends = np.cumsum(sizes)
    starts = ends - sizes
    right = np.arange(ends[-1], dtype=np.float64) - np.repeat(starts - low, sizes)
    right[starts] = 1.0
    logs = epsilon + np.log((np.repeat(trials + 1, sizes) - right) / right)
    logs[starts] = 0.0
    logs = np.cumsum(logs)
    chances = np.exp(logs - np.repeat(np.maximum.reduceat(logs, starts), sizes))
    chances /= np.repeat(np.add.reduceat(chances, starts), sizes)
    return list(zip(low.tolist(), np.split(chances, ends[:-1]), strict=True))


class Walk:
    """A walk of independent Bernoulli(p(epsilon)) steps, seen at some looks.

    Crossings that are at least as likely as `rarest` are asked for.
    """

    def __init__(self, looks: Integers, epsilon: float, rarest: float = 0.0) -> None:
        wrong = float(binomial.failure(epsilon))
        self._sliver = max(_ROUGH_SLIVER, _OF_RAREST * rarest)
        self.looks, self._epsilon = looks, epsilon
        self._spread = np.sqrt(looks * wrong * (1 - wrong))
        self._widths = 2 ** np.floor(np.log2(np.maximum(self._spread / _FINE, 1.0))).astype(np.int64)

    @property
    def rough(self) -> bool:
        """Whether the laws of rough steps are as good as they have to be."""
        return bool(self.looks[-1] <= _ROUGH_UP_TO)

    @cached_property
    def floor(self) -> float:
        """The least that an exact crossing comes to: its slivers, and the error of a transform that is sure.

        Where crossings are as rare, nine spreads of the walk, or half of its places, are always alive.
        """
        low, high = _reach(np.diff(self.looks), self._epsilon, SLIVER)
        alive = np.minimum(9 * self._spread, self.looks / 2)[:-1]
        transforms = bool((alive * (high - low) > _DIRECT).any())
        return len(self.looks) * SLIVER + transforms * _FFT_ERROR

    def effort(self) -> tuple[float, float]:
        """Seconds that an exact crossing takes, and a rough one: a law spans 20 spreads, what is alive 13."""
        steps = np.diff(self.looks, prepend=0)
        low, high = _reach(steps, self._epsilon, SLIVER)
        points, alive = float((high - low).sum()), float(np.minimum(13 * self._spread, self.looks).sum())
        calls = 2 * effort.CALL * len(steps)
        exact = calls + effort.LOG_PMF * points + effort.TRANSFORM * (points + alive)
        coarse = 2 * calls + effort.RATIO * points + 30 * _FINE * effort.TRANSFORM * len(steps)
        return exact, coarse if self.rough and (self._widths > 1).any() else exact

    def crossing(self, boundary: Integers, exact: bool) -> tuple[float, float]:
        """Bounds on `crossing_of` the walk; equal, if they are to be exact.

        Steps are rounded up to a lattice that grows with the spread of the walk. A walk of rounded steps is
        never below the true one, and above it by less than what was rounded. So it crosses the boundary at
        least as often, and at most as often a boundary raised by as much (Theorem 8).
        """
        if exact:
            crossed = crossing_of(self._steps, boundary)
            return crossed, crossed
        rounded = np.cumsum(2 * (self._widths - 1))
        low = high = self._rough_crossing(boundary)
        if rounded[-1] > 0:
            low = self._rough_crossing(boundary + rounded)
        slack = 2 * len(self.looks) * (self._sliver + _FFT_ERROR)
        return max(0.0, low * (1 - _ROUGH_ERROR) - slack), high * (1 + _ROUGH_ERROR) + slack

    @cached_property
    def _steps(self) -> list[tuple[int, Floats]]:
        return windows(np.diff(self.looks, prepend=0), self._epsilon)

    @cached_property
    def _rounded_steps(self) -> list[tuple[int, Floats]]:
        steps = rough_windows(np.diff(self.looks, prepend=0), self._epsilon, self._sliver)
        return [_rounded(step, width) for step, width in zip(steps, self._widths.tolist(), strict=True)]

    def _rough_crossing(self, boundary: Integers) -> float:
        """`crossing_of` without slivers, for steps on lattices of growing widths."""
        alive, lowest, crossed, given = np.ones(1), 0, 0.0, 1
        looks = zip(self._rounded_steps, self._widths.tolist(), boundary.tolist(), strict=True)
        for (low, chances), width, limit in looks:
            lowest, alive = _rounded((lowest, alive), width, given)
            alive, lowest, given = convolve(alive, chances)[0], lowest + low, width
            kept = max(0, -(-limit // width) - lowest)
            crossed += float(alive[kept:].sum())
            alive = alive[:kept]
            thin = int(alive[:_THINNED].cumsum().searchsorted(self._sliver))
            alive, lowest = alive[thin:], lowest + thin
            if len(alive) == 0:
                break
        return crossed


def _rounded(law: tuple[int, Floats], width: int, given: int = 1) -> tuple[int, Floats]:
    """A law on multiples of `given`, rounded up to multiples of `width`; places are in multiples."""
    low, chances = law
    # The first multiple collects `ahead` places, those from `low` up to it; every later one collects
    # `factor`.
    factor = width // given
    if factor == 1:
        return low, chances
    first = -(-low // factor)
    ahead = first * factor - low + 1
    starts = np.append(0, np.arange(ahead, len(chances), factor))
    return first, np.add.reduceat(chances, starts)


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
