"""Claims: what is promised about a mechanism, and what a bound can be compared with.

A claim does not know how it is tested.
"""

from canaria.claims.approximate import ApproximateDP, require_same_adjacency

__all__ = ["ApproximateDP", "require_same_adjacency"]
