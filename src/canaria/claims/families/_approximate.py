"""The family of (epsilon, delta)-DP at one delta."""

import math
from dataclasses import dataclass
from typing import ClassVar

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.claims.base import ApproximateDP, Claim
from canaria.claims.families._base import Family, geometric
from canaria.claims.families._noise import Gaussian


@dataclass(frozen=True)
class Approximate(Family):
    """(epsilon, delta)-DP at one delta, by epsilon: every mechanism is in it.

    Attributes:
        delta: The delta of all claims.

    Example:
        >>> from canaria.claims import families
        >>> families.Approximate(1e-5).claim(2.0)
        ApproximateDP(epsilon=2.0, delta=1e-05, adjacency='unspecified')
    """

    delta: float

    name: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        checks.assign(self, delta=checks.delta(self.delta))

    def claim(self, parameter: float) -> ApproximateDP:
        """(epsilon, delta)-DP."""
        return ApproximateDP(parameter, self.delta)

    def parameter(self, claim: Claim) -> float:
        """Epsilon."""
        if not isinstance(claim, ApproximateDP) or claim.delta != self.delta:
            raise self._refuse(claim)
        return claim.epsilon

    def stretches(self, elements: int) -> Floats:
        """From half of the standard error of a mean up to 20, in steps of 10%."""
        return geometric(min(0.02, 0.5 / math.sqrt(elements)), 20.0)

    def require_delta(self, delta: float) -> None:
        """The delta must be that of the claims: at another one they say nothing of epsilon."""
        if delta != self.delta:
            raise InputError(
                f"delta must be that of the family of {self}, got {delta:g}: its claims say nothing of others"
            )

    def leaks(self, elements: int) -> list[Claim]:
        """Those of Gaussian noise, as most mechanisms add it."""
        return Gaussian().leaks(elements)

    @property
    def condition(self) -> str:
        """Nothing."""
        return ""

    def consequence(self, claim: Claim) -> str:
        """Its epsilon is larger."""
        return f"its ε at δ = {self.delta:g} is above {self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return f"ε at δ = {self.delta:g}"
