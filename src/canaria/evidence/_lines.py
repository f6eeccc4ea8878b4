"""The lines of claims, remembered: bounds against a family ask for the same ones again and again."""

from functools import lru_cache

from canaria.claims import Claim, Signs
from canaria.claims.lines import Lines


def lines_of(claim: Claim, signs: Signs = Signs.BOTH) -> Lines:
    """The lines of a claim; those of a claim that can change are not remembered."""
    try:
        return _remembered(claim, signs)
    except TypeError:
        return claim.lines(signs)


@lru_cache(maxsize=1024)
def _remembered(claim: Claim, signs: Signs) -> Lines:
    return claim.lines(signs)
