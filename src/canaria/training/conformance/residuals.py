"""Whether what a step adds to the clipped sum is noise alone: no part of the sum, and of random length.

Given the past, Gaussian noise has no preferred direction, and the sum of the step is known before it. So its
share along the sum is standard normal, and the squares of its numbers add up to chi-squared. Canaries see a
sum that comes out larger, or noise that is scaled to a length, only by a little; the whole sum shows it.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import stats

from canaria._core.arrays import Floats

LEAST_CHANCE: Final = 1e-6
"""Correct training is accused with at most this probability by each test."""
_LEAST_STEPS: Final = 5
_LEAST_WEIGHTS: Final = 30
"""Below it, chi-squared is not near a normal law, as is assumed for its spread."""
_COARSE: Final = 0.05
_UNEVEN: Final = 0.25
"""Parameters whose noise deviates by more from that of all are no case for the test along the sum."""
_LEAKS: Final = "which leaks unless it is made of noisy gradients or public data"


def residual_of(noise: Sequence[Floats], total: Sequence[Floats], coarse: float) -> Floats:
    """A row of `beside_the_noise`, for one step.

    Args:
        noise: The noise in each parameter, with a stated deviation of any unit.
        total: The clipped sum in each parameter.
        coarse: The largest rounding error of a number, in deviations of the noise.
    """
    whole = math.sqrt(sum(float(np.square(one).sum()) for one in total))
    along = sum(float(np.vdot(one, other)) for one, other in zip(noise, total, strict=True))
    lengths = [float(np.square(one).sum()) for one in noise]
    return np.array([along / whole if whole else 0.0, coarse, *lengths])


def beside_the_noise(steps: Floats, sizes: Floats) -> tuple[str, ...]:
    """What is wrong with the noise of these steps, in words.

    Args:
        steps: For each step the scalar product of the noise and the unit vector of the sum, the largest
            rounding error in deviations of the noise, and for each parameter the sum of squares of the noise.
            The unit of the noise does not matter, if it is the same in all steps.
        sizes: The number of weights of each parameter.
    """
    # Rounding errors have less spread than noise. Where they are not small, they would look like a fault.
    precise = steps[(steps[:, 1] < _COARSE) & np.isfinite(steps).all(axis=1)]
    along, lengths = precise[:, 0], precise[:, 2:]
    if len(along) < _LEAST_STEPS:
        return ()
    deviations = np.sqrt(lengths.sum(axis=1) / sizes.sum())
    large, found = sizes >= _LEAST_WEIGHTS, []
    # Where a parameter has noise of its own size, the part along the sum may have another deviation.
    with np.errstate(divide="ignore", invalid="ignore"):
        of_each = np.sqrt((lengths / deviations[:, None] ** 2).mean(axis=0)[large] / sizes[large])
    if (deviations > 0).all() and (np.abs(of_each - 1) < _UNEVEN).all():
        # The rms of the same noise is the unit, so that another noise multiplier is not the cause.
        score = float((along / deviations).sum() / np.sqrt(len(along)))
        # One side: a sum that comes out smaller than it was, as by shrinking noisy gradients, leaks less.
        if stats.norm.sf(score) < LEAST_CHANCE:
            found.append(
                f"noisy sums hold more of the rows than the clipped sums do, by {score:.0f} standard errors: "
                f"a part of the gradients was added after clipping, or the sum was scaled, {_LEAKS}"
            )
    for squares, counts in ((lengths[:, large], sizes[large]), (lengths.sum(1)[:, None], sizes.sum()[None])):
        if len(counts) == 0 or counts.min() < _LEAST_WEIGHTS or (squares <= 0).any():
            continue
        # Each has mean n and variance 2n. The mean is that of the steps, whatever the noise multiplier is.
        spread = ((squares / squares.mean(axis=0) - 1) ** 2).sum(axis=0) * counts / 2
        if stats.chi2.cdf(spread.sum(), (len(along) - 1) * len(counts)) < LEAST_CHANCE:
            found.append(
                "the noise of a step always has the same length, so whoever knows the other rows can tell "
                "the sum exactly: noise was scaled by its own norm or deviation"
            )
            break
    return tuple(found)
