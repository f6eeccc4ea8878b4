"""Claims: what is promised about a mechanism, and what a bound can be held against.

A claim knows its privacy profile. It knows nothing of how anybody would test it.
"""

from canaria.claims.approximate import ApproximateDP, require_same_adjacency

__all__ = ["ApproximateDP", "require_same_adjacency"]
