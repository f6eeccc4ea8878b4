"""Evidence from a number of right guesses (Steinke et al. 2023).

Notation: n elements, of which r were guessed and v guessed right; W ~ Binomial(r, p(epsilon)),
A = Pr[W >= v], b = Pr[W = v].
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Integers
from canaria._core.effort import Effort
from canaria.claims import ApproximateDP, Claim, Signs
from canaria.claims.lines import Lines
from canaria.evidence import _sway, base
from canaria.evidence.base import Evidence, Inversion, Tally

_PLACES: Final = 32
_FIRST_CLAIMS: Final = 64


@dataclass(frozen=True)
class _CountFields(Evidence):
    correct: int
    taken: int
    elements: int

    assumptions: ClassVar[tuple[str, ...]] = (
        base.FAIR_COINS,
        base.ALL_COUNTED,
        base.COMMITTED,
        base.NOT_ADAPTIVE,
    )

    def fixed(self) -> str:
        return f"the number of guesses, {self.taken}, and every guess"

    def __post_init__(self) -> None:
        elements = checks.integer("elements", self.elements, 1)
        taken = checks.integer("taken", self.taken, 0, elements, "elements")
        correct = checks.integer("correct", self.correct, 0, taken, "taken")
        checks.assign(self, elements=elements, taken=taken, correct=correct)

    def tally(self, claim: Claim) -> Tally:
        """The counts, whatever the claim."""
        return Tally(self.correct, self.taken)

    @property
    def most_guesses(self) -> int:
        """The number of guesses that was fixed."""
        return self.taken

    def best_of_size(self, guesses: int) -> Evidence | None:
        """An audit with this many guesses, all right."""
        if guesses == 0:
            return None
        elements = base.elements_for(self, guesses)
        return replace(self, correct=guesses, taken=guesses, elements=elements)

    def effort(self, delta: float) -> Effort:
        """A few calls for a claim; a few dozen for the bisection."""
        return Effort(3 * effort.CALL, 100 * effort.CALL)

    def ceiling(self, level: float) -> float:
        """The Clopper-Pearson bound in closed form: no valid bound from these counts is higher.

        logit(BetaInv(level; v, r - v + 1)), written in the failure probability.
        """
        if self.correct == 0:
            return 0.0
        wrong = float(special.betainccinv(self.taken - self.correct + 1, self.correct, level))
        return 0.0 if wrong >= 0.5 else math.log1p(-wrong) - math.log(wrong)


@dataclass(frozen=True)
class Counts(_CountFields):
    """`correct` of `taken` guesses were right; `taken` was fixed before the output was seen.

    Proved (Theorem 4), for independent fair bits and guesses that depend on the output alone: over all
    (epsilon, delta)-DP mechanisms the largest probability of at least v right guesses is

        min(1, A + n delta A (1 - A) / (v b))          (1 when v = 0)

    With delta = 0 it is the Clopper-Pearson tail A. The worst mechanism is randomized response with the
    weight of all outputs with at least v right guesses raised by one factor. The p-value is monotone in
    epsilon, because the classes of mechanisms are nested.

    Here n is the number of elements, r guesses were taken and v were right; W ~ Binomial(r, p(epsilon)), A =
    Pr[W >= v] and b = Pr[W = v]. Where all guesses have one sign, n / 2 takes the place of n.

    Against a curve (`GaussianDP`, `DpSgd`, ...) the largest probability is bounded by a certificate that is
    nearly exact, and by the recursion of Mahloujifar et al. (2024); the smaller counts (Theorem 14).

    Attributes:
        correct: The number of right guesses, at most `taken`.
        taken: The number of guesses, at most `elements`.
        elements: The number of hidden bits of the audit, guessed or not; at least 1.
        one_sided: Whether all guesses have the same sign, fixed before the output was seen. (A sign that was
            chosen from the output does not count.)

    Example:
        >>> round(Counts(73, 100, 1000).p_value(ApproximateDP(0.607, delta=1e-5)), 3)
        0.05
    """

    one_sided: bool = False

    method: ClassVar[str] = "exact"
    count_kind: ClassVar[str | None] = "Counts"
    inversion: ClassVar[Inversion] = Inversion.BISECTION

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.assign(self, one_sided=checks.truth("one_sided", self.one_sided))

    @classmethod
    def of_count(cls, correct: int, taken: int, elements: int, one_sided: bool) -> "Counts":
        return cls(correct, taken, elements, one_sided)

    def holds_adaptively(self, guessed: int | None) -> bool:
        """True if every element of the rounds is guessed: then bits decide neither number nor order."""
        return self.taken in (0, guessed)

    def p_value(self, claim: Claim) -> float:
        """The largest probability of as many right guesses under any mechanism that keeps the claim.

        Against a curve it is mostly less than 0.1% too large, and at least 1e-9.
        """
        if self.correct == 0:
            return 1.0
        if not isinstance(claim, ApproximateDP):
            from canaria.evidence import _curve_count

            return _curve_count.p_value(self.charged, self.taken, self.correct, self._lines(claim))
        epsilon, delta = claim.epsilon, claim.delta
        effort.spend(effort.CALL)
        upper = float(binomial.tail(self.correct, self.taken, epsilon))
        if delta == 0 or upper == 1:
            return binomial.rounded_up(upper)
        # A (1 - A) / b, as A / b times the lower tail: far out b underflows, and 1 - A loses its digits.
        spread = binomial.tail_over_pmf(self.correct, self.taken, epsilon, upper)
        spread *= binomial.lower_tail(self.correct, self.taken, epsilon)
        return binomial.rounded_up(upper + self.charged * delta * spread / self.correct)

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most a level; against a curve for less than a p-value costs."""
        if isinstance(claim, ApproximateDP) or self.correct == 0:
            return super().refutes(claim, level)
        from canaria.evidence import _curve_count

        return _curve_count.refutes(self.charged, self.taken, self.correct, self._lines(claim), level)

    def _lines(self, claim: Claim) -> Lines:
        return base.lines_of(claim, Signs.ONE if self.one_sided else Signs.BOTH)


@dataclass(frozen=True)
class PublishedCounts(_CountFields):
    """The same counts under the bound of Steinke, Nasr and Jagielski (2023), for comparison.

        A + 2 n delta max_{1 <= i <= v} (Pr[W >= v - i] - A) / i

    as it circulates in code, in the notation of `Counts`. It is looser than `Counts` in the range that
    matters. For p-values from 0.875 on it can lie below the true worst case: there the p-value of `Counts` is
    taken (Theorem 5). The average that is maximised rises and then falls in i, so a search finds its peak.

    Attributes:
        correct: The number of right guesses.
        taken: The number of guesses, fixed before the output was seen.
        elements: The number of hidden bits of the audit, guessed or not.

    Example:
        >>> round(PublishedCounts(80, 100, 64_000).p_value(ApproximateDP(0.516, delta=1e-5)), 3)
        0.05
    """

    method: ClassVar[str] = "steinke"
    count_kind: ClassVar[str | None] = "PublishedCounts"
    inversion: ClassVar[Inversion] = Inversion.BISECTION

    def p_value(self, claim: Claim) -> float:
        """The published p-value, or that of `Counts` if it is larger."""
        point = claim.point(self.charged)
        epsilon, delta = point.epsilon, point.delta
        if self.correct == 0:
            return 1.0
        upper = float(binomial.tail(self.correct, self.taken, epsilon))
        if delta == 0:
            return binomial.rounded_up(upper)
        # It circulates as a p-value, but may lie below the true worst case. Then the exact one counts.
        published = upper + 2 * self.elements * delta * self._best_average(epsilon, upper)
        exact = Counts(self.correct, self.taken, self.elements).p_value(claim)
        return max(binomial.rounded_up(published), exact)

    def effort(self, delta: float) -> Effort:
        """A search over the flips for each claim."""
        rounds = 2 + math.log(self.taken + 1, _PLACES)
        return Effort(3 * rounds * effort.CALL, 150 * rounds * effort.CALL)

    def _averages(self, lowered: Integers, epsilon: float, upper: float) -> Floats:
        # A difference of nearly equal tails keeps the errors of both. The larger tail is rounded up first, so
        # that the difference is too large rather than too small.
        reached = binomial.tail(self.correct - lowered, self.taken, epsilon) * binomial.ROUND_UP
        return np.asarray((reached - upper) / lowered)

    def _best_average(self, epsilon: float, upper: float) -> float:
        """Narrow down where the average stops rising, at many places at once; then try every place left."""
        # Up to v - mode the next term of the average is larger than all before, so it still rises there.
        mode = math.floor((self.taken + 1) * float(binomial.success(epsilon)))
        low, high = max(1, self.correct - mode), self.correct
        while high - low > _PLACES:
            effort.spend(effort.CALL)
            places = low + (high - low) * np.arange(1, _PLACES + 1) // (_PLACES + 1)
            here, next_to = self._averages(np.array([places, places + 1]), epsilon, upper)
            falling = int(np.argmax(np.append(next_to <= here, True)))
            high = int(places[falling]) if falling < _PLACES else high
            low = int(places[falling - 1]) + 1 if falling else low
        return float(self._averages(np.arange(low, high + 1), epsilon, upper).max())


@dataclass(frozen=True)
class UncommittedCounts(_CountFields):
    """Counts whose number of guesses depends on the output, as with a threshold.

    Proved (Theorem 6), for guesses that depend on the output alone: given the output, Pr[at least v right] <=
    A + D x, where D = A (1 - A) / ((1 - p) v b) and x is what delta spends on flips there, on average at most
    B = n delta / (1 + e^epsilon). The output decides A and D, so they have fixed shares of the level: the
    p-value is the smallest beta with A <= beta (1 - s) and B D <= beta s, where s = min(B / beta, 0.6). The
    sharper formula of `Counts` is not justified at a number of guesses that was not fixed beforehand.

    Attributes:
        correct: The number of right guesses.
        taken: The number of guesses.
        elements: The number of hidden bits of the audit, guessed or not.

    Example:
        >>> claim = ApproximateDP(0.6, delta=0)
        >>> UncommittedCounts(73, 100, 1000).p_value(claim) == Counts(73, 100, 1000).p_value(claim)
        True
    """

    method: ClassVar[str] = "uncommitted"
    count_kind: ClassVar[str | None] = "UncommittedCounts"
    inversion: ClassVar[Inversion] = Inversion.GRID
    assumptions: ClassVar[tuple[str, ...]] = (base.FAIR_COINS, base.ALL_COUNTED, base.NOT_ADAPTIVE)

    def p_value(self, claim: Claim) -> float:
        """The smallest level at which the binomial tail and the sway of delta keep to their shares."""
        point = claim.point(self.charged)
        epsilon, delta = point.epsilon, point.delta
        effort.spend(effort.CALL)
        upper = float(binomial.tail(self.correct, self.taken, epsilon))
        budget, sway = float(binomial.flip_budget(self.elements, epsilon, delta)), 1.0
        if _sway.matters(upper, budget):
            sway = _sway.of_count(self.correct, self.taken, epsilon)
        return binomial.rounded_up(_sway.combined(upper, sway, budget))

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle many claims by the plain delta rule, up to the first that is certainly not refuted."""
        verdict, start, width = np.zeros(len(epsilons), dtype=np.int8), 0, _FIRST_CLAIMS
        while start < len(epsilons):
            some, start, width = slice(start, start + width), start + width, 2 * width
            upper = binomial.tail(self.correct, self.taken, epsilons[some])
            budget = binomial.flip_budget(self.elements, epsilons[some], delta)
            # No flip sways by more than 1. With that sway `combined` is one of these two, so it is at most
            # the larger; and no p-value is below the tail alone.
            least = np.maximum(upper + budget, budget / _sway.MOST) * binomial.ROUND_UP**2
            verdict[some] = (least <= level).astype(np.int8) - (upper > level)
            if (verdict[some] < 0).any():
                break
        return verdict

    def fixed(self) -> str:
        return "the threshold, and every guess; how many it takes came out of the output"

    @property
    def most_guesses(self) -> int:
        """The number of elements, all of which could have been guessed."""
        return self.elements

    def with_all_right(self) -> "UncommittedCounts":
        """The same guesses, all right."""
        return UncommittedCounts(self.taken, self.taken, self.elements)
