"""Evidence from a ranking: every number of guesses at once."""

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats, Hits, Integers, Numbers
from canaria._core.effort import Effort
from canaria._core.errors import InputError, shown
from canaria.claims import ApproximateDP, Claim
from canaria.evidence import _walks
from canaria.evidence.base import ALL_COUNTED, FAIR_COINS, NOT_ADAPTIVE, Evidence, Inversion, Progress, Tally
from canaria.evidence.boundaries import (
    FLIPS,
    PER_EXCESS,
    counts_below,
    first_counts,
    flips_that_matter,
    mean_to_reach,
    most_likely,
    scores,
)

FIRST_LOOK: Final = 8
LOOKS: Final = 40
_CLOSE: Final = 1.1
_PER_TAIL: Final = 2e-6
_NOTHING: Final = 1e-300
_LIKELY: Final = 0.4
"""Beyond, bounds on boundaries are not asked for."""
_FOR_FLIPS: Final = np.array([0.4, 0.6, 0.75, 0.9])[:, None]
"""Shares of the easiest look's excess at which claims are screened."""


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

    For a claim let V_j be the number of right guesses among the first k_j, and B = n delta / (1 + e^epsilon)
    what delta can turn into hits on average. The score of a look is

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
        elements: The number of hidden bits of the audit.
        grid: The numbers of guesses at which the hits are counted.
        counts: The number of right guesses at each of them.
        committed: The number of ranked guesses, fixed before the output was seen.
        one_sided: Whether all guesses have one sign, fixed in advance.

    Raises:
        InputError: If an argument is not usable, or if elements are left out and `committed` is not given.

    Example:
        >>> hits = [1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0]
        >>> round(Ranking(hits, grid=[4, 6, 9, 12]).p_value(ApproximateDP(0.3, delta=0)), 6)
        0.147496

    """

    hits: Hits | None = field(repr=False)
    elements: int
    grid: Integers
    counts: Integers
    committed: int
    one_sided: bool

    method: ClassVar[str] = "ranking"
    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = "Counts"
    assumptions: ClassVar[tuple[str, ...]] = (
        FAIR_COINS,
        ALL_COUNTED,
        NOT_ADAPTIVE,
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
        made = np.concatenate([seen, np.zeros(length - len(seen), dtype=np.bool_)])
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
    def read(cls, **fields: Any) -> "Ranking":
        """Evidence from what `to_dict` wrote."""
        return cls.of_counts(**fields)

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

        Args:
            grid: The numbers of guesses at which the hits were counted.
            counts: The number of right guesses at each of them.
            elements: The number of hidden bits of the audit.
            committed: The number of ranked guesses, fixed before the output was seen.
            one_sided: Whether all guesses have one sign, fixed in advance.

        Returns:
            The evidence.

        Raises:
            InputError: If the arguments are not integers, or do not fit together.

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

    def to_dict(self) -> dict[str, Any]:
        """The counts at the looks, for JSON."""
        return {
            "grid": self.grid.tolist(),
            "counts": self.counts.tolist(),
            "elements": self.elements,
            "committed": self.committed,
            "one_sided": self.one_sided,
        }

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return (
            f"the number of ranked guesses, {self.committed}, and the {len(self.grid)} of them examined "
            f"({self.grid[0]} to {self.grid[-1]}); every guess and their order"
        )

    def progress(self, epsilon: float) -> Progress:
        """The right guesses at every look."""
        return Progress(self.grid, self.counts)

    @property
    def most_guesses(self) -> int:
        """The number of ranked guesses."""
        return self.committed

    def best_of_size(self, guesses: int) -> "Ranking":
        """An audit with this many guesses, all right, at the default looks."""
        right, total = np.ones(guesses, dtype=np.bool_), self.elements_for(guesses)
        return Ranking(right, total, committed=guesses, one_sided=self.one_sided)

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
        tails = _PER_TAIL * len(self.grid)
        claim = rough + tails * (2 * FLIPS if delta > 0 else 1)
        return Effort(claim, 15 * claim + 2 * exact + 1000 * tails)

    def p_value(self, claim: Claim) -> float:
        """The probability that some look would be as extreme under (epsilon, delta)-DP.

        Args:
            claim: The claim to test.

        Returns:
            The p-value, rounded up.

        """
        low = high = 1.0
        for low, high in self.closer(claim.point(self.charged), rough=False):
            if low == high:
                break
        return high

    def bracket(self, epsilon: float, beyond: float = 1.0) -> tuple[float, float]:
        """Bounds on the p-value at delta = 0, cheaper than the p-value; rough if it is above `beyond`."""
        low = high = 1.0
        for low, high in self.closer(ApproximateDP(epsilon, delta=0)):
            if low > beyond or high <= low * _CLOSE:
                break
        return low, high

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most a level; bounds on the p-value may be enough to decide this.

        Args:
            claim: The claim to test.
            level: The level of the test.

        Returns:
            Whether the claim is refuted at this level.

        """
        point = claim.point(self.charged)
        if self._smallest_tail(point.epsilon) > level:
            return False
        bounds = self.closer(point)
        return next(high <= level for low, high in bounds if low > level or high <= level)

    def closer(self, claim: ApproximateDP, rough: bool = True) -> Iterator[tuple[float, float]]:
        """Bounds on the p-value, ever closer as more boundaries are walked to, at last equal.

        The p-value is A + (1 - A) B / E[N] (Theorem 7), A = q_0 and E[N] = sum_f (1 - q_f), where q_f is the
        probability that the walk crosses the boundary lowered by f flips. Each q_f costs a walk through all
        looks, and a verdict rarely needs all of them. So intervals [least_l, most_l] for q at some numbers of
        flips f_l are kept, and narrowed where it pays most. For f < f' and the tails of single looks ("Bounds
        that save walks" in Theorem 7):

            max_j tail_j(c_j - f) <= q_f <= sum_j tail_j(c_j - f),
            q_f <= q_f' <= q_f + sum_j [tail_j(c_j - f') - tail_j(c_j - f)].

        The first line gives the intervals to begin with. The second is why one walk narrows all of them: a
        walk that crosses only the lower boundary is between the two at some look. Walks are first made
        roughly (Theorem 8), then exactly, unless `rough` is False.

        Yields:
            Bounds (low, high), the last with low == high. Any of them may be used: `high` refutes, `low` only
            ever decides that a claim is kept.

        """
        effort.spend(5 * effort.CALL)
        epsilon, budget = claim.epsilon, float(self._budget(claim.epsilon, claim.delta))
        boundary = self.boundary(claim)
        # Looks with c_j > k_j cannot be crossed. If there is no other, the p-value is 1 by definition.
        reachable = boundary <= self.grid
        if not reachable.any():
            yield 1.0, 1.0
            return
        looks, boundary = self.grid[reachable], boundary[reachable]
        flips = flips_that_matter(looks, boundary, epsilon) if budget > 0 else np.zeros(1, dtype=np.int64)
        # q_f at f_l stands for all f in (f_{l-1}, f_l], as 1 - q_f falls with f. This rounds E[N] down.
        widths = np.diff(flips, prepend=-1)
        tails = binomial.tail(boundary[:, None] - flips, looks[:, None], epsilon)
        union = tails.sum(axis=0)
        least, most = tails.max(axis=0), np.minimum(union, 1.0)
        # A second upper bound on E[N], beside the one from `least`: E[N] <= min_j E[(c_j - S_j)_+].
        easiest = mean_to_reach(boundary, looks, epsilon, tails[:, 0]) if budget > 0 else math.inf
        walk = _walks.Walk(looks, epsilon, rarest=float(least[0]))
        # Rough walks narrow the intervals as far as they can. Exact ones then begin with what is known.
        for exact in (False, True) if rough and walk.rough else (True,):
            known = np.zeros(len(flips), dtype=np.bool_)
            while True:
                effort.spend(3 * effort.CALL)
                fewest, mean = float(widths @ (1 - most)), float(widths @ (1 - least))
                low = _mean_flips(float(least[0]), min(mean, easiest), budget)
                high = max(low, _mean_flips(float(most[0]), fewest, budget))
                done = bool(known.all())
                # With all exact walks made, `high` is the p-value as it is defined, with E[N] rounded down.
                yield binomial.rounded_up(high if done and exact else low), binomial.rounded_up(high)
                if done:
                    break
                # How much the p-value moves with each q: about 1 by A = q_0, and B / E[N]^2 by E[N].
                weights = widths * (budget / max(mean, 1.0) ** 2)
                weights[0] += 1
                place = int(np.argmax(np.where(known, -1.0, weights * (most - least))))
                known[place] = True
                # Below the floor an exact crossing, with its slivers, would come out larger than what is
                # known.
                crossed = at_most = float(most[place])
                if crossed > walk.floor:
                    crossed, at_most = np.minimum(walk.crossing(boundary - flips[place], exact), crossed)
                # Lower boundaries, with more flips, are crossed at least as often; higher ones at most.
                least[place:], most[place] = np.maximum(least[place:], crossed), at_most
                most[place:] = np.minimum(most[place:], most[place] + union[place:] - union[place])
                most[:place] = np.minimum(most[:place], most[place])

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the chances at single looks, with and without flips; the cheapest bounds first."""
        end = bisect.bisect_left(epsilons, True, key=lambda claim: self._smallest_tail(claim) > level)
        done = 0
        for refuted, at_once in ((self._clearly_refuted, 64), (self._surely_refuted, 8)):
            while done < end:
                first = refuted(epsilons[done : min(done + at_once, end)], delta, level)
                done += len(first) if first.all() else int(first.argmin())
                if not first.all():
                    break
        return np.repeat(np.array([1, 0, -1], dtype=np.int8), [done, end - done, len(epsilons) - end])

    def boundary(self, claim: ApproximateDP) -> Integers:
        """The first count at each look that is as extreme as the counts; above the look if there is none."""
        budget = self._budget(claim.epsilon, claim.delta)
        found = scores(self.counts, self.grid, claim.epsilon, budget)
        smallest = float(found.min())
        if not math.isfinite(smallest):
            return self.grid + 1
        boundary = first_counts(self.grid, smallest * binomial.ROUND_UP, claim.epsilon, budget)
        return np.where(found <= smallest, np.minimum(boundary, self.counts), boundary)

    def extremeness(self, claim: ApproximateDP) -> float:
        """The smallest score: the boundary, and with it the p-value, depends on the hits through it alone."""
        budget = self._budget(claim.epsilon, claim.delta)
        return float(scores(self.counts, self.grid, claim.epsilon, budget).min())

    def _budget(self, epsilon: Numbers, delta: float) -> Any:
        return binomial.flip_budget(self.charged, epsilon, delta)

    def _smallest_tail(self, epsilon: float) -> float:
        return float(binomial.tail(self.counts, self.grid, epsilon).min())

    def _clearly_refuted(self, epsilons: Floats, delta: float, level: float) -> Hits:
        """Whether each claim is refuted already by bounds on its tails; only one tail of each is computed.

        The smallest score is at most that of the look where a bound on it is smallest. No look is crossed
        more often than that, and with Markov's inequality one number of flips is enough.
        """
        looks = self.grid[:, None]
        budget = self._budget(epsilons, delta)
        excess = self.counts[:, None] - looks * binomial.success(epsilons)
        charged = budget / (PER_EXCESS * np.maximum(excess, _NOTHING))
        best = (most_likely(self.counts[:, None], looks, epsilons) + charged).argmin(axis=0)
        smallest = scores(self.counts[best], self.grid[best], epsilons, budget) * binomial.ROUND_UP
        possible = smallest <= min(level, _LIKELY)
        # A <= J' tau': no look is crossed more often than tau'. What is left of the level is for delta.
        smallest = np.where(possible, smallest, _LIKELY)
        boundary = counts_below(looks, smallest, epsilons, budget)
        reachable = boundary <= looks
        left = level - reachable.sum(axis=0) * smallest
        possible &= left > 0
        if delta > 0:
            # E[N] >= (f + 1) Pr[N > f]. The rule is refuted if B / E[N] is at most what is left, so f + 1 is
            # tried at 1.5 times B / left: room for a Pr[N > f] down to two thirds.
            flips = np.maximum(np.ceil(1.5 * budget / np.where(possible, left, 1.0)) - 1, 0)
            lowered = (most_likely(boundary - flips, looks, epsilons) * reachable).sum(axis=0)
            left -= budget / ((flips + 1) * np.maximum(1 - lowered, _NOTHING))
        return np.asarray(possible & (left >= level * (1 - 1 / binomial.ROUND_UP)))

    def _surely_refuted(self, epsilons: Floats, delta: float, level: float) -> Hits:
        """Whether the chances at single looks refute each claim.

        A walk that is above the boundary at a look and at the next one is not counted twice. Pr[N > f] falls
        with f, so that E[N] is at least the sum of Pr[N > f] over some f, each times its distance from the
        one before.
        """
        looks = self.grid[:, None]
        budget = self._budget(epsilons, delta)
        smallest = scores(self.counts[:, None], looks, epsilons, budget).min(axis=0)
        possible = smallest <= level
        smallest = np.where(possible, smallest, 1.0) * binomial.ROUND_UP
        boundary = first_counts(looks, smallest, epsilons, budget)
        reachable = boundary <= looks
        # A' of Theorem 7: the union bound, less the least chance of being above the boundary at both of two
        # neighbouring looks, which the union bound counts twice.
        crossed = binomial.tail(boundary, looks, epsilons) * reachable
        again = binomial.tail(np.diff(boundary, axis=0), np.diff(looks, axis=0), epsilons)
        twice = (crossed[:-1] * again * reachable[1:]).sum(axis=0)
        chances = crossed.sum(axis=0) * binomial.ROUND_UP - twice / binomial.ROUND_UP**2
        if delta > 0:
            # Any numbers of flips give a bound (Theorem 7). These are shares of the smallest excess over a
            # mean.
            excess = np.where(reachable, boundary - looks * binomial.success(epsilons), np.inf).min(axis=0)
            flips = np.maximum(1, np.rint(_FOR_FLIPS * np.minimum(excess, looks[-1])).astype(np.int64))
            lowered = (binomial.tail(boundary - flips[:, None], looks, epsilons) * reachable).sum(axis=1)
            stays = np.maximum(1 - lowered * binomial.ROUND_UP, 0.0)
            fewest = (np.diff(flips, axis=0, prepend=-1) * stays).sum(axis=0)
            chances = chances + budget / np.maximum(fewest, _NOTHING)
        return np.asarray(possible & (chances * binomial.ROUND_UP <= level))


def _mean_flips(crossed: float, flips: float, budget: float) -> float:
    """A + (1 - A) B / E[N], at most 1."""
    if budget == 0:
        return crossed
    return 1.0 if budget >= flips else crossed + (1 - crossed) * budget / flips


def _checked_grid(grid: npt.ArrayLike | None, length: int | None) -> Integers:
    if grid is None:
        return looks(length or 1)
    whole = checks.integers("grid", grid)
    rising = len(whole) > 0 and whole[0] >= 1 and (np.diff(whole) > 0).all()
    if not rising or (length is not None and whole[-1] > length):
        limit = "" if length is None else f" up to {length}, the number of guesses"
        raise InputError(f"grid must hold rising positive integers{limit}, got {shown(grid)}")
    return whole
