"""Evidence against a family of claims: every claim is tested at numbers of guesses of its own."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Integers
from canaria._core.effort import Effort
from canaria._core.errors import InputError, shown
from canaria.claims import Claim
from canaria.claims.families import Family
from canaria.evidence import _independent
from canaria.evidence._looks import MOST_OF_LOOKS, Look, Stretch, around, planned
from canaria.evidence.base import (
    ALL_COUNTED,
    FAIR_COINS,
    NOT_ADAPTIVE,
    Evidence,
    Inversion,
    Progress,
    Tally,
    lines_of,
)

MISFIT: Final = 0.05
"""The false-alarm rate at which the assumption of independent elements is withdrawn."""
_FEWEST_WRONG: Final = 6
"""With fewer wrong guesses, the test of independence has no power."""
_PARAMETER_ERROR: Final = 1e-12
"""The relative error of a parameter computed from a claim: the last claim of a stretch belongs to it."""
_PER_ELEMENT: Final = 8e-7
"""Seconds for the curves of a family, for each element."""
_PLANNING: Final = 2e-3
"""Seconds for the looks of a stretch, times the logarithm of the number of elements."""


@dataclass(frozen=True, eq=False, init=False)
class MatchedCounts(Evidence):
    """Right guesses among the surest k, at numbers k chosen for each claim of a family.

    For every claim of the family there are looks k_j and shares w_j, fixed by the family, the number of
    elements and a confidence. With p_j the p-value of the count at k_j against the claim (Theorem 14), the
    p-value is the smallest p_j / w_j. Proved (Theorem 29): the last claim of the initial run of refuted ones
    is a valid bound, and nothing is paid for choosing k.

    Args:
        family: The family of claims.
        hits: Whether each guess was right (booleans, 0/1 or -1/+1), the most confident guess first; one for
            every element.
        confidence: The confidence for which looks are chosen; evidence holds at any other, too.
        independent: Whether elements are assumed not to influence each other. Then p-values are those of a
            product of mechanisms (Theorem 30), and 1 if the hits contradict the assumption (`withdrawn`).

    Attributes:
        elements: The number of hidden bits of the audit.
        taken: All numbers of guesses at which hits are counted.
        correct: The number of right guesses at each of them.

    Example:
        >>> hits = [1] * 40 + [1, 0] * 80
        >>> from canaria.claims import GaussianDP, families
        >>> MatchedCounts(families.Gaussian(), hits).refutes(GaussianDP(0.3), 0.05)
        True
    """

    family: Family
    elements: int
    confidence: float
    taken: Integers
    correct: Integers
    independent: bool

    inversion: ClassVar[Inversion] = Inversion.STRETCHES
    count_kind: ClassVar[str | None] = "Counts"

    def __init__(
        self, family: Family, hits: npt.ArrayLike, confidence: float = 0.95, *, independent: bool = False
    ) -> None:
        seen, level = checks.hits(hits), checks.confidence(confidence)
        if not isinstance(family, Family):
            raise InputError(f"family must be a family of claims, such as Gaussian(), got {shown(family)}")
        plan = planned(family, len(seen), level)
        taken = _all_looks(plan)
        checks.assign(
            self,
            family=family,
            elements=len(seen),
            confidence=level,
            taken=taken,
            correct=np.cumsum(seen, dtype=np.int64)[taken - 1],
            independent=checks.truth("independent", independent),
        )

    @classmethod
    def of_counts(
        cls,
        family: Any,
        elements: int,
        confidence: float,
        taken: npt.ArrayLike,
        correct: npt.ArrayLike,
        independent: bool = False,
    ) -> "MatchedCounts":
        """Rebuild the evidence, without the single hits, from the number of right guesses at each look."""
        total = checks.integer("elements", elements, 1)
        looked, right = checks.integers("taken", taken), checks.integers("correct", correct)
        checks.same_length("correct", len(right), "taken", len(looked))
        between, gained = np.diff(looked, prepend=0), np.diff(right, prepend=0)
        if len(looked) == 0 or (between < 1).any() or looked[-1] > total:
            raise InputError(f"taken must rise from 1 up to at most {total} elements, got {shown(taken)}")
        if (gained < 0).any() or (gained > between).any():
            raise InputError(f"correct must grow by at most the guesses between looks, got {shown(correct)}")
        # Not by the constructor, which needs the hits and plans the looks again.
        evidence = cls.__new__(cls)
        checks.assign(
            evidence,
            family=family if isinstance(family, Family) else Family.from_dict(family),
            elements=total,
            confidence=checks.confidence(confidence),
            taken=looked,
            correct=right,
            independent=checks.truth("independent", independent),
        )
        return evidence

    read = of_counts  # type: ignore[assignment]

    @property
    def method(self) -> str:
        """The name of the kind in results, with what it assumes."""
        return "matched looks, independent elements" if self.independent else "matched looks"

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Those of a count, and the condition of the family."""
        fixed = "for each claim, the numbers of guesses examined were fixed before the output was seen"
        condition = self.family.condition
        only = (f"for its ε: {condition}",) if condition else ()
        alone = (self.assumed,) if self.independent else ()
        return (FAIR_COINS, ALL_COUNTED, NOT_ADAPTIVE, fixed, *alone, *only)

    @property
    def assumed(self) -> str:
        """That elements do not influence each other, if it is assumed."""
        return "elements do not influence each other" if self.independent else ""

    @property
    def withdrawn(self) -> str | None:
        """Why independence of the elements is withdrawn; None if it is kept or was not assumed."""
        return self._objection if self.independent else None

    @cached_property
    def _objection(self) -> str | None:
        """How the wrong guesses contradict independent elements; None if they do not.

        Wrong guesses must be spread over the ranks as those of independent elements of the family. If all
        elements share their luck, wrong guesses are spread evenly over the ranks; if only some share it,
        their numbers vary too much.
        """
        seen = Tally(int(self.correct[-1]), int(self.taken[-1]))
        if seen.taken - seen.correct < _FEWEST_WRONG:
            return "too few guesses are wrong to check that elements are independent"
        p_value = _independent.misfit(self.taken, self.correct, self._expected(seen))
        if p_value >= MISFIT:
            return None
        return (
            "elements are not independent, or their scores are not the best: wrong guesses are spread over "
            f"the ranks otherwise than those of the family (p = {p_value:.2g})"
        )

    def _expected(self, seen: Tally) -> Floats:
        """Mean accuracies at all looks, between those of the two claims that come closest at the last one."""
        shares = self.taken / self.elements
        near = [lines_of(claim).mean_accuracy(shares) for claim in around(self.family, self.elements, seen)]
        # `around` gives the last claim below the observed accuracy and the first at or above it. Only the
        # shape over the ranks is tested, so the total is fitted: between the two, linearly.
        low, high = near[0], near[-1]
        apart = float(high[-1] - low[-1])
        place = (seen.correct / seen.taken - float(low[-1])) / apart if apart > 0 else 0.0
        return np.asarray(low + min(max(place, 0.0), 1.0) * (high - low))

    def p_value(self, claim: Claim) -> float:
        """The smallest p-value of a look, each divided by its share; the claim must be of the family."""
        from canaria.evidence import _curve_count

        looks, lines = self._looks(claim), lines_of(claim)
        if self.withdrawn:
            return 1.0
        one = _independent.p_value if self.independent else _curve_count.p_value
        found = [one(self.elements, look.taken, self._right(look), lines) / look.share for look in looks]
        return min([1.0, *(p_value * MOST_OF_LOOKS for p_value in found)])

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most a level, for less than a p-value costs."""
        from canaria.evidence import _curve_count

        if self.independent:
            return super().refutes(claim, level)
        # One factor for the p-value, which is multiplied by it, and one for the rounding of the product.
        lines, below = lines_of(claim), level / MOST_OF_LOOKS**2
        return any(
            _curve_count.refutes(self.elements, look.taken, self._right(look), lines, below * look.share)
            for look in self._looks(claim)
        )

    def tally(self, claim: Claim) -> Tally:
        """The count at the look with the smallest p-value for its share."""
        from canaria.evidence import _curve_count

        try:
            looks, lines = self._looks(claim) or self._plan[-1].looks, lines_of(claim)
        except InputError:
            # A claim of no family, such as that nothing leaks, has no looks of its own: by binomial tails.
            epsilon = claim.point(self.charged).epsilon
            place = int(np.argmin(binomial.tail(self.correct, self.taken, epsilon)))
            return Tally(int(self.correct[place]), int(self.taken[place]))

        def p_value(look: Look) -> float:
            return _curve_count.published(self.elements, look.taken, self._right(look), lines) / look.share

        best = min(looks, key=p_value)
        return Tally(self._right(best), best.taken)

    def progress(self, claim: Claim) -> Progress:
        """The right guesses at every look."""
        return Progress(self.taken, self.correct)

    def fixed(self) -> str:
        numbers = f"{len(self.taken)} numbers in all, {self.taken[0]} to {self.taken[-1]}"
        return (
            f"for every claim of the family of {self.family}, up to four numbers of guesses and their shares "
            f"of the error probability ({numbers}); every guess and their order"
        )

    @property
    def most_guesses(self) -> int:
        """One for every element."""
        return self.elements

    def best_of_size(self, guesses: int) -> "MatchedCounts | None":
        """An audit with this many guesses, all right; None if that would contradict independence."""
        if self.independent:
            return None
        return MatchedCounts(self.family, np.ones(guesses, dtype=np.bool_), self.confidence)

    def effort(self, delta: float) -> Effort:
        """The curves of the family and the choice of looks; then some counts against curves."""
        stretches = len(self.family.stretches(self.elements))
        planning = self.family.effort(self.elements)
        planning += _PLANNING * stretches * math.log(self.elements + 1) + _PER_ELEMENT * self.elements
        claim = len(self.taken) * effort.CALL
        return Effort(planning + claim, planning + stretches * claim)

    @cached_property
    def _plan(self) -> tuple[Stretch, ...]:
        return planned(self.family, self.elements, self.confidence)

    def _looks(self, claim: Claim) -> tuple[Look, ...]:
        """The looks of the stretch that holds a claim; none beyond the last."""
        parameter = self.family.parameter(claim) * (1 - _PARAMETER_ERROR)
        return next((stretch.looks for stretch in self._plan if parameter <= stretch.last), ())

    def _right(self, look: Look) -> int:
        place = int(np.searchsorted(self.taken, look.taken))
        if place == len(self.taken) or self.taken[place] != look.taken:
            raise InputError(
                f"taken must hold {look.taken}, which is a look of the family of {self.family} for "
                f"{self.elements} elements; got {shown(self.taken.tolist())}"
            )
        return int(self.correct[place])


def _all_looks(plan: tuple[Stretch, ...]) -> Integers:
    return np.unique([look.taken for stretch in plan for look in stretch.looks])
