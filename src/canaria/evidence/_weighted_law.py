"""The law of the weight of right guesses: a sum of binomials, each times an integer weight (Theorem 9)."""

import math
from typing import Final

import numpy as np
from scipy import fft

from canaria._core import binomial, effort
from canaria._core.arrays import Integers
from canaria.evidence import _walks

_LEAK: Final = 1e-18
"""The probability beyond either end of the circle on which a law lives, added to every tail."""
_FFT_ERROR: Final = 1e-14
"""The error of a tail by Fourier transforms, measured as at most 2.3e-15 (proofs, Rounding)."""
_TILTS: Final = np.geomspace(1e-5, 10, 40)


def upper_tail(groups: Integers, statistic: int, epsilon: float) -> float:
    """Pr[sum_w w Binomial(groups[w], p(epsilon)) >= statistic], from above.

    The law lives on a circle of points, which is at least as long as the interval that by Hoeffding's or
    Bernstein's inequality holds all but 2e-18 of it. There the transforms of the groups are multiplied. Mass
    outside the interval wraps around into it, which can only raise the tail.
    """
    values = np.flatnonzero(groups[1:]) + 1
    if statistic <= 0 or len(values) == 0:
        return 1.0
    sizes = groups[values]
    right, squares = float(binomial.success(epsilon)), float(values**2 @ sizes)
    mean, variance = right * float(values @ sizes), right * float(binomial.failure(epsilon)) * squares
    # Bernstein is the closer one if the claim is large and the variance small.
    heavy = -math.log(_LEAK) * float(values[-1]) / 3
    bernstein = heavy + math.sqrt(heavy**2 - 2 * math.log(_LEAK) * variance)
    reach = math.ceil(min(math.sqrt(-math.log(_LEAK) / 2 * squares), bernstein))
    bottom = max(0, math.floor(mean) - reach)
    top = min(int(values @ sizes), math.ceil(mean) + reach)
    if statistic <= bottom:
        return 1.0
    if statistic > top:
        return 2 * _LEAK
    points = fft.next_fast_len(top - bottom + 1, real=True)
    effort.spend(len(values) * (effort.CALL + effort.TRANSFORM / 2 * points))
    transform = np.ones(points // 2 + 1, dtype=np.complex128)
    for value, (low, chances) in zip(values.tolist(), _walks.windows(sizes, epsilon), strict=True):
        places = value * np.arange(low, low + len(chances)) % points
        transform *= fft.rfft(np.bincount(places, chances, points))
    law = fft.irfft(transform, points)
    return float(law[np.arange(statistic, top + 1) % points].sum()) + 2 * _LEAK + _FFT_ERROR


def chernoff(groups: Integers, statistic: int, epsilon: float) -> float:
    """Min over tilts t of E[exp(t sum)] exp(-t statistic), which bounds the tail from above for each t."""
    values, sizes = np.arange(1, len(groups)), groups[1:]
    log_right, log_wrong = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    cumulants = np.logaddexp(log_wrong, log_right + _TILTS[:, None] * values) @ sizes
    return math.exp(min(0.0, float((cumulants - _TILTS * statistic).min())))
