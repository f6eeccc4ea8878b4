"""The interface of all families: chains of claims, from the strongest promise to the weakest."""

import math
from abc import abstractmethod
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
from scipy import optimize

from canaria._core import checks, effort
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria._core.kinds import Kind
from canaria._core.rounding import significant
from canaria.claims.base import Claim

_STEP: Final = 1.1
"""The parameter of the last claim of a stretch over that of the stretch before."""
_SMALLEST_PARAMETER, _LARGEST_LOG = 1e-6, 7.0
_AS_CLOSE: Final = 1e-6


class Family(Kind):
    """A chain of claims: a mechanism that keeps one keeps all weaker ones, with larger parameters.

    Stretches of claims share how they are tested. Each is given by the parameter of its last claim.

    Attributes:
        name: The name on the command line and in files.
        least_delta: The least delta at which its claims have an epsilon.

    Example:
        >>> from canaria.claims import families
        >>> family = families.Gaussian()
        >>> family.claim(1.0)
        GaussianDP(mu=1.0, adjacency='unspecified')
        >>> family.condition
        'its privacy profile is that of Gaussian noise'
        >>> round(family.at(epsilon=2.0, delta=1e-5).mu, 3)
        0.502
    """

    name: ClassVar[str]
    least_delta: ClassVar[float] = 0.0

    @abstractmethod
    def claim(self, parameter: float) -> Claim:
        """The claim with this parameter; a larger one is a weaker claim."""

    @abstractmethod
    def parameter(self, claim: Claim) -> float:
        """The parameter of a claim; an InputError if it is not of the family."""

    @abstractmethod
    def stretches(self, elements: int) -> Floats:
        """The parameter of the last claim of each stretch, rising, for an audit of this size."""

    def leaks(self, elements: int) -> list[Claim]:
        """Leaks for which the looks of claims are chosen, the smallest first.

        By default the claims of the family themselves.
        """
        return [self.claim(end) for end in self.stretches(elements).tolist()]

    @property
    @abstractmethod
    def condition(self) -> str:
        """The condition on a mechanism under which its epsilon is bounded, after "if"; empty if none."""

    @abstractmethod
    def consequence(self, claim: Claim) -> str:
        """The conclusion about a mechanism of the family if this claim is refuted."""

    def require_delta(self, delta: float) -> None:
        """Check a delta, and that claims of the family have an epsilon there."""
        if checks.delta(delta) < self.least_delta:
            raise InputError(
                f"delta must be larger, such as 1e-5: claims of the family of {self} have no finite epsilon "
                f"at delta = {delta:g}"
            )

    def at(self, epsilon: float, delta: float) -> Claim:
        """The weakest claim of the family that implies (epsilon, delta)-DP.

        Returns:
            The claim, up to a factor of 1e-6 in its parameter where epsilon is positive, and rounded to the
                weaker side.

        Raises:
            InputError: If no claim of the family is so strong, or so weak.
        """
        self.require_delta(delta)
        if epsilon == math.inf:
            raise InputError("epsilon must be finite to be a claim of a family, got inf")
        return _weakest(self, checks.nonnegative("epsilon", epsilon), checks.delta(delta))

    def effort(self, elements: int) -> float:
        """Seconds for the lines of all claims that are tested."""
        return effort.CALL * 10 * len(self.stretches(elements))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.to_dict() == self.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), repr(self.to_dict())))

    def _refuse(self, claim: Claim) -> InputError:
        return InputError(f"claim must be of the family of {self}, got {shown(claim)}")


@lru_cache(maxsize=256)
def _weakest(family: Family, epsilon: float, delta: float) -> Claim:
    """See `Family.at`; each try may take the accountant a while."""

    def excess(log_parameter: float) -> float:
        return family.claim(math.exp(log_parameter)).least_epsilon_at(delta) - epsilon

    # By logarithms, as parameters range over several powers of ten. Few tries first narrow the bracket, since
    # an accountant takes longest for the weakest claims.
    low, high = math.log(_SMALLEST_PARAMETER), 0.0
    while (above := excess(high)) <= 0 and high < _LARGEST_LOG:
        low, high = high, high + math.log(2)
    if above <= 0 or excess(low) > 0:
        raise InputError(f"the family of {family} has no claim with ε = {epsilon:g} at δ = {delta:g}")
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    found = float(optimize.brentq(excess, low, high, xtol=_AS_CLOSE / 4))
    # The claim must be on the weaker side: one that is a little too strong would promise more than was asked.
    step = _AS_CLOSE / 4
    while excess(found) <= 0:
        found, step = found + step, 2 * step
    return family.claim(math.exp(found))


def written(family: Family) -> str:
    """A family as `parse_family` reads it.

    Args:
        family: The family.

    Example:
        >>> from canaria.claims import families
        >>> text = families.written(families.DpSgdFamily(steps=100, sample_rate=0.1))
        >>> text, families.parse_family(text)
        ('dpsgd:steps=100,sample_rate=0.1', DpSgdFamily(steps=100, sample_rate=0.1))
    """
    fields = ",".join(f"{name}={value!r}" for name, value in family.to_dict().items())
    return f"{family.name}:{fields}" if fields else family.name


def tested(family: Family, elements: int) -> Floats:
    """The parameters of a family's claims that are tested; a family of your own must be a chain.

    Args:
        family: The family.
        elements: The number of elements of the audit.

    Example:
        >>> from canaria.claims import families
        >>> found = families.tested(families.Laplace(), elements=1000)
        >>> bool((found[1:] > found[:-1]).all())
        True
    """
    require_constant(family)
    return _tested(family, elements)


@lru_cache(maxsize=256)
def _tested(family: Family, elements: int) -> Floats:
    if not type(family).__module__.startswith("canaria."):
        require_chain(family, elements)
    return np.asarray(family.stretches(elements), dtype=np.float64)


def require_constant(family: Family) -> None:
    """Check that a family of your own can be remembered by what it is.

    Args:
        family: The family.

    Example:
        >>> from canaria.claims import families
        >>> families.require_constant(families.Approximate(1e-5))  # passes, and returns nothing
    """
    if type(family).__hash__ is None:
        raise InputError(f"a family must not change: make {type(family).__name__} a frozen dataclass")


def require_chain(family: Family, elements: int) -> None:
    """Check that the claims of a family are nested: each allows what the one before it allows, and more."""
    ends = checks.vector("stretches", family.stretches(elements))
    if len(ends) == 0 or not (np.diff(ends) > 0).all():
        raise InputError(f"stretches of the family of {family} must rise, got {shown(ends)}")
    before = None
    for end in ends.tolist():
        lines = family.claim(end).lines()
        if before is not None:
            # Both curves are concave and piecewise linear: if one is below the other at all corners, it is
            # everywhere.
            corners = np.concatenate([[0.0], lines.corners_q, before.corners_q])
            if (before.largest(corners) > lines.largest(corners) * (1 + 1e-6) + 1e-9).any():
                raise InputError(
                    f"the family of {family} must be a chain, but {family.claim(end)} does not follow from "
                    "the claim before it"
                )
        before = lines


def geometric(first: float, last: float) -> Floats:
    """Parameters from the first to the last, in steps of 10%, as short numbers."""
    steps = math.ceil(math.log(last / first) / math.log(_STEP))
    return np.array([significant(first * _STEP**step) for step in range(steps + 1)])
