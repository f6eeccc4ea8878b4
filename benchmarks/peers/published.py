"""The p-value of Steinke, Nasr and Jagielski (2023) in plain loops, as it circulates, from its formula.

For v right guesses out of r, among n elements: p = A + 2 n delta max_i (Pr[W >= v - i] - A) / i over
1 <= i <= v, where W ~ Binomial(r, e^epsilon / (1 + e^epsilon)) and A = Pr[W >= v].
"""

import math

from scipy import stats

from ._scores import Bits, Floats, right_guesses

PACKAGE = "scipy"
CHECK = "scipy.stats"

_HALVINGS = 30


def p_value(elements: int, taken: int, right: int, epsilon: float, delta: float) -> float:
    """The p-value against (epsilon, delta): one binomial probability after the other."""
    chance = 1 / (1 + math.exp(-epsilon))
    tail = float(stats.binom.sf(right - 1, taken, chance))
    steepest, more = 0.0, 0.0
    for i in range(1, right + 1):
        more += float(stats.binom.pmf(right - i, taken, chance))
        steepest = max(steepest, more / i)
    return min(1.0, tail + 2 * elements * delta * steepest)


def lower_bound(elements: int, taken: int, right: int, delta: float, level: float) -> float:
    """The largest epsilon that is refuted, by steps of 1 and bisection."""
    low, high = 0.0, 1.0
    while p_value(elements, taken, right, high, delta) < level:
        high += 1
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if p_value(elements, taken, right, middle, delta) < level:
            low = middle
        else:
            high = middle
    return low


def _bound(scores: Floats, bits: Bits, delta: float, confidence: float, taken: int) -> float:
    right = right_guesses(scores, bits, taken)
    return lower_bound(len(scores), taken, right, delta, 1 - confidence)


def all_guesses(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """Every element, the upper half of the scores as members. Claims a valid lower bound."""
    return _bound(scores, bits, delta, confidence, len(scores))


def surest_tenth(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """A tenth of the elements: highest and lowest scores. Claims a valid lower bound."""
    return _bound(scores, bits, delta, confidence, max(1, len(scores) // 10))


AUDITORS = {audit.__name__: audit for audit in (all_guesses, surest_tenth)}
