"""Whether what a step adds to the clipped sum is the stated noise: as large, as random, and nothing else.

Given the past, Gaussian noise has no preferred direction, and the sum of the step is known before it. So its
share along the sum is standard normal, the squares of its numbers add up to chi-squared, and a known share of
them is large. The witnesses of canaries see a few weights. All weights together show much smaller faults: a
sum that comes out a little larger, noise of 97% of the stated size, or noise that is cut at 3 deviations.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import special, stats

from canaria._core.arrays import Floats, Integers

LEAST_CHANCE: Final = 1e-5
"""Correct training is accused with at most this probability by each test."""
EDGES: Final = (2.0, 3.0, 4.0)
"""Noise beyond each of these, in deviations, is counted."""
FACTS: Final = 2 + len(EDGES)
"""The numbers of a row of `beside_the_noise` before the squares of each parameter."""
_LEAST_STEPS: Final = 5
_LEAST_WEIGHTS: Final = 30
"""Below it, chi-squared is not near a normal law, as is assumed for its spread."""
_COARSE: Final = 0.05
_UNEVEN: Final = 0.25
"""Parameters whose noise deviates by more from that of all are no case for the test along the sum."""
_LITTLE: Final = 0.005
"""A smaller lack of noise, as a share, may come from a generator that is normal only nearly."""
_FEWER: Final = 0.25
"""The same for the numbers beyond an edge. A discrete normal law with steps of a tenth may have 0.19 less."""
_THE_NOISE: Final = "the noise"
AT_ALL_WEIGHTS: Final = "seen at all weights"
_CUT: Final = "it is cut off, or not normal, and protects less"
_SCALED: Final = "noise was scaled by its own norm or deviation"
SYMPTOMS: Final = (AT_ALL_WEIGHTS, _CUT, _SCALED)
"""How messages end that say little where noise is used again: few different values are all that it has."""
_LEAKS: Final = "which leaks unless it is made of noisy gradients or public data"


def residual_of(noise: Sequence[Floats], total: Sequence[Floats], coarse: float) -> Floats:
    """A row of `beside_the_noise`, for one step.

    Args:
        noise: The noise in each parameter, in stated deviations.
        total: The clipped sum in each parameter.
        coarse: The largest rounding error of a number, in stated deviations.
    """
    whole = math.sqrt(sum(float(np.square(one).sum()) for one in total))
    along = sum(float(np.vdot(one, other)) for one, other in zip(noise, total, strict=True))
    sizes = [abs(one) for one in noise]
    beyond = [sum(((one > edge).sum() + (one >= edge).sum()) / 2 for one in sizes) for edge in EDGES]
    lengths = [float(np.square(one).sum()) for one in noise]
    return np.array([along / whole if whole else 0.0, coarse, *beyond, *lengths])


def beside_the_noise(steps: Floats, sizes: Floats, names: Sequence[str]) -> tuple[str, ...]:
    """What is wrong with the noise of these steps, in words.

    Args:
        steps: For each step the scalar product of the noise and the unit vector of the sum, the largest
            rounding error, how many numbers are beyond each of the `EDGES`, and for each parameter the sum of
            squares of the noise; all in stated deviations of the noise. A number at an edge counts half:
            it is a step of a discrete law, which has as many on either side, or noise was cut there.
        sizes: The number of weights of each parameter.
        names: The names of the parameters.
    """
    # Rounding errors have less spread than noise. Where they are not small, they would look like a fault.
    precise = (steps[:, 1] < _COARSE) & np.isfinite(steps).all(axis=1)
    number, steps = np.flatnonzero(precise) + 1, steps[precise]
    if len(steps) < _LEAST_STEPS:
        return ()
    along, beyond, lengths = steps[:, 0], steps[:, 2:FACTS], steps[:, FACTS:]
    little = _too_little(lengths, sizes, number, names)
    # Noise that is too small has fewer large numbers, too.
    return (*_along(along, lengths, sizes), *(little or _cut(beyond, sizes.sum())), *_same(lengths, sizes))


def is_size_alone(message: str) -> bool:
    """Whether a message is that all noise is too small, but as it should be otherwise."""
    return message.startswith(f"{_THE_NOISE} is only ")


def _along(along: Floats, lengths: Floats, sizes: Floats) -> tuple[str, ...]:
    """A sum that comes out larger than it was."""
    deviations = np.sqrt(lengths.sum(axis=1) / sizes.sum())
    if not (deviations > 0).all():
        return ()
    # Where a parameter has noise of its own size, the part along the sum may have another deviation.
    large = sizes >= _LEAST_WEIGHTS
    of_each = np.sqrt((lengths / deviations[:, None] ** 2).mean(axis=0)[large] / sizes[large])
    # The rms of the same noise is the unit, so that another noise multiplier is not the cause.
    score = float((along / deviations).sum() / np.sqrt(len(along)))
    # One side: a sum that comes out smaller than it was, as by shrinking noisy gradients, leaks less.
    if (np.abs(of_each - 1) >= _UNEVEN).any() or stats.norm.sf(score) >= LEAST_CHANCE:
        return ()
    return (
        f"noisy sums hold more of the rows than the clipped sums do, by {score:.0f} standard errors: "
        f"a part of the gradients was added after clipping, or the sum was scaled, {_LEAKS}",
    )


def _too_little(lengths: Floats, sizes: Floats, number: Integers, names: Sequence[str]) -> tuple[str, ...]:
    """Less noise than stated: in one parameter or all of them, in one step or all of them."""
    squares = np.pad(lengths, (0, 1))
    squares[:, -1], squares[-1] = squares.sum(axis=1), squares.sum(axis=0)
    squares[-1, -1] = lengths.sum()
    weights = np.append(sizes, sizes.sum()) * np.append(np.ones(len(lengths)), len(lengths))[:, None]
    # A sum of squares of n standard normal numbers is chi-squared with n degrees of freedom.
    chances = np.where(squares < weights * (1 - _LITTLE) ** 2, stats.chi2.cdf(squares, weights), 1.0)
    if chances.min() * chances.size >= LEAST_CHANCE:
        return ()
    # What shows it most clearly: the step if one has no noise, everything if all have a little less.
    ratios = squares / weights
    scores = np.where(chances * chances.size < LEAST_CHANCE, (ratios - 1) * np.sqrt(weights), 0)
    step, parameter = (int(place) for place in np.argwhere(scores == scores.min())[-1])
    ratio = math.sqrt(ratios[step, parameter])
    where = f" in {names[parameter]}" if parameter < len(sizes) else ""
    when = f" of step {number[step]}" if step < len(lengths) else ""
    return (f"{_THE_NOISE}{where}{when} is only {ratio:.3g} times what was stated, {AT_ALL_WEIGHTS}",)


def _cut(beyond: Floats, weights: float) -> tuple[str, ...]:
    """Fewer large numbers than normal noise has: it is bounded, or has lighter tails."""
    trials = len(beyond) * weights
    for edge, count in zip(EDGES, beyond.sum(axis=0), strict=True):
        share = 2 * special.ndtr(-edge)
        few = stats.binom.cdf(count, trials, share) < LEAST_CHANCE / len(EDGES)
        if few and count < (1 - _FEWER) * trials * share:
            return (
                f"{count:,.0f} of {trials:,.0f} numbers of the noise are beyond {edge:g} deviations, where "
                f"normal noise has {trials * share:,.0f}: {_CUT}",
            )
    return ()


def _same(lengths: Floats, sizes: Floats) -> tuple[str, ...]:
    """Noise of the same length in all steps."""
    large = sizes >= _LEAST_WEIGHTS
    for squares, counts in ((lengths[:, large], sizes[large]), (lengths.sum(1)[:, None], sizes.sum()[None])):
        if len(counts) == 0 or counts.min() < _LEAST_WEIGHTS or (squares <= 0).any():
            continue
        # Each has mean n and variance 2n. The mean is that of the steps, whatever the noise multiplier is;
        # the shares of T steps are Dirichlet, so that their spread is smaller by n T / (n T + 2).
        spread = ((squares / squares.mean(axis=0) - 1) ** 2).sum(axis=0) * (counts / 2 + 1 / len(lengths))
        if stats.chi2.cdf(spread.sum(), (len(lengths) - 1) * len(counts)) < LEAST_CHANCE / 2:
            return (
                "the noise of a step always has the same length, so whoever knows the other rows can tell "
                f"the sum exactly: {_SCALED}",
            )
    return ()
