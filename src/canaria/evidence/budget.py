"""Evidence from adaptive guessing with a committed budget of guesses (theory: adaptive auditing)."""

import bisect
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import optimize

from canaria import _validate
from canaria._validate import Floats
from canaria.evidence import _binomial
from canaria.evidence._protocol import FAIR_COINS, Progress, Tally, kind

HEDGED_UP_TO: Final = 2000
_LARGEST_PRICE: Final = 1.0


@kind
@dataclass(frozen=True)
class Budget:
    """`correct` of `taken` guesses were right; guessing was to stop at the `budget`-th guess.

    Order, signs and abstentions may adapt to revealed bits. `budget` was fixed in advance; guesses that
    were not taken count as wrong.

    Proved, for independent fair bits: with delta = 0 every hit has conditional probability at most
    p = p(epsilon), so the number of hits is dominated by Binomial(budget, p). With delta > 0 it is at most
    p + x_k with x_k >= 0 known before the guess and E[sum x_k] <= B = n delta / (1 + e^epsilon). For any
    price kappa >= 0, Pr[at least v hits] <= kappa B + W, where W solves the recursion over the guesses left

        W = max(p W_hit + (1 - p) W_miss, W_hit - kappa (1 - p)),

    because the reward is linear in x_k. The p-value takes the best price (up to 2,000 guesses; beyond
    that the greedy delta rule, which is looser). It is searched on a fixed grid, as B changes with epsilon.

    >>> round(Budget(80, 100, 100, 64_000).p_value(0.717, delta=1e-5), 3)
    0.05
    """

    correct: int
    taken: int
    budget: int
    elements: int

    method: ClassVar[str] = "budget"
    inversion: ClassVar[str] = "grid"
    assumptions: ClassVar[tuple[str, ...]] = (
        FAIR_COINS,
        "the budget of guesses was fixed before the output was seen",
        "each guess was decided before its bit was revealed",
    )

    def __post_init__(self) -> None:
        elements = _validate.integer("elements", self.elements, 1)
        budget = _validate.integer("budget", self.budget, 1, elements, "elements")
        taken = _validate.integer("taken", self.taken, 0, budget, "budget")
        correct = _validate.integer("correct", self.correct, 0, taken, "taken")
        _validate.assign(self, elements=elements, budget=budget, taken=taken, correct=correct)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "correct": self.correct,
            "taken": self.taken,
            "budget": self.budget,
            "elements": self.elements,
        }

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return f"the budget of {self.budget} guesses, and each guess before its own bit"

    def progress(self, epsilon: float) -> Progress:
        """The budget: guesses that were not taken count as wrong."""
        return Progress(np.array([self.budget]), np.array([self.correct]))

    def tally(self, epsilon: float) -> Tally:
        """The guesses that count, whatever the claim."""
        return Tally(self.correct, self.taken)

    def p_value(self, epsilon: float, delta: float = 0.0) -> float:
        """The largest probability of doing as well in so many guesses."""
        epsilon, delta = _validate.nonnegative("epsilon", epsilon), _validate.delta(delta)
        flips = float(_binomial.flip_budget(self.elements, epsilon, delta))
        if flips == 0:
            return _binomial.rounded_up(float(_binomial.tail(self.correct, self.budget, epsilon)))
        greedy = self._greedy(epsilon, flips)
        if self.budget > HEDGED_UP_TO:
            return _binomial.rounded_up(greedy)
        return _binomial.rounded_up(min(greedy, self._hedged(epsilon, flips)))

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle claims by the binomial tail alone and by the simplest bounds with flips."""
        verdict = np.full(len(epsilons), -1, dtype=np.int8)
        end = bisect.bisect_left(
            epsilons, True, key=lambda claim: bool(_binomial.tail(self.correct, self.budget, claim) > level)
        )
        verdict[:end], open_claims = 0, epsilons[:end]
        if delta == 0 and end > 0:
            verdict[: end - 1] = 1
            return verdict
        flips = _binomial.flip_budget(self.elements, open_claims, delta)
        lowered = np.unique(np.geomspace(1, self.correct + 1, 32).astype(np.int64)) - 1
        tails = _binomial.tail(self.correct - lowered[:, None], self.budget, open_claims)
        simple = (tails + flips / (lowered[:, None] + 1)).min(axis=0)
        verdict[:end][simple * _binomial.ROUND_UP <= level] = 1
        return verdict

    def _greedy(self, epsilon: float, flips: float) -> float:
        """Turn misses into hits where the fewest are needed, until the flips are spent."""
        lowered = _flip_counts(self.correct)
        reached = _binomial.tail(self.correct - lowered, self.budget, epsilon)
        gains, prices = np.diff(reached), lowered[:-1] + 1
        spent = np.cumsum(gains * prices)
        full = int(np.searchsorted(spent, flips, side="right"))
        if full == len(gains):
            return 1.0
        left = flips - (spent[full - 1] if full else 0.0)
        return float(reached[full]) + float(left) / float(prices[full])

    def _hedged(self, epsilon: float, flips: float) -> float:
        """The infimum over prices; any price gives a valid bound, so a rough search is enough."""
        best = optimize.minimize_scalar(
            lambda log_price: self._at_price(epsilon, flips, float(np.exp(log_price))),
            bounds=(np.log(1e-6), np.log(_LARGEST_PRICE)),
            method="bounded",
            options={"xatol": 1e-3},
        )
        return float(best.fun)

    def _at_price(self, epsilon: float, flips: float, price: float) -> float:
        right, wrong = float(_binomial.success(epsilon)), float(_binomial.failure(epsilon))
        wins = np.zeros(self.correct + 1)
        wins[0] = 1.0
        for _ in range(self.budget):
            hit, miss = wins[:-1], wins[1:]
            wins[1:] = np.maximum(right * hit + wrong * miss, hit - price * wrong)
        return price * flips + float(wins[-1])


def _flip_counts(correct: int) -> npt.NDArray[np.int64]:
    """0, 1, 2, ..., with growing gaps beyond 4,096; a gap is charged at its cheap end."""
    near = np.arange(min(correct, 4096) + 1)
    far = np.geomspace(4096, max(correct, 4096), 400).astype(np.int64)
    return np.unique(np.concatenate([near, np.minimum(far, correct), [correct]]))
