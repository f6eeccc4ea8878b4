"""Tests of a claimed trade-off curve.

A trade-off curve f maps a false positive rate to the smallest false negative rate that the claim allows.
Refuting a curve is a different statement from a lower bound on epsilon: the largest Gaussian curve that is
refuted gives an epsilon *if the mechanism is Gaussian*, and nothing otherwise.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from scipy import optimize, special

from canaria._core import checks, effort
from canaria._core.effort import Effort
from canaria._core.errors import InputError, shown
from canaria.claims import ApproximateDP
from canaria.evidence.base import ALL_COUNTED, COMMITTED, FAIR_COINS, NOT_ADAPTIVE, Evidence, Inversion, Tally

Curve = Callable[[float], float]

_SMALLEST_LEVEL: Final = 1e-250
_STEP: Final = 1e-10
_BLOCK: Final = 4096
LARGEST: Final = 10**7
"""The most guesses: a claim costs O(correct)."""
_CHECKED: Final = np.linspace(0.0, 1.0, 41)
_LARGEST_MU: Final = 1e6


@dataclass(frozen=True)
class Gaussian:
    """The trade-off curve of mu-Gaussian DP, Phi(Phi^{-1}(1 - rate) - mu).

    Attributes:
        mu: The parameter of Gaussian DP, at least 0.

    """

    mu: float

    def __post_init__(self) -> None:
        checks.assign(self, mu=_checked_mu(self.mu))

    def __call__(self, rate: float) -> float:
        """The smallest false negative rate at this false positive rate."""
        return float(special.ndtr(-special.ndtri(rate) - self.mu))

    def at_complement(self, x: float) -> float:
        """The curve at 1 - x, to full relative precision."""
        return float(special.ndtr(special.ndtri(x) - self.mu))


@dataclass(frozen=True)
class Approximate:
    """The trade-off curve of (epsilon, delta)-DP.

    Attributes:
        epsilon: At least 0.
        delta: Between 0 and 1.

    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        epsilon, delta = checks.nonnegative("epsilon", self.epsilon), checks.delta(self.delta)
        checks.assign(self, epsilon=epsilon, delta=delta)

    def __call__(self, rate: float) -> float:
        """The smallest false negative rate at this false positive rate."""
        return self.at_complement(1 - rate)

    def at_complement(self, x: float) -> float:
        """The curve at 1 - x, to full relative precision, rounded down."""
        grow = math.exp(min(self.epsilon, 700.0))
        steep = x * grow - math.expm1(min(self.epsilon, 700.0)) - self.delta
        steep -= 4e-16 * grow if self.epsilon > 0 else 0.0
        return max(0.0, steep, math.exp(-self.epsilon) * (x - self.delta))

    def line(self, x: float) -> tuple[float, float]:
        """The slope of the curve at 1 - x, in x, and the point where the next line begins."""
        grow, fall = math.exp(min(self.epsilon, 700.0)), math.exp(-self.epsilon)
        if grow <= fall:
            return 1.0, math.inf
        bend = (grow - 1 + self.delta + 4e-16 * grow - fall * self.delta) / (grow - fall)
        return (fall, bend) if x <= bend else (grow, math.inf)


def gaussian(mu: float) -> Gaussian:
    """The trade-off curve of mu-Gaussian DP.

    Args:
        mu: The parameter of Gaussian DP, at least 0.

    Returns:
        A function from false positive rates to the smallest false negative rates.

    Raises:
        InputError: If mu is negative or not a number.

    Example:
        >>> round(gaussian(1.0)(0.05), 4)
        0.7405

    """
    return Gaussian(mu)


def approximate(epsilon: float, delta: float = 0.0) -> Approximate:
    """The trade-off curve of (epsilon, delta)-DP.

    Args:
        epsilon: At least 0.
        delta: Between 0 and 1.

    Returns:
        A function from false positive rates to the smallest false negative rates.

    Raises:
        InputError: If epsilon or delta is out of range.

    Example:
        >>> round(approximate(0.0, 0.1)(0.25), 6)
        0.65

    """
    return Approximate(epsilon, delta)


def _at_complement(curve: Curve) -> Curve:
    """X to the curve at 1 - x; for a user's function rounded down, as 1 - x is not exact."""
    own = getattr(curve, "at_complement", None)
    return own if own is not None else lambda x: curve(min(1.0, 1 - x + 2.0**-52))


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon at which a mu-Gaussian-DP mechanism is (epsilon, delta)-DP.

    Args:
        mu: The parameter of Gaussian DP, at least 0.
        delta: Between 0 and 1.

    Returns:
        The smallest such epsilon. For deltas that are extremely small it is cut at mu^2 / 2 + 40 mu.

    Raises:
        InputError: If mu or delta is out of range.

    """
    mu, delta = _checked_mu(mu), checks.delta(delta)

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

    Proved (Theorem 14) for a curve f that is symmetric (its own inverse), non-increasing and convex, any
    dependence between elements, and a number of guesses fixed in advance. Against the curve of (epsilon,
    delta) the p-value is monotone in epsilon, so `lower_bound` takes this evidence too; there `Counts` is
    tighter. A claim costs O(correct).

    Attributes:
        correct: The number of right guesses.
        taken: The number of guesses, fixed before the output was seen; at most 10 million.
        elements: The number of hidden bits of the audit, guessed or not.

    Raises:
        InputError: If not 0 <= correct <= taken <= elements, or if taken is 0 or more than 10 million.

    Example:
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
        """An audit with this many guesses, all right."""
        return Tradeoff(guesses, guesses, self.elements_for(guesses))

    def count_alone(self, correct: int, taken: int) -> "Evidence | None":
        """A count of the same kind; None above the largest number of guesses that it allows."""
        return super().count_alone(correct, taken) if 0 < taken <= LARGEST else None

    def tally(self, epsilon: float) -> Tally:
        """The counts, whatever the claim."""
        return Tally(self.correct, self.taken)

    def to_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {"correct": self.correct, "taken": self.taken, "elements": self.elements}

    def effort(self, delta: float) -> Effort:
        """Most claims are settled within a block of guesses; longer ones are charged as they go."""
        claim = effort.CALL + effort.RATIO * min(self.correct, _BLOCK)
        return Effort(claim, 50 * claim)

    def refutes_curve(self, curve: Curve, confidence: float = 0.95) -> bool:
        """Whether the counts refute that the mechanism satisfies the trade-off curve.

        Args:
            curve: A function from false positive rates to false negative rates: convex, non-increasing,
                symmetric.
            confidence: The confidence of the refutation, strictly between 0 and 1.

        Returns:
            Whether the curve is refuted.

        Raises:
            InputError: If the curve is not a symmetric trade-off curve, or the confidence is out of range.

        """
        level = 1 - checks.confidence(confidence)
        return self._rejects(_at_complement(_checked(curve)), level)

    def curve_p_value(self, curve: Curve) -> float:
        """The smallest level at which the curve is refuted, rounded up.

        Args:
            curve: A function from false positive rates to false negative rates: convex, non-increasing,
                symmetric.

        Returns:
            The p-value.

        Raises:
            InputError: If the curve is not a symmetric trade-off curve.

        """
        below = _at_complement(_checked(curve))
        return _smallest_level(lambda level: self._rejects(below, level))

    def p_value(self, claim: ApproximateDP) -> float:
        """The p-value against the curve of (epsilon, delta)-DP.

        Args:
            claim: The claim to test.

        Returns:
            The p-value, rounded up.

        """
        curve = Approximate(claim.epsilon, claim.delta)
        return _smallest_level(lambda level: self._rejects_lines(curve, level))

    def refutes(self, claim: ApproximateDP, level: float) -> bool:
        """Whether the p-value, rounded up, is at most a level; faster than computing the p-value.

        Args:
            claim: The claim to test.
            level: The level of the test.

        Returns:
            Whether the claim is refuted at this level.

        """
        return self._rejects_lines(Approximate(claim.epsilon, claim.delta), level * (1 - 2 * _STEP))

    def gaussian_mu(self, confidence: float = 0.95) -> float:
        """The largest mu whose Gaussian curve is refuted, rounded down.

        `gaussian_epsilon(mu, delta)` is then a lower bound on epsilon *if the mechanism is Gaussian*. On
        other mechanisms it over-claims (on randomized response with epsilon = 2 it gives 3.4).

        Args:
            confidence: The confidence of the refutation, strictly between 0 and 1.

        Returns:
            The largest refuted mu; 0 if none is refuted.

        Raises:
            InputError: If the confidence is out of range.

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


def _checked_mu(mu: float) -> float:
    number = checks.nonnegative("mu", mu)
    if number > _LARGEST_MU:
        raise InputError(f"mu must be at most {_LARGEST_MU:,.0f}, got {shown(mu)}")
    return number


def _checked(curve: Curve) -> Curve:
    """Check that a curve is a symmetric trade-off curve."""
    try:
        values = np.array([float(curve(float(rate))) for rate in _CHECKED])
    except (TypeError, ValueError):
        raise InputError(f"curve must be a function from rates to rates, got {shown(curve)}") from None
    below = (values >= -1e-12).all() and (values <= 1 - _CHECKED + 1e-9).all()
    if not below or (np.diff(values) > 1e-9).any() or (np.diff(values, 2) < -1e-9).any():
        raise InputError("curve must be convex and non-increasing, between 0 and 1 - rate on [0, 1]")
    inside = values > 1e-9
    again = np.array([curve(float(value)) for value in values[inside]])
    if (np.abs(again - _CHECKED[inside]) > 1e-6).any():
        raise InputError("curve must be symmetric (its own inverse); give the symmetrised curve")
    return curve
