"""What is promised: a claim that a bound can be compared with."""

from dataclasses import dataclass

from canaria._core import checks
from canaria._core.errors import InputError


@dataclass(frozen=True)
class ApproximateDP:
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
    """Check that a bound and a claim have the same adjacency; "unspecified" fits any.

    A replace-one epsilon can be up to twice the add-remove one.

    Args:
        measured: The adjacency of the bound.
        claimed: The adjacency of the claim.

    Raises:
        InputError: If the adjacencies differ.

    """
    if "unspecified" not in (measured, claimed) and measured != claimed:
        raise InputError(
            f"adjacency of the bound ({measured}) and of the claim ({claimed}) must be the same; "
            "a replace-one epsilon can be up to twice the add-remove one"
        )
