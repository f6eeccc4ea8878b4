"""Evidence from a ranking: every number of guesses at once."""

import bisect
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.effort import Effort
from canaria._core.errors import InputError, shown
from canaria.claims import ApproximateDP
from canaria.evidence import _walks
from canaria.evidence.base import ALL_COUNTED, FAIR_COINS, NOT_ADAPTIVE, Evidence, Inversion, Progress, Tally

FIRST_LOOK: Final = 8
LOOKS: Final = 40
_LADDER: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512])
_STRETCHES: Final = (16, 4, 1)
_STRETCHES_AT_ONCE: Final = 32
_CLOSE: Final = 1.1
_PER_TAIL: Final = 2e-6
_FOR_FLIPS: Final = np.array([[0.3], [0.6], [0.9]])
"""Shares of the level that may go to walks that need many flips."""


def looks(length: int) -> Integers:
    """The default numbers of guesses looked at: about 40, geometric from 8 to all."""
    first = min(FIRST_LOOK, length)
    spaced = np.geomspace(first, length, LOOKS)
    return np.unique(np.rint(spaced).astype(np.int64))


@dataclass(frozen=True, eq=False, init=False)
class Ranking(Evidence):
    """Hits (right or wrong) in the order of the guesser's confidence, the most confident first.

    For a claim epsilon let V_j be the number of right guesses among the first k_j, and a the smallest of the
    binomial tails Pr[Binomial(k_j, p) >= V_j]. The p-value is the probability that a walk of independent
    Bernoulli(p) steps ever does as well, that is, reaches c_j = min {c : Pr[Binomial(k_j, p) >= c] <= a} at
    some k_j. It is computed exactly.

    Proved (Theorem 7), for independent fair bits and an order that depends on the output alone: with delta =
    0 the hits are dominated by that walk. With delta > 0 the greedy delta rule holds: misses are turned into
    hits at n delta / (1 + e^epsilon) on average, spent on the walks that need the fewest. The p-value is not
    monotone in epsilon, so bounds are found on a fixed grid.

    Args:
        hits: Whether each guess was right (booleans, 0/1 or -1/+1), the most confident guess first.
        elements: The number of hidden bits of the audit; by default one per hit. A guesser that left elements
            out must give it, or delta is charged for too few.
        grid: The numbers of guesses k_1 < ... < k_J at which the hits are counted. The default depends on the
            number of hits alone.

    Attributes:
        hits: The hits; None if the evidence was read from a file.
        elements: The number of hidden bits of the audit.
        grid: The numbers of guesses at which the hits are counted.
        counts: The number of right guesses at each of them.

    Raises:
        InputError: If an argument is not usable.

    Example:
        >>> hits = [1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0]
        >>> round(Ranking(hits, grid=[4, 6, 9, 12]).p_value(ApproximateDP(0.3, delta=0)), 6)
        0.147496

    """

    hits: Hits | None = field(repr=False)
    elements: int
    grid: Integers
    counts: Integers

    method: ClassVar[str] = "ranking"
    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = "Counts"
    assumptions: ClassVar[tuple[str, ...]] = (
        FAIR_COINS,
        ALL_COUNTED,
        NOT_ADAPTIVE,
        "the numbers of guesses examined were fixed before the output was seen",
    )

    def __init__(
        self, hits: npt.ArrayLike, elements: int | None = None, grid: npt.ArrayLike | None = None
    ) -> None:
        seen = checks.hits(hits)
        looked = _checked_grid(grid, len(seen))
        blocks = np.add.reduceat(seen[: looked[-1]], np.r_[0, looked[:-1]], dtype=np.int64)
        total = checks.elements(elements, len(seen))
        checks.assign(self, hits=seen, elements=total, grid=looked, counts=np.cumsum(blocks))

    @classmethod
    def read(cls, **fields: Any) -> "Ranking":
        """Evidence from what `to_dict` wrote."""
        return cls.of_counts(**fields)

    @classmethod
    def of_counts(cls, grid: npt.ArrayLike, counts: npt.ArrayLike, elements: int) -> "Ranking":
        """Rebuild the evidence, without the single hits, from the number of right guesses at each look.

        These numbers are all that the p-value uses.

        Args:
            grid: The numbers of guesses at which the hits were counted.
            counts: The number of right guesses at each of them.
            elements: The number of hidden bits of the audit.

        Returns:
            The evidence.

        Raises:
            InputError: If the arguments are not integers, or do not fit together.

        """
        looked = _checked_grid(grid, None)
        right = _whole("counts", counts)
        checks.same_length("counts", len(right), "grid", len(looked))
        gained = np.diff(right, prepend=0)
        if (gained < 0).any() or (gained > np.diff(looked, prepend=0)).any():
            raise InputError(f"counts must grow by at most the guesses between looks, got {shown(counts)}")
        evidence = cls.__new__(cls)
        total = checks.integer("elements", elements, int(looked[-1]))
        checks.assign(evidence, hits=None, elements=total, grid=looked, counts=right)
        return evidence

    def to_dict(self) -> dict[str, Any]:
        """The counts at the looks, for JSON."""
        return {
            "grid": self.grid.tolist(),
            "counts": self.counts.tolist(),
            "elements": self.elements,
        }

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return (
            f"every guess, the order of the guesses, and the {len(self.grid)} numbers of guesses examined "
            f"({self.grid[0]} to {self.grid[-1]})"
        )

    def progress(self, epsilon: float) -> Progress:
        """The right guesses at every look."""
        return Progress(self.grid, self.counts)

    @property
    def most_guesses(self) -> int:
        """The number of guesses at the last look."""
        return int(self.grid[-1])

    def best_of_size(self, guesses: int) -> "Ranking":
        """An audit with this many guesses, all right, at the default looks."""
        return Ranking(np.ones(guesses, dtype=np.bool_), self.elements_for(guesses))

    @property
    def words(self) -> str:
        """What it is, and how large, for messages."""
        return f"a Ranking with {len(self.grid)} looks up to {self.grid[-1]} guesses"

    def tally(self, epsilon: float) -> Tally:
        """The counts at the look with the strongest evidence against the claim."""
        best = int(np.argmin(binomial.tail(self.counts, self.grid, epsilon)))
        return Tally(int(self.counts[best]), int(self.grid[best]))

    def effort(self, delta: float) -> Effort:
        """A rough walk for a claim; for the bound several of them, two exact walks, and the screening."""
        exact, rough = _walks.Walk(self.grid, 0.0).effort()
        tails = _PER_TAIL * len(self.grid) * (len(_LADDER) if delta > 0 else 1)
        return Effort(rough + tails, 15 * (rough + tails) + 2 * exact + 1000 * _PER_TAIL * len(self.grid))

    def p_value(self, claim: ApproximateDP) -> float:
        """The probability that some look would be as extreme under (epsilon, delta)-DP.

        Args:
            claim: The claim to test.

        Returns:
            The p-value, rounded up.

        """
        low = high = 1.0
        for low, high in self._closer(claim.epsilon, claim.delta, rough=False):
            if low == high:
                break
        return high

    def bracket(self, epsilon: float, beyond: float = 1.0) -> tuple[float, float]:
        """Bounds on the p-value at delta = 0, cheaper than the p-value; rough if it is above `beyond`."""
        low = high = 1.0
        for low, high in self._closer(epsilon, 0.0):
            if low > beyond or high <= low * _CLOSE:
                break
        return low, high

    def refutes(self, claim: ApproximateDP, level: float) -> bool:
        """Whether the p-value is at most a level; bounds on the p-value may be enough to decide this.

        Args:
            claim: The claim to test.
            level: The level of the test.

        Returns:
            Whether the claim is refuted at this level.

        """
        closer = self._closer(claim.epsilon, claim.delta)
        return next(high <= level for low, high in closer if low > level or high <= level)

    def _closer(self, epsilon: float, delta: float, rough: bool = True) -> Iterator[tuple[float, float]]:
        """Bounds on the p-value, ever closer as more boundaries are walked to, at last equal.

        A boundary lowered by some flips is crossed at least as often as its easiest look, and at most as
        often as all its looks together. Of two it is the lower one that is crossed more often, by at most
        what its looks have more: a walk that crosses it alone is between them at some look. Where the
        budget may run out, the crossing tells most. Long walks are first made with rounded steps.
        """
        effort.spend(5 * effort.CALL)
        boundary = self._boundary(epsilon)
        reachable = boundary <= self.grid
        walk = _walks.Walk(self.grid[reachable], epsilon)
        boundary, budget = boundary[reachable], float(binomial.flip_budget(self.elements, epsilon, delta))
        flips = _LADDER if budget > 0 else _LADDER[:1]
        tails = binomial.tail(boundary[:, None] - flips, walk.looks[:, None], epsilon)
        union = tails.sum(axis=0)
        least, most = tails.max(axis=0), np.minimum(union, 1.0)
        for exact in (False, True) if rough and walk.long else (True,):
            known = np.zeros(len(flips), dtype=np.bool_)
            while True:
                effort.spend(3 * effort.CALL)
                low, last = _walks.greedy_flips(least, flips, budget)
                high, place = _walks.greedy_flips(most, flips, budget)
                done = known[: last + 1].all()
                high = low if done and exact else max(low, high)
                yield binomial.rounded_up(low), binomial.rounded_up(high)
                if done:
                    break
                place = int(np.argmin(known)) if known[place] else place
                known[place] = True
                crossed, at_most = float(most[place]), float(most[place])
                if crossed > walk.floor:
                    crossed, at_most = np.minimum(walk.crossing(boundary - flips[place], exact), crossed)
                least[place:], most[place] = np.maximum(least[place:], crossed), at_most
                most[place:] = np.minimum(most[place:], most[place] + union[place:] - union[place])
                most[:place] = np.minimum(most[:place], most[place])

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the union bound over looks, with and without flips."""
        end = bisect.bisect_left(epsilons, True, key=lambda claim: self._smallest_tail(claim) > level)
        done = 0
        for width in _STRETCHES:
            all_refuted = True
            while all_refuted and done < end:
                starts = np.arange(done, end, width)[:_STRETCHES_AT_ONCE]
                ends = np.minimum(starts + width, end)
                refuted = self._surely_refuted(epsilons[starts], epsilons[ends - 1], delta, level)
                all_refuted = bool(refuted.all())
                done = int(ends[-1] if all_refuted else starts[refuted.argmin()])
        return np.repeat(np.array([1, 0, -1], dtype=np.int8), [done, end - done, len(epsilons) - end])

    def _smallest_tail(self, epsilon: float) -> float:
        return float(binomial.tail(self.counts, self.grid, epsilon).min())

    def _boundary(self, epsilon: float) -> Integers:
        tails = binomial.tail(self.counts, self.grid, epsilon)
        smallest = float(tails.min())
        boundary = _walks.smallest_counts(self.grid, smallest * binomial.ROUND_UP, epsilon)
        return np.where(tails <= smallest, np.minimum(boundary, self.counts), boundary)

    def _surely_refuted(self, first: Floats, last: Floats, delta: float, level: float) -> Hits:
        """Whether the union bound over looks refutes every claim of a stretch, for each first and last.

        Chances and smallest tails rise with epsilon, the budget of flips falls. So each boundary is at least
        that of the first chances at the last smallest tail, and is crossed at most as often as by the last
        chances with the first budget. A walk that needs more than f flips costs f + 1 of it or more; for f of
        the ladder the p-value charges no less.
        """
        looks = self.grid[:, None]
        smallest = binomial.tail(self.counts[:, None], looks, last).min(axis=0) * binomial.ROUND_UP
        boundary = _walks.smallest_counts(looks, smallest, first)
        budget = binomial.flip_budget(self.elements, first, delta)
        flips = _LADDER[np.searchsorted(_LADDER[:-1], budget / (level * _FOR_FLIPS) - 1)]
        tails = binomial.tail(boundary - flips[:, None], looks, last) * (boundary <= looks)
        chances = (tails.sum(axis=1) + budget / (flips + 1)) * binomial.ROUND_UP
        return np.asarray((chances <= level).any(axis=0))


def _checked_grid(grid: npt.ArrayLike | None, length: int | None) -> Integers:
    if grid is None:
        return looks(length or 1)
    whole = _whole("grid", grid)
    rising = len(whole) > 0 and whole[0] >= 1 and (np.diff(whole) > 0).all()
    if not rising or (length is not None and whole[-1] > length):
        limit = "" if length is None else f" up to len(hits) = {length}"
        raise InputError(f"grid must hold rising positive integers{limit}, got {shown(grid)}")
    return whole


def _whole(name: str, values: npt.ArrayLike) -> Integers:
    array = checks.vector(name, values)
    if (array != np.rint(array)).any() or (np.abs(array) > checks.LARGEST).any():
        raise InputError(f"{name} must hold integers, got {shown(values)}")
    return array.astype(np.int64)
