"""The claims that a bound can refute: of its own adjacency, and at its delta or of its family."""

import math
from typing import TYPE_CHECKING

from canaria._core.errors import InputError, shown
from canaria.claims import ApproximateDP, Claim, require_same_adjacency

if TYPE_CHECKING:
    from canaria.bounds.bound import Bound


def require_comparable(bound: "Bound", claim: Claim) -> None:
    """Check that the bound can refute the claim; see `Bound.refutes`."""
    if not isinstance(claim, Claim):
        raise InputError(f"claim must be a claim, such as ApproximateDP(2.0, delta=1e-5), got {shown(claim)}")
    require_same_adjacency(bound.adjacency, claim.adjacency)
    if bound.family is not None:
        try:
            bound.family.parameter(claim)
        except InputError:
            raise InputError(
                f"the bound is against the family of {bound.family}, and refutes only claims of that family, "
                f"got {claim}; audit without a family to refute epsilon at delta for every mechanism"
            ) from None
    elif isinstance(claim, ApproximateDP):
        claim.require_comparable(bound.delta, bound.adjacency)
    elif math.isinf(claim.epsilon_at(bound.delta)):
        # Every bound lies below infinity, so "not refuted" would be said whatever the audit saw.
        raise InputError(
            f"no bound at delta = {bound.delta:g} can refute the claim of {claim}, which has no finite "
            "epsilon there; ask for the bound at a larger delta, such as delta=1e-5, or with a family"
        )
