"""The families of Gaussian and of Laplace noise."""

import math
from dataclasses import dataclass
from typing import ClassVar

from canaria._core.arrays import Floats
from canaria.claims.base import Claim
from canaria.claims.families._base import Family, geometric
from canaria.claims.noise import GaussianDP, LaplaceDP


@dataclass(frozen=True)
class Gaussian(Family):
    """mu-Gaussian DP, by mu.

    Example:
        >>> from canaria.claims import families
        >>> families.Gaussian().claim(1.0)
        GaussianDP(mu=1.0, adjacency='unspecified')
    """

    name: ClassVar[str] = "gaussian"
    least_delta: ClassVar[float] = math.ulp(0.0)

    def claim(self, parameter: float) -> GaussianDP:
        """mu-Gaussian DP."""
        return GaussianDP(parameter)

    def parameter(self, claim: Claim) -> float:
        """Mu."""
        if not isinstance(claim, GaussianDP):
            raise self._refuse(claim)
        return claim.mu

    def stretches(self, elements: int) -> Floats:
        """From a third of the standard error of a mean up to 7, in steps of 10%."""
        return geometric(min(0.02, 0.3 / math.sqrt(elements)), 7.0)

    @property
    def condition(self) -> str:
        """That noise is Gaussian."""
        return "its privacy profile is that of Gaussian noise"

    def consequence(self, claim: Claim) -> str:
        """Its mu is larger."""
        return f"its μ is above {self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return "Gaussian DP"


@dataclass(frozen=True)
class Laplace(Family):
    """Laplace noise, by epsilon.

    Example:
        >>> from canaria.claims import families
        >>> family = families.Laplace()
        >>> family.claim(1.0)
        LaplaceDP(epsilon=1.0, adjacency='unspecified')
        >>> family.condition
        'its privacy profile is that of Laplace noise'
    """

    name: ClassVar[str] = "laplace"

    def claim(self, parameter: float) -> LaplaceDP:
        """Laplace noise with this epsilon."""
        return LaplaceDP(parameter)

    def parameter(self, claim: Claim) -> float:
        """Epsilon."""
        if not isinstance(claim, LaplaceDP):
            raise self._refuse(claim)
        return claim.epsilon

    def stretches(self, elements: int) -> Floats:
        """From half of the standard error of a mean up to 20, in steps of 10%."""
        return geometric(min(0.02, 0.5 / math.sqrt(elements)), 20.0)

    @property
    def condition(self) -> str:
        """That noise is of the law of Laplace."""
        return "its privacy profile is that of Laplace noise"

    def consequence(self, claim: Claim) -> str:
        """Its noise is smaller."""
        return f"the ε of its noise is above {self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return "Laplace noise"
