"""The families of DP-SGD, one for every number of steps and sampling rate."""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria._core.rounding import significant
from canaria.claims._loss import SMALLEST_DELTA
from canaria.claims.base import Claim
from canaria.claims.dpsgd import DpSgd
from canaria.claims.families._base import Family

_LESS_NOISE: Final = 0.94
"""The noise of the last claim of a stretch over that of the stretch before."""
_LEAST_RATE: Final = 1e-9


@dataclass(frozen=True)
class DpSgdFamily(Family):
    """DP-SGD with these steps and this rate, by one over the noise multiplier.

    More noise in every step is post-processing of less noise, so the claims are a chain. Stretches end at
    noise multipliers that are powers of 0.94, whatever the number of elements, so that their curves, which
    take a while, are computed once.

    Attributes:
        steps: The number of steps.
        sample_rate: The probability with which an element is in a batch.

    Example:
        >>> from canaria.claims import families
        >>> families.DpSgdFamily(steps=100, sample_rate=0.1).claim(0.5).noise_multiplier
        2.0
    """

    steps: int
    sample_rate: float

    name: ClassVar[str] = "dpsgd"
    least_delta: ClassVar[float] = SMALLEST_DELTA

    def __post_init__(self) -> None:
        probe = DpSgd(noise_multiplier=1.0, sample_rate=self.sample_rate, steps=self.steps)
        if probe.sample_rate < _LEAST_RATE:
            raise InputError(f"sample_rate must be at least {_LEAST_RATE:g}, got {shown(self.sample_rate)}")
        checks.assign(self, steps=probe.steps, sample_rate=probe.sample_rate)

    def claim(self, parameter: float) -> DpSgd:
        """DP-SGD with one over this number as the noise multiplier."""
        return DpSgd(noise_multiplier=1 / parameter, sample_rate=self.sample_rate, steps=self.steps)

    def parameter(self, claim: Claim) -> float:
        """One over the noise multiplier."""
        settings = (self.steps, self.sample_rate)
        if not isinstance(claim, DpSgd) or (claim.steps, claim.sample_rate) != settings:
            raise self._refuse(claim)
        return 1 / claim.noise_multiplier

    def stretches(self, elements: int) -> Floats:
        """From noise at which DP-SGD is about as private as Gaussian DP with a small mu, to mu = 5."""
        # Below 1 / sqrt(n), the standard error of a mean accuracy, a leak cannot be told from chance.
        first, last = (self._noise(mu) for mu in (max(0.02, 1 / math.sqrt(elements)), 5.0))
        powers = np.arange(
            math.floor(math.log(first) / math.log(_LESS_NOISE)),
            math.ceil(math.log(last) / math.log(_LESS_NOISE)) + 1.0,
        )
        return np.array([1 / significant(noise) for noise in (_LESS_NOISE**powers).tolist()])

    def effort(self, elements: int) -> float:
        """The privacy loss distributions."""
        noise = (1 / self.stretches(elements)).tolist()
        return math.fsum(
            DpSgd(noise_multiplier=one, sample_rate=self.sample_rate, steps=self.steps).effort
            for one in noise
        )

    @property
    def condition(self) -> str:
        """That it is DP-SGD with these settings."""
        return "it is DP-SGD with these steps and this rate"

    def consequence(self, claim: Claim) -> str:
        """Its noise multiplier is smaller."""
        return f"its noise multiplier is below {1 / self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return f"DP-SGD with {self.steps:,} steps, rate {self.sample_rate:.6g}"

    def _noise(self, mu: float) -> float:
        """The noise with sqrt(T (e^(1/s^2) - 1)) q = mu, the limit of many steps (Bu et al. 2020)."""
        return 1 / math.sqrt(math.log1p((mu / self.sample_rate) ** 2 / self.steps))
