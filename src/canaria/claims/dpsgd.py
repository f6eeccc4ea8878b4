"""The claim of DP-SGD: what so many steps of subsampled Gaussian noise promise."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria.claims import _loss
from canaria.claims.base import Claim, Profile
from canaria.claims.noise import GaussianDP


@dataclass(frozen=True)
class DpSgd(Claim):
    """The promise of DP-SGD with Poisson sampling, for add-remove neighbours.

    Its profile is that of dp-accounting's privacy loss distributions. Events may be much likelier with an
    element than without it, and less so the other way round: the two directions are kept apart.

    Attributes:
        noise_multiplier: The noise multiplier, positive.
        sample_rate: The probability with which an element is in a batch, above 0 and at most 1.
        steps: The number of steps.

    Raises:
        InputError: If an argument is out of range.

    Example:
        >>> round(DpSgd(2.4224, sample_rate=0.1, steps=100).epsilon_at(1e-5), 2)
        1.81

    """

    noise_multiplier: float
    sample_rate: float
    steps: int

    adjacency = "add-remove"
    points: ClassVar[int] = 220

    def __post_init__(self) -> None:
        noise, rate = (
            checks.real("noise_multiplier", self.noise_multiplier),
            checks.real("sample_rate", self.sample_rate),
        )
        if not 1e-3 <= noise <= 1e6:
            raise InputError(
                f"noise_multiplier must be between 0.001 and 1,000,000, got {shown(self.noise_multiplier)}"
            )
        if not 0 < rate <= 1:
            raise InputError(f"sample_rate must be above 0 and at most 1, got {shown(self.sample_rate)}")
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
        return _loss.profile(self.distribution, epsilons)

    @property
    def reach(self) -> float:
        """Where delta is below 1e-10."""
        return self._gaussian.reach if self.sample_rate == 1 else _loss.reach(self.distribution)

    @property
    def distribution(self) -> Any:
        """The privacy loss distribution, of dp-accounting."""
        return _loss.of_dpsgd(self.noise_multiplier, self.sample_rate, self.steps)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "noise_multiplier": self.noise_multiplier,
            "sample_rate": self.sample_rate,
            "steps": self.steps,
        }

    @property
    def _gaussian(self) -> GaussianDP:
        return GaussianDP(math.sqrt(self.steps) / self.noise_multiplier, self.adjacency)
