"""The interface of all claims: a privacy profile in both directions, points of it, and its lines."""

import math
from abc import abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Final, NamedTuple

import numpy as np
from scipy import optimize

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria._core.kinds import Kind, to_dict
from canaria.claims.adjacency import require_same_adjacency
from canaria.claims.lines import Lines

_STEEPEST: Final = 700.0
"""Above it e^epsilon overflows in double precision."""
_EPSILON_ERROR: Final = 1e-9
"""The relative error of an epsilon that was searched for."""
FLIPS_AT_POINT: Final = 0.07
"""Flips that delta may buy at the point that stands for a curve, at level 0.05; 0.02 to 0.2 are within 5%."""


class Signs(Enum):
    """The signs that guesses may have, fixed before the output was seen.

    Example:
        >>> from canaria.claims import Signs
        >>> [sign.value for sign in Signs]
        ['both', 'included', 'excluded', 'one']
    """

    BOTH = "both"
    """Guesses may say "included" or "excluded", depending on the output."""
    INCLUDED = "included"
    """All guesses say "included"."""
    EXCLUDED = "excluded"
    """All guesses say "excluded"."""
    ONE = "one"
    """All guesses say the same, and it is not known which."""


class Profile(NamedTuple):
    """The deltas that a claim promises at some epsilons, in both directions.

    Attributes:
        included: The largest Pr[event with the element] - e^epsilon Pr[event without it].
        excluded: The same with the two exchanged.
    """

    included: Floats
    excluded: Floats


class Claim(Kind):
    """A promise about a mechanism, for neighbours of some adjacency.

    A new kind is one frozen dataclass that defines `profile`, `reach` and an `adjacency`. `Claim.from_dict`
    reads it back as soon as the class is defined. Fields that are not plain data need a `to_dict`.

    Attributes:
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> from canaria.claims import Claim, GaussianDP
        >>> claim = GaussianDP(1.0)
        >>> isinstance(claim, Claim)
        True
        >>> round(claim.delta_at(1.0), 3), round(claim.epsilon_at(1e-5), 3)
        (0.127, 4.377)
    """

    adjacency: str
    points: ClassVar[int] = 300
    """The number of lines that replace a curve."""

    @abstractmethod
    def profile(self, epsilons: Floats) -> Profile:
        """The promised deltas at epsilons of at least 0, rounded up."""

    @property
    @abstractmethod
    def reach(self) -> float:
        """The epsilon from which on lines add nothing: delta is 0 there, or far below any level."""

    def delta_at(self, epsilon: float) -> float:
        """The delta that the claim promises at this epsilon, for both directions, rounded up."""
        asked = np.array([checks.nonnegative("epsilon", epsilon)])
        return float(max(side[0] for side in self.profile(asked)))

    def epsilon_at(self, delta: float) -> float:
        """The epsilon that the claim promises at this delta.

        Args:
            delta: Between 0 and 1.

        Returns:
            The smallest epsilon with `delta_at(epsilon) <= delta`, up to rounding; infinite if there is none
            up to 700.
        """
        asked = checks.delta(delta)
        if self.delta_at(0.0) <= asked:
            return 0.0
        # Beyond `reach` delta may still be positive, if it is only negligible there.
        top = min(max(1.0, self.reach), _STEEPEST)
        while self.delta_at(top) > asked:
            if top >= _STEEPEST:
                return math.inf
            top = min(2 * top, _STEEPEST)
        return float(optimize.brentq(lambda epsilon: self.delta_at(epsilon) - asked, 0.0, top, xtol=1e-12))

    def least_epsilon_at(self, delta: float) -> float:
        """`epsilon_at`, rounded down: a lower limit for a mechanism that has exactly this profile."""
        return self.epsilon_at(delta) * (1 - _EPSILON_ERROR)

    def point(self, charged: float, flips: float = FLIPS_AT_POINT) -> "ApproximateDP":
        """The point, a weaker claim, at which evidence that knows (epsilon, delta) alone tests the curve.

        A mechanism that keeps the claim is (epsilon, delta)-DP for every epsilon and `delta_at(epsilon)`, so
        any point that is fixed in advance is valid (Theorem 28). The point depends on the claim, on the
        number of elements and on the flips that delta may buy there.

        Args:
            charged: The number of elements that delta is charged for.
            flips: The flips that delta buys at the point, fixed in advance; the default suits tests of level
                0.05.
        """

        # B = n delta (1 - p) falls with epsilon. Without delta a smaller epsilon would be easier to refute,
        # but B takes from the level, so the epsilon is the one at which B is as large as it may be.
        def excess(epsilon: float) -> float:
            return charged * self.delta_at(epsilon) / (1 + math.exp(epsilon)) - flips

        top = min(self.reach, _STEEPEST)
        if excess(0.0) <= 0:
            top = 0.0
        elif excess(top) < 0:
            top = float(optimize.brentq(excess, 0.0, top, xtol=1e-6))
        return ApproximateDP(top, self.delta_at(top), self.adjacency)

    def lines(self, signs: Signs = Signs.BOTH) -> Lines:
        """The claim as lines P <= delta + kappa Q for guesses of these signs (Lemma 4, Theorem 14).

        If both signs occur, the deltas of the two directions are averaged. Slopes below 1 come from the other
        direction: P <= delta + kappa Q for all events is Q <= 1 - (1 - delta) / kappa + P / kappa.
        """
        epsilons = self.slopes()
        return lines_of(epsilons, self.profile(epsilons), signs)

    def slopes(self) -> Floats:
        """The epsilons whose lines stand for the curve."""
        return np.linspace(0.0, min(self.reach, _STEEPEST), self.points)


@dataclass(frozen=True)
class ApproximateDP(Claim):
    """The promise of (epsilon, delta)-DP for neighbours of some adjacency.

    delta is part of the promise and has no default: epsilon = 2 at delta = 0.02 promises much less than
    epsilon = 2 at delta = 0. Pure DP is `ApproximateDP(epsilon, delta=0)`.

    Attributes:
        epsilon: The promised epsilon, at least 0.
        delta: The promised delta, between 0 and 1.
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> ApproximateDP(2.0, delta=1e-5)
        ApproximateDP(epsilon=2.0, delta=1e-05, adjacency='unspecified')
    """

    epsilon: float
    delta: float
    adjacency: str = "unspecified"

    def __post_init__(self) -> None:
        checks.assign(
            self,
            epsilon=checks.nonnegative("epsilon", self.epsilon),
            delta=checks.delta(self.delta),
            adjacency=checks.adjacency(self.adjacency),
        )

    def __str__(self) -> str:
        return f"ε = {self.epsilon:.6g} at δ = {self.delta:g}"

    def profile(self, epsilons: Floats) -> Profile:
        """`delta_at` for many epsilons, the same in both directions."""
        deltas = np.array([self.delta_at(epsilon) for epsilon in epsilons.tolist()])
        return Profile(deltas, deltas)

    @property
    def reach(self) -> float:
        """Epsilon: delta is the same from there on."""
        return self.epsilon

    def point(self, charged: float, flips: float = FLIPS_AT_POINT) -> "ApproximateDP":
        """The claim itself."""
        return self

    def slopes(self) -> Floats:
        """Epsilon alone: all other lines follow."""
        return np.array([min(self.epsilon, 700.0)])

    def delta_at(self, epsilon: float) -> float:
        """The privacy profile: the delta that the claim promises at another epsilon.

        The worst mechanism under the claim is known (Kairouz, Oh, Viswanath 2015): with probability delta it
        reveals the element, else it is randomized response. This is its profile.

        Example:
            >>> ApproximateDP(1.0, delta=1e-5).delta_at(1.0)
            1e-05
            >>> round(ApproximateDP(1.0, delta=0).delta_at(0.0), 3)
            0.462
        """
        other = checks.nonnegative("epsilon", epsilon)
        if other >= self.epsilon:
            return self.delta
        excess = -math.expm1(other - self.epsilon) / (1 + math.exp(-self.epsilon))
        return self.delta + (1 - self.delta) * excess

    def epsilon_at(self, delta: float) -> float:
        """The epsilon that the claim promises at another delta.

        Example:
            >>> ApproximateDP(1.0, delta=1e-5).epsilon_at(0.0)
            inf
            >>> round(ApproximateDP(1.0, delta=0).epsilon_at(0.2), 3)
            0.68
        """
        other = checks.delta(delta)
        if other < self.delta:
            return math.inf
        if self.delta == 1 or other >= self.delta_at(0.0):
            return 0.0
        excess = (other - self.delta) / (1 - self.delta)
        return max(0.0, self.epsilon + math.log1p(-excess * (1 + math.exp(-self.epsilon))))

    def least_epsilon_at(self, delta: float) -> float:
        """`epsilon_at`, which is exact."""
        return self.epsilon_at(delta)

    def require_comparable(self, delta: float, adjacency: str) -> None:
        """Check that a bound at this delta and adjacency can refute the claim.

        A smaller delta promises more, so a bound at a larger delta than the claim's refutes it too. A bound
        at a smaller delta is about something that was never promised.
        """
        if delta < self.delta:
            raise InputError(
                f"the bound is at delta = {delta:g}, but the claim is at delta = {self.delta:g}; "
                f"ask for the bound at delta={self.delta:g}"
            )
        require_same_adjacency(adjacency, self.adjacency)


PERFECT_PRIVACY: Final = ApproximateDP(0.0, delta=0)
"""The strongest claim: the output says nothing about the bits, so guesses are coin tosses."""


def lines_of(epsilons: Floats, profile: Profile, signs: Signs) -> Lines:
    """The lines of a profile at these epsilons, as in `Claim.lines`."""
    kappas = np.exp(epsilons)
    if signs is Signs.BOTH:
        return Lines(kappas, np.minimum((profile.included + profile.excluded) / 2, 1.0))
    if signs is Signs.ONE:
        larger = np.maximum(*profile)
        toward, away = larger, larger
    else:
        toward, away = profile if signs is Signs.INCLUDED else reversed(profile)
    # The factor covers the rounding of the difference, so that the line is never too low.
    flat = 1 - (1 - away) / kappas * (1 - 1e-15)
    return Lines(np.concatenate([kappas, 1 / kappas]), np.clip(np.concatenate([toward, flat]), 0.0, 1.0))


def for_neighbours(claim: Claim, adjacency: str | None) -> Claim:
    """The claim with this adjacency, if it does not state one itself; None leaves it as it is."""
    fields = to_dict(claim)
    # A composition has no adjacency of its own: its parts state theirs.
    if adjacency is None or claim.adjacency != "unspecified" or "adjacency" not in fields:
        return claim
    return Claim.from_dict({**fields, "adjacency": adjacency})
