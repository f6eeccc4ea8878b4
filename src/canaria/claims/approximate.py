"""What is promised: a claim that a bound can be compared with."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.claims.base import FLIPS, Claim, Profile


@dataclass(frozen=True)
class ApproximateDP(Claim):
    """The promise of (epsilon, delta)-DP for neighbours of some adjacency.

    delta is part of the promise and has no default: epsilon = 2 at delta = 0.02 promises much less than
    epsilon = 2 at delta = 0. Pure DP is `ApproximateDP(epsilon, delta=0)`.

    Attributes:
        epsilon: The promised epsilon, at least 0.
        delta: The promised delta, between 0 and 1.
        adjacency: "add-remove", "replace" or "unspecified".

    Raises:
        InputError: If epsilon or delta is out of range, or the adjacency is unknown.

    Example:
        >>> ApproximateDP(2.0, delta=1e-5)
        ApproximateDP(epsilon=2.0, delta=1e-05, adjacency='unspecified')

    """

    epsilon: float
    delta: float
    adjacency: str = "unspecified"

    def __post_init__(self) -> None:
        checks.assign(
            self,
            epsilon=checks.nonnegative("epsilon", self.epsilon),
            delta=checks.delta(self.delta),
            adjacency=checks.adjacency(self.adjacency),
        )

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.6g} at δ = {self.delta:g}"

    def profile(self, epsilons: Floats) -> Profile:
        """`delta_at` for many epsilons, the same in both directions."""
        deltas = np.array([self.delta_at(epsilon) for epsilon in epsilons.tolist()])
        return Profile(deltas, deltas)

    @property
    def reach(self) -> float:
        """Epsilon: delta is the same from there on."""
        return self.epsilon

    def point(self, charged: float, flips: float = FLIPS) -> "ApproximateDP":
        """The claim itself."""
        return self

    def slopes(self) -> Floats:
        """Epsilon alone: all other lines follow."""
        return np.array([min(self.epsilon, 700.0)])

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {"epsilon": self.epsilon, "delta": self.delta, "adjacency": self.adjacency}

    def delta_at(self, epsilon: float) -> float:
        """The privacy profile: the delta that the claim promises at another epsilon.

        The most that a mechanism can leak under the claim is known exactly (Kairouz, Oh, Viswanath 2015), and
        so is its profile.

        Args:
            epsilon: At least 0.

        Returns:
            The smallest delta for which every mechanism that keeps the claim is (epsilon, delta)-DP.

        Example:
            >>> ApproximateDP(1.0, delta=1e-5).delta_at(1.0)
            1e-05
            >>> round(ApproximateDP(1.0, delta=0).delta_at(0.0), 3)
            0.462

        """
        other = checks.nonnegative("epsilon", epsilon)
        if other >= self.epsilon:
            return self.delta
        excess = -math.expm1(other - self.epsilon) / (1 + math.exp(-self.epsilon))
        return self.delta + (1 - self.delta) * excess

    def epsilon_at(self, delta: float) -> float:
        """The epsilon that the claim promises at another delta.

        Args:
            delta: Between 0 and 1.

        Returns:
            The smallest epsilon for which every mechanism that keeps the claim is (epsilon, delta)-DP;
            infinite below the claim's own delta.

        Example:
            >>> ApproximateDP(1.0, delta=1e-5).epsilon_at(0.0)
            inf
            >>> round(ApproximateDP(1.0, delta=0).epsilon_at(0.2), 3)
            0.68

        """
        other = checks.delta(delta)
        if other < self.delta:
            return math.inf
        if self.delta == 1 or other >= self.delta_at(0.0):
            return 0.0
        excess = (other - self.delta) / (1 - self.delta)
        return max(0.0, self.epsilon + math.log1p(-excess * (1 + math.exp(-self.epsilon))))

    def least_epsilon_at(self, delta: float) -> float:
        """`epsilon_at`, which is exact."""
        return self.epsilon_at(delta)

    def require_comparable(self, delta: float, adjacency: str) -> None:
        """Check that a bound at this delta and adjacency can refute the claim.

        A smaller delta promises more, so a bound at a larger delta than the claim's refutes it too; one at a
        smaller delta is about something that was never promised.

        Args:
            delta: The delta of the bound.
            adjacency: The adjacency of the bound.

        Raises:
            InputError: If the bound is at a smaller delta, or of another adjacency.

        """
        if delta < self.delta:
            raise InputError(
                f"the bound is at delta = {delta:g}, but the claim is at delta = {self.delta:g}; "
                f"ask for the bound at delta={self.delta:g}"
            )
        require_same_adjacency(adjacency, self.adjacency)


def require_same_adjacency(measured: str, claimed: str) -> None:
    """Check that a bound and a claim are about the same neighbours; "unspecified" is read as add-remove.

    Accountants promise add-remove epsilons, so that is how a claim that does not say is read. Replace-one
    must be stated on both sides: a replace-one epsilon can be twice the add-remove one, so a bound on it
    would refute a true add-remove claim (Theorem 20).

    Args:
        measured: The adjacency of the bound.
        claimed: The adjacency of the claim.

    Raises:
        InputError: If the adjacencies differ, or if one is replace-one and the other is not stated.

    Example:
        >>> from canaria import InputError
        >>> from canaria.claims import require_same_adjacency
        >>> require_same_adjacency("add-remove", "unspecified")
        >>> try:
        ...     require_same_adjacency("replace", "add-remove")
        ... except InputError as error:
        ...     print(str(error).partition(";")[0])
        adjacency of the bound (replace) and of the claim (add-remove) must be the same

    """
    stated = {measured, claimed} - {"unspecified"}
    if len(stated) > 1:
        raise InputError(
            f"adjacency of the bound ({measured}) and of the claim ({claimed}) must be the same; "
            "a replace-one epsilon can be up to twice the add-remove one"
        )
    if measured != claimed and "replace" in stated:
        known, silent = ("bound", "claim") if claimed == "unspecified" else ("claim", "bound")
        raise InputError(
            f"the {known} is about replace-one neighbours, and the adjacency of the {silent} is not stated; "
            f"give the {silent} adjacency='replace' if it is about them too (an accountant's epsilon is "
            "add-remove)"
        )


def common_adjacency(what: str, adjacencies: Iterable[str]) -> str:
    """The adjacency that several claims or bounds share; "unspecified" is read as add-remove.

    Args:
        what: What they are, for the error.
        adjacencies: The adjacency of each.

    Returns:
        The adjacency, "unspecified" if none is stated.

    Raises:
        InputError: If they differ, or if some are replace-one and others not stated.

    Example:
        >>> from canaria.claims.approximate import common_adjacency
        >>> common_adjacency("parts", ["add-remove", "unspecified"])
        'add-remove'

    """
    found = set(adjacencies)
    if "replace" in found and len(found) > 1:
        raise InputError(
            f"{what} must be for one adjacency, got {' and '.join(sorted(found))} "
            "(unspecified is read as add-remove)"
        )
    return "add-remove" if "add-remove" in found else found.pop()
