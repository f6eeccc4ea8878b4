"""Claims of your own: a curve given by its lines, and several claims together."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, effort
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria._core.kinds import to_dict
from canaria.claims import _loss
from canaria.claims.adjacency import common_adjacency
from canaria.claims.base import Claim, Profile
from canaria.claims.noise import LARGEST_MU, GaussianDP

_FAR, _NEARLY_ONE = 700.0, 0.99
"""A claim with a delta above the second at the first epsilon promises nothing."""
_PER_PAIR: Final = 1e-7
"""Seconds of an ordinary core to follow one asked epsilon from one known pair, in both directions."""


@dataclass(frozen=True, eq=False)
class Curve(Claim):
    """A privacy profile of your own: (epsilon, delta)-DP at every listed pair.

    Attributes:
        epsilons: Epsilons of at least 0, rising.
        deltas: The promised delta at each of them, for an event with the element compared with without.
        reverse: The promised deltas in the other direction; by default equal to `deltas`.
        adjacency: "add-remove", "replace" or "unspecified".

    Example:
        >>> Curve([0.0, 1.0, 2.0], [0.3, 0.05, 1e-3]).delta_at(1.5)
        0.05
    """

    epsilons: npt.ArrayLike
    deltas: npt.ArrayLike
    reverse: npt.ArrayLike | None = None
    adjacency: str = "unspecified"
    _sides: Profile = field(init=False, repr=False)

    def __post_init__(self) -> None:
        epsilons = checks.vector("epsilons", self.epsilons)
        if len(epsilons) == 0 or epsilons[0] < 0 or (np.diff(epsilons) <= 0).any() or epsilons[-1] > 700:
            raise InputError(f"epsilons must rise from 0 or more to at most 700, got {shown(self.epsilons)}")
        sides = [_checked("deltas", self.deltas, epsilons)]
        sides.append(sides[0] if self.reverse is None else _checked("reverse", self.reverse, epsilons))
        checks.assign(
            self,
            epsilons=epsilons,
            deltas=sides[0],
            reverse=sides[1],
            adjacency=checks.adjacency(self.adjacency),
            _sides=Profile(*sides),
        )

    def __str__(self) -> str:
        return f"a curve of {len(np.asarray(self.epsilons))} points"

    def profile(self, epsilons: Floats) -> Profile:
        """The least delta that follows from the listed pairs.

        (e, d)-DP implies delta d at every larger epsilon. At a smaller one it implies the delta of the line
        P <= d + e^e Q, which at P = 1 has the largest P - e^epsilon Q.
        """
        known = np.asarray(self.epsilons)[:, None]
        effort.spend(_PER_PAIR * known.size * epsilons.size)
        return Profile(*(_follows(known, side[:, None], epsilons) for side in self._sides))

    @property
    def reach(self) -> float:
        """The last epsilon."""
        return float(np.asarray(self.epsilons)[-1])

    def slopes(self) -> Floats:
        """The listed epsilons."""
        return np.asarray(self.epsilons)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "epsilons": np.asarray(self.epsilons).tolist(),
            "deltas": np.asarray(self.deltas).tolist(),
            "reverse": np.asarray(self.reverse).tolist(),
            "adjacency": self.adjacency,
        }


def _follows(known: Floats, deltas: Floats, asked: Floats) -> Floats:
    """Delta at each asked epsilon, from each known pair; the smallest counts."""
    later = np.where(asked >= known, deltas, 1.0)
    earlier = np.where(asked < known, -np.expm1(asked - known) + np.exp(asked - known) * deltas, 1.0)
    return np.asarray(np.minimum(later, earlier).min(axis=0))


def _checked(name: str, values: npt.ArrayLike, epsilons: Floats) -> Floats:
    deltas = checks.vector(name, values)
    checks.same_length(name, len(deltas), "epsilons", len(epsilons))
    if not ((deltas >= 0) & (deltas <= 1)).all():
        raise InputError(f"{name} must be between 0 and 1, got {shown(values)}")
    return deltas


@dataclass(frozen=True)
class Composed(Claim):
    """Several claims about parts of one mechanism that all see the data: the promise of their composition.

    Gaussian claims compose to one exactly; the rest by the privacy loss distributions of dp-accounting.

    Attributes:
        parts: The claims, at least one, all for the same neighbours.

    Example:
        >>> round(Composed((GaussianDP(3.0), GaussianDP(4.0))).epsilon_at(1e-5), 2)
        33.1
    """

    parts: tuple[Claim, ...]
    adjacency: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        parts = tuple(Claim.from_dict(part) if isinstance(part, dict) else part for part in _all(self.parts))
        if not parts or not all(isinstance(part, Claim) for part in parts):
            raise InputError(f"parts must be claims, at least one, got {shown(self.parts)}")
        adjacency = common_adjacency("parts", (part.adjacency for part in parts))
        checks.assign(self, parts=parts, adjacency=adjacency)

    def __str__(self) -> str:
        return " and ".join(str(part) for part in self.parts)

    def profile(self, epsilons: Floats) -> Profile:
        """The profile of the composition; one part that promises next to nothing leaves no promise."""
        if gaussian := self._only_gaussian:
            return gaussian.profile(epsilons)
        if self._nothing:
            return Profile(np.ones_like(epsilons), np.ones_like(epsilons))
        return _loss.profile(self._distribution, epsilons)

    @property
    def reach(self) -> float:
        """The epsilon from which on delta is negligible."""
        if gaussian := self._only_gaussian:
            return gaussian.reach
        return 0.0 if self._nothing else _loss.reach(self._distribution)

    def to_dict(self) -> dict[str, Any]:
        """The parts, for JSON."""
        return {"parts": [to_dict(part) for part in self.parts]}

    @property
    def _only_gaussian(self) -> GaussianDP | None:
        mus = [part.mu for part in self.parts if isinstance(part, GaussianDP)]
        mu = min(math.hypot(*mus), LARGEST_MU)
        return GaussianDP(mu) if len(mus) == len(self.parts) else None

    @cached_property
    def _nothing(self) -> bool:
        # Kept, because every point of the profile asks, and parts that are composed ask their own parts.
        return any(part.delta_at(_FAR) > _NEARLY_ONE for part in self.parts)

    @cached_property
    def _distribution(self) -> Any:
        return _loss.composed(
            [
                part.distribution if hasattr(part, "distribution") else _loss.of_claim(part)
                for part in self.parts
            ]
        )


def _all(parts: Iterable[Claim]) -> tuple[Claim, ...]:
    try:
        return tuple(parts)
    except TypeError:
        raise InputError(f"parts must be a sequence of claims, got {shown(parts)}") from None
