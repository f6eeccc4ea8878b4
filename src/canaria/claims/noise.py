"""Claims of single noisy queries: the curves of Gaussian and of Laplace noise."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria.claims.base import Claim, Profile

LARGEST_MU: Final = 1e6
"""The largest mu of a claim; long before it, nothing is promised."""
_SMALLEST_MU: Final = 1e-300
"""Below it epsilon / mu may overflow; delta is at most mu, which is far below any level."""
_DEVIATIONS: Final = 9.0
"""At this many times mu, delta is below 1e-18 for mu up to 1."""
_CANCELLED: Final = 1e-13
"""The relative error of the first of two tails, of which the difference is taken."""


@dataclass(frozen=True)
class GaussianDP(Claim):
    """The promise of mu-Gaussian DP (Dong, Roth, Su 2022): as hard to tell as N(0, 1) from N(mu, 1).

    Gaussian noise of a standard deviation that is 1 / mu of the sensitivity keeps it.

    Attributes:
        mu: The parameter, at least 0.
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> round(GaussianDP(1.0).epsilon_at(1e-5), 3)
        4.377
    """

    mu: float
    adjacency: str = "unspecified"

    def __post_init__(self) -> None:
        mu = checks.nonnegative("mu", self.mu)
        if mu > LARGEST_MU:
            raise InputError(f"mu must be at most {LARGEST_MU:,.0f}, got {shown(self.mu)}")
        checks.assign(self, mu=mu, adjacency=checks.adjacency(self.adjacency))

    def __str__(self) -> str:
        return f"{self.mu:.6g}-Gaussian DP"

    def profile(self, epsilons: Floats) -> Profile:
        """Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu), the same in both directions."""
        if self.mu < _SMALLEST_MU:
            nothing = np.full_like(epsilons, self.mu)
            return Profile(nothing, nothing)
        # e^eps times a tail: in logarithms, as one factor may overflow where the other underflows.
        first = special.ndtr(self.mu / 2 - epsilons / self.mu)
        second = np.exp(epsilons + special.log_ndtr(-self.mu / 2 - epsilons / self.mu))
        deltas = np.clip(first - second + _CANCELLED * first, 0.0, 1.0)
        return Profile(deltas, deltas)

    def epsilon_at(self, delta: float) -> float:
        """The epsilon at this delta; infinite at 0, unless mu is 0."""
        return math.inf if delta == 0 < self.mu else super().epsilon_at(delta)

    @property
    def reach(self) -> float:
        """Nine times mu, and mu^2 / 2 for large mu."""
        return _DEVIATIONS * self.mu + self.mu**2 / 2


@dataclass(frozen=True)
class LaplaceDP(Claim):
    """The promise of Laplace noise whose scale is 1 / epsilon of the sensitivity.

    It is pure epsilon-DP, and more: at smaller epsilons its delta is below that of randomized response.

    Attributes:
        epsilon: The epsilon of the noise, at least 0.
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> round(LaplaceDP(1.0).delta_at(0.0), 4)
        0.3935
    """

    epsilon: float
    adjacency: str = "unspecified"

    def __post_init__(self) -> None:
        epsilon = checks.nonnegative("epsilon", self.epsilon)
        checks.assign(self, epsilon=epsilon, adjacency=checks.adjacency(self.adjacency))

    def __str__(self) -> str:
        return f"Laplace noise with ε = {self.epsilon:.6g}"

    def profile(self, epsilons: Floats) -> Profile:
        """1 - e^((eps' - eps) / 2) up to epsilon, the same in both directions."""
        deltas = np.maximum(0.0, -np.expm1((epsilons - self.epsilon) / 2)) * (1 + 1e-15)
        return Profile(np.minimum(deltas, 1.0), np.minimum(deltas, 1.0))

    @property
    def reach(self) -> float:
        """Epsilon: delta is 0 from there on."""
        return self.epsilon


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The smallest epsilon at which a mu-Gaussian-DP mechanism is (epsilon, delta)-DP.

    For deltas that are extremely small it is cut at mu^2 / 2 + 40 mu.
    """
    return min(GaussianDP(mu).epsilon_at(delta), mu * mu / 2 + 40 * mu)
