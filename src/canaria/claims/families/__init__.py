"""Families: claims in one order, from the strongest promise to the weakest, by one parameter.

A bound against a family is the last claim of the initial run of refuted ones. It is about mechanisms whose
promise lies in the family, and says nothing of others. A new family is one class, which may be your own.
"""

from canaria.claims.families._approximate import Approximate
from canaria.claims.families._base import Family, require_constant, tested, written
from canaria.claims.families._dpsgd import DpSgdFamily
from canaria.claims.families._named import family_of, parse_claim, parse_family
from canaria.claims.families._noise import Gaussian, Laplace

__all__ = [
    "Approximate",
    "DpSgdFamily",
    "Family",
    "Gaussian",
    "Laplace",
    "family_of",
    "parse_claim",
    "parse_family",
    "require_constant",
    "tested",
    "written",
]
