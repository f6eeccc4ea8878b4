"""Families by their name, by a text, and by a claim that is in them."""

from canaria._core.errors import InputError, nearest, shown
from canaria.claims.base import ApproximateDP, Claim
from canaria.claims.dpsgd import DpSgd
from canaria.claims.families._approximate import Approximate
from canaria.claims.families._base import Family
from canaria.claims.families._dpsgd import DpSgdFamily
from canaria.claims.families._noise import Gaussian, Laplace
from canaria.claims.noise import GaussianDP, LaplaceDP


def family_of(claim: Claim) -> Family | None:
    """The family that a claim belongs to; None for a curve of your own, and for a composition.

    Args:
        claim: The claim.

    Example:
        >>> family_of(GaussianDP(1.0))
        Gaussian()
    """
    if isinstance(claim, DpSgd):
        return DpSgdFamily(claim.steps, claim.sample_rate)
    if isinstance(claim, ApproximateDP):
        return Approximate(claim.delta)
    kinds: dict[type[Claim], Family] = {GaussianDP: Gaussian(), LaplaceDP: Laplace()}
    return kinds.get(type(claim))


def parse_family(text: str) -> Family:
    """The family of that name.

    Args:
        text: gaussian, laplace, approximate:delta=D, or dpsgd:steps=T,sample_rate=Q.

    Example:
        >>> parse_family("dpsgd:steps=1000,sample_rate=0.01")
        DpSgdFamily(steps=1000, sample_rate=0.01)
    """
    name, _, rest = text.partition(":")
    known = Family.kinds()
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    try:
        fields = {key.strip(): _number(value) for key, _, value in pairs}
        if name in known and len(fields) == len(pairs):
            return known[name].read(**fields)
    except InputError:
        raise
    except (TypeError, ValueError):
        pass
    meant = "" if name in known else nearest(name, known)
    raise InputError(
        "family must be gaussian, laplace, approximate:delta=D or dpsgd:steps=T,sample_rate=Q, "
        f"got {shown(text)}{meant}"
    )


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if text.strip().isdecimal() else number
