"""Oracles: brute force, linear programs, 40-digit arithmetic and mechanisms with known worst cases."""

import itertools
import math

import mpmath
import numpy as np
from scipy import optimize, special

mpmath.mp.dps = 40


def success(epsilon: float) -> float:
    return float(special.expit(epsilon))


def precise_tail(correct: int, taken: int, epsilon: float) -> mpmath.mpf:
    """Pr[Binomial(taken, p(epsilon)) >= correct] in 40 digits, summed from the near end."""
    if correct <= 0:
        return mpmath.mpf(1)
    if correct > taken:
        return mpmath.mpf(0)
    below = precise_below(correct, taken, epsilon)
    if below < 0.5:
        return 1 - below
    term, total, step = precise_pmf(correct, taken, epsilon), mpmath.mpf(0), correct
    odds = mpmath.exp(mpmath.mpf(epsilon))
    while step <= taken and term > total * mpmath.mpf(10) ** -30:
        total += term
        term *= odds * (taken - step) / (step + 1)
        step += 1
    return total


def precise_below(correct: int, taken: int, epsilon: float) -> mpmath.mpf:
    """Pr[Binomial(taken, p(epsilon)) < correct] where that is below one half, else at least one half."""
    odds = mpmath.exp(mpmath.mpf(epsilon))
    if correct - 1 > taken * odds / (1 + odds):
        return mpmath.mpf("0.5")
    term, total, step = precise_pmf(correct - 1, taken, epsilon), mpmath.mpf(0), correct - 1
    while step >= 0 and term > total * mpmath.mpf(10) ** -30:
        total += term
        term *= step / (odds * (taken - step + 1))
        step -= 1
    return total


def precise_pmf(correct: int, taken: int, epsilon: float) -> mpmath.mpf:
    odds = mpmath.mpf(epsilon)
    logs = mpmath.loggamma(taken + 1) - mpmath.loggamma(correct + 1)
    logs -= mpmath.loggamma(taken - correct + 1)
    logs -= correct * mpmath.log1p(mpmath.exp(-odds))
    logs -= (taken - correct) * (odds + mpmath.log1p(mpmath.exp(-odds)))
    return mpmath.exp(logs)


def precise_exact_p_value(
    correct: int, taken: int, elements: int, epsilon: float, delta: float
) -> mpmath.mpf:
    """The exact (epsilon, delta) p-value of committed counts, in 40 digits."""
    if correct == 0:
        return mpmath.mpf(1)
    upper = precise_tail(correct, taken, epsilon)
    spread = upper * (1 - upper) / (correct * precise_pmf(correct, taken, epsilon))
    return min(mpmath.mpf(1), upper + elements * mpmath.mpf(delta) * spread)


def published_p_value(correct: int, taken: int, elements: int, epsilon: float, delta: float) -> float:
    """The p-value of Steinke et al. as a naive loop."""
    upper = float(precise_tail(correct, taken, epsilon))
    best = max((float(precise_tail(correct - i, taken, epsilon)) - upper) / i for i in range(1, correct + 1))
    return min(1.0, upper + 2 * elements * delta * best)


def all_mechanisms_program(correct: int, taken: int, elements: int, epsilon: float, delta: float) -> float:
    """The largest Pr[at least `correct` right] over *all* (epsilon, delta)-DP mechanisms, by HiGHS.

    An output is identified with the guess vector that it leads to. The variables are the
    probabilities of each guess vector given each bit vector, and for each pair of neighbours and
    each output the amount by which e^epsilon is exceeded, which may add up to delta.
    """
    bit_vectors = list(itertools.product((-1, 1), repeat=elements))
    outputs = [
        tuple(signs[chosen.index(i)] if i in chosen else 0 for i in range(elements))
        for chosen in itertools.combinations(range(elements), taken)
        for signs in itertools.product((-1, 1), repeat=taken)
    ]
    width, rows = len(outputs), len(bit_vectors)
    pairs = [
        (a, b)
        for a, first in enumerate(bit_vectors)
        for b, second in enumerate(bit_vectors)
        if sum(x != y for x, y in zip(first, second, strict=True)) == 1
    ]
    variables = rows * width + len(pairs) * width
    reward = np.zeros(variables)
    for a, bits in enumerate(bit_vectors):
        for o, guess in enumerate(outputs):
            right = sum(x == y for x, y in zip(bits, guess, strict=True))
            reward[a * width + o] = -(right >= correct) / rows
    limits, budgets = [], []
    for index, (a, b) in enumerate(pairs):
        budget = np.zeros(variables)
        for o in range(width):
            row = np.zeros(variables)
            slack = rows * width + index * width + o
            row[a * width + o], row[b * width + o], row[slack] = 1.0, -math.exp(epsilon), -1.0
            limits.append(row)
            budget[slack] = 1.0
        budgets.append(budget)
    totals = np.zeros((rows, variables))
    for a in range(rows):
        totals[a, a * width : (a + 1) * width] = 1.0
    solved = optimize.linprog(
        reward,
        A_ub=np.array(limits + budgets),
        b_ub=np.r_[np.zeros(len(limits)), np.full(len(budgets), delta)],
        A_eq=totals,
        b_eq=np.ones(rows),
        bounds=(0, None),
        method="highs",
    )
    assert solved.success
    return -float(solved.fun)


def extremal_hits(
    correct: int, taken: int, epsilon: float, delta: float, trials: int, rng: np.random.Generator
) -> np.ndarray:
    """Right guesses of the mechanism that attains the exact bound (all elements guessed).

    Randomised response in which the weight of all outputs with at least `correct` right guesses is
    raised by the factor 1 + n delta (1 - A) / (v b), and the rest lowered to match.
    """
    right = np.arange(taken + 1)
    law = special.comb(taken, right) * success(epsilon) ** right * success(-epsilon) ** (taken - right)
    upper, at = law[correct:].sum(), law[correct]
    raised = upper + taken * delta * upper * (1 - upper) / (correct * at)
    law = np.where(right >= correct, law * raised / upper, law * (1 - raised) / (1 - upper))
    return rng.choice(right, size=trials, p=law / law.sum())


def every_crossing(looks: list[int], boundary: list[int], epsilon: float) -> float:
    """Pr[some look reaches its boundary] by enumerating every sequence of hits."""
    p, total = success(epsilon), 0.0
    for hits in itertools.product((0, 1), repeat=looks[-1]):
        sums = np.cumsum(hits)
        if any(sums[k - 1] >= c for k, c in zip(looks, boundary, strict=True)):
            total += p ** sum(hits) * (1 - p) ** (len(hits) - sum(hits))
    return total
