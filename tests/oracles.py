"""Oracles: brute force, linear programs, 40-digit arithmetic and mechanisms with known worst cases."""

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import mpmath
import numpy as np
from scipy import fft, optimize, sparse, special

from canaria.evidence import _walks

mpmath.mp.dps = 40

LONG = bool(np.finfo(np.longdouble).eps < 2e-19)
"""Whether long doubles are longer than doubles here."""


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

    Randomized response in which the weight of all outputs with at least `correct` right guesses is
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


def precise_crossing(looks: list[int], boundary: list[int], epsilon: float) -> mpmath.mpf:
    """Pr[some look reaches its boundary] in 40 digits, but for 1e-30; misses must be few, guesses need not be."""
    alive, crossed, before = {0: mpmath.mpf(1)}, mpmath.mpf(0), 0
    for look, least in zip(looks, boundary, strict=True):
        steps, before = look - before, look
        mean = steps / (1 + math.exp(epsilon))
        reach = 12 * math.sqrt(mean) + 60
        misses = range(max(0, int(mean - reach)), min(steps, int(mean + reach)) + 1)
        law = [(missed, precise_pmf(steps - missed, steps, epsilon)) for missed in misses]
        after: dict[int, mpmath.mpf] = {}
        for missed, here in alive.items():
            for more, step in law:
                after[missed + more] = after.get(missed + more, 0) + here * step
        crossed += mpmath.fsum(here for missed, here in after.items() if look - missed >= least)
        alive = {missed: here for missed, here in after.items() if look - missed < least}
    return crossed


def long_convolution(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """A convolution by transforms in long double arithmetic, which has eleven binary digits more."""
    size = len(left) + len(right) - 1
    padded = fft.next_fast_len(size, real=True)
    parts = (fft.rfft(part.astype(np.longdouble), padded) for part in (left, right))
    return np.asarray(fft.irfft(next(parts) * next(parts), padded)[:size])


def long_crossing(steps: list[tuple[int, np.ndarray]], boundary: list[int]) -> np.longdouble:
    """The probability that a walk with these steps crosses, in long double arithmetic, nothing left out."""
    alive, lowest, crossed = np.ones(1, np.longdouble), 0, np.longdouble(0)
    for (low, chances), limit in zip(steps, boundary, strict=True):
        alive, lowest = long_convolution(alive, chances), lowest + low
        kept = max(0, limit - lowest)
        crossed, alive = crossed + alive[kept:].sum(), alive[:kept]
        if kept == 0:
            break
    return crossed


def long_weighted_tails(groups: np.ndarray, statistics: list[int], epsilon: float) -> list[np.longdouble]:
    """Pr[sum of w Binomial(groups[w], p) >= statistic] for each of them, in long double arithmetic.

    On a circle that holds twelve standard deviations to either side. The laws of the groups are those of the
    package, so that what differs is the error of its transforms.
    """
    weights = np.flatnonzero(groups[1:]) + 1
    p, sizes = success(epsilon), groups[weights]
    mean = math.floor(p * float(weights @ sizes))
    half = math.ceil(12 * math.sqrt(p * (1 - p) * float(weights**2 @ sizes))) + 1000
    points = fft.next_fast_len(2 * half, real=True)
    transform = np.ones(points // 2 + 1, dtype=np.clongdouble)
    for weight, (low, chances) in zip(weights.tolist(), _walks.windows(sizes, epsilon), strict=True):
        placed = np.zeros(points, np.longdouble)
        np.add.at(placed, weight * np.arange(low, low + len(chances)) % points, chances)
        transform *= fft.rfft(placed)
    law = fft.irfft(transform, points)
    return [law[np.arange(statistic, mean + half) % points].sum() for statistic in statistics]


History = tuple[tuple[object, int], ...]


def bit_vectors(elements: int) -> list[tuple[int, ...]]:
    """All hidden bits, in the order of the columns of rewards."""
    return list(itertools.product((-1, 1), repeat=elements))


def increasing_sets(elements: int) -> list[frozenset[tuple[int, ...]]]:
    """Every set of hit vectors that is left by no hit in place of a miss, but the empty and the full one."""
    vectors = list(itertools.product((0, 1), repeat=elements))
    above = [frozenset(y for y in vectors if all(a <= b for a, b in zip(x, y, strict=True))) for x in vectors]
    found = {frozenset[tuple[int, ...]]()}
    for larger in above:
        found |= {known | larger for known in found}
    return sorted((known for known in found if 0 < len(known) < len(vectors)), key=sorted)


def unit_steps(elements: int) -> list[dict[tuple[int, ...], int]]:
    """Every function of hit vectors, 0 at the start, that one more hit raises by 0 or 1."""
    vectors, found = list(itertools.product((0, 1), repeat=elements)), [{(0,) * elements: 0}]
    for hits in vectors[1:]:
        lower = [(*hits[:k], 0, *hits[k + 1 :]) for k in range(elements) if hits[k]]
        found = [
            {**known, hits: value}
            for known in found
            for value in range(max(known[x] for x in lower), min(known[x] for x in lower) + 2)
        ]
    return found


def chance(region: Iterable[Sequence[int]], epsilon: float) -> float:
    """Pr[Y in the region], Y independent Bernoulli(p(epsilon))."""
    p = success(epsilon)
    return math.fsum(p ** sum(x) * (1 - p) ** (len(x) - sum(x)) for x in region)


def guessers(
    elements: int, worth: Callable[[History], int], choices: Sequence[object] = (None,), adaptive: bool = True
) -> np.ndarray:
    """The rewards (0 to 3) of every guesser, one row each, for each bit vector; all decision trees.

    A guesser picks an element, a choice (such as a stake) and a sign from the hits so far, or stops. `worth`
    is the reward at the end. One that is not adaptive takes all elements in their order; signs still adapt.
    Rewards are kept as two binary digits for each bit vector, so that a node of a tree is two operations.
    """
    vectors = bit_vectors(elements)
    once = sum(1 << 2 * i for i in range(len(vectors)))
    hits = {
        (element, sign): sum(3 << 2 * i for i, bits in enumerate(vectors) if bits[element] == sign)
        for element in range(elements)
        for sign in (-1, 1)
    }

    @cache
    def rewards(left: tuple[int, ...], history: History) -> frozenset[int]:
        found = {worth(history) * once} if adaptive or not left else set()
        for element in left if adaptive else left[:1]:
            rest = tuple(other for other in left if other != element)
            for choice in choices:
                right, wrong = (rewards(rest, (*history, (choice, hit))) for hit in (1, 0))
                for sign in (-1, 1):
                    on, off = hits[element, sign], hits[element, -sign]
                    found |= {(a & on) | (b & off) for a in right for b in wrong}
        return frozenset(found)

    packed = np.array(sorted(rewards(tuple(range(elements)), ())), dtype=np.int64)
    return packed[:, None] >> 2 * np.arange(len(vectors)) & 3


def up_to_symmetry(rewards: np.ndarray, elements: int) -> np.ndarray:
    """One row of each class of rewards that differ by renaming elements and flipping bits."""
    vectors = bit_vectors(elements)
    place = {bits: i for i, bits in enumerate(vectors)}
    least = np.full(len(rewards), np.iinfo(np.int64).max)
    for order in itertools.permutations(range(elements)):
        for flips in vectors:
            moved = [place[tuple(flips[k] * bits[order[k]] for k in range(elements))] for bits in vectors]
            least = np.minimum(least, rewards[:, moved] @ (1 << 2 * np.arange(len(vectors))))
    return rewards[np.unique(least, return_index=True)[1]]


def worst_mean(rewards: np.ndarray, elements: int, limits: Sequence[tuple[float, float]]) -> float:
    """The largest mean reward over *all* mechanisms and guessers, by HiGHS.

    A mechanism keeps a limit (kappa, delta) if P_s(o) - kappa P_s'(o), where positive, adds up to at most
    delta over the outputs, for all neighbours s and s'. An output is a row of rewards, whose guesser it calls
    for, together with a renaming of elements and flips of bits; averaging over all of those makes every
    mechanism symmetric, keeps its limits and its mean. So the variables are 2^-n P_s(o) for each row, and
    what the limits allow for all neighbours together is n delta.
    """
    vectors = bit_vectors(elements)
    edges = [
        (a, b)
        for a, first in enumerate(vectors)
        for b, second in enumerate(vectors)
        if sum(x != y for x, y in zip(first, second, strict=True)) == 1
    ]
    return _largest_mean(rewards, edges, [(kappa, elements * delta) for kappa, delta in limits])


def worst_hits(
    region: frozenset[tuple[int, ...]], elements: int, limits: Sequence[tuple[float, float]]
) -> float:
    """The largest mass of a region of hit vectors whose cost (Lemma 4) is at most n delta, for each limit."""
    vectors = list(itertools.product((0, 1), repeat=elements))
    edges = [
        (vectors.index((*hits[:k], 1, *hits[k + 1 :])), vectors.index(hits))
        for hits in vectors
        for k in range(elements)
        if hits[k] == 0
    ]
    rewards = np.array([[float(hits in region) for hits in vectors]])
    return _largest_mean(rewards, edges, [(kappa, elements * delta) for kappa, delta in limits])


def _largest_mean(
    rewards: np.ndarray, edges: list[tuple[int, int]], limits: list[tuple[float, float]]
) -> float:
    """Max of sum w rewards over w >= 0 of total 1, sum over edges (a, b) of (w_a - kappa w_b)+ limited."""
    kinds, points = rewards.shape
    steps, width = np.arange(len(edges)), kinds * len(edges)
    first, second = (
        sparse.csr_matrix((np.ones(len(edges)), (steps, end)), shape=(len(edges), points))
        for end in np.array(edges).T
    )
    rows: list[list[object]] = []
    for k, (kappa, _) in enumerate(limits):
        excess: list[object] = [None] * len(limits)
        excess[k] = -sparse.eye(width)
        rows.append([sparse.kron(sparse.eye(kinds), first - kappa * second), *excess])
    for k in range(len(limits)):
        total: list[object] = [None] * len(limits)
        total[k] = np.ones((1, width))
        rows.append([sparse.csr_matrix((1, kinds * points)), *total])
    slack = len(limits) * width
    solved = optimize.linprog(
        -np.r_[rewards.ravel(), np.zeros(slack)],
        A_ub=sparse.bmat(rows, format="csr"),
        b_ub=np.r_[np.zeros(slack), [total for _, total in limits]],
        A_eq=sparse.csr_matrix(np.r_[np.ones(kinds * points), np.zeros(slack)][None]),
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    assert solved.success
    return -float(solved.fun)
