"""Evidence from adaptive guessing with a committed budget of guesses."""

import bisect
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from canaria._core import binomial, checks, effort
from canaria._core.arrays import Floats
from canaria._core.effort import Effort
from canaria.claims import Claim
from canaria.evidence.base import ALL_COUNTED, FAIR_COINS, Evidence, Inversion, Progress, Tally, elements_for

HEDGED_UP_TO: Final = 2000
"""The largest budget for which prices are searched: a price costs a recursion of budget^2 steps."""
_CLOSE: Final = 1 - 1e-10
"""The search for a better price ends if none can improve the bound by more than this factor."""
_MOST_PRICES: Final = 60
_BELOW_GREEDY: Final = 0.7
"""The second price that is tried, over the last price of the greedy rule."""
_PER_COUNT: Final = 1.2e-8
"""Seconds for each count of a step of the recursion."""


class _Cost(NamedTuple):
    """The total kappa B + W at a price kappa of a flip, and the slope of the total in the price."""

    price: float
    total: float
    slope: float


@dataclass(frozen=True)
class Budget(Evidence):
    """`correct` of `taken` guesses were right; guessing was to stop at the `budget`-th guess.

    Order, signs and abstentions may adapt to revealed bits. `budget` was fixed in advance; guesses that were
    not taken count as wrong.

    Proved (Theorem 13), for independent fair bits: with delta = 0 every hit has conditional probability at
    most p = p(epsilon), so the number of hits is dominated by Binomial(budget, p). With delta > 0 it is at
    most p + x_k with x_k >= 0 known before the guess and E[sum x_k] <= B = n delta / (1 + e^epsilon). For any
    price kappa >= 0, Pr[at least v hits] <= kappa B + W, where W solves the recursion over the guesses left

        W = max(p W_hit + (1 - p) W_miss, W_hit - kappa (1 - p)),

    because the reward is linear in x_k. The p-value takes the best price (up to 2,000 guesses; beyond that
    the greedy delta rule, which is looser). It is searched on a fixed grid, as B changes with epsilon.

    Attributes:
        correct: The number of right guesses, at most `taken`.
        taken: The number of guesses taken, at most `budget`.
        budget: The number of guesses at which guessing was to stop, from 1 to `elements`.
        elements: The number of hidden bits of the audit, guessed or not.

    Example:
        >>> from canaria.claims import ApproximateDP
        >>> round(Budget(80, 100, 100, 64_000).p_value(ApproximateDP(0.717, delta=1e-5)), 3)
        0.05
    """

    correct: int
    taken: int
    budget: int
    elements: int

    method: ClassVar[str] = "budget"
    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = "Budget"
    assumptions: ClassVar[tuple[str, ...]] = (
        FAIR_COINS,
        ALL_COUNTED,
        "the budget of guesses was fixed before the output was seen",
        "each guess was decided before its bit was revealed",
    )

    def __post_init__(self) -> None:
        elements = checks.integer("elements", self.elements, 1)
        budget = checks.integer("budget", self.budget, 1, elements, "elements")
        taken = checks.integer("taken", self.taken, 0, budget, "budget")
        correct = checks.integer("correct", self.correct, 0, taken, "taken")
        checks.assign(self, elements=elements, budget=budget, taken=taken, correct=correct)

    @classmethod
    def of_count(cls, correct: int, taken: int, elements: int, one_sided: bool) -> "Budget":
        """A budget that was used up."""
        return cls(correct, taken, taken, elements)

    def fixed(self) -> str:
        return f"the budget of {self.budget} guesses, and each guess before its own bit"

    def progress(self, claim: Claim) -> Progress:
        """The budget: guesses that were not taken count as wrong."""
        return Progress(np.array([self.budget]), np.array([self.correct]))

    def holds_adaptively(self, guessed: int | None) -> bool:
        """Always true: the budget was fixed, and each guess was decided before its bit was revealed."""
        return True

    @property
    def most_guesses(self) -> int:
        return self.budget

    def best_of_size(self, guesses: int) -> "Budget":
        """A budget of this many guesses, all right."""
        return Budget(guesses, guesses, guesses, elements_for(self, guesses))

    def tally(self, claim: Claim) -> Tally:
        """The counts, which are the same for every claim."""
        return Tally(self.correct, self.taken)

    def effort(self, delta: float) -> Effort:
        """Thousands of tails; if prices are searched, two more of those for a claim, a dozen for a bound."""
        if delta == 0:
            return Effort(2 * effort.CALL, 50 * effort.CALL)
        tails = 30 * effort.CALL
        price = self._price() if self.budget <= HEDGED_UP_TO else 0.0
        return Effort(tails + 2 * price, 10 * tails + 12 * price)

    def p_value(self, claim: Claim) -> float:
        """An upper bound on the probability of as many right guesses within the budget."""
        point = claim.point(self.charged)
        epsilon, delta = point.epsilon, point.delta
        flips = float(binomial.flip_budget(self.elements, epsilon, delta))
        if flips == 0:
            return binomial.rounded_up(float(binomial.tail(self.correct, self.budget, epsilon)))
        if self.budget > HEDGED_UP_TO:
            return binomial.rounded_up(self._greedy(epsilon, flips)[0])
        return binomial.rounded_up(self._hedged(epsilon, flips))

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most a level; this may need fewer prices than the p-value itself."""
        point = claim.point(self.charged)
        epsilon, delta = point.epsilon, point.delta
        flips = float(binomial.flip_budget(self.elements, epsilon, delta))
        if flips == 0 or self.budget > HEDGED_UP_TO:
            return self.p_value(claim) <= level
        return self._hedged(epsilon, flips, level / binomial.ROUND_UP) * binomial.ROUND_UP <= level

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the binomial tail alone, by simple bounds with flips, and by the rule itself."""
        verdict = np.full(len(epsilons), -1, dtype=np.int8)
        # The p-value is at least the binomial tail, which rises with epsilon: from `end` on all are kept.
        end = bisect.bisect_left(
            epsilons, True, key=lambda claim: bool(binomial.tail(self.correct, self.budget, claim) > level)
        )
        verdict[:end], open_claims = 0, epsilons[:end]
        if delta == 0 and end > 0:
            # The tail is the p-value. The last claim is left to it, for the rounding.
            verdict[: end - 1] = 1
            return verdict
        # Property 1 of the greedy rule: q_f + B / (f + 1) for any one number f of flips is a bound.
        flips = binomial.flip_budget(self.elements, open_claims, delta)
        lowered = np.unique(np.geomspace(1, self.correct + 1, 32).astype(np.int64)) - 1
        tails = binomial.tail(self.correct - lowered[:, None], self.budget, open_claims)
        simple = (tails + flips / (lowered[:, None] + 1)).min(axis=0)
        verdict[:end][simple * binomial.ROUND_UP <= level] = 1
        # A refuted claim settles all smaller ones, as the p-value of a committed count is monotone
        # (Theorem 16). So only claims after the last refuted one are asked the dear rules.
        last = int(np.flatnonzero(np.append(1, verdict == 1))[-1])
        if self.budget <= HEDGED_UP_TO:
            last += self._hedged_run(epsilons[last:end], flips[last:], level)
            verdict[last:] = -1
        else:
            last += self._greedy_run(epsilons[last:end], flips[last:], level)
        verdict[:last] = 1
        return verdict

    def _hedged_run(self, epsilons: Floats, flips: Floats, level: float) -> int:
        """The length of the initial run of claims that the hedge refutes, by bisection.

        At a fixed kappa (1 - p) the total, n delta kappa (1 - p) + W, rises with p, so its infimum over kappa
        rises with epsilon (Theorem 13 (b)).
        """

        def kept(claim: int) -> bool:
            hedged = self._hedged(float(epsilons[claim]), float(flips[claim]), level / binomial.ROUND_UP)
            return hedged * binomial.ROUND_UP > level

        return bisect.bisect_left(range(len(epsilons)), True, key=kept)

    def _greedy_run(self, epsilons: Floats, flips: Floats, level: float) -> int:
        """The length of an initial run of claims that the greedy rule refutes.

        Flips fall and chances rise with epsilon, so the flips of the first claim of a stretch and the chances
        of its last bound the p-value of each.
        """
        done, width = 0, 1
        while width > 0 and done < len(epsilons):
            end = min(done + width, len(epsilons))
            most = self._greedy(float(epsilons[end - 1]), float(flips[done]))[0]
            done, width = (end, 2 * width) if most * binomial.ROUND_UP <= level else (done, width // 2)
        return done

    def _greedy(self, epsilon: float, flips: float) -> tuple[float, float]:
        """Turn misses into hits where the fewest are needed, until flips are spent; and the last price.

        Theorem 2 for R = {at least v hits}, where N = (v - hits)_+. The mass that needs j flips costs j each.
        Of a ladder with gaps, all mass of a gap is charged at its cheap end, which only raises the result.
        The last price is the gain in probability that one more flip would buy.
        """
        effort.spend(2 * effort.CALL)
        lowered = _flip_counts(self.correct)
        reached = binomial.tail(self.correct - lowered, self.budget, epsilon)
        gains, needed = np.diff(reached), lowered[:-1] + 1
        spent = np.cumsum(gains * needed)
        full = int(np.searchsorted(spent, flips, side="right"))
        if full == len(gains):
            return 1.0, 0.0
        left = flips - (spent[full - 1] if full else 0.0)
        return float(reached[full]) + float(left) / float(needed[full]), 1 / float(needed[full])

    def _hedged(self, epsilon: float, flips: float, level: float = 0.0) -> float:
        """The infimum over prices, or with less work a total that is on the same side of `level`.

        Any price gives a valid bound. The total is convex in the price, so its tangents at two prices meet
        below the infimum; where they meet is the next price. The first two are about that of the greedy
        rule, where the infimum mostly is. At price 0 every miss is flipped, at 1 none.
        """
        greedy, last = self._greedy(epsilon, flips)
        low = _Cost(0.0, 1.0, flips - self.correct * float(binomial.failure(epsilon)))
        high = _Cost(1.0, flips + float(binomial.tail(self.correct, self.budget, epsilon)), flips)
        best, prices = min(1.0, greedy, high.total), [last, _BELOW_GREEDY * last]
        for _ in range(_MOST_PRICES if low.slope < 0 else 0):
            across = high.slope * high.price - low.slope * low.price
            meet = (low.total - high.total + across) / (high.slope - low.slope)
            least = low.total + low.slope * (meet - low.price)
            if best <= level or least > level > 0 or least >= best * _CLOSE:
                break
            price = prices.pop() if prices else meet
            if low.price < price < high.price:
                new = self._at_price(epsilon, flips, price)
                best = min(best, new.total)
                low, high = (new, high) if new.slope < 0 else (low, new)
        return best

    def _price(self) -> float:
        """Seconds that one price takes."""
        return self.budget * (effort.CALL / 6 + _PER_COUNT * (self.budget - self.correct))

    def _at_price(self, epsilon: float, flips: float, price: float) -> _Cost:
        """The recursion over the guesses left, by how many misses may still come (first column: too few).

        W = W_hit - (1 - p) min(W_hit - W_miss, price), the same as the maximum above. The second row holds
        its slope in the price.

        With l guesses left and u hits needed, m = l - u misses may still come. A hit leaves m as it is, a
        miss takes one. So column m becomes the next W from itself and its left neighbour, in place, and after
        all guesses the last column is W(K, v).
        """
        wrong = float(binomial.failure(epsilon))
        effort.spend(self._price())
        wins = np.zeros((2, self.budget - self.correct + 2))
        wins[0, 1:] = 1.0
        after, before = wins[:, 1:], wins[:, :-1]
        lost, dear = np.empty_like(after), np.empty(after.shape[1], dtype=np.bool_)
        lost_wins, lost_slopes = lost
        for _ in range(self.budget):
            np.subtract(after, before, out=lost)
            np.greater(lost_wins, price, out=dear)
            # Where the price is the smaller of the two, the minimum is the price, and its slope 1.
            np.copyto(lost_slopes, 1.0, where=dear)
            np.minimum(lost_wins, price, out=lost_wins)
            np.multiply(lost, wrong, out=lost)
            np.subtract(after, lost, out=after)
        return _Cost(price, price * flips + float(wins[0, -1]), flips + float(wins[1, -1]))


@lru_cache(maxsize=8)
def _flip_counts(correct: int) -> npt.NDArray[np.int64]:
    """0, 1, 2, ..., with growing gaps beyond 4,096; a gap is charged at its cheap end."""
    near = np.arange(min(correct, 4096) + 1)
    far = np.geomspace(4096, max(correct, 4096), 400).astype(np.int64)
    return np.unique(np.concatenate([near, np.minimum(far, correct), [correct]]))
