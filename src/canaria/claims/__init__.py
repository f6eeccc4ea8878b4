"""Claims: what is promised about a mechanism, and what a bound can be compared with.

A claim does not know how it is tested.
"""

from canaria._core.kinds import to_dict
from canaria.claims import families
from canaria.claims.adjacency import require_same_adjacency
from canaria.claims.base import ApproximateDP, Claim, Signs
from canaria.claims.curves import Composed, Curve
from canaria.claims.dpsgd import DpSgd
from canaria.claims.families import parse_claim
from canaria.claims.noise import GaussianDP, LaplaceDP
from canaria.claims.renyi import RenyiDP, ZeroConcentratedDP, as_replace_one

__all__ = [
    "ApproximateDP",
    "Claim",
    "Composed",
    "Curve",
    "DpSgd",
    "GaussianDP",
    "LaplaceDP",
    "RenyiDP",
    "Signs",
    "ZeroConcentratedDP",
    "as_replace_one",
    "families",
    "parse_claim",
    "require_same_adjacency",
    "to_dict",
]
