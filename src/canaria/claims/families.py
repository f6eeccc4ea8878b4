"""Families: claims in one order, from the strongest promise to the weakest, by one parameter.

A bound against a family is the last claim of the initial run of refuted ones. It is about mechanisms whose
promise lies in the family, and says nothing of others. A new family is one class, which may be your own.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
from scipy import optimize

from canaria._core import checks, effort
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, nearest, shown
from canaria._core.kinds import Kinds
from canaria._core.rounding import significant
from canaria.claims.approximate import ApproximateDP
from canaria.claims.base import Claim
from canaria.claims.dpsgd import DpSgd
from canaria.claims.noise import GaussianDP, LaplaceDP

KINDS: Final[Kinds["Family"]] = Kinds("family")
_STEP: Final = 1.1
"""From the last claim of a stretch to that of the next."""
_LESS_NOISE: Final = 0.94
"""The same for the noise of DP-SGD."""
_SMALLEST_PARAMETER, _LARGEST_LOG = 1e-6, 7.0
_AS_CLOSE: Final = 1e-6
_LEAST_RATE: Final = 1e-9


class Family(ABC):
    """A chain of claims: a mechanism that keeps one keeps all weaker ones, with larger parameters.

    Stretches of claims share how they are tested. Each is given by the parameter of its last claim.

    Attributes:
        name: The name on the command line and in files.
        continuous: Whether any parameter can be tested, or only the last of each stretch.

    """

    name: ClassVar[str]
    continuous: ClassVar[bool] = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        KINDS.add(cls, cls.name)

    @abstractmethod
    def claim(self, parameter: float) -> Claim:
        """The claim with this parameter; a larger one is a weaker claim."""

    @abstractmethod
    def parameter(self, claim: Claim) -> float:
        """The parameter of a claim; an InputError if it is not of the family."""

    @abstractmethod
    def stretches(self, elements: int) -> Floats:
        """The parameter of the last claim of each stretch, rising, for an audit of so many elements."""

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""

    def leaks(self, elements: int) -> list[Claim]:
        """What mechanisms may leak, the least first; how claims are tested is chosen for these.

        By default the claims of the family themselves.
        """
        return [self.claim(end) for end in self.stretches(elements).tolist()]

    @property
    @abstractmethod
    def condition(self) -> str:
        """What must be true of a mechanism for its epsilon to be bounded, after "if"; empty if nothing."""

    @abstractmethod
    def consequence(self, claim: Claim) -> str:
        """What follows for a mechanism of the family if this claim is refuted."""

    def require_delta(self, delta: float) -> None:
        """Check a delta, and that claims of the family say something of epsilon there."""
        checks.delta(delta)

    def at(self, epsilon: float, delta: float) -> Claim:
        """The weakest claim that keeps a promise of (epsilon, delta): what it means for this family.

        Args:
            epsilon: The epsilon that is promised.
            delta: The delta that is promised with it.

        Returns:
            The claim, up to a factor of 1e-6 in its parameter and rounded to the weaker side.

        Raises:
            InputError: If no claim of the family is so strong, or so weak.

        """
        self.require_delta(delta)
        return _weakest(self, checks.nonnegative("epsilon", epsilon), checks.delta(delta))

    def effort(self, elements: int) -> float:
        """Seconds for the lines of all claims that are tested."""
        return effort.CALL * 10 * len(self.stretches(elements))

    def _refuse(self, claim: Claim) -> InputError:
        return InputError(f"claim must be of the family of {self}, got {shown(claim)}")


@dataclass(frozen=True)
class Gaussian(Family):
    """mu-Gaussian DP, by mu."""

    name: ClassVar[str] = "gaussian"

    def claim(self, parameter: float) -> GaussianDP:
        """mu-Gaussian DP."""
        return GaussianDP(parameter)

    def parameter(self, claim: Claim) -> float:
        """Mu."""
        if not isinstance(claim, GaussianDP):
            raise self._refuse(claim)
        return claim.mu

    def stretches(self, elements: int) -> Floats:
        """From a third of the standard error of a mean up to 7, in steps of 10%."""
        return _geometric(min(0.02, 0.3 / math.sqrt(elements)), 7.0)

    def to_dict(self) -> dict[str, Any]:
        """No fields."""
        return {}

    @property
    def condition(self) -> str:
        """That noise is Gaussian."""
        return "its privacy profile is that of Gaussian noise"

    def consequence(self, claim: Claim) -> str:
        """Its mu is larger."""
        return f"its μ is above {self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return "Gaussian DP"


@dataclass(frozen=True)
class Laplace(Family):
    """Laplace noise, by epsilon."""

    name: ClassVar[str] = "laplace"

    def claim(self, parameter: float) -> LaplaceDP:
        """Laplace noise with this epsilon."""
        return LaplaceDP(parameter)

    def parameter(self, claim: Claim) -> float:
        """Epsilon."""
        if not isinstance(claim, LaplaceDP):
            raise self._refuse(claim)
        return claim.epsilon

    def stretches(self, elements: int) -> Floats:
        """From half of the standard error of a mean up to 20, in steps of 10%."""
        return _geometric(min(0.02, 0.5 / math.sqrt(elements)), 20.0)

    def to_dict(self) -> dict[str, Any]:
        """No fields."""
        return {}

    @property
    def condition(self) -> str:
        """That noise is of the law of Laplace."""
        return "its privacy profile is that of Laplace noise"

    def consequence(self, claim: Claim) -> str:
        """Its noise is smaller."""
        return f"the ε of its noise is above {self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return "Laplace noise"


@dataclass(frozen=True)
class Approximate(Family):
    """(epsilon, delta)-DP at one delta, by epsilon: every mechanism is in it.

    Attributes:
        delta: The delta of all claims.

    Raises:
        InputError: If delta is out of range.

    """

    delta: float

    name: ClassVar[str] = "approximate"

    def __post_init__(self) -> None:
        checks.assign(self, delta=checks.delta(self.delta))

    def claim(self, parameter: float) -> ApproximateDP:
        """(epsilon, delta)-DP."""
        return ApproximateDP(parameter, self.delta)

    def parameter(self, claim: Claim) -> float:
        """Epsilon."""
        if not isinstance(claim, ApproximateDP) or claim.delta != self.delta:
            raise self._refuse(claim)
        return claim.epsilon

    def stretches(self, elements: int) -> Floats:
        """From half of the standard error of a mean up to 20, in steps of 10%."""
        return _geometric(min(0.02, 0.5 / math.sqrt(elements)), 20.0)

    def require_delta(self, delta: float) -> None:
        """The delta must be that of the claims: at another one they say nothing of epsilon."""
        if delta != self.delta:
            raise InputError(
                f"delta must be that of the family of {self}, got {delta:g}: its claims say nothing of others"
            )

    def leaks(self, elements: int) -> list[Claim]:
        """Those of Gaussian noise, as most mechanisms add it."""
        return Gaussian().leaks(elements)

    def to_dict(self) -> dict[str, Any]:
        """The delta, for JSON."""
        return {"delta": self.delta}

    @property
    def condition(self) -> str:
        """Nothing."""
        return ""

    def consequence(self, claim: Claim) -> str:
        """Its epsilon is larger."""
        return f"its ε at δ = {self.delta:g} is above {self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return f"ε at δ = {self.delta:g}"


@dataclass(frozen=True)
class DpSgdFamily(Family):
    """DP-SGD with these steps and this rate, by one over the noise multiplier.

    More noise in every step is post-processing of less noise, so the claims are a chain. Claims are tested
    at noise multipliers that are powers of 0.94: the curve of each takes a while, once.

    Attributes:
        steps: The number of steps.
        sample_rate: The probability with which an element is in a batch.

    Raises:
        InputError: If an argument is out of range.

    """

    steps: int
    sample_rate: float

    name: ClassVar[str] = "dpsgd"
    continuous: ClassVar[bool] = False

    def __post_init__(self) -> None:
        probe = DpSgd(1.0, self.sample_rate, self.steps)
        if probe.sample_rate < _LEAST_RATE:
            raise InputError(f"sample_rate must be at least {_LEAST_RATE:g}, got {shown(self.sample_rate)}")
        checks.assign(self, steps=probe.steps, sample_rate=probe.sample_rate)

    def claim(self, parameter: float) -> DpSgd:
        """DP-SGD with this noise multiplier."""
        return DpSgd(1 / parameter, self.sample_rate, self.steps)

    def parameter(self, claim: Claim) -> float:
        """One over the noise multiplier."""
        settings = (self.steps, self.sample_rate)
        if not isinstance(claim, DpSgd) or (claim.steps, claim.sample_rate) != settings:
            raise self._refuse(claim)
        return 1 / claim.noise_multiplier

    def stretches(self, elements: int) -> Floats:
        """From noise at which DP-SGD is about as private as Gaussian DP with a small mu, to mu = 5."""
        first, last = (self._noise(mu) for mu in (max(0.02, 1 / math.sqrt(elements)), 5.0))
        powers = np.arange(
            math.floor(math.log(first) / math.log(_LESS_NOISE)),
            math.ceil(math.log(last) / math.log(_LESS_NOISE)) + 1.0,
        )
        return np.array([1 / significant(noise) for noise in (_LESS_NOISE**powers).tolist()])

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {"steps": self.steps, "sample_rate": self.sample_rate}

    def effort(self, elements: int) -> float:
        """The privacy loss distributions."""
        noise = (1 / self.stretches(elements)).tolist()
        return math.fsum(DpSgd(one, self.sample_rate, self.steps).effort for one in noise)

    @property
    def condition(self) -> str:
        """That it is DP-SGD with these settings."""
        return "it is DP-SGD with these steps and this rate"

    def consequence(self, claim: Claim) -> str:
        """Its noise multiplier is smaller."""
        return f"its noise multiplier is below {1 / self.parameter(claim):.6g}"

    def __str__(self) -> str:
        return f"DP-SGD with {self.steps:,} steps, rate {self.sample_rate:.6g}"

    def _noise(self, mu: float) -> float:
        """The noise with sqrt(T (e^(1/s^2) - 1)) q = mu, the limit of many steps (Bu et al. 2020)."""
        return 1 / math.sqrt(math.log1p((mu / self.sample_rate) ** 2 / self.steps))


@lru_cache(maxsize=256)
def _weakest(family: Family, epsilon: float, delta: float) -> Claim:
    """See `Family.at`; each try may take the accountant a while."""

    def excess(log_parameter: float) -> float:
        return family.claim(math.exp(log_parameter)).least_epsilon_at(delta) - epsilon

    low, high = math.log(_SMALLEST_PARAMETER), 0.0
    while (above := excess(high)) <= 0 and high < _LARGEST_LOG:
        low, high = high, high + math.log(2)
    if above <= 0 or excess(low) > 0:
        raise InputError(f"the family of {family} has no claim with ε = {epsilon:g} at δ = {delta:g}")
    while high - low > 1:
        middle = (low + high) / 2
        low, high = (low, middle) if excess(middle) > 0 else (middle, high)
    found = float(optimize.brentq(excess, low, high, xtol=_AS_CLOSE / 4))
    step = _AS_CLOSE / 4
    while excess(found) <= 0:
        found, step = found + step, 2 * step
    return family.claim(math.exp(found))


def gaussian() -> Gaussian:
    """The family of mu-Gaussian DP: Gaussian noise, of any size.

    Returns:
        The family.

    Example:
        >>> gaussian().claim(1.0)
        GaussianDP(mu=1.0, adjacency='unspecified')

    """
    return Gaussian()


def laplace() -> Laplace:
    """The family of Laplace noise, of any size.

    Returns:
        The family.

    """
    return Laplace()


def approximate(delta: float) -> Approximate:
    """The family of (epsilon, delta)-DP at one delta: every mechanism.

    Args:
        delta: The delta.

    Returns:
        The family.

    """
    return Approximate(delta)


def dpsgd(steps: int, sample_rate: float) -> DpSgdFamily:
    """The family of DP-SGD with these steps and this rate, of any noise.

    Args:
        steps: The number of steps.
        sample_rate: The probability with which an element is in a batch.

    Returns:
        The family.

    """
    return DpSgdFamily(steps, sample_rate)


def family_of(claim: Claim) -> Family | None:
    """The family that a claim belongs to.

    Args:
        claim: The claim.

    Returns:
        The family; None for a curve of your own, and for a composition.

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

    Returns:
        The family.

    Raises:
        InputError: If there is no such family, or if a number is missing or out of range.

    Example:
        >>> parse_family("dpsgd:steps=1000,sample_rate=0.01")
        DpSgdFamily(steps=1000, sample_rate=0.01)

    """
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",") if pair]
    try:
        fields = {key.strip(): _number(value) for key, _, value in pairs}
        if name in KINDS and len(fields) == len(pairs):
            return KINDS[name](**fields)
    except InputError:
        raise
    except (TypeError, ValueError):
        pass
    meant = "" if name in KINDS else nearest(name, KINDS)
    raise InputError(
        "family must be gaussian, laplace, approximate:delta=D or dpsgd:steps=T,sample_rate=Q, "
        f"got {shown(text)}{meant}"
    )


def written(family: Family) -> str:
    """A family as `parse_family` reads it."""
    fields = ",".join(f"{name}={value!r}" for name, value in family.to_dict().items())
    return f"{family.name}:{fields}" if fields else family.name


def to_dict(family: Family) -> dict[str, Any]:
    """A family as plain data, with its name."""
    return KINDS.written(family, family.name)


def from_dict(data: object) -> Family:
    """A family from what `to_dict` wrote; anything else is an InputError."""
    return KINDS.read(data)


@lru_cache(maxsize=256)
def tested(family: Family, elements: int) -> Floats:
    """The parameters of a family's claims that are tested; a family of your own must be a chain."""
    if not type(family).__module__.startswith("canaria."):
        require_chain(family, elements)
    return np.asarray(family.stretches(elements), dtype=np.float64)


def require_chain(family: Family, elements: int) -> None:
    """Check that the claims of a family are nested: each allows what the one before it allows, and more.

    Args:
        family: The family.
        elements: The number of elements of the audit, by which its claims are chosen.

    Raises:
        InputError: If they are not.

    """
    ends = checks.vector("stretches", family.stretches(elements))
    if len(ends) == 0 or not (np.diff(ends) > 0).all():
        raise InputError(f"stretches of the family of {family} must rise, got {shown(ends)}")
    before = None
    for end in ends.tolist():
        lines = family.claim(end).lines()
        if before is not None:
            corners = np.concatenate([[0.0], lines.corners_q, before.corners_q])
            if (before.largest(corners) > lines.largest(corners) * (1 + 1e-6) + 1e-9).any():
                raise InputError(
                    f"the family of {family} must be a chain, but {family.claim(end)} does not follow from "
                    "the claim before it"
                )
        before = lines


def _number(text: str) -> float | int:
    number = float(text)
    return int(number) if text.strip().isdecimal() else number


def _geometric(first: float, last: float) -> Floats:
    steps = math.ceil(math.log(last / first) / math.log(_STEP))
    return np.array([significant(first * _STEP**step) for step in range(steps + 1)])
