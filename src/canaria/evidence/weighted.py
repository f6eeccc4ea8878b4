"""Evidence from soft guesses: each guess has a weight."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import fft, special

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.effort import Effort
from canaria._core.errors import InputError
from canaria.claims import ApproximateDP, Claim
from canaria.evidence import _sway, _text, _walks
from canaria.evidence.base import (
    ALL_COUNTED,
    FAIR_COINS,
    NOT_ADAPTIVE,
    Evidence,
    Inversion,
    Progress,
    Tally,
    progress_of,
)

LATTICE: Final = 40
_NOTHING: Final = 1e-300
"""Weights below it are none."""
_LEAK: Final = 1e-18
"""What lies beyond either end of the circle on which a law lives, added to every tail."""
_FFT_ERROR: Final = 1e-14
"""The error of a tail by Fourier transforms, measured as at most 2.3e-15 (proofs, Rounding)."""
_CHERNOFF_ERROR: Final = 1e-13
"""The relative error of Chernoff's bound for each guess: its exponent, at most 400 per guess, is rounded."""
_DESIGN: Final = 0.05
"""The level for which losses are capped."""
_CAPS: Final = 1.6 ** -np.arange(9.0)
_HALFWAY: Final = (np.arange(LATTICE) + 0.5) / LATTICE
_TILTS: Final = np.geomspace(1e-5, 10, 40)


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

    Attributes:
        hits: Whether each guess was right.
        weights: The weights; None if losses were given.
        losses: The losses; None if weights were given.
        elements: The number of hidden bits of the audit.

    Raises:
        InputError: If an argument is not usable, or if not exactly one of weights and losses is given.

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
        FAIR_COINS,
        ALL_COUNTED,
        NOT_ADAPTIVE,
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

    def to_dict(self) -> dict[str, Any]:
        """Hits and weights or losses, for JSON."""
        return {
            "hits": _text.hits_to_text(self.hits),
            "weights": _text.numbers_to_json(self.weights),
            "losses": _text.numbers_to_json(self.losses),
            "elements": self.elements,
        }

    @classmethod
    def read(cls, **fields: Any) -> "Weighted":
        """Evidence from what `to_dict` wrote."""
        return cls._of_text(**fields)

    @classmethod
    def _of_text(cls, hits: object, weights: object, losses: object, elements: int) -> "Weighted":
        return cls(
            _text.hits_from_text(hits),
            weights=_text.numbers_from_json("weights", weights),
            losses=_text.numbers_from_json("losses", losses),
            elements=elements,
        )

    def lattice_weights(self, claim: ApproximateDP) -> Integers:
        """The integer weight of each guess against a claim.

        Args:
            claim: The claim to test.

        Returns:
            One integer from 0 to 40 per guess.

        """
        return np.asarray(np.searchsorted(self._edges(claim), self._sizes, side="right"))

    def tally(self, epsilon: float) -> Tally:
        """The guesses that have weight against the claim."""
        taken, right = self._groups(ApproximateDP(epsilon, delta=0))
        return Tally(int(right[1:].sum()), int(taken[1:].sum()))

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return "every guess and its weight"

    def progress(self, epsilon: float) -> Progress:
        """The hits of the guesses, the heaviest first."""
        return progress_of(self.hits[np.argsort(-self._sizes, kind="stable")])

    def effort(self, delta: float) -> Effort:
        """A transform for each of 40 weights, for a few claims; Chernoff's bound for hundreds.

        Few losses are so large, and above the claim, that their law spans more than 3 * 40 sqrt(n) points.
        """
        points = 3 * LATTICE * math.sqrt(len(self.hits))
        transforms = LATTICE * (effort.CALL + effort.TRANSFORM / 2 * points)
        passed = 10 * effort.RATIO * len(self.hits)
        sways = 50 * effort.CALL if delta > 0 else 0.0
        return Effort(transforms + passed + sways, 5 * transforms + 1000 * effort.CALL + passed + 50 * sways)

    def statistic(self, claim: ApproximateDP) -> int:
        """The total weight of the right guesses against a claim.

        Args:
            claim: The claim to test.

        Returns:
            The sum of the integer weights.

        """
        return _total(self._groups(claim)[1])

    def p_value(self, claim: Claim) -> float:
        """The smallest level at which the chance of as much right weight and the sway keep to their shares.

        Args:
            claim: The claim to test.

        Returns:
            The p-value, rounded up.

        """
        effort.spend(5 * effort.CALL)
        point = claim.point(self.charged)
        groups, right = self._groups(point)
        statistic = _total(right)
        upper = _weighted_tail(groups, statistic, point.epsilon)
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
        upper = _chernoff(groups, statistic, epsilon) * (1 + _CHERNOFF_ERROR * len(self.hits))
        budget = float(binomial.flip_budget(self.elements, epsilon, claim.delta))
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
        """How many guesses have each integer weight, and how many of them were right."""
        sizes, right = self._sorted
        starts = np.searchsorted(sizes, self._edges(claim), side="left")
        edges = np.concatenate([[0], starts, [len(sizes)]])
        return np.diff(edges), np.diff(right[edges])

    def _edges(self, claim: ApproximateDP) -> Floats:
        """The sizes at which the integer weights 1, 2, ..., 40 begin."""
        if self.losses is None:
            top = float(self._sorted[0][-1])
            whole = top <= LATTICE and bool((self._sizes == np.rint(self._sizes)).all())
            return _steps(LATTICE if whole else top)
        return claim.epsilon + _steps(self.top(claim) - claim.epsilon)

    def top(self, claim: ApproximateDP) -> float:
        """The cap of the losses against a claim, chosen from the losses alone.

        Where the plain delta rule would do at a level of 0.05, there is no cap but ln(4 n). Else a heavy
        guess has more sway than it is worth, and of nine caps the one with the most power at that level is
        taken. With T the right weight, the claim is refuted at level b if A(T) <= 0.4 b and B D(T) <= 0.6 b
        (Theorem 6 (c)), so T must exceed its mean under the claim by

            needed = max(excess at which A = 0.4 b, excess at which D = 0.6 b / B).

        If the losses are right, guess i is right with probability p(|loss_i|), and T is about normal. The
        power rises with (believed mean - claimed mean - needed) / believed standard deviation, which is
        compared. The excess for D is fitted to computed sways. Validity depends on none of this, as the hits
        do not enter (Theorem 9): the cap may be any function of the output and the claim.

        Args:
            claim: The claim to test.

        Returns:
            The cap.

        """
        sizes, _ = self._sorted
        largest, epsilon = float(sizes[-1]), claim.epsilon
        budget = float(binomial.flip_budget(self.elements, epsilon, claim.delta))
        # Up to here the share of delta is B / b, and D does not matter.
        if budget <= _sway.MOST * _DESIGN or largest - epsilon < _NOTHING:
            return largest
        # For each cap, how many guesses have which weight: from where each weight begins among sorted sizes.
        weights = np.arange(LATTICE + 1)
        tops = epsilon + (largest - epsilon) * _CAPS
        starts = np.searchsorted(sizes, epsilon + (tops - epsilon)[:, None] * _HALFWAY, side="left")
        edges = np.pad(starts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, len(sizes))))
        groups = np.diff(edges)
        # The standard deviation of T under the claim. A cap that leaves no guess with weight is not taken.
        right, wrong = binomial.success(epsilon), binomial.failure(epsilon)
        spread = np.sqrt(right * wrong * (groups @ weights**2))
        used = spread > 0
        spread = np.where(used, spread, 1.0)
        heaviest = ((groups > 0) * weights).max(axis=1)
        # Mean and variance of T if the losses are right, by sums over the sorted guesses.
        believed, noise = (
            np.diff(sums[edges]) @ powers
            for sums, powers in zip(self._believed, (weights, weights**2), strict=True)
        )
        by_chance = -special.ndtri((1 - _sway.MOST) * _DESIGN) * spread
        by_flips = _excess_for_sway(_sway.MOST * _DESIGN / budget, heaviest, spread)
        needed = np.maximum(by_chance, by_flips)
        power = (believed - right * (groups @ weights) - needed) / np.sqrt(np.maximum(noise, _NOTHING))
        return float(tops[np.argmax(np.where(used, power, -np.inf))])

    @property
    def most_guesses(self) -> int:
        """The number of hits: every sign is guessed."""
        return len(self.hits)

    def best_of_size(self, guesses: int) -> "Weighted":
        """An audit with this many guesses, all right and certain."""
        certain = np.full(guesses, math.inf)
        return Weighted(np.ones(guesses, bool), losses=certain, elements=self.elements_for(guesses))

    def with_all_right(self) -> "Weighted":
        """The same weights with every guess right."""
        return Weighted(
            np.ones_like(self.hits),
            weights=self.weights,
            losses=self.losses,
            elements=self.elements,
        )


def _total(right: Integers) -> int:
    """The weight of the right guesses."""
    return int(np.arange(len(right)) @ right)


def _excess_for_sway(most: float, heaviest: Floats, spread: Floats) -> Floats:
    """About how far above its mean a total weight must be for a flip to sway it by `most` at most.

    At the mean a flip of the heaviest guess sways by about its share of the spread; far above, by its share
    of the excess, times a factor that grows with how coarse the weights are. The numbers are fitted to
    computed sways.
    """
    coarse = heaviest / spread
    at_the_mean = (0.75 + coarse) * coarse
    factor = np.clip(0.5 + 7 * coarse, 1.2, 3.5)
    return np.where(at_the_mean > most, factor * heaviest / most, 0.0)


def _steps(top: float) -> Floats:
    """Half-way below the lattice points top / 40, 2 top / 40, ..., top; infinite if top is 0."""
    if top < _NOTHING:
        return np.full(LATTICE, math.inf)
    return _HALFWAY * top


def _weighted_tail(groups: Integers, statistic: int, epsilon: float) -> float:
    """Pr[sum_w w Binomial(groups[w], p(epsilon)) >= statistic].

    The law lives on a circle of as many points as Hoeffding's or Bernstein's inequality says hold all but
    2e-18 of it; the transforms of the groups are multiplied there.
    """
    values = np.flatnonzero(groups[1:]) + 1
    if statistic <= 0 or len(values) == 0:
        return 1.0
    sizes = groups[values]
    right, squares = float(binomial.success(epsilon)), float(values**2 @ sizes)
    mean, variance = right * float(values @ sizes), right * float(binomial.failure(epsilon)) * squares
    heavy = -math.log(_LEAK) * float(values[-1]) / 3
    bernstein = heavy + math.sqrt(heavy**2 - 2 * math.log(_LEAK) * variance)
    reach = math.ceil(min(math.sqrt(-math.log(_LEAK) / 2 * squares), bernstein))
    bottom, top = (
        max(0, math.floor(mean) - reach),
        min(int(values @ sizes), math.ceil(mean) + reach),
    )
    if statistic <= bottom:
        return 1.0
    if statistic > top:
        return 2 * _LEAK
    points = fft.next_fast_len(top - bottom + 1, real=True)
    effort.spend(len(values) * (effort.CALL + effort.TRANSFORM / 2 * points))
    transform = np.ones(points // 2 + 1, dtype=np.complex128)
    for value, (low, chances) in zip(values.tolist(), _walks.windows(sizes, epsilon), strict=True):
        places = value * np.arange(low, low + len(chances)) % points
        transform *= fft.rfft(np.bincount(places, chances, points))
    law = fft.irfft(transform, points)
    return float(law[np.arange(statistic, top + 1) % points].sum()) + 2 * _LEAK + _FFT_ERROR


def _chernoff(groups: Integers, statistic: int, epsilon: float) -> float:
    """Min over tilts t of E[exp(t sum)] exp(-t statistic), an upper bound on the tail for each t."""
    values, sizes = np.arange(1, len(groups)), groups[1:]
    log_right, log_wrong = -np.logaddexp(0.0, -epsilon), -np.logaddexp(0.0, epsilon)
    cumulants = np.logaddexp(log_wrong, log_right + _TILTS[:, None] * values) @ sizes
    return math.exp(min(0.0, float((cumulants - _TILTS * statistic).min())))
