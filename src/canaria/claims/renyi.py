"""Claims of Rényi and of zero-concentrated DP, and the replace-one claim that follows from any other."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria.claims.base import ApproximateDP, Claim, Profile
from canaria.claims.curves import Curve
from canaria.claims.noise import GaussianDP, LaplaceDP

_NEGLIGIBLE: Final = 42.0
"""exp(-42) is below 1e-18, far below any level."""
_LEAST: Final = 1e-300
"""Rényi DP leaves a delta at every epsilon; it must not vanish by underflow."""
_ROUNDED_UP: Final = 1 + 1e-9
_ROUNDING: Final = 1e-15
"""The relative error of a difference's terms: of a divergence and an epsilon."""
_LARGEST: Final = 1e5
_HALVINGS: Final = 60


@dataclass(frozen=True)
class RenyiDP(Claim):
    """The promise of Rényi DP at one order (Mironov 2017): Rényi divergences of at most epsilon.

    Attributes:
        order: The order, above 1.
        epsilon: The largest divergence, in nats.
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> round(RenyiDP(order=16.0, epsilon=0.5).epsilon_at(1e-5), 3)
        1.018
    """

    order: float
    epsilon: float
    adjacency: str = "unspecified"

    def __post_init__(self) -> None:
        order = checks.real("order", self.order)
        if not 1 < order <= _LARGEST:
            raise InputError(f"order must be above 1 and at most {_LARGEST:,.0f}, got {shown(self.order)}")
        epsilon, adjacency = _amount("epsilon", self.epsilon), checks.adjacency(self.adjacency)
        checks.assign(self, order=order, epsilon=epsilon, adjacency=adjacency)

    def __str__(self) -> str:
        return f"({self.order:g}, {self.epsilon:g})-Rényi DP"

    def profile(self, epsilons: Floats) -> Profile:
        """Theorem 38 (a), the same in both directions."""
        deltas = _renyi_delta(epsilons, self.order - 1, self.epsilon)
        return Profile(deltas, deltas)

    @property
    def reach(self) -> float:
        """Delta is negligible from there on."""
        return self.epsilon + _NEGLIGIBLE / (self.order - 1)


@dataclass(frozen=True)
class ZeroConcentratedDP(Claim):
    """The promise of rho-zCDP (Bun, Steinke 2016): Rényi divergences of at most rho times every order.

    Attributes:
        rho: The parameter, at least 0.
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> round(ZeroConcentratedDP(0.5).epsilon_at(1e-5), 3)
        4.728
    """

    rho: float
    adjacency: str = "unspecified"

    def __post_init__(self) -> None:
        checks.assign(self, rho=_amount("rho", self.rho), adjacency=checks.adjacency(self.adjacency))

    def __str__(self) -> str:
        return f"{self.rho:g}-zCDP"

    def profile(self, epsilons: Floats) -> Profile:
        """The smallest delta over all orders. Each is valid (Theorem 38 (a)), so no search is wrong."""
        # With a = order - 1, the derivative of the exponent is (2a + 1) rho - epsilon + ln(a / (a + 1)),
        # which rises with a. It is 0 between these limits, unless rho is 0.
        low, high = np.full_like(epsilons, np.log(1e-9)), np.full_like(epsilons, np.log(_LARGEST))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            slope = (2 * np.exp(middle) + 1) * self.rho - epsilons - np.log1p(np.exp(-middle))
            low, high = np.where(slope < 0, middle, low), np.where(slope < 0, high, middle)
        above = np.exp(high)
        deltas = _renyi_delta(epsilons, above, (above + 1) * self.rho)
        return Profile(deltas, deltas)

    @property
    def reach(self) -> float:
        """Delta is at most exp(-(epsilon - rho)^2 / (4 rho)), which is negligible there."""
        return float(self.rho + 2 * np.sqrt(_NEGLIGIBLE * self.rho))


def as_replace_one(claim: Claim) -> Claim:
    """The promise for a replaced row that follows from a promise for added and removed rows.

    Replacing a row is removing one and adding another. Gaussian and Laplace noise is then half as large in
    relation to the sensitivity, and zCDP has four times the rho. Any other claim becomes a curve with twice
    the epsilon and 1 + exp(epsilon) times the delta (Theorems 20 and 38).

    Args:
        claim: A claim whose adjacency is not "replace".

    Returns:
        A claim with adjacency="replace".

    Raises:
        InputError: If the claim is about replaced rows already.

    Example:
        >>> from canaria.claims import ApproximateDP, as_replace_one
        >>> as_replace_one(ApproximateDP(1.0, delta=0))
        ApproximateDP(epsilon=2.0, delta=0.0, adjacency='replace')
    """
    if claim.adjacency == "replace":
        raise InputError("the claim is about replaced rows already")
    if isinstance(claim, ApproximateDP):
        factor = 1 + float(np.exp(min(claim.epsilon, 700.0)))
        return ApproximateDP(2 * claim.epsilon, min(1.0, factor * claim.delta * _ROUNDED_UP), "replace")
    if isinstance(claim, GaussianDP):
        return GaussianDP(2 * claim.mu, "replace")
    if isinstance(claim, LaplaceDP):
        return LaplaceDP(2 * claim.epsilon, "replace")
    if isinstance(claim, ZeroConcentratedDP):
        return ZeroConcentratedDP(4 * claim.rho, "replace")
    epsilons = claim.slopes()
    epsilons = epsilons[epsilons <= 350]
    # Twice an epsilon: remove the row and add the other one. The two directions may be taken in either order.
    included, excluded = claim.profile(epsilons)
    deltas = np.minimum(1.0, np.maximum(included, excluded) * (1 + np.exp(epsilons)) * _ROUNDED_UP)
    return Curve(2 * epsilons, deltas, adjacency="replace")


def _amount(name: str, value: float) -> float:
    amount = checks.nonnegative(name, value)
    if amount > _LARGEST:
        raise InputError(f"{name} must be at most {_LARGEST:,.0f}, got {shown(value)}")
    return amount


def _renyi_delta(epsilons: Floats, above: float | Floats, divergence: float | Floats) -> Floats:
    """Theorem 38 (a), rounded up: the delta that a Rényi divergence leaves; `above` is the order less 1."""
    # (1 / a) (a / (a + 1))^(a + 1), with a = order - 1: xlogy stays exact where a is tiny.
    exponent = above * (divergence - epsilons + _ROUNDING * (divergence + epsilons))
    exponent += special.xlogy(above, above) - special.xlog1py(above + 1, above)
    return np.clip(np.exp(np.minimum(exponent, 0.0)) * _ROUNDED_UP, _LEAST, 1.0)
