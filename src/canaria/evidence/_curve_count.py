"""A committed count against the lines of a claim: two bounds on Pr[V >= v], of which the smaller holds.

One is the recursion of Mahloujifar, Melis and Chaudhuri (2024), part (b) of Theorem 14. The other is part
(a), a certificate: prices of the lines that prove a bound. Prices are found by walking along the curve;
`canaria.evidence._curve_walk` writes down the linear program and its dual. The certificate is mostly within
0.1% of the exact supremum, the recursion 7 to 26% above it. Loops are compiled where Numba is installed.
"""

import math
from typing import Final

import numpy as np

from canaria._core import effort
from canaria._core.arrays import Floats
from canaria._core.binomial import ROUND_UP
from canaria._core.compiled import compiled
from canaria.claims.lines import Lines
from canaria.evidence._curve_walk import Count, Envelope, Steps, multiply, reorder, start_of, walk

SMALLEST: Final = 1e-9
"""The least p-value. The lines of a claim end somewhere, and smaller p-values would depend on where."""
_CLOSE, _FAR, _ROUNDS = 1.0005, 1.01, 7
"""Rounds end at the first factor above what is attained; after `_ROUNDS` of them, at the second."""
_CHANGES: Final = (0.5,) * 8 + (0.25,) * 5 + (0.12,) * 5
"""The share of the way that up steps are moved in each round, found by experiment."""
_ROUGHLY, _CLOSELY = 1e-4, 1e-9
"""The relative precision of a bound in the rounds, and at the end."""
_FIRST: Final = 1e-2
"""A guess of Pr[V = v]; only speed depends on it."""
_PER_GUESS: Final = 7e-6
"""Seconds for a certificate, compiled."""
_SMALL, _AT_MOST = 0.1, 1.8
"""At levels up to the first, a claim that the recursion keeps at the second times the level is kept."""


def p_value(elements: float, taken: int, correct: int, lines: Lines) -> float:
    """An upper bound on Pr[V >= correct], over all mechanisms that keep the lines for every element."""
    if _expected(elements, taken, correct, lines):
        return 1.0
    count, curve = _asked(elements, taken, correct, lines)
    if _impossible(count, curve, SMALLEST):
        return SMALLEST
    return min(1.0, _least_impossible(count, curve), certified(elements, taken, correct, lines)[0] * ROUND_UP)


def refutes(elements: float, taken: int, correct: int, lines: Lines, level: float) -> bool:
    """Whether the p-value is at most a level; the certificate is only asked where it could decide.

    At small levels, for guesses of both signs, it was never seen to be 1.5 times smaller than the recursion.
    """
    if _expected(elements, taken, correct, lines):
        return False
    count, curve = _asked(elements, taken, correct, lines)
    # One run of the recursion tells whether its p-value is at most a level. Finding that p-value takes 35.
    if level >= SMALLEST and _impossible(count, curve, level / ROUND_UP**3):
        return True
    both_signs = lines.kappas[0] >= 1
    if both_signs and level <= _SMALL and not _impossible(count, curve, _AT_MOST * level):
        return False
    return p_value(elements, taken, correct, lines) <= level


def excludes(elements: float, taken: int, correct: int, lines: Lines, level: float) -> bool:
    """Whether the recursion alone refutes at a level."""
    return bool(_impossible(*_asked(elements, taken, correct, lines), level))


def published(elements: float, taken: int, correct: int, lines: Lines) -> float:
    """The p-value of the recursion alone."""
    return min(1.0, float(_least_impossible(*_asked(elements, taken, correct, lines))))


def certified(elements: float, taken: int, correct: int, lines: Lines) -> tuple[float, float]:
    """The bound of the certificate alone, and a probability that some mechanism attains."""
    effort.spend(_PER_GUESS * taken)
    bound, attained = _certified(*_asked(elements, taken, correct, lines))
    return float(bound), float(attained)


def _expected(elements: float, taken: int, correct: int, lines: Lines) -> bool:
    """Whether the best mean number of right guesses is at least this; then the p-value is set to 1."""
    return correct <= taken * float(lines.mean_accuracy(taken / elements)) * (1 + 1e-12)


def _asked(elements: float, taken: int, correct: int, lines: Lines) -> tuple[Count, Envelope]:
    effort.spend(effort.CALL / 2 + effort.PRODUCT * taken)
    return (
        Count(float(elements), taken, correct),
        Envelope(lines.kappas, lines.deltas, lines.corners_q, lines.corners_p),
    )


@compiled
def _impossible(count: Count, curve: Envelope, level: float) -> bool:
    """Whether outcomes would need more mass than there is, if V >= v had this probability.

    The recursion of Theorem 14 (b). R = `right` and H = `wrong` begin with all the mass at v, which is where
    it needs the least below. The claim asks that H is at least gamma(R); the mass at v - 1, v - 2, ... that
    makes up for this adds to R in turn. If R + H exceeds r / n, there is no such law.
    """
    n, r, v = count
    wrong, right, line = level * (r - v) / n, level * v / n, len(curve.kappas) - 1
    limit = r / n * (1 + 1e-12 + 4e-16 * v)
    for right_guesses in range(v - 1, -1, -1):
        if right + wrong > limit:
            return True
        while line > 0 and curve.corners_p[line - 1] <= right:
            line -= 1
        more = (right - curve.deltas[line]) / curve.kappas[line]
        # No mass is needed here. R stays, so gamma(R) does, and none is needed further below either.
        if more <= wrong:
            return False
        right += right_guesses / (r - right_guesses) * (more - wrong)
        wrong = more
    return right + wrong > limit


@compiled
def _least_impossible(count: Count, curve: Envelope) -> float:
    """The smallest level that the recursion finds impossible, rounded up; at least `SMALLEST`."""
    low, high = math.log(SMALLEST), 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        if _impossible(count, curve, math.exp(middle)):
            high = middle
        else:
            low = middle
    return math.exp(high) * ROUND_UP


@compiled
def _certified(count: Count, curve: Envelope) -> tuple[float, float]:
    """The best bound that some rounds prove, and the most that a mechanism attains.

    The linear program of `_curve_walk` could go to a solver, with r + 1 masses and as many positive parts for
    each line. It has far more structure than that: the order of the steps of a walk is all that is unknown.
    Each round solves both sides for one order:

    1. primal: the walk in this order is a mechanism, and attains sum_{j >= v} a_j;
    2. dual:   slackness along the walk gives multipliers, hence prices, hence a bound (Theorem 14 (a));
    3. if bound and attained probability are close, both are close to the supremum. Else the multipliers say
       where up steps should be.

    The first order has all up steps right after edge v. Nothing guarantees that the rounds converge. They do
    not have to: any prices give a valid bound, so the best one so far is kept. `attained` only decides when
    to stop, and where `_proved` begins to search.
    """
    r, v = count.r, count.v
    edges, lines = np.zeros(r + 1, dtype=np.int64), np.zeros(r + 1, dtype=np.int64)
    steps = Steps(np.zeros(r + 2, dtype=np.bool_), edges, lines)
    steps.upward[1 : r - v + 1] = True
    multipliers, best = np.zeros(r + 1), np.zeros(len(curve.kappas))
    bound, attained, start = 1.0, 0.0, _FIRST
    for number in range(len(_CHANGES)):
        start = start_of(count, curve, steps, start)
        walked = walk(count, curve, steps, start)
        attained = max(attained, walked.above)
        found = multiply(count, curve, steps, walked.steps, multipliers)
        # Both conditions of the first step have the same slope in tau: this order determines no prices.
        if not math.isfinite(found.tau):
            break
        prices = _prices(multipliers[: walked.steps + 1], steps, len(curve.kappas))
        less = _proved(count, curve, prices, attained, bound, _ROUGHLY)
        if less < bound:
            bound, best = less, prices
        # The first rounds aim at 0.05% above what is attained. After those, 1% saves the others.
        if bound <= attained * (_CLOSE if number < _ROUNDS else _FAR):
            break
        reorder(count, curve, steps, walked.steps, found, _CHANGES[number])
    return _proved(count, curve, best, attained, bound, _CLOSELY), attained


@compiled
def _prices(multipliers: Floats, steps: Steps, lines: int) -> Floats:
    """Prices of lines: the multipliers, added up from the smallest slope, by their running maximum.

    If no multiplier is negative, lambda_t is the sum of the multipliers of the steps on line t. In an order
    that is not optimal some are, and a price must not be. The running maximum is the smallest rising sum
    that is nowhere below theirs.
    """
    prices, made = np.zeros(lines), len(multipliers) - 1
    prices[steps.lines[made - 1]] = max(multipliers[made], 0.0)
    total = most = 0.0
    for step in range(made - 1, -1, -1):
        total += multipliers[step]
        if total > most:
            prices[steps.lines[step]] += total - most
            most = total
    return prices


@compiled
def _proved(
    count: Count, curve: Envelope, prices: Floats, attained: float, known: float, closeness: float
) -> float:
    """The least tau that the prices prove, plus what they cost, if that is less than what is known.

    A bound for any prices of at least 0. None can prove less than what is attained, where the search begins;
    if nothing attains that number, the search ends too high, which is safe.

    `weights` and `costs` are the partial sums of lambda and of kappa lambda from the smallest slope on: the
    corners of K = psi(Lambda), the cheapest use of prices.
    """
    weights, costs = np.zeros(len(prices) + 1), np.zeros(len(prices) + 1)
    weights[1:], costs[1:] = np.cumsum(prices), np.cumsum(curve.kappas * prices)
    paid = (prices * curve.deltas).sum()
    if not paid < known or not _proves(count, curve, weights, costs, known - paid):
        return known
    low, high = max(0.0, attained - paid), known - paid
    while high - low > closeness * (low + paid) + 1e-14:
        middle = (low + high) / 2
        if _proves(count, curve, weights, costs, middle):
            high = middle
        else:
            low = middle
    return float(high + paid)


@compiled
def _proves(count: Count, curve: Envelope, weights: Floats, costs: Floats, tau: float) -> bool:
    """Whether (*) can be met for every number of right guesses: its two recursions, cheapest slopes first.

    For j >= v, (*) asks for at least some Lambda_j, given K_{j+1}; the smallest is best, and costs psi of it.
    This goes from j = r down, and ends with the K_v that is needed. For j < v, (*) allows at most some
    K_{j+1}, given Lambda_j; the largest is best. This goes from j = 0 up, to the K_v that is affordable. Tau
    works if the second is at least the first, and no Lambda_j exceeds the sum of all prices.
    """
    n, r, v = count
    lines, line, cost = len(curve.kappas), 0, 0.0
    for j in range(r, v - 1, -1):
        weight = max(0.0, (n * (1 - tau) + (r - j) * cost) / j)
        if not weight <= weights[lines]:
            return False
        while line < lines - 1 and weights[line + 1] < weight:
            line += 1
        while line > 0 and weights[line] > weight:
            line -= 1
        cost = costs[line] + curve.kappas[line] * (weight - weights[line])
    needed, weight, line = cost, 0.0, 0
    for j in range(1, v + 1):
        affordable = (n * tau + (j - 1) * weight) / (r - j + 1)
        # What is affordable rises with j, so that enough before v is enough at v.
        if affordable >= needed:
            return True
        while line < lines - 1 and costs[line + 1] <= affordable:
            line += 1
        weight = min(weights[line] + (affordable - costs[line]) / curve.kappas[line], weights[lines])
    return False
