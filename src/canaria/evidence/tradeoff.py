"""Tests of a claimed trade-off curve (theory: claims beyond (epsilon, delta)).

A trade-off curve f maps a false positive rate to the smallest false negative rate that the claim
allows. Refuting a curve is another statement than a lower bound on epsilon: the largest Gaussian
curve that is refuted gives an epsilon *if the mechanism is Gaussian*, and nothing otherwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from scipy import optimize, special

from canaria._core import checks, effort
from canaria._core.effort import Effort
from canaria._core.errors import InputError
from canaria.claims import ApproximateDP
from canaria.evidence.base import ALL_COUNTED, COMMITTED, FAIR_COINS, NOT_ADAPTIVE, Evidence, Inversion, Tally

Curve = Callable[[float], float]

_SMALLEST_LEVEL: Final = 1e-250
_STEP: Final = 1e-10
_BLOCK: Final = 4096
LARGEST: Final = 10**7
"""The most guesses: a claim costs O(correct)."""
_CHECKED: Final = np.linspace(0.0, 1.0, 41)


@dataclass(frozen=True)
class Gaussian:
    """The trade-off curve of mu-Gaussian DP, Phi(Phi^{-1}(1 - rate) - mu)."""

    mu: float

    def __post_init__(self) -> None:
        checks.assign(self, mu=checks.nonnegative("mu", self.mu))

    def __call__(self, rate: float) -> float:
        """The smallest false negative rate."""
        return float(special.ndtr(-special.ndtri(rate) - self.mu))

    def at_complement(self, x: float) -> float:
        """The curve at 1 - x, to full relative precision."""
        return float(special.ndtr(special.ndtri(x) - self.mu))


@dataclass(frozen=True)
class Approximate:
    """The trade-off curve of (epsilon, delta)-DP."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        epsilon, delta = checks.nonnegative("epsilon", self.epsilon), checks.delta(self.delta)
        checks.assign(self, epsilon=epsilon, delta=delta)

    def __call__(self, rate: float) -> float:
        """The smallest false negative rate."""
        return self.at_complement(1 - rate)

    def at_complement(self, x: float) -> float:
        """The curve at 1 - x, to full relative precision, rounded down."""
        grow = math.exp(min(self.epsilon, 700.0))
        steep = x * grow - math.expm1(min(self.epsilon, 700.0)) - self.delta
        steep -= 4e-16 * grow if self.epsilon > 0 else 0.0
        return max(0.0, steep, math.exp(-self.epsilon) * (x - self.delta))

    def line(self, x: float) -> tuple[float, float]:
        """The slope of the curve at 1 - x, in x, and where the next line begins."""
        grow, fall = math.exp(min(self.epsilon, 700.0)), math.exp(-self.epsilon)
        if grow <= fall:
            return 1.0, math.inf
        bend = (grow - 1 + self.delta + 4e-16 * grow - fall * self.delta) / (grow - fall)
        return (fall, bend) if x <= bend else (grow, math.inf)


def gaussian(mu: float) -> Gaussian:
    """The trade-off curve of mu-Gaussian DP.

    >>> round(gaussian(1.0)(0.05), 4)
    0.7405
    """
    return Gaussian(mu)


def approximate(epsilon: float, delta: float = 0.0) -> Approximate:
    """The trade-off curve of (epsilon, delta)-DP.

    >>> round(approximate(0.0, 0.1)(0.25), 6)
    0.65
    """
    return Approximate(epsilon, delta)


def _at_complement(curve: Curve) -> Curve:
    """X to the curve at 1 - x; for a function of the user rounded down, as 1 - x is not exact."""
    own = getattr(curve, "at_complement", None)
    return own if own is not None else lambda x: curve(min(1.0, 1 - x + 2.0**-52))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at which a mu-Gaussian-DP mechanism is (epsilon, delta)-DP."""
    mu, delta = checks.nonnegative("mu", mu), checks.delta(delta)

    def excess(epsilon: float) -> float:
        first = special.ndtr(-epsilon / mu + mu / 2)
        second = math.exp(epsilon + float(special.log_ndtr(-epsilon / mu - mu / 2)))
        return float(first) - second - delta

    if mu == 0 or excess(0.0) <= 0:
        return 0.0
    top = mu * mu / 2 + 40 * mu
    return top if excess(top) > 0 else float(optimize.brentq(excess, 0.0, top))


@dataclass(frozen=True)
class Tradeoff(Evidence):
    """Committed counts, tested against a whole trade-off curve (Mahloujifar, Melis, Chaudhuri 2024).

    Proved by them for a curve f that is symmetric (its own inverse), non-increasing and convex, any
    dependence between elements, and a number of guesses fixed in advance. Against the curve of
    (epsilon, delta) the p-value is monotone in epsilon, so `lower_bound` takes this evidence too; there
    `Counts` is tighter. A claim costs O(correct).

    >>> Tradeoff(80, 100, 100).refutes_curve(gaussian(0.5))
    True
    """

    correct: int
    taken: int
    elements: int

    method: ClassVar[str] = "trade-off curve"
    inversion: ClassVar[Inversion] = Inversion.HALVING
    count_kind: ClassVar[str | None] = "Tradeoff"
    assumptions: ClassVar[tuple[str, ...]] = (FAIR_COINS, ALL_COUNTED, COMMITTED, NOT_ADAPTIVE)

    def __post_init__(self) -> None:
        elements = checks.integer("elements", self.elements, 1)
        taken = checks.integer("taken", self.taken, 1, elements, "elements")
        checks.integer("taken", taken, 1, LARGEST)
        correct = checks.integer("correct", self.correct, 0, taken, "taken")
        checks.assign(self, elements=elements, taken=taken, correct=correct)

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return f"the number of guesses, {self.taken}, and every guess"

    @property
    def most_guesses(self) -> int:
        """The number of guesses that was fixed."""
        return self.taken

    def best_of_size(self, guesses: int) -> "Tradeoff":
        """So many guesses, all right."""
        return Tradeoff(guesses, guesses, self.elements_for(guesses))

    def count_alone(self, correct: int, taken: int) -> "Evidence | None":
        """A count of the same kind, up to the largest that it takes."""
        return super().count_alone(correct, taken) if 0 < taken <= LARGEST else None

    def tally(self, epsilon: float) -> Tally:
        """The guesses that count, whatever the claim."""
        return Tally(self.correct, self.taken)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {"correct": self.correct, "taken": self.taken, "elements": self.elements}

    def effort(self, delta: float) -> Effort:
        """Most claims are settled within a block of guesses; what takes more is charged as it does."""
        claim = effort.CALL + effort.RATIO * min(self.correct, _BLOCK)
        return Effort(claim, 50 * claim)

    def refutes_curve(self, curve: Curve, confidence: float = 0.95) -> bool:
        """Whether the counts refute that the mechanism keeps the trade-off curve."""
        level = 1 - checks.confidence(confidence)
        return self._rejects(_at_complement(_checked(curve)), level)

    def curve_p_value(self, curve: Curve) -> float:
        """The smallest level at which the curve is refuted, rounded up."""
        below = _at_complement(_checked(curve))
        return _smallest_level(lambda level: self._rejects(below, level))

    def p_value(self, claim: ApproximateDP) -> float:
        """The p-value against the curve of (epsilon, delta)-DP."""
        curve = Approximate(claim.epsilon, claim.delta)
        return _smallest_level(lambda level: self._rejects_lines(curve, level))

    def refutes(self, claim: ApproximateDP, level: float) -> bool:
        """Whether the p-value, which is rounded up, is at most that level; without finding it."""
        return self._rejects_lines(Approximate(claim.epsilon, claim.delta), level * (1 - 2 * _STEP))

    def gaussian_mu(self, confidence: float = 0.95) -> float:
        """The largest mu whose Gaussian curve is refuted, rounded down.

        `gaussian_epsilon(mu, delta)` is then a lower bound on epsilon *if the mechanism is Gaussian*.
        On other mechanisms it over-claims (on randomised response with epsilon = 2 it gives 3.4).
        """
        level = 1 - checks.confidence(confidence)
        low, high = 0.0, 40.0
        if not self._rejects(Gaussian(0.0).at_complement, level):
            return 0.0
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (
                (middle, high) if self._rejects(Gaussian(middle).at_complement, level) else (low, middle)
            )
        return low

    def _rejects(self, below: Curve, level: float) -> bool:
        """Run the recursion downward; a total above taken / elements is impossible."""
        wrong = level * (self.taken - self.correct) / self.elements
        right = level * self.correct / self.elements
        limit = self.taken / self.elements * (1 + 1e-12 + 4e-16 * self.correct)
        for count in range(self.correct - 1, -1, -1):
            if right + wrong > limit:
                return True
            more = max(wrong, below(right))
            right += count / (self.taken - count) * (more - wrong)
            wrong = more
        return right + wrong > limit

    def _rejects_lines(self, curve: Approximate, level: float) -> bool:
        """The same recursion for a curve of two lines, many steps at once.

        On a line of slope s the right side grows by g_i d, where g_i = i / (taken - i), and d by the factor
        s g_i: running products and sums, whose rounding the limit allows for.
        """
        right, wrong = (
            level * self.correct / self.elements,
            level * (self.taken - self.correct) / self.elements,
        )
        limit = self.taken / self.elements * (1 + 1e-12 + 4e-16 * self.correct)
        gain, start = curve.at_complement(right) - wrong, self.correct - 1
        while start >= 0 and gain > 0 and right + wrong <= limit:
            effort.spend(effort.CALL + effort.RATIO * _BLOCK)
            slope, bend = curve.line(right)
            counts = np.arange(start, max(-1, start - _BLOCK), -1, dtype=np.float64)
            grown = counts / (self.taken - counts)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                gains = gain * np.cumprod(np.append(1.0, slope * grown))
                rights = right + np.cumsum(grown * gains[:-1])
            last = int(np.argmax(np.append(rights[:-1] > min(bend, limit), True)))
            wrong = curve.at_complement(float(rights[last - 1]) if last else right)
            right, start = float(rights[last]), start - last - 1
            gain = float(gains[last + 1]) if right <= bend else curve.at_complement(right) - wrong
        return right + wrong > limit


def _smallest_level(rejects: Callable[[float], bool]) -> float:
    low, high = math.log(_SMALLEST_LEVEL), 0.0
    if rejects(_SMALLEST_LEVEL):
        return _SMALLEST_LEVEL
    while high - low > _STEP:
        middle = (low + high) / 2
        low, high = (low, middle) if rejects(math.exp(middle)) else (middle, high)
    return math.exp(high)


def _checked(curve: Curve) -> Curve:
    """Check that a curve is a symmetric trade-off curve."""
    values = np.array([curve(float(rate)) for rate in _CHECKED])
    below = (values >= -1e-12).all() and (values <= 1 - _CHECKED + 1e-9).all()
    if not below or (np.diff(values) > 1e-9).any() or (np.diff(values, 2) < -1e-9).any():
        raise InputError("curve must be convex and non-increasing, between 0 and 1 - rate on [0, 1]")
    inside = values > 1e-9
    again = np.array([curve(float(value)) for value in values[inside]])
    if (np.abs(again - _CHECKED[inside]) > 1e-6).any():
        raise InputError("curve must be symmetric (its own inverse); give the symmetrised curve")
    return curve
