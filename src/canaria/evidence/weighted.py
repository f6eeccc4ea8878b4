"""Evidence from soft guesses: each guess has a weight."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.binomial import NOT_ZERO
from canaria._core.effort import Effort
from canaria._core.errors import InputError
from canaria.claims import ApproximateDP, Claim
from canaria.evidence import _sway, _text, base
from canaria.evidence._caps import FROM_BUDGET, HALFWAY, LATTICE, best_cap
from canaria.evidence._weighted_law import chernoff, upper_tail
from canaria.evidence.base import Evidence, Inversion, Progress, Tally

_CHERNOFF_ERROR: Final = 1e-13
"""The relative error of Chernoff's bound for each guess: its exponent, at most 400 per guess, is rounded."""


@dataclass(frozen=True, eq=False, init=False)
class Weighted(Evidence):
    """Guesses that count by weight: fixed `weights`, or `losses` that set them for each claim.

    With privacy losses known, the weight of a guess against a claim epsilon is max(0, |loss| - epsilon), the
    Neyman-Pearson weight against "right with probability p(|loss|)". Losses are capped at ln(4 n), where a
    guess is as good as certain, and lower where delta would cost more than heavy guesses bring; that cap
    depends on the losses, n and the claim alone. Weights are rounded to a lattice {0, ..., 40} (integers up
    to 40 stay as they are), and the rounded weights *are* the weights: nothing is approximate.

    Proved (Theorem 9), for independent fair bits and weights that depend on the output alone: given the
    output, the total weight of the right guesses is dominated by a sum of independent w_i
    Bernoulli(p(epsilon)), whose law is computed exactly: it reaches the right weight with probability A. With
    delta > 0, A and the sway D of a flip (a concentration bound, computed from the weights) have fixed shares
    of the level: the p-value is the smallest beta with A <= beta (1 - s) and B D <= beta s, where B = n delta
    / (1 + e^epsilon) and s = min(B / beta, 0.6). The weights change with epsilon, so bounds are found on a
    fixed grid.

    Args:
        hits: Whether each guess was right (booleans, 0/1 or -1/+1).
        weights: The weight of each guess, at least 0. Give either weights or losses.
        losses: The privacy loss of each guess; infinite losses are allowed.
        elements: The number of hidden bits of the audit; by default one per hit.

    Example:
        >>> claim = ApproximateDP(0.7, delta=0)
        >>> round(Weighted([1, 0, 1, 1, 0], weights=[5, 3, 2, 2, 1]).p_value(claim), 6)
        0.529153
    """

    hits: Hits
    weights: Floats | None
    losses: Floats | None
    elements: int

    method: ClassVar[str] = "weighted"
    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = "UncommittedCounts"
    weighs: ClassVar[bool] = True
    assumptions: ClassVar[tuple[str, ...]] = (
        base.FAIR_COINS,
        base.ALL_COUNTED,
        base.NOT_ADAPTIVE,
        "the weights depend on the output alone",
    )

    def __init__(
        self,
        hits: npt.ArrayLike,
        *,
        weights: npt.ArrayLike | None = None,
        losses: npt.ArrayLike | None = None,
        elements: int | None = None,
    ) -> None:
        seen = checks.hits(hits)
        if (weights is None) == (losses is None):
            raise InputError("Weighted needs exactly one of weights and losses")
        given, numbers = ("weights", weights) if weights is not None else ("losses", losses)
        assert numbers is not None
        values = checks.vector(given, numbers, infinite=weights is None)
        checks.same_length(given, len(values), "hits", len(seen))
        if weights is not None and (values < 0).any():
            raise InputError(f"weights must be at least 0, got {values.min():g}")
        checks.assign(
            self,
            hits=seen,
            weights=values if losses is None else None,
            losses=values if weights is None else None,
            elements=checks.elements(elements, len(seen)),
        )

    @classmethod
    def read(  # type: ignore[override]
        cls, hits: object, weights: object, losses: object, elements: int
    ) -> "Weighted":
        return cls(
            _text.hits_from_text(hits),
            weights=_text.numbers_from_json("weights", weights),
            losses=_text.numbers_from_json("losses", losses),
            elements=elements,
        )

    def lattice_weights(self, claim: ApproximateDP) -> Integers:
        """The integer weight of each guess against a claim, 0 to 40."""
        return np.asarray(np.searchsorted(self._edges(claim), self._sizes, side="right"))

    def tally(self, claim: Claim) -> Tally:
        """The guesses that have weight against the claim at delta = 0."""
        taken, right = self._groups(ApproximateDP(claim.point(self.charged).epsilon, delta=0))
        return Tally(int(right[1:].sum()), int(taken[1:].sum()))

    def fixed(self) -> str:
        return "every guess and its weight"

    def progress(self, claim: Claim) -> Progress:
        """The hits of the guesses, the heaviest first."""
        return base.progress_of(self.hits[np.argsort(-self._sizes, kind="stable")])

    def effort(self, delta: float) -> Effort:
        """A transform for each of 40 weights, for a few claims; Chernoff's bound for hundreds.

        Few losses are so large, and above the claim, that their law spans more than 3 * 40 sqrt(n) points.
        """
        points = 3 * LATTICE * math.sqrt(len(self.hits))
        transforms = LATTICE * (effort.CALL + effort.TRANSFORM / 2 * points)
        passed = 10 * effort.RATIO * len(self.hits)
        sways = 50 * effort.CALL if delta > 0 else 0.0
        return Effort(transforms + passed + sways, 5 * transforms + 1000 * effort.CALL + passed + 50 * sways)

    def p_value(self, claim: Claim) -> float:
        """The least level at which the chance of as much right weight and the sway keep to their shares."""
        effort.spend(5 * effort.CALL)
        point = claim.point(self.charged)
        groups, right = self._groups(point)
        statistic = _total(right)
        upper = upper_tail(groups, statistic, point.epsilon)
        budget, sway = float(binomial.flip_budget(self.elements, point.epsilon, point.delta)), 1.0
        if _sway.matters(upper, budget):
            sway = _sway.of_weights(groups, statistic, point.epsilon)
        return binomial.rounded_up(_sway.combined(upper, sway, budget))

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by Chernoff's bound, up to the first that it leaves open."""
        verdict = np.zeros(len(epsilons), dtype=np.int8)
        for index, epsilon in enumerate(epsilons.tolist()):
            effort.spend(3 * effort.CALL)
            if not self._surely_refuted(ApproximateDP(epsilon, delta), level / binomial.ROUND_UP):
                break
            verdict[index] = 1
        return verdict

    def _surely_refuted(self, claim: ApproximateDP, level: float) -> bool:
        """Whether Chernoff's bound refutes a claim, with the plain delta rule or ever better sways."""
        groups, right = self._groups(claim)
        statistic, epsilon = _total(right), claim.epsilon
        upper = chernoff(groups, statistic, epsilon) * (1 + _CHERNOFF_ERROR * len(self.hits))
        budget = float(binomial.flip_budget(self.elements, epsilon, claim.delta))
        # A sway of 1 costs nothing. A better one is worth its integrals only where Chernoff's bound alone
        # would refute, and only up to the sway that decides.
        plainly = _sway.combined(upper, 1.0, budget) <= level
        if plainly or upper > level or not _sway.matters(upper, budget):
            return plainly
        sway = _sway.of_weights(groups, statistic, epsilon, enough=_sway.MOST * level / budget)
        return _sway.combined(upper, sway, budget) <= level

    @cached_property
    def _sizes(self) -> Floats:
        """Weights, or capped sizes of the losses, before rounding."""
        if self.losses is None:
            assert self.weights is not None
            return self.weights
        return np.minimum(np.abs(self.losses), math.log(4 * len(self.losses)))

    @cached_property
    def _sorted(self) -> tuple[Floats, Integers]:
        """Sizes in rising order, and how many of the first k guesses in that order were right."""
        effort.spend(10 * effort.RATIO * len(self.hits))
        order = np.argsort(self._sizes)
        return self._sizes[order], np.concatenate([[0], np.cumsum(self.hits[order])])

    @cached_property
    def _believed(self) -> tuple[Floats, Floats]:
        """Mean and variance of the hits of the first k guesses by size, if the losses are right."""
        effort.spend(10 * effort.RATIO * len(self.hits))
        chances = special.expit(self._sorted[0])
        mean, variance = np.cumsum(chances), np.cumsum(chances * (1 - chances))
        return np.append(0.0, mean), np.append(0.0, variance)

    def _groups(self, claim: ApproximateDP) -> tuple[Integers, Integers]:
        """The numbers of guesses, and of right guesses, with each integer weight."""
        sizes, right = self._sorted
        # Sizes and hits are sorted once. For a claim, all groups are then differences at 40 places.
        starts = np.searchsorted(sizes, self._edges(claim), side="left")
        edges = np.concatenate([[0], starts, [len(sizes)]])
        return np.diff(edges), np.diff(right[edges])

    def _edges(self, claim: ApproximateDP) -> Floats:
        """The sizes at which the integer weights 1, 2, ..., 40 begin."""
        if self.losses is None:
            top = float(self._sorted[0][-1])
            # Integers up to 40 are on the lattice already. Other weights are rounded to 40ths of the largest.
            whole = top <= LATTICE and bool((self._sizes == np.rint(self._sizes)).all())
            return _steps(LATTICE if whole else top)
        return claim.epsilon + _steps(self.top(claim) - claim.epsilon)

    def top(self, claim: ApproximateDP) -> float:
        """The cap of the losses against a claim, chosen from the losses alone; see `_caps`."""
        budget = float(binomial.flip_budget(self.elements, claim.epsilon, claim.delta))
        sizes = self._sorted[0]
        if budget <= FROM_BUDGET or sizes[-1] - claim.epsilon < NOT_ZERO:
            return float(sizes[-1])
        return best_cap(sizes, self._believed, claim.epsilon, budget)

    @property
    def most_guesses(self) -> int:
        """The number of hits: every sign is guessed."""
        return len(self.hits)

    def best_of_size(self, guesses: int) -> "Weighted":
        """An audit with this many guesses, all right and certain."""
        certain = np.full(guesses, math.inf)
        return Weighted(np.ones(guesses, bool), losses=certain, elements=base.elements_for(self, guesses))

    def with_all_right(self) -> "Weighted":
        """The same weights with every guess right."""
        return replace(self, hits=np.ones_like(self.hits))


def _total(right: Integers) -> int:
    """The weight of the right guesses."""
    return int(np.arange(len(right)) @ right)


def _steps(top: float) -> Floats:
    """Half-way below the lattice points top / 40, 2 top / 40, ..., top; infinite if top is 0."""
    return HALFWAY * top if top >= NOT_ZERO else np.full(LATTICE, math.inf)
