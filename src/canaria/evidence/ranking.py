"""Evidence from a ranking: right guesses counted at about 40 numbers of guesses, the surest first."""

import bisect
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from canaria._core import binomial, checks
from canaria._core.arrays import Floats, Hits, Integers, Numbers
from canaria._core.effort import Effort
from canaria._core.errors import InputError, shown
from canaria.claims import ApproximateDP, Claim
from canaria.evidence import _walks, base
from canaria.evidence._enclosures import enclosures
from canaria.evidence._single_looks import clearly_refuted, surely_refuted
from canaria.evidence.base import Evidence, Inversion, Progress, Tally
from canaria.evidence.boundaries import MOST_BOUNDARIES, first_counts, scores

FIRST_LOOK: Final = 8
"""The fewest guesses that are looked at: fewer can hardly refute anything at 95% confidence."""
LOOKS: Final = 40
"""More looks would gain less than they are charged for."""
_PER_TAIL: Final = 2e-6
"""Seconds for a tail."""


@lru_cache(maxsize=64)
def looks(length: int) -> Integers:
    """The default numbers of guesses looked at: about 40, geometric from 8 to all.

    They are remembered, and cannot be changed: they took a fifth of the time of making a ranking.
    """
    first = min(FIRST_LOOK, length)
    spaced = np.geomspace(first, length, LOOKS)
    found = np.unique(np.rint(spaced).astype(np.int64))
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False, init=False)
class Ranking(Evidence):
    """Hits (right or wrong) in the order of the guesser's confidence, the most confident first.

    The right guesses are counted among the first 8, among the first few more, and so on to all: each such
    number of guesses is a look. The most surprising count is the evidence. The p-value charges it for having
    been chosen among about 40 looks, and for the hits that delta can buy.

    In symbols: for a claim let V_j be the number of right guesses among the first k_j, and
    B = n delta / (1 + e^epsilon) what delta can turn into hits on average. The score of a look is

        Pr[Binomial(k_j, p) >= V_j] + B / (10 (V_j - k_j p))

    and the smallest of the scores counts. A walk of independent Bernoulli(p) steps does as well if it reaches
    c_j, the first count with so small a score, at some k_j. Let A be the probability of that, and E[N] the
    mean number of its misses that must become hits before it does. The p-value is

        min(1, A + (1 - A) B / E[N])

    Proved (Theorem 7), for independent fair bits, an order that depends on the output alone, and a number of
    guesses and looks that do not depend on it. With delta = 0 the p-value is A, which is computed exactly;
    E[N] is rounded down. The p-value is not monotone in epsilon, nor in delta, on which the scores depend; so
    bounds are found on a fixed grid.

    Args:
        hits: Whether each guess was right (booleans, 0/1 or -1/+1), the most confident guess first.
        elements: The number of hidden bits of the audit; by default one per hit. A guesser that left elements
            out must give it, or delta is charged for too few.
        grid: The numbers of guesses k_1 < ... < k_J at which the hits are counted. The default depends on
            `committed` alone.
        committed: The number of ranked guesses that was fixed before the output was seen; guesses that were
            not made after all count as wrong. By default one per hit, if every element is guessed.
        one_sided: Whether all guesses have the same sign, fixed before the output was seen. Then delta is
            charged for half of the elements.

    Attributes:
        hits: The hits; None if the evidence was read from a file.
        counts: The number of right guesses at each look.

    Example:
        >>> hits = [1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0]
        >>> round(Ranking(hits, grid=[4, 6, 9, 12]).p_value(ApproximateDP(0.3, delta=0)), 6)
        0.147496
    """

    hits: Hits | None = field(init=False, repr=False)
    elements: int
    grid: Integers
    counts: Integers
    committed: int
    one_sided: bool

    method: ClassVar[str] = "ranking"
    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = "Counts"
    assumptions: ClassVar[tuple[str, ...]] = (
        base.FAIR_COINS,
        base.ALL_COUNTED,
        base.NOT_ADAPTIVE,
        "the number of ranked guesses, and the numbers examined, were fixed before the output was seen",
    )

    def __init__(
        self,
        hits: npt.ArrayLike,
        elements: int | None = None,
        grid: npt.ArrayLike | None = None,
        *,
        committed: int | None = None,
        one_sided: bool = False,
    ) -> None:
        seen = checks.hits(hits)
        total = checks.elements(elements, len(seen))
        if committed is None and total > len(seen):
            raise InputError(
                f"{len(seen)} of {total} elements are ranked: give committed, the number of ranked guesses "
                "that was fixed before the output was seen"
            )
        length = checks.integer("committed", committed or len(seen), len(seen), total, "elements")
        looked = _checked_grid(grid, length)
        # Guesses that were committed and not made count as wrong, or the output could stop when it is ahead.
        made = np.concatenate([seen, np.zeros(length - len(seen), dtype=np.bool_)])
        # Hits are added up within blocks between looks. A cumulative sum of all hits takes several times as
        # long, and 40 of its numbers are used.
        blocks = np.add.reduceat(made[: looked[-1]], np.r_[0, looked[:-1]], dtype=np.int64)
        checks.assign(
            self,
            hits=seen,
            elements=total,
            grid=looked,
            counts=np.cumsum(blocks),
            committed=length,
            one_sided=checks.truth("one_sided", one_sided),
        )

    @classmethod
    def of_counts(
        cls,
        grid: npt.ArrayLike,
        counts: npt.ArrayLike,
        elements: int,
        committed: int,
        one_sided: bool = False,
    ) -> "Ranking":
        """Rebuild the evidence, without the single hits, from the number of right guesses at each look.

        These numbers are all that the p-value uses.
        """
        looked = _checked_grid(grid, None)
        right = checks.integers("counts", counts)
        checks.same_length("counts", len(right), "grid", len(looked))
        gained = np.diff(right, prepend=0)
        if (gained < 0).any() or (gained > np.diff(looked, prepend=0)).any():
            raise InputError(f"counts must grow by at most the guesses between looks, got {shown(counts)}")
        total = checks.integer("elements", elements, int(looked[-1]))
        evidence = cls.__new__(cls)
        checks.assign(
            evidence,
            hits=None,
            elements=total,
            grid=looked,
            counts=right,
            committed=checks.integer("committed", committed, int(looked[-1]), total, "elements"),
            one_sided=checks.truth("one_sided", one_sided),
        )
        return evidence

    read = of_counts  # type: ignore[assignment]

    def fixed(self) -> str:
        return (
            f"the number of ranked guesses, {self.committed}, and the {len(self.grid)} of them examined "
            f"({self.grid[0]} to {self.grid[-1]}); every guess and their order"
        )

    def progress(self, claim: Claim) -> Progress:
        """The right guesses at every look."""
        return Progress(self.grid, self.counts)

    @property
    def most_guesses(self) -> int:
        """The number of ranked guesses."""
        return self.committed

    def best_of_size(self, guesses: int) -> "Ranking":
        """An audit with this many guesses, all right, at the default looks."""
        right, total = np.ones(guesses, dtype=np.bool_), base.elements_for(self, guesses)
        return Ranking(right, total, committed=guesses, one_sided=self.one_sided)

    def tally(self, claim: Claim) -> Tally:
        """The counts at the look with the strongest evidence against the claim."""
        epsilon = claim.point(self.charged).epsilon
        best = int(np.argmin(binomial.tail(self.counts, self.grid, epsilon)))
        return Tally(int(self.counts[best]), int(self.grid[best]))

    def effort(self, delta: float) -> Effort:
        """A rough walk for a claim; for the bound several of them, two exact walks, and the screening."""
        exact, rough = _walks.Walk(self.grid, 0.0).effort()
        tails = _PER_TAIL * len(self.grid)
        claim = rough + tails * (2 * MOST_BOUNDARIES if delta > 0 else 1)
        return Effort(claim, 15 * claim + 2 * exact + 1000 * tails)

    def p_value(self, claim: Claim) -> float:
        """The probability that some look would be as extreme under (epsilon, delta)-DP."""
        low = high = 1.0
        for low, high in self.closer(claim.point(self.charged), rough=False):
            if low == high:
                break
        return high

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most a level; bounds on the p-value may be enough to decide this."""
        point = claim.point(self.charged)
        # A is at least the tail of any single look, so no walk is needed to keep this claim.
        if self._smallest_tail(point.epsilon) > level:
            return False
        for low, high in self.closer(point):
            if high <= level:
                return True
            if low > level:
                return False
        raise AssertionError("the last bounds are equal")

    def closer(self, claim: ApproximateDP, rough: bool = True) -> Iterator[tuple[float, float]]:
        """Bounds (low, high) on the p-value, ever closer, at last equal; see `_enclosures`."""
        budget = float(self._budget(claim.epsilon, claim.delta))
        return enclosures(self.grid, self.boundary(claim), claim.epsilon, budget, rough=rough)

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the chances at single looks, with and without flips; the cheapest bounds first."""
        # A is at least every single tail, so a claim whose smallest tail is above the level is kept.
        end = bisect.bisect_left(epsilons, True, key=lambda claim: self._smallest_tail(claim) > level)
        # Claims are in order: the refuted ones come first. A sharper test goes on where a cheap one stopped.
        done = self._refuted_by(clearly_refuted, epsilons[:end], delta, level, at_once=64)
        done += self._refuted_by(surely_refuted, epsilons[done:end], delta, level, at_once=8)
        return np.repeat(np.array([1, 0, -1], dtype=np.int8), [done, end - done, len(epsilons) - end])

    def _refuted_by(
        self, test: Callable[..., Hits], epsilons: Floats, delta: float, level: float, *, at_once: int
    ) -> int:
        """How many of the first claims this test refutes, up to the first that it does not."""
        for done in range(0, len(epsilons), at_once):
            some = epsilons[done : done + at_once]
            refuted = test(self.counts, self.grid, some, self._budget(some, delta), level)
            if not refuted.all():
                return done + int(refuted.argmin())
        return len(epsilons)

    def boundary(self, claim: ApproximateDP) -> Integers:
        """The first count at each look that is as extreme as the counts; above the look if there is none."""
        budget = self._budget(claim.epsilon, claim.delta)
        found = scores(self.counts, self.grid, claim.epsilon, budget)
        smallest = float(found.min())
        if not math.isfinite(smallest):
            return self.grid + 1
        boundary = first_counts(self.grid, smallest * binomial.ROUND_UP, claim.epsilon, budget)
        # The counts of the look with the smallest score are on the boundary by definition, whatever rounding
        # says.
        return np.where(found <= smallest, np.minimum(boundary, self.counts), boundary)

    def extremeness(self, claim: ApproximateDP) -> float:
        """The smallest score: the boundary, and with it the p-value, depends on the hits through it alone."""
        budget = self._budget(claim.epsilon, claim.delta)
        return float(scores(self.counts, self.grid, claim.epsilon, budget).min())

    def _budget(self, epsilon: Numbers, delta: float) -> Any:
        return binomial.flip_budget(self.charged, epsilon, delta)

    def _smallest_tail(self, epsilon: float) -> float:
        return float(binomial.tail(self.counts, self.grid, epsilon).min())


def _checked_grid(grid: npt.ArrayLike | None, length: int | None) -> Integers:
    if grid is None:
        return looks(length or 1)
    whole = checks.integers("grid", grid)
    rising = len(whole) > 0 and whole[0] >= 1 and (np.diff(whole) > 0).all()
    if not rising or (length is not None and whole[-1] > length):
        limit = "" if length is None else f" up to {length}, the number of guesses"
        raise InputError(f"grid must hold rising positive integers{limit}, got {shown(grid)}")
    return whole
