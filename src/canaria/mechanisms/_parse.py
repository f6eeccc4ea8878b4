"""Mechanisms by their names on the command line."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from canaria._core.errors import InputError, nearest, shown
from canaria.mechanisms._protocol import AnalysedMechanism
from canaria.mechanisms.counting import Count, CountInSets, NoisyCountInSets
from canaria.mechanisms.exposing import AllOrNothing, NameAndShame
from canaria.mechanisms.local import LocalGaussian, LocalLaplace, RandomizedResponse
from canaria.mechanisms.xor import Xor, XorInPairs, XorRandomizedResponse

MECHANISMS: Final[Mapping[str, tuple[Callable[..., Any], tuple[str, ...]]]] = {
    "randomized-response": (RandomizedResponse, ("epsilon",)),
    "local-laplace": (LocalLaplace, ("epsilon",)),
    "local-gaussian": (LocalGaussian, ("sigma",)),
    "name-and-shame": (NameAndShame, ()),
    "all-or-nothing": (AllOrNothing, ("p",)),
    "xor": (Xor, ()),
    "xor-randomized-response": (XorRandomizedResponse, ("epsilon",)),
    "xor-in-pairs": (XorInPairs, ()),
    "count": (Count, ()),
    "count-in-sets": (CountInSets, ("size",)),
    "noisy-count-in-sets": (NoisyCountInSets, ("size", "sigma")),
}


def parse_mechanism(name: str, **options: float | int | None) -> AnalysedMechanism:
    """The mechanism of that name, as on the command line.

    Args:
        name: A name in `MECHANISMS`.
        **options: The parameters of the mechanism; those that are None were not given.

    Example:
        >>> parse_mechanism("noisy-count-in-sets", size=8, sigma=2.0, epsilon=None)
        NoisyCountInSets(size=8, sigma=2.0)
    """
    if name not in MECHANISMS:
        meant = nearest(name, MECHANISMS)
        raise InputError(f"mechanism must be one of {', '.join(MECHANISMS)}, got {shown(name)}{meant}")
    make, wanted = MECHANISMS[name]
    given = {key: value for key, value in options.items() if value is not None}
    if set(given) != set(wanted):
        needs = " and ".join(f"--{key}" for key in wanted) or "no options of its own"
        got = ", ".join(f"--{key}" for key in given) or "none"
        raise InputError(f"mechanism {name} takes {needs}, got {got}")
    mechanism: AnalysedMechanism = make(**given)
    return mechanism
