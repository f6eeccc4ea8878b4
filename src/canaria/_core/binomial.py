"""Binomial laws with success probability p(epsilon) = e^epsilon / (1 + e^epsilon).

All formulas use the failure probability 1 - p(epsilon), which keeps its digits when p(epsilon) rounds to 1.
Compared with 40-digit arithmetic, the relative error is below 3e-10 for up to 10^9 trials
(tests/_core/test_binomial.py); `rounded_up` covers it. For more trials, the error grows like their square
root, and so does the margin that `tail` adds.
"""

import math
from typing import Any, Final

import numpy as np
from scipy import special

from canaria._core import effort
from canaria._core.arrays import Floats, Numbers

ROUND_UP: Final = 1 + 1e-9
SMALLEST_TAIL: Final = 1e-250
NEGLIGIBLE: Final = 1e-280
"""Smaller values are rounded up to this, so that their logarithm keeps its digits."""
NOT_ZERO: Final = 1e-300
"""In place of a 0 that something is divided by, or whose logarithm is taken; below every level."""
_DELICATE: Final = 1e8
_CORRECTED_UP_TO: Final = 1e9
_ROUND_MORE: Final = 2e-14
_FAR: Final = 0.99
"""Up to this value, 1 minus the lower tail keeps its digits."""
_STIRLING_FROM: Final = 16
_STIRLING_TABLE: Final = np.array(
    [0.0]
    + [
        math.lgamma(k + 1) - (k + 0.5) * math.log(k) + k - 0.5 * math.log(2 * math.pi)
        for k in range(1, _STIRLING_FROM)
    ]
)


def rounded_up(probability: float) -> float:
    """Round a p-value up to cover its numerical error, and to at most 1."""
    return min(1.0, float(probability) * ROUND_UP)


def success(epsilon: Numbers) -> Any:
    """p(epsilon): the largest possible accuracy of a guess under epsilon-DP."""
    return special.expit(epsilon)


def failure(epsilon: Numbers) -> Any:
    """1 - p(epsilon), to full relative precision."""
    return special.expit(-np.asarray(epsilon, dtype=np.float64))


def estimate(correct: float, taken: float) -> float:
    """p^{-1}(correct / taken): the epsilon at which that accuracy is expected; 0 if below 1/2."""
    if 2 * correct <= taken:
        return 0.0
    return math.inf if correct == taken else math.log(correct / (taken - correct))


def flip_budget(elements: float, epsilon: Numbers, delta: float) -> Any:
    """N delta / (1 + e^epsilon): an upper limit for the mean number of misses that delta turns into hits."""
    return elements * delta * failure(epsilon)


def round_more(taken: Numbers) -> Any:
    """The factor that covers the numerical error for this many trials, in addition to `ROUND_UP`."""
    return 1 + _ROUND_MORE * np.sqrt(np.maximum(taken - _CORRECTED_UP_TO, 0.0))


def tail(correct: Numbers, taken: Numbers, epsilon: Numbers) -> Floats:
    """Pr[Binomial(taken, p(epsilon)) >= correct].

    `betainc` takes p(epsilon), rounded. If that loses digits, the first-order correction dA/dp = v b / p
    restores them (the second order is below 1e-13 for 10^9 trials). Beyond 10^9 trials, the lower tail uses
    1 - p(epsilon), and so does the slower `betaincc` if the upper tail is small. A possible tail below
    1e-250, where all may underflow, is rounded up to that.
    """
    correct, taken = np.asarray(correct, dtype=np.float64), np.asarray(taken, dtype=np.float64)
    wrong = failure(epsilon)
    effort.spend_on_tails(correct, taken, wrong)
    inside = (correct > 0) & (correct <= taken)
    # Outside, 1 stands in for arguments that betainc does not take; the last line replaces what comes of it.
    right = np.where(inside, correct, 1.0)
    rest = np.where(inside, taken - right + 1, 1.0)
    if (taken > _CORRECTED_UP_TO).any():
        lower = special.betainc(rest, right, wrong)
        # Only there has 1 - lower lost digits, and betaincc is slow near the mean.
        small = lower > _FAR
        rest, right, wrong = (np.where(small, values, 1.0) for values in (rest, right, wrong))
        upper = np.where(small, special.betaincc(rest, right, wrong), 1 - lower)
        upper = np.minimum(upper * round_more(taken), 1.0)
    else:
        rounded = 1 - wrong
        upper = special.betainc(right, rest, rounded)
        if (taken > _DELICATE * wrong).any():
            # How much rounding has changed p(epsilon).
            excess = (rounded - 1) + wrong
            mass = np.exp(log_pmf(right, right + rest - 1, epsilon))
            upper = upper - excess * right * mass / rounded
    return np.where(inside, np.maximum(upper, SMALLEST_TAIL), np.where(correct > 0, 0.0, 1.0))


def lower_tail(correct: int, taken: int, epsilon: float) -> float:
    """Pr[Binomial(taken, p(epsilon)) < correct], to full relative precision."""
    return float(special.betainc(taken - correct + 1, correct, failure(epsilon)))


def tail_over_pmf(correct: int, taken: int, epsilon: float, upper: float) -> float:
    """Pr[Binomial(taken, p(epsilon)) >= correct], given as `upper`, over Pr[= correct]; no underflow."""
    if upper > SMALLEST_TAIL:
        return upper / math.exp(float(log_pmf(correct, taken, epsilon)))
    return _far_tail_over_pmf(correct, taken, epsilon)


def log_pmf(correct: Numbers, taken: Numbers, epsilon: Numbers) -> Floats:
    """Ln Pr[Binomial(taken, p(epsilon)) = correct], by Loader's saddle-point form."""
    correct, taken = np.asarray(correct, dtype=np.float64), np.asarray(taken, dtype=np.float64)
    wrong = taken - correct
    effort.spend(2 * effort.CALL + effort.LOG_PMF * wrong.size)
    deviance = _deviance(correct, taken, -np.logaddexp(0.0, -np.asarray(epsilon, dtype=np.float64)))
    deviance += _deviance(wrong, taken, -np.logaddexp(0.0, np.asarray(epsilon, dtype=np.float64)))
    # At the edges the law is a power of one probability, which the deviance gives alone.
    edge = (correct == 0) | (wrong == 0)
    size = np.where(edge, 1.0, taken / np.where(edge, 1.0, correct * wrong))
    bulk = _stirling_error(taken) - _stirling_error(correct) - _stirling_error(wrong)
    bulk += 0.5 * np.log(np.where(edge, 1.0, size / (2 * math.pi)))
    return np.asarray(np.where(edge, 0.0, bulk) - deviance)


def log_mass(counts: Numbers, trials: Numbers, rate: float) -> Floats:
    """Ln Pr[Binomial(trials, rate) = count] for any rate, for laws that are not used for p-values.

    The binomial coefficient is 1 / ((trials + 1) B(count + 1, trials - count + 1)).
    """
    counts, trials = np.asarray(counts, dtype=np.float64), np.asarray(trials, dtype=np.float64)
    ways = -special.betaln(counts + 1, trials - counts + 1) - np.log(trials + 1)
    return np.asarray(ways + special.xlogy(counts, rate) + special.xlog1py(trials - counts, -rate))


def _deviance(count: Floats, taken: Floats, log_probability: Numbers) -> Floats:
    """X ln(x / m) - (x - m) for the mean m = taken * probability, without cancellation near x = m."""
    mean = taken * np.exp(log_probability)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        excess = (count - mean) / mean
        near = mean * ((1 + excess) * np.log1p(excess) - excess)
        # Near the mean this form does not cancel. Far from it the mean may underflow.
        is_near = np.abs(excess) < 0.5
        if is_near.all():
            return np.asarray(near)
        log_ratio = np.log(count) - np.log(taken) - log_probability
        far = np.where(count == 0, 0.0, count * log_ratio) - (count - mean)
    return np.asarray(np.where(is_near, near, far))


def _stirling_error(count: Floats) -> Floats:
    """ln(k!) minus Stirling's formula."""
    large = np.maximum(count, _STIRLING_FROM)
    square = 1 / (large * large)
    series = (1 / 12 - square * (1 / 360 - square * (1 / 1260 - square * (1 / 1680 - square / 1188)))) / large
    if (small := count < _STIRLING_FROM).any():
        table = _STIRLING_TABLE[np.minimum(count, _STIRLING_FROM - 1).astype(np.int64)]
        return np.where(small, table, series)
    return np.asarray(series)


def _far_tail_over_pmf(correct: int, taken: int, epsilon: float) -> float:
    """sum_k prod_{j <= k} e^epsilon (r - v - j + 1) / (v + j), far above the mean.

    Far above the mean, the terms fall at least as fast as a geometric series with a ratio below 1.
    """
    total, last, block = 1.0, 1.0, 1024
    odds = math.exp(epsilon)
    for start in range(1, taken - correct + 1, block):
        effort.spend(effort.CALL / 2)
        steps = np.arange(start, min(start + block, taken - correct + 1), dtype=np.float64)
        terms = last * np.cumprod(odds * (taken - correct - steps + 1) / (correct + steps))
        total, last = total + float(terms.sum()), float(terms[-1])
        if last < 1e-17 * total:
            break
    return total
