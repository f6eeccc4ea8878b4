"""Families and claims by a text, and the family of a claim."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from canaria._core import checks
from canaria._core.errors import InputError, nearest, shown
from canaria.claims.base import ApproximateDP, Claim
from canaria.claims.dpsgd import DpSgd
from canaria.claims.families._approximate import Approximate
from canaria.claims.families._base import Family
from canaria.claims.families._dpsgd import DpSgdFamily
from canaria.claims.families._noise import Gaussian, Laplace
from canaria.claims.noise import GaussianDP, LaplaceDP
from canaria.claims.renyi import RenyiDP, ZeroConcentratedDP

_T = TypeVar("_T")


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
    known = {name: kind.read for name, kind in Family.kinds().items()}
    allowed = "gaussian, laplace, approximate:delta=D or dpsgd:steps=T,sample_rate=Q"
    return _read(text, known, f"family must be {allowed}")


def parse_claim(text: str, delta: float) -> Claim:
    """The claim that a text states.

    Args:
        text: An epsilon, or zcdp:rho=R, rdp:order=A,epsilon=E, gaussian:noise_multiplier=S, laplace:epsilon=E
            or dpsgd:noise_multiplier=S,sample_rate=Q,steps=T.
        delta: The delta of an epsilon.

    Example:
        >>> print(parse_claim("2", 1e-5), parse_claim("zcdp:rho=0.5", 1e-5), sep=" or ")
        ε = 2 at δ = 1e-05 or 0.5-zCDP
    """
    try:
        epsilon = float(text)
    except ValueError:
        pass
    else:
        return ApproximateDP(checks.nonnegative("the claim", epsilon), delta)
    known: dict[str, Callable[..., Claim]] = {
        "zcdp": ZeroConcentratedDP,
        "rdp": RenyiDP,
        "gaussian": _gaussian,
        "laplace": LaplaceDP,
        "dpsgd": DpSgd,
    }
    allowed = (
        "an epsilon, zcdp:rho=R, rdp:order=A,epsilon=E, gaussian:noise_multiplier=S, laplace:epsilon=E or "
        "dpsgd:noise_multiplier=S,sample_rate=Q,steps=T"
    )
    return _read(text, known, f"the claim must be {allowed}")


def _gaussian(*, noise_multiplier: float) -> GaussianDP:
    return GaussianDP(1 / checks.positive("noise_multiplier", noise_multiplier))


def _read(text: str, known: Mapping[str, Callable[..., _T]], allowed: str) -> _T:
    """Make what a text like "name:key=number,key=number" says."""
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    try:
        fields = {key.strip(): _number(value) for key, _, value in pairs}
        if name in known and len(fields) == len(pairs):
            return known[name](**fields)
    except InputError:
        raise
    except (TypeError, ValueError):
        pass
    raise InputError(f"{allowed}, got {shown(text)}{'' if name in known else nearest(name, known)}")


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if text.strip().isdecimal() else number
