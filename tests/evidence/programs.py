"""Linear programs over all mechanisms with delta, and mean flips from every crossing."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse

from canaria.claims import ApproximateDP
from canaria.evidence import Evidence, _walks
from tests import oracles

SOLVER = 1e-8
CLAIMS = [(0.0, 0.3), (0.0, 1.0), (0.5, 0.04), (1.0, 0.6), (2.0, 1.0), (3.0, 0.2)]
"""Epsilon, and n delta."""
each_claim = pytest.mark.parametrize(("epsilon", "spent"), CLAIMS)
State = tuple[int, ...]
Region = Callable[[State], bool]
Output = tuple[Sequence[int], Region]


def budget(epsilon: float, spent: float) -> float:
    """B, for n delta = `spent`."""
    return spent / (1 + math.exp(epsilon))


def solved(
    reward: np.ndarray, limits: list[list[Any]], most: np.ndarray, totals: tuple[np.ndarray, np.ndarray]
) -> float:
    """Max of the reward, variables at least 0, by HiGHS with tight tolerances; totals hold (labels, sums)."""
    labels, sums = totals
    kept = np.flatnonzero(labels >= 0)
    equal = sparse.csr_matrix((np.ones(len(kept)), (labels[kept], kept)), shape=(len(sums), len(reward)))
    program: Any = optimize.linprog
    found = program(
        -reward,
        A_ub=sparse.bmat(limits, format="csr"),
        b_ub=most,
        A_eq=equal,
        b_eq=sums,
        bounds=(0, None),
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.success
    return -float(found.fun)


def numbered(keys: Sequence[Hashable]) -> np.ndarray:
    """A number for each different key."""
    names = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    return np.array([names[key] for key in keys])


def worst(rewards: np.ndarray, elements: int, epsilon: float, spent: float, alike: str = "all") -> float:
    """The largest mean reward over all (epsilon, delta)-DP mechanisms, n delta = `spent`.

    A row of rewards, for each vector of bits, is an output with its guesser. With `alike` = "all" the output
    may also be renamed and its signs flipped, with "orders" renamed; with "none" the rows are all there is.
    Averaging over such changes keeps the claim, so that a limit counts once for all that are alike.
    """
    vectors, rows = oracles.bit_vectors(elements), len(rewards)
    edges = [
        (a, b, i)
        for a, s in enumerate(vectors)
        for b, t in enumerate(vectors)
        for i in range(elements)
        if s[i] != t[i] and s[:i] + s[i + 1 :] == t[:i] + t[i + 1 :]
    ]
    states: list[Hashable]
    limited: list[Hashable]
    if alike == "all":
        states, limited = [0] * len(vectors), [0] * len(edges)
    elif alike == "orders":
        states = [sum(s) for s in vectors]
        limited = [(sum(vectors[a]), vectors[a][i]) for a, _, i in edges]
    else:
        states, limited = list(vectors), [(a, b) for a, b, _ in edges]
    state, limit = numbered(states), numbered(limited)
    step = np.arange(len(edges))
    first, second = (
        sparse.csr_matrix((np.ones(len(edges)), (step, [edge[end] for edge in edges]))) for end in (0, 1)
    )
    each = sparse.eye(rows)
    adds = sparse.csr_matrix((np.ones(len(edges)), (limit, step)))
    limits: list[list[Any]] = [
        [sparse.kron(each, first - math.exp(epsilon) * second), -sparse.eye(rows * len(edges))],
        [None, sparse.kron(np.ones((1, rows)), adds)],
    ]
    allowed = np.bincount(limit) / len(vectors) * spent / elements
    free = rows * len(edges)
    return solved(
        np.r_[np.ravel(rewards), np.zeros(free)],
        limits,
        np.r_[np.zeros(free), allowed],
        (np.r_[np.tile(state, rows), np.full(free, -1)], np.bincount(state) / len(vectors)),
    )


def worst_of_blocks(outputs: Sequence[Output], epsilon: float, spent: float) -> float:
    """The largest Pr[the hits lie in the output's region] over all mechanisms that choose among the outputs.

    An output has blocks of guesses, and a region of the hits in each block. Which elements a block guesses,
    and how, is symmetric, so the law of an output is one of the hits in each block.
    """
    odds, rewards, rows, columns, values = math.exp(epsilon), [], [], [], []
    edges = start = 0
    for sizes, region in outputs:
        shape = [size + 1 for size in sizes]
        for counts in itertools.product(*map(range, shape)):
            rewards.append(float(region(counts)))
            here = start + int(np.ravel_multi_index(counts, shape))
            for i, size in enumerate(sizes):
                if counts[i] == size:
                    continue
                there = start + int(
                    np.ravel_multi_index((*counts[:i], counts[i] + 1, *counts[i + 1 :]), shape)
                )
                lower, higher = size - counts[i], counts[i] + 1
                rows += [edges, edges, edges + 1, edges + 1]
                columns += [there, here, here, there]
                values += [higher, -odds * lower, lower, -odds * higher]
                edges += 2
        start = len(rewards)
    flow = sparse.csr_matrix((values, (rows, columns)), shape=(edges, start))
    return solved(
        np.r_[rewards, np.zeros(edges)],
        [[flow, -sparse.eye(edges)], [None, np.ones((1, edges))]],
        np.r_[np.zeros(edges), spent],
        (np.r_[np.zeros(start, dtype=int), np.full(edges, -1)], np.ones(1)),
    )


def row(rejects: dict[State, bool], taken: int, elements: int, sign: int = 1) -> list[int]:
    """What a guesser is paid who gives its first elements one sign."""
    return [
        int(rejects[tuple(int(bit == sign) for bit in bits[:taken])])
        for bits in oracles.bit_vectors(elements)
    ]


def p_values(kind: Callable[[State], Evidence], taken: int, claim: ApproximateDP) -> dict[State, float]:
    return {hits: kind(hits).p_value(claim) for hits in itertools.product((0, 1), repeat=taken)}


def levels_of(*found: dict[State, float]) -> list[float]:
    """The levels that are attained."""
    return sorted({p for form in found for p in form.values() if p < 1})


def at_most(found: dict[State, float], level: float) -> dict[State, bool]:
    return {hits: p <= level for hits, p in found.items()}


def below(found: Mapping[State, float], level: float) -> Region:
    """Where a p-value is at most a level."""
    return lambda state: found[state] <= level


def by_count(found: Iterable[float]) -> dict[State, float]:
    return {(right,): p for right, p in enumerate(found)}


def crosses(sizes: Sequence[int], boundary: Sequence[int]) -> Output:
    """An output whose walk is to cross a boundary at the ends of its blocks."""
    return sizes, lambda counts: bool((np.cumsum(counts) >= boundary).any())


def mean_flips(grid: Sequence[int], boundary: Sequence[int], epsilon: float, spent: float) -> list[float]:
    """A, E[N] and A + (1 - A) B / E[N], from every crossing that is neither sure nor impossible."""
    k, c = np.array(grid), np.array(boundary)
    k, c = k[c <= k], c[c <= k]
    crossed = cache(lambda flips: _walks.crossing(k, c - flips, epsilon))
    low, high = 0, int(c.min())
    while crossed(low + 1) < 1e-12:
        low += 1 + (crossed(low + 16) < 1e-12) * 14
    missing = float(low)
    for flips in range(low, high):
        missing += 1 - crossed(flips)
        if crossed(flips) > 1 - 1e-12:
            break
    above = crossed(0)
    return [above, missing, min(1.0, above + (1 - above) * budget(epsilon, spent) / missing)]


def worst_count(
    elements: int,
    taken: int,
    correct: int,
    limits: Sequence[tuple[float, float, float]],
    signs: Sequence[int] = (-1, 1),
) -> float:
    """The largest Pr[V >= correct] over all mechanisms and all guessers of exactly `taken` signs.

    Limits are (kappa, delta of included over excluded, delta of excluded over included); nothing is made
    symmetric. Signs may depend on the output in any way; (1,) or (-1,) fixes them.
    """
    vectors = oracles.bit_vectors(elements)
    outputs = [
        guess
        for guess in itertools.product((0, *signs), repeat=elements)
        if sum(sign != 0 for sign in guess) == taken
    ]
    pairs = [
        (a, b, vectors[a][i] > 0)
        for i in range(elements)
        for a, s in enumerate(vectors)
        for b, t in enumerate(vectors)
        if s[i] != t[i] and s[:i] + s[i + 1 :] == t[:i] + t[i + 1 :]
    ]
    size, states, width = len(outputs) * len(vectors), len(vectors), len(outputs)
    reward = np.array(
        [
            float(sum(x == y for x, y in zip(guess, bits, strict=True)) >= correct) / states
            for bits in vectors
            for guess in outputs
        ]
    )
    asked = [(pair, limit) for pair in pairs for limit in limits]
    places = np.arange(width)
    rows = sparse.vstack(
        [
            sparse.csr_matrix(
                (
                    np.r_[np.ones(width), -np.full(width, kappa), -np.ones(width)],
                    (
                        np.tile(places, 3),
                        np.r_[a * width + places, b * width + places, size + number * width + places],
                    ),
                ),
                shape=(width, size + len(asked) * width),
            )
            for number, ((a, b, _), (kappa, _, _)) in enumerate(asked)
        ]
    )
    totals = sparse.hstack(
        [
            sparse.csr_matrix((len(asked), size)),
            sparse.kron(sparse.eye(len(asked)), np.ones((1, width))),
        ]
    )
    allowed = [plus if included else minus for (_, _, included), (_, plus, minus) in asked]
    labels = np.r_[np.repeat(np.arange(states), width), np.full(len(asked) * width, -1)]
    return solved(
        np.r_[reward, np.zeros(len(asked) * width)],
        [[rows], [totals]],
        np.r_[np.zeros(rows.shape[0]), allowed],
        (labels, np.ones(states)),
    )
