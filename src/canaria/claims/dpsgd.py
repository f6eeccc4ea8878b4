"""The claim of DP-SGD: the promise of many steps of subsampled Gaussian noise."""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria._core.kept import kept
from canaria.claims import _loss
from canaria.claims.base import Claim, Profile, Signs, lines_of
from canaria.claims.lines import Lines
from canaria.claims.noise import LARGEST_MU, GaussianDP

LEAST_NOISE: Final = 1e-3
"""The least noise multiplier of a claim; with less noise, nothing is private."""
_OTHER_ERRORS: Final = 1e-7
"""The relative error of an epsilon by other rounding than that of the grid."""


@dataclass(frozen=True, kw_only=True)
class DpSgd(Claim):
    """The promise of DP-SGD with Poisson sampling, for add-remove neighbours.

    Its profile is that of dp-accounting's privacy loss distributions. With subsampling the two directions
    differ: an event may be much likelier with an element than without it, but not the other way round.

    Attributes:
        noise_multiplier: The noise multiplier, positive.
        sample_rate: The probability with which an element is in a batch, above 0 and at most 1.
        steps: The number of steps.

    Example:
        >>> round(DpSgd(noise_multiplier=2.4224, sample_rate=0.1, steps=100).epsilon_at(1e-5), 2)
        1.81
    """

    noise_multiplier: float
    sample_rate: float
    steps: int

    adjacency = "add-remove"
    points: ClassVar[int] = 220

    def __post_init__(self) -> None:
        noise = checks.real("noise_multiplier", self.noise_multiplier)
        if not LEAST_NOISE <= noise <= 1e6:
            raise InputError(
                f"noise_multiplier must be between 0.001 and 1,000,000, got {shown(self.noise_multiplier)}"
            )
        rate = checks.sample_rate(self.sample_rate)
        steps = checks.integer("steps", self.steps, 1)
        checks.assign(self, noise_multiplier=noise, sample_rate=rate, steps=steps)

    def __str__(self) -> str:
        return (
            f"DP-SGD with noise multiplier {self.noise_multiplier:.6g} "
            f"({self.steps:,} steps, rate {self.sample_rate:.6g})"
        )

    def profile(self, epsilons: Floats) -> Profile:
        """The deltas of the privacy loss distribution; exact where every element is in every batch."""
        if self.sample_rate == 1:
            return self._gaussian.profile(epsilons)
        return _loss.profile(self._losses(), epsilons)

    @property
    def reach(self) -> float:
        """The epsilon from which on delta is below 1e-10."""
        return self._gaussian.reach if self.sample_rate == 1 else _loss.reach(self._losses())

    def least_epsilon_at(self, delta: float) -> float:
        """The epsilon at this delta, less three times the error of the discretisation of losses.

        The error is proportional to the square of the interval. With the interval doubled it is four times as
        large, so coarse - fine is three times the error. If epsilon changes so fast with delta that an
        interval is coarse, up to an interval more is subtracted. If delta is so small that the error of
        transforms matters, the answer is infinity.
        """
        if delta < _loss.SMALLEST_DELTA:
            return math.inf
        if self.sample_rate == 1:
            return self._gaussian.least_epsilon_at(delta)
        fine, coarse = (
            float(self._losses(times).get_epsilon_for_delta(checks.delta(delta))) for times in (1, 2)
        )
        if not math.isfinite(coarse):
            return fine
        interval = _loss.interval_for(self.steps)
        change = fine - float(self._losses().get_epsilon_for_delta(min(2 * delta, 1.0)))
        coarseness = interval / max(change, interval)
        return max(0.0, 2 * fine - max(coarse, fine) - interval * coarseness - _OTHER_ERRORS * fine)

    @property
    def effort(self) -> float:
        """Seconds that the curve takes, unless it is kept."""
        if self.sample_rate == 1:
            return 0.0
        interval = _loss.interval_for(self.steps)
        return _loss.seconds(self.noise_multiplier, self.sample_rate, self.steps, interval)

    def lines(self, signs: Signs = Signs.BOTH) -> Lines:
        """The claim as lines; its profile is kept on disk, as a family needs many that take long."""
        return self._gaussian.lines(signs) if self.sample_rate == 1 else _lines(self, signs)

    @property
    def distribution(self) -> Any:
        """The privacy loss distribution, of dp-accounting, on the grid of losses that all claims share."""
        return _loss.of_dpsgd(self.noise_multiplier, self.sample_rate, self.steps)

    def _losses(self, times: int = 1) -> Any:
        """The privacy loss distribution, at some times the interval that suits the number of steps."""
        interval = times * _loss.interval_for(self.steps)
        return _loss.of_dpsgd(self.noise_multiplier, self.sample_rate, self.steps, interval)

    @property
    def _gaussian(self) -> GaussianDP:
        return GaussianDP(min(math.sqrt(self.steps) / self.noise_multiplier, LARGEST_MU), self.adjacency)


@lru_cache(maxsize=1024)
def _lines(claim: DpSgd, signs: Signs) -> Lines:
    settings = (claim.noise_multiplier, claim.sample_rate, claim.steps)

    def computed() -> Floats:
        epsilons = claim.slopes()
        return np.stack([epsilons, *np.minimum.accumulate(claim.profile(epsilons), axis=1)])

    key = (*settings, claim.points, _loss.interval_for(claim.steps), _loss.FFT_NOISE, _loss.NEGLIGIBLE)
    epsilons, *sides = kept("dpsgd", key, computed, _is_profile)
    return lines_of(epsilons, Profile(*sides), signs)


def _is_profile(found: Floats) -> bool:
    """Whether rows are rising epsilons, and deltas that fall in both directions."""
    if found.shape != (3, DpSgd.points):
        return False
    slopes, falls = np.diff(found[0]), np.diff(found[1:])
    return bool((slopes >= 0).all() and (falls <= 0).all() and found.min() >= 0 and found[1:].max() <= 1)
