"""The delta rules that do not collapse at scale: pinned values, every mechanism of small size, and traps."""

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse

from canaria import Counts, InputError, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Bets, Evidence, Ranking, UncommittedCounts, Weighted, _sway, _walks, bets
from canaria.evidence.ranking import looks, scores
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


# Pinned values


@pytest.mark.parametrize(
    ("grid", "boundary", "epsilon", "spent", "pinned"),
    [
        ((4, 6, 9, 12), (4, 6, 8, 10), 0.3, 0.12, (0.14749561, 1.60061345, 0.17469440)),
        ((4, 6, 9, 12), (4, 6, 8, 10), 0.0, 0.12, (0.07666016, 1.94970703, 0.10507488)),
        ((4, 6, 9, 12), (4, 6, 8, 10), 0.0, 0.6, (0.07666016, 1.94970703, 0.21873379)),
        ((4, 6, 9, 12), (5, 6, 9, 11), 0.3, 0.12, (0.04167065, 2.51870416, 0.06110084)),
        ((3,), (2,), 1.0, 0.15, (0.82191633, 0.19753607, 0.85828493)),
        ((2, 4, 8), (3, 4, 7), 0.0, 0.5, (0.078125, 1.94140625, 0.19683727)),
        ((5, 10, 15), (6, 10, 13), 1.0, 1.0, (0.19416154, 1.95614553, 0.30495255)),
    ],
)
def test_mean_flips_are_those_pinned_and_those_of_every_walk(
    grid: State, boundary: State, epsilon: float, spent: float, pinned: tuple[float, ...]
) -> None:
    """Pins 1 to 5; A and E[N] by enumeration too."""
    assert mean_flips(grid, boundary, epsilon, spent) == pytest.approx(pinned, abs=6e-9)
    lowered = [
        [c - flips if c <= k else k + 1 for k, c in zip(grid, boundary, strict=True)] for flips in (0, 1)
    ]
    for flips, limits in enumerate(lowered):
        crossed = _walks.crossing(np.array(grid), np.array(limits), epsilon)
        assert oracles.every_crossing(list(grid), limits, epsilon) == pytest.approx(crossed, abs=1e-12), flips


@pytest.mark.parametrize(
    ("sizes", "boundary", "epsilon", "spent", "true", "rule"),
    [
        ((3,), (2,), 1.0, 0.15, 0.84737464, 0.85828493),
        ((2, 2, 4), (3, 4, 7), 0.0, 0.5, 0.19335938, 0.19683727),
    ],
)
def test_mean_flips_are_a_little_above_the_worst_mechanism(
    sizes: State, boundary: State, epsilon: float, spent: float, true: float, rule: float
) -> None:
    """Pins 3 and 4."""
    assert worst_of_blocks([crosses(sizes, boundary)], epsilon, spent) == pytest.approx(true, abs=SOLVER)
    found = mean_flips(np.cumsum(sizes).tolist(), boundary, epsilon, spent)
    assert found[-1] == pytest.approx(rule, abs=6e-9)


@pytest.mark.parametrize(
    ("epsilon", "delta", "smallest", "pinned"),
    [(0.3, 0.01, 0.11188958, 0.17469440), (0.0, 0.01, 0.0655, 0.10507488), (0.0, 0.05, 0.0775, 0.21873379)],
)
def test_p_value_of_a_small_ranking(epsilon: float, delta: float, smallest: float, pinned: float) -> None:
    """Pin 6."""
    claim = ApproximateDP(epsilon, delta)
    evidence = Ranking([int(hit) for hit in "111110110110"], grid=[4, 6, 9, 12])
    found = scores(evidence.counts, evidence.grid, epsilon, budget(epsilon, 12 * delta), epsilon)
    assert found.min() == pytest.approx(smallest, abs=6e-9)
    assert evidence.boundary(claim).tolist() == [4, 6, 8, 10]
    assert evidence.p_value(claim) == pytest.approx(pinned, abs=6e-9)


@pytest.mark.parametrize(
    ("elements", "delta", "epsilon", "pinned", "bound"),
    [
        (1000, 1e-3, 0.8, 0.48758426, 0.65),
        (1000, 1e-2, 0.3, 0.03611525, 0.45),
        (10_000, 1e-4, 0.9, 0.01105086, 1.29),
        (100_000, 1e-5, 1.0, 0.00105292, 2.06),
    ],
)
def test_p_values_and_bounds_of_large_rankings(
    elements: int, delta: float, epsilon: float, pinned: float, bound: float
) -> None:
    """Pin 7: the p-value is at most 5 % above that of the exact E[N], and never below."""
    grid, claim = looks(elements), ApproximateDP(epsilon, delta)
    counts = np.floor(grid * (0.7 + 0.25 * np.exp(-20 * grid / elements))).astype(int)
    evidence = Ranking.of_counts(grid, counts, elements, elements)
    boundary = evidence.boundary(claim)
    above, flips, exact = mean_flips(grid.tolist(), boundary.tolist(), epsilon, elements * delta)
    assert exact == pytest.approx(pinned, abs=6e-9)
    assert exact <= evidence.p_value(claim) <= 1.05 * exact
    assert lower_bound(evidence, delta=delta).epsilon == bound
    if epsilon == 0.3:
        reachable = boundary <= grid
        assert (reachable.sum(), grid[reachable][0], boundary[reachable][0]) == (10, 328, 314)
        assert flips == pytest.approx(117.833185, abs=6e-7)
        assert evidence.p_value(claim) == pytest.approx(0.03716692, abs=6e-9)
    if epsilon == 1.0:
        assert (above, flips) == pytest.approx((0.0000848, 277.773557), rel=1e-4)


def test_mean_flips_do_not_hold_for_other_increasing_sets() -> None:
    """Pin 8: one guess that must be right, and four of six others."""
    epsilon, spent, size = 1.0, 0.1, 6

    def inside(counts: State) -> bool:
        return counts[0] == 1 and counts[1] >= 4

    true = worst_of_blocks([((1, size), inside)], epsilon, spent)
    above = flips = 0.0
    for hits in itertools.product((0, 1), repeat=1 + size):
        chance, right = oracles.chance([hits], epsilon), sum(hits[1:])
        above += chance * inside((hits[0], right))
        flips += chance * (1 - hits[0] + max(0, 4 - right))
    rule = above + (1 - above) * budget(epsilon, spent) / flips
    assert (true, rule) == pytest.approx((0.605987, 0.605776), abs=6e-7)
    assert true > rule + 1e-4


@pytest.mark.parametrize(
    ("wealth", "cost", "pinned"),
    [
        (5, 0.1, 0.0499289555),
        (10, 0.3, 0.0436744315),
        (20, 0.5, 0.0302969840),
        (3, 0.001, 0.0507772858),
    ],
)
def test_p_value_of_a_wealth(wealth: float, cost: float, pinned: float) -> None:
    """Pin 9; and the equation that it solves."""
    found = float(bets._from_wealth(wealth, cost, 1.0))
    assert found == pytest.approx(pinned, abs=1e-10)
    assert math.log(1 / found) + cost / found == pytest.approx(wealth, rel=1e-8)
    assert math.log(1 / found) + cost / found <= wealth


@pytest.mark.parametrize(
    ("spent", "cap", "wealth", "pinned"),
    [(0.1, 0.47407698, 1.02254070, 0.40441441), (1.0, 0.1, 0.20956861, 0.90561059)],
)
def test_p_value_of_six_bets(spent: float, cap: float, wealth: float, pinned: float) -> None:
    """Pin 9."""
    evidence = Bets([0.9, 0.8, 0.6, 0.95, 0.95, 0.97], [1, 0, 1, 1, 1, 1])
    found = evidence.p_value(ApproximateDP(0.5, spent / 6))
    assert found == pytest.approx(pinned, abs=6e-9)
    assert float(bets._cap(0.5, spent)) == pytest.approx(cap, abs=6e-9)
    assert math.log(1 / found) + cap * spent / found == pytest.approx(wealth, abs=2e-8)


def test_sways_that_are_pinned() -> None:
    """Pin 10."""
    assert _sway.of_count(60, 100, 0.0) == pytest.approx(0.08494789, abs=6e-9)
    assert _sway.of_count(760, 1000, 1.0) == pytest.approx(0.02926813, abs=6e-9)
    assert 0.0448 <= _sway.of_weights(np.array([0, 300, 100]), 292, 0.0) <= 0.068


@pytest.mark.parametrize(
    ("parts", "pinned"),
    [
        ((0.01, 0.1, 0.25), 0.04166667),
        ((0.001, 0.2, 0.03), 0.01),
        ((0.02, 1.0, 0.01), 0.03),
        ((1e-6, 0.01, 3.0), 0.05),
    ],
)
def test_shares_of_a_level(parts: tuple[float, float, float], pinned: float) -> None:
    """Pin 11; and the smallest level by its definition, on a fine grid."""
    upper, sway, flips = parts
    found = _sway.combined(*parts)
    assert found == pytest.approx(pinned, abs=6e-9)
    levels = np.linspace(0, 0.1, 100_001)[1:]
    shares = np.minimum(flips / levels, 0.6)
    fits = (upper <= levels * (1 - shares) * (1 + 1e-12)) & (flips * sway <= levels * shares * (1 + 1e-12))
    assert levels[fits].min() == pytest.approx(found, abs=1.01e-6)
    assert fits[np.argmax(fits) :].all()


@pytest.mark.parametrize(
    ("evidence", "delta", "pinned"),
    [
        (Counts(426, 500, 1000), 1e-2, 1.1361),
        (Counts(900, 1000, 10**5), 1e-5, 2.0158),
        (UncommittedCounts(900, 1000, 10**5), 1e-5, 1.98),
        (UncommittedCounts(900, 1000, 10**6), 1e-5, 1.75),
        (UncommittedCounts(490, 500, 10**5), 1e-4, 2.79),
        (UncommittedCounts(73, 100, 1000), 1e-5, 0.6),
    ],
)
def test_bounds_of_counts(evidence: Evidence, delta: float, pinned: float) -> None:
    """Pin 12, and the numbers of part B."""
    assert lower_bound(evidence, delta=delta).epsilon == pytest.approx(pinned, abs=6e-5)


# All mechanisms


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


@pytest.mark.parametrize(("elements", "taken", "correct"), [(2, 2, 1), (3, 2, 2), (3, 3, 2)])
def test_programs_of_this_file_agree_with_those_over_all_mechanisms(
    elements: int, taken: int, correct: int
) -> None:
    epsilon, spent = 0.7, 0.25
    rejects = {hits: sum(hits) >= correct for hits in itertools.product((0, 1), repeat=taken)}
    plain = oracles.all_mechanisms_program(correct, taken, elements, epsilon, spent / elements)
    symmetric = worst(np.array([row(rejects, taken, elements)]), elements, epsilon, spent)
    assert symmetric == pytest.approx(plain, abs=1e-7)
    blocks = worst_of_blocks([((taken,), lambda counts: counts[0] >= correct)], epsilon, spent)
    assert blocks == pytest.approx(symmetric, abs=SOLVER)
    assert Counts(correct, taken, elements).p_value(
        ApproximateDP(epsilon, spent / elements)
    ) == pytest.approx(symmetric, abs=SOLVER)


def test_guesses_of_one_sign_are_symmetric_in_their_order() -> None:
    """The program that takes mechanisms to be symmetric gives what the one with all outputs gives."""
    rejects = {hits: hits in {(1, 0), (1, 1)} for hits in itertools.product((0, 1), repeat=2)}
    vectors = oracles.bit_vectors(3)
    outputs = [
        [int(rejects[tuple((bits[i] + 1) // 2 for i in order)]) for bits in vectors]
        for order in itertools.permutations(range(3), 2)
    ]
    every = worst(np.array(outputs), 3, 0.7, 0.4, alike="none")
    assert worst(np.array([row(rejects, 2, 3)]), 3, 0.7, 0.4, alike="orders") == pytest.approx(
        every, abs=SOLVER
    )


RANKINGS = [
    (2, [1, 2], 2),
    (3, [1, 2, 3], 3),
    (3, [1, 3], 3),
    (3, [1, 2], 2),
    (4, [1, 2, 3, 4], 4),
    (4, [2, 4], 4),
    (4, [1, 3], 3),
    (4, [2, 3, 4], 4),
    (4, [4], 4),
]


@pytest.mark.parametrize(("elements", "grid", "committed"), RANKINGS, ids=str)
@pytest.mark.parametrize("one_sided", [False, True])
def test_no_mechanism_beats_a_ranking(
    elements: int, grid: list[int], committed: int, one_sided: bool
) -> None:
    """Pr[p <= a] <= a: the output chooses set and order, and signs unless they are all the same."""
    closest = 0.0
    for epsilon, spent in CLAIMS:
        claim = ApproximateDP(epsilon, spent / elements)
        found = p_values(
            lambda hits: Ranking(hits, elements, grid, committed=committed, one_sided=one_sided),
            committed,
            claim,
        )
        for level in levels_of(found):
            rewards = np.array([row(at_most(found, level), committed, elements)])
            reached = worst(rewards, elements, epsilon, spent, "orders" if one_sided else "all")
            assert reached <= level + SOLVER, (epsilon, spent, level)
            closest = max(closest, reached / level)
    assert closest > 0.8


def paid(rejects: dict[State, bool], history: oracles.History) -> int:
    return int(rejects[tuple(hit for _, hit in history)])


@each_claim
def test_no_mechanism_beats_a_ranking_whose_signs_adapt(epsilon: float, spent: float) -> None:
    claim = ApproximateDP(epsilon, spent / 3)
    for grid in ([1, 2, 3], [2, 3]):
        found = p_values(partial(Ranking, grid=grid), 3, claim)
        for level in levels_of(found):
            rejects = at_most(found, level)
            trees = oracles.guessers(3, partial(paid, rejects), adaptive=False)
            rewards = oracles.up_to_symmetry(trees, 3)
            assert worst(rewards, 3, epsilon, spent) <= level + SOLVER


@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.5), (1.0, 1.0)])
def test_no_mechanism_beats_a_ranking_of_blocks(epsilon: float, spent: float) -> None:
    """Eighteen guesses among twenty elements, three looks: every count of hits between looks."""
    sizes, elements = (5, 6, 7), 20
    claim, grid, closest = ApproximateDP(epsilon, spent / elements), np.cumsum(sizes), 0.0
    found = {
        counts: Ranking.of_counts(grid, np.cumsum(counts), elements, 18).p_value(claim)
        for counts in itertools.product(*(range(size + 1) for size in sizes))
    }
    every = levels_of(found)
    for level in every[:: max(1, len(every) // 10)]:
        reached = worst_of_blocks([(sizes, below(found, level))], epsilon, spent)
        assert reached <= level + SOLVER, level
        closest = max(closest, reached / level)
    assert closest > 0.9


@pytest.mark.parametrize(("elements", "taken"), [(1, 1), (2, 2), (3, 2), (3, 3), (4, 3), (4, 4)])
@each_claim
def test_no_mechanism_beats_a_count_of_guesses_of_one_sign(
    elements: int, taken: int, epsilon: float, spent: float
) -> None:
    claim = ApproximateDP(epsilon, spent / elements)
    found = p_values(lambda hits: Counts(sum(hits), taken, elements, one_sided=True), taken, claim)
    for level in levels_of(found):
        rewards = np.array([row(at_most(found, level), taken, elements)])
        assert worst(rewards, elements, epsilon, spent, "orders") <= level + SOLVER


@pytest.mark.parametrize("elements", [2, 3, 4])
@each_claim
def test_no_mechanism_beats_uncommitted_counts(elements: int, epsilon: float, spent: float) -> None:
    """The output chooses the number of guesses too."""
    claim = ApproximateDP(epsilon, spent / elements)
    found = [
        p_values(lambda hits: UncommittedCounts(sum(hits), len(hits), elements), taken, claim)
        for taken in range(1, elements + 1)
    ]
    for level in levels_of(*found):
        rewards = [row(at_most(form, level), k + 1, elements) for k, form in enumerate(found)]
        assert worst(np.array(rewards), elements, epsilon, spent) <= level + SOLVER


@pytest.mark.parametrize("spent", [0.3, 2.0])
def test_no_mechanism_beats_many_uncommitted_counts(spent: float) -> None:
    """Twenty-four elements, where the sway is well below 1; any number of guesses."""
    epsilon, elements = 0.5, 24
    claim, numbers = ApproximateDP(epsilon, spent / elements), range(1, elements + 1)
    found = [
        by_count(UncommittedCounts(v, r, elements).p_value(claim) for v in range(r + 1)) for r in numbers
    ]
    attained = levels_of(*found)
    for level in attained[:: len(attained) // 12]:
        outputs = [((len(form) - 1,), below(form, level)) for form in found]
        assert worst_of_blocks(outputs, epsilon, spent) <= level + SOLVER


@pytest.mark.parametrize(("elements", "heaviest"), [(2, 5), (3, 3), (4, 2)])
@each_claim
def test_no_mechanism_beats_weights(elements: int, heaviest: int, epsilon: float, spent: float) -> None:
    """The output chooses which elements are guessed, how many, and their weights."""
    claim = ApproximateDP(epsilon, spent / elements)
    weights = [
        chosen
        for taken in range(1, elements + 1)
        for chosen in itertools.combinations_with_replacement(range(1, heaviest + 1), taken)
    ]
    found = [
        p_values(partial(Weighted, weights=chosen, elements=elements), len(chosen), claim)
        for chosen in weights
    ]
    for level in levels_of(*found):
        rewards = [
            row(at_most(form, level), len(w), elements) for form, w in zip(found, weights, strict=True)
        ]
        assert worst(np.unique(rewards, axis=0), elements, epsilon, spent) <= level + SOLVER


@each_claim
def test_no_mechanism_beats_losses(epsilon: float, spent: float) -> None:
    """The same with losses, some below the claim and some infinite."""
    claim = ApproximateDP(epsilon, spent / 3)
    losses = [
        chosen
        for taken in (1, 2, 3)
        for chosen in itertools.combinations_with_replacement((0.4, 1.2, 2.3, math.inf), taken)
    ]
    found = [p_values(partial(Weighted, losses=chosen, elements=3), len(chosen), claim) for chosen in losses]
    for level in levels_of(*found):
        rewards = [row(at_most(form, level), len(w), 3) for form, w in zip(found, losses, strict=True)]
        assert worst(np.unique(rewards, axis=0), 3, epsilon, spent) <= level + SOLVER


@pytest.mark.parametrize("spent", [0.4, 1.5])
def test_no_mechanism_beats_blocks_of_weights(spent: float) -> None:
    """Fourteen elements: light and heavy guesses, how many of each the output says."""
    epsilon, elements = 0.3, 14
    claim = ApproximateDP(epsilon, spent / elements)
    splits = [(14, 0), (10, 4), (7, 7), (4, 10), (8, 3), (2, 6)]

    def p_value(sizes: State, right: State, heavy: int) -> float:
        hits = [1] * right[0] + [0] * (sizes[0] - right[0]) + [1] * right[1] + [0] * (sizes[1] - right[1])
        weights = [1] * sizes[0] + [heavy] * sizes[1]
        return Weighted(hits, weights=weights, elements=elements).p_value(claim)

    found = [
        (
            sizes,
            {
                right: p_value(sizes, right, heavy)
                for right in itertools.product(*map(range, (sizes[0] + 1, sizes[1] + 1)))
            },
        )
        for sizes in splits
        for heavy in (2, 5)
    ]
    attained = levels_of(*(form for _, form in found))
    for level in attained[:: len(attained) // 8]:
        outputs = [(sizes, below(form, level)) for sizes, form in found]
        assert worst_of_blocks(outputs, epsilon, spent) <= level + SOLVER


# Bets

PRICES = np.r_[0.0, np.geomspace(1e-4, 1, 120)]


def worst_spending(
    moves: Callable[[State], Sequence[tuple[State, State]]],
    p_value: Callable[[State], float],
    level: float,
    start: State,
    claim: tuple[float, float],
) -> float:
    """The largest Pr[p-value <= level] of an adaptive adversary who can make n delta guesses sure on average.

    The others are right with probability p. For every price of a sure guess, the value less prices paid, plus
    that of n delta, is an upper bound; the least of them is the truth, but for the grid of prices.
    """
    epsilon, spent = claim
    p = oracles.success(epsilon)

    @cache
    def value(state: State) -> np.ndarray:
        if p_value(state) <= level:
            return np.ones(len(PRICES))
        best = np.zeros(len(PRICES))
        for hit, miss in moves(state):
            right, wrong = value(hit), value(miss)
            best = np.maximum.reduce([best, p * right + (1 - p) * wrong, right - PRICES])
        return np.asarray(best)

    return float((value(start) + PRICES * spent).min())


@pytest.mark.parametrize("confidence", [None, 0.65, 0.9, 0.97])
@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.3), (0.0, 0.05), (0.5, 1.0), (2.0, 0.3)])
def test_no_spending_beats_bets_of_one_confidence(
    confidence: float | None, epsilon: float, spent: float
) -> None:
    """Forty guesses; only the numbers of hits and misses count, and a path with its hits last peaks there."""
    length = 40
    claim = ApproximateDP(epsilon, spent / length)

    @cache
    def p_value(state: State) -> float:
        hits = [0] * state[1] + [1] * state[0]
        stated = None if confidence is None else [confidence] * len(hits)
        return Bets(stated, hits, length).p_value(claim) if hits else 1.0

    attained = {p_value(state) for state in [(2, 0), (5, 0), (10, 0), (20, 0), (20, 2)]}
    for level in sorted((attained | {0.05}) - {1.0}):
        reached = worst_spending(
            lambda s: [((s[0] + 1, s[1]), (s[0], s[1] + 1))] if sum(s) < length else [],
            p_value,
            level,
            (0, 0),
            (epsilon, spent),
        )
        assert reached <= level + SOLVER, level


@pytest.mark.parametrize(
    ("epsilon", "spent", "stated", "pinned"), [(0.5, 0.3, 0.97, 0.0476), (2.0, 1.0, 0.994, 0.0498)]
)
def test_no_spending_beats_many_bets_and_some_comes_close(
    epsilon: float, spent: float, stated: float, pinned: float
) -> None:
    """Three hundred guesses at a level of 0.05; the fewest hits that reject, for so many misses, by steps."""
    level, length, p = 0.05, 300, oracles.success(epsilon)
    claim = ApproximateDP(epsilon, spent / length)
    least, right = np.full(length + 1, length + 1), 1
    for wrong in range(length):
        while right + wrong <= length:
            hits = [0] * wrong + [1] * right
            if Bets([stated] * len(hits), hits, length).p_value(claim) <= level:
                least[wrong] = right
                break
            right += 1
    value = np.zeros((length + 2, len(PRICES)))
    for taken in range(length, -1, -1):
        rights = np.arange(taken + 1)
        on, off = value[1 : taken + 2], value[: taken + 1]
        value = np.maximum(p * on + (1 - p) * off, on - PRICES)
        value = np.where((rights >= least[taken - rights])[:, None], 1.0, np.maximum(value, 0.0))
    reached = float((value[0] + PRICES * spent).min())
    assert reached <= level + SOLVER
    assert reached == pytest.approx(pinned, abs=2e-4)


@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.3), (0.0, 0.02), (0.7, 0.1), (1.5, 0.7)])
def test_no_spending_beats_bets(epsilon: float, spent: float) -> None:
    """Seven guesses at most, and the adversary chooses among three confidences after every hit or miss."""
    length, stated = 7, (0.6, 0.85, 0.99)
    claim = ApproximateDP(epsilon, spent / length)

    @cache
    def p_value(state: State) -> float:
        """Of so many misses and hits at each confidence, the misses first: these paths peak at their end."""
        outcomes = [
            (q, hit)
            for hit in (0, 1)
            for q, k in zip(stated, state[3 * hit :], strict=False)
            for _ in range(k)
        ]
        return (
            Bets([q for q, _ in outcomes], [hit for _, hit in outcomes], length).p_value(claim)
            if outcomes
            else 1.0
        )

    def more(state: State, place: int) -> State:
        return (*state[:place], state[place] + 1, *state[place + 1 :])

    ends = [
        (0, 0, 0, 0, 0, 7),
        (0, 0, 0, 0, 5, 0),
        (0, 0, 0, 0, 0, 3),
        (0, 0, 0, 4, 0, 0),
        (1, 0, 0, 0, 4, 2),
    ]
    for level in sorted({p_value(end) for end in ends} - {1.0}):
        reached = worst_spending(
            lambda s: [(more(s, 3 + k), more(s, k)) for k in range(3)] if sum(s) < length else [],
            p_value,
            level,
            (0,) * 6,
            (epsilon, spent),
        )
        assert reached <= level + SOLVER, level


@pytest.mark.parametrize("confidences", [None, [0.6, 0.99, 0.8, 0.55, 0.9, 0.97, 0.7, 0.95]])
@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.2), (0.8, 0.05), (0.8, 1.0)])
def test_no_spending_beats_bets_along_every_path(
    confidences: list[float] | None, epsilon: float, spent: float
) -> None:
    claim = ApproximateDP(epsilon, spent / 8)
    found = p_values(lambda hits: Bets(confidences, hits), 8, claim)
    every = levels_of(found)
    for level in every[:: max(1, len(every) // 8)]:
        reached = worst_spending(
            lambda s: [((*s, 1), (*s, 0))] if len(s) < 8 else [],
            lambda s: found.get(s, 1.0),
            level,
            (),
            (epsilon, spent),
        )
        assert reached <= level + SOLVER, level


@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.1), (0.5, 0.6), (1.5, 0.3)])
def test_no_mechanism_beats_bets(epsilon: float, spent: float) -> None:
    """Three elements: every guesser that takes elements, signs, stakes and its leave by revealed bits."""
    claim = ApproximateDP(epsilon, spent / 3)

    @cache
    def p_value(history: oracles.History) -> float:
        stated = [float(str(q)) for q, _ in history]
        return Bets(stated, [hit for _, hit in history], 3).p_value(claim) if history else 1.0

    def won(level: float, history: oracles.History) -> int:
        return int(p_value(history) <= level)

    choices = (0.7, 0.95)
    paths = [
        tuple(zip(q, x, strict=True))
        for q in itertools.product(choices, repeat=3)
        for x in itertools.product((0, 1), repeat=3)
    ]
    for level in sorted({p for path in paths if (p := p_value(path)) < 1})[:4]:
        trees = oracles.guessers(3, partial(won, level), choices)
        rewards = oracles.up_to_symmetry(trees, 3)
        assert worst(rewards, 3, epsilon, spent) <= level + SOLVER


# Traps


def test_tail_and_sway_cannot_be_added_where_the_output_chooses_them() -> None:
    """A + B D is no p-value: many guesses with A at the level, or a few on which all of delta is spent."""
    elements, spent, level = 500, 0.5, 0.2
    claim, flips = ApproximateDP(0.0, spent / elements), budget(0.0, spent)
    naive: list[Output] = []
    ours: list[Output] = []
    for taken in (3, 4, 5, 6, 7, 8, elements):
        counts = range(taken + 1)
        tails = [float(oracles.precise_tail(v, taken, 0.0)) for v in counts]
        added = [a + flips * _sway.of_count(v, taken, 0.0) for v, a in zip(counts, tails, strict=True)]
        known = [UncommittedCounts(v, taken, elements).p_value(claim) for v in counts]
        naive.append(((taken,), below(by_count(added), level)))
        ours.append(((taken,), below(by_count(known), level)))
    assert worst_of_blocks(naive, 0.0, spent) > 1.3 * level
    assert worst_of_blocks(ours, 0.0, spent) <= level + SOLVER


def test_two_types_of_output_double_the_level_of_tail_plus_sway() -> None:
    """95 % of outputs have A = 0.05 and no sway, on the others delta spends all that it has: 0.0975.

    The shares of `combined` are lost at one of the two.
    """
    level, rare, flips = 0.05, 0.05, 1.0
    types = [(level, 0.0), (0.0, level / flips)]
    assert all(upper + flips * sway <= level for upper, sway in types)
    reached = (1 - rare) * types[0][0] + rare * min(1.0, types[1][0] + types[1][1] * flips / rare)
    assert reached == pytest.approx(0.0975)
    assert all(_sway.combined(upper, sway, flips) > level for upper, sway in types)


@pytest.mark.parametrize(("level", "pinned"), [(0.05, 0.0631), (0.1, 0.1274)])
def test_length_of_a_ranking_must_not_come_from_the_output(level: float, pinned: float) -> None:
    """Forty elements, one look at the end of a ranking whose length the output chooses."""
    elements, spent = 40, 0.3
    claim = ApproximateDP(0.0, spent / elements)
    outputs: list[Output] = []
    for length in range(1, elements + 1):
        found = [
            Ranking.of_counts([length], [right], elements, length).p_value(claim)
            for right in range(length + 1)
        ]
        outputs.append(((length,), below(by_count(found), level)))
    assert worst_of_blocks(outputs, 0.0, spent) == pytest.approx(pinned, abs=1e-4)
    assert all(worst_of_blocks([output], 0.0, spent) <= level + SOLVER for output in outputs[::8])


def test_ranking_of_some_elements_asks_for_the_committed_length() -> None:
    with pytest.raises(InputError, match="give committed"):
        Ranking([1, 0, 1], 4)
    assert Ranking([1, 0, 1], 4, committed=3).committed == 3
    for committed in (2, 5):
        with pytest.raises(InputError, match="committed"):
            Ranking([1, 0, 1], 4, committed=committed)


@pytest.mark.parametrize("kind", ["counts", "ranking"])
def test_sign_of_one_sided_guesses_must_not_come_from_the_output(kind: str) -> None:
    """A mechanism that may choose the sign beats the p-value for one sign; not that for both."""
    epsilon, spent, elements = 0.0, 0.4, 2
    claim = ApproximateDP(epsilon, spent / elements)

    def form(one_sided: bool) -> Callable[[State], Evidence]:
        if kind == "counts":
            return lambda hits: Counts(sum(hits), elements, elements, one_sided)
        return lambda hits: Ranking(hits, grid=[1, 2], one_sided=one_sided)

    one, both = (min(p_values(form(side), elements, claim).values()) for side in (True, False))
    rejects = at_most(p_values(form(True), elements, claim), one)
    rewards = np.array([row(rejects, elements, elements, sign) for sign in (1, -1)])
    fixed = worst(rewards[:1], elements, epsilon, spent, "orders")
    chosen = worst(rewards, elements, epsilon, spent, "orders")
    assert fixed <= one + SOLVER
    assert one + 0.01 < chosen <= both + SOLVER


# Sway and the identity behind it


def exact_sway(weights: Sequence[int], statistic: int, epsilon: float) -> float:
    """The supremum over k and x of the integral over s of Pr[t - w_k <= T_-k(x^s) < t].

    The probabilities are polynomials in s, of degree below that which eight nodes of Gauss integrate.
    """
    p = oracles.success(epsilon)
    nodes, parts = np.polynomial.legendre.leggauss(8)
    redrawn, best = (nodes + 1) / 2, 0.0
    for heavy in set(weights):
        others = list(weights)
        others.remove(heavy)
        sizes = {w: others.count(w) for w in set(others)}
        for rights in itertools.product(*(range(size + 1) for size in sizes.values())):
            law = np.zeros((len(nodes), sum(weights) + 1))
            law[:, 0] = 1
            for (w, size), right in zip(sizes.items(), rights, strict=True):
                for place in range(size):
                    hit = (redrawn * p + (1 - redrawn) * (place < right))[:, None]
                    law = law * (1 - hit) + np.roll(law, w, axis=1) * hit
            window = law[:, max(0, statistic - heavy) : statistic].sum(axis=1)
            best = max(best, float(parts @ window) / 2)
    return best


def grouped(weights: Sequence[int]) -> np.ndarray:
    return np.bincount(weights)


@pytest.mark.parametrize("epsilon", [0.0, 0.7, 2.0])
def test_sway_is_at_least_the_supremum(epsilon: float) -> None:
    rng, smallest = np.random.default_rng(7), math.inf
    for _ in range(14):
        kinds = rng.choice(np.arange(1, 9), size=rng.integers(2, 4), replace=False)
        weights = rng.choice(kinds, size=rng.integers(3, 11)).tolist()
        mean, spread = oracles.success(epsilon) * sum(weights), math.sqrt(sum(w * w for w in weights))
        for deviations in (-0.3, 0.3, 0.8):
            statistic = min(max(1, round(mean + deviations * spread)), sum(weights))
            exact = exact_sway(weights, statistic, epsilon)
            found = _sway.of_weights(grouped(weights), statistic, epsilon)
            assert exact - 1e-12 <= found <= 1, (weights, statistic)
            if len(set(weights)) > 1 and exact < 1:
                smallest = min(smallest, found / exact)
    assert smallest < 2.5


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_sway_of_many_weights_is_above_the_supremum_and_below_one(epsilon: float) -> None:
    """Ten light and six heavy guesses: here the bound is not just 1."""
    weights = [1] * 10 + [2] * 6
    for statistic in (14, 16, 18, 20):
        exact = exact_sway(weights, statistic, epsilon)
        found = _sway.of_weights(grouped(weights), statistic, epsilon)
        assert exact <= found <= 1
    assert _sway.of_weights(grouped([1] * 40 + [2] * 20), 55, 0.0) < 0.5


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
def test_sway_of_one_weight_is_that_of_a_count_and_is_attained(epsilon: float) -> None:
    for taken, weight in itertools.product((1, 4, 9), (1, 3)):
        for statistic in range(1, taken * weight + 1):
            correct = -(-statistic // weight)
            exact = exact_sway([weight] * taken, statistic, epsilon)
            count = _sway.of_count(correct, taken, epsilon)
            assert _sway.of_weights(grouped([weight] * taken), statistic, epsilon) == count
            assert count == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.0, 1e-9, 20.0, 36.0, 40.0, 100.0])
def test_sway_is_a_number_at_the_ends(epsilon: float) -> None:
    shapes = [
        {1: 1, 40: 1},
        {1: 2, 40: 1},
        {40: 3},
        {1: 1, 2: 1, 3: 1},
        {39: 500, 40: 500},
        {1: 10**5, 40: 1},
    ]
    for sizes in shapes:
        groups = np.zeros(41, dtype=np.int64)
        groups[list(sizes)] = list(sizes.values())
        total = int(groups @ np.arange(41))
        for statistic in {0, 1, total // 2, total - 1, total, total + 1}:
            found = _sway.of_weights(groups, statistic, epsilon)
            assert 0 <= found <= 1, (sizes, statistic)
            if 0 < statistic <= total < 50:
                weights = np.repeat(np.arange(41), groups).tolist()
                assert found >= exact_sway(weights, statistic, epsilon) * (1 - 1e-9), (sizes, statistic)


@pytest.mark.parametrize(
    ("evidence", "claim"),
    [
        (UncommittedCounts(100, 2000, 10**6), ApproximateDP(0.0, 1e-2)),
        (UncommittedCounts(1500, 5000, 10**6), ApproximateDP(1.0, 1e-2)),
        (Weighted([1] * 100 + [0] * 1900, weights=[3] * 2000, elements=10**6), ApproximateDP(0.0, 1e-2)),
        (Weighted([1] * 100 + [0] * 1900, weights=[3, 2] * 1000, elements=10**6), ApproximateDP(0.0, 1e-2)),
        (Ranking(np.arange(2000) < 50, 10**6, committed=2000), ApproximateDP(0.0, 1e-2)),
        (Bets(None, [0] * 2000, 10**6), ApproximateDP(0.0, 1e-2)),
    ],
    ids=lambda value: getattr(value, "method", ""),
)
def test_hardly_any_right_guess_and_much_delta_give_a_p_value(
    evidence: Evidence, claim: ApproximateDP
) -> None:
    """Far below the mean, where Pr[W = v] underflows, the sway still is a number."""
    found = evidence.p_value(claim)
    assert 0 < found <= 1
    if not isinstance(evidence, Ranking):
        assert found == 1


@pytest.mark.parametrize("epsilon", [0.0, 0.6, 2.5])
def test_identity_of_redrawing(epsilon: float) -> None:
    """Lemma 1: G(x) = E G + q sum_k D_k(x_-k) (x_k - e^epsilon (1 - x_k)), for increasing G of four hits."""
    p, size, rng = oracles.success(epsilon), 4, np.random.default_rng(3)
    vectors = list(itertools.product((0, 1), repeat=size))
    nodes, parts = np.polynomial.legendre.leggauss(6)
    for _ in range(5):
        raw = {x: float(rng.normal()) for x in vectors}
        worth = {
            x: max(raw[y] for y in vectors if all(a <= b for a, b in zip(y, x, strict=True))) for x in vectors
        }
        mean = math.fsum(worth[x] * oracles.chance([x], epsilon) for x in vectors)

        def gained(k: int, x: State, worth: dict[State, float] = worth) -> float:
            total = 0.0
            for s, part in zip((nodes + 1) / 2, parts / 2, strict=True):
                for y in itertools.product((0, 1), repeat=size - 1):
                    others = (*x[:k], *x[k + 1 :])
                    chances = [
                        s * p + (1 - s) * a if b else 1 - s * p - (1 - s) * a
                        for a, b in zip(others, y, strict=True)
                    ]
                    total += (
                        part * math.prod(chances) * (worth[(*y[:k], 1, *y[k:])] - worth[(*y[:k], 0, *y[k:])])
                    )
            return total

        for x in vectors:
            flow = sum(gained(k, x) * (1 if x[k] else -math.exp(epsilon)) for k in range(size))
            assert worth[x] == pytest.approx(mean + (1 - p) * flow, abs=1e-12)


# What must not change


@pytest.mark.parametrize("epsilon", [0.0, 0.4, 1.5])
def test_without_delta_a_ranking_is_the_crossing_of_a_walk(epsilon: float) -> None:
    claim, rng = ApproximateDP(epsilon, 0), np.random.default_rng(11)
    for grid in ([1, 2, 5, 10], [10], [3, 7, 10]):
        for hits in rng.random((6, 10)) < 0.8:
            tails = [float(oracles.precise_tail(int(hits[:k].sum()), k, epsilon)) for k in grid]
            boundary = [
                next(
                    c
                    for c in range(k + 2)
                    if float(oracles.precise_tail(c, k, epsilon)) <= min(tails) * (1 + 1e-9)
                )
                for k in grid
            ]
            expected = oracles.every_crossing(grid, boundary, epsilon)
            for one_sided in (False, True):
                p_value = Ranking(hits, grid=grid, one_sided=one_sided).p_value(claim)
                assert p_value == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("one_sided", [False, True])
@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_p_values_rise_with_delta(epsilon: float, one_sided: bool) -> None:
    deltas = np.r_[0.0, np.geomspace(1e-9, 0.3, 40)]
    for correct in (70, 80, 90, 100):
        for evidence in (
            Ranking.of_counts([100], [correct], 150, 100, one_sided),
            Counts(correct, 100, 150, one_sided),
        ):
            found = [evidence.p_value(ApproximateDP(epsilon, float(delta))) for delta in deltas]
            assert (np.diff(found) >= 0).all()
            assert found[0] < found[20] or found[0] == 1


def test_one_sign_is_charged_for_half_of_the_elements() -> None:
    hits = [1] * 18 + [0] * 2
    for delta in (1e-3, 0.03):
        one = ApproximateDP(0.5, delta)
        assert Counts(18, 20, 40, True).p_value(one) == Counts(18, 20, 20).p_value(one)
        half = Ranking(hits, 20).p_value(one)
        assert Ranking(hits, 40, committed=20, one_sided=True).p_value(one) == pytest.approx(half, rel=1e-12)


def test_guesses_that_were_committed_and_not_made_count_as_wrong() -> None:
    hits = [1] * 20 + [0, 1, 1]
    padded = Ranking([*hits, *[0] * 17], 60, committed=40)
    short = Ranking(hits, 60, committed=40)
    for claim in (ApproximateDP(0.5, 0), ApproximateDP(0.5, 1e-3)):
        assert short.p_value(claim) == padded.p_value(claim)
    assert short.grid.tolist() == padded.grid.tolist() == looks(40).tolist()
    assert short.counts.tolist() == padded.counts.tolist()


def test_cap_of_losses_does_not_depend_on_hits() -> None:
    rng = np.random.default_rng(5)
    losses = np.abs(rng.normal(0, 2, 2000))
    right, wrong, mixed = (
        Weighted(hits, losses=losses, elements=4000)
        for hits in (np.ones(2000, bool), np.zeros(2000, bool), rng.random(2000) < 0.7)
    )
    tops = set()
    for epsilon, delta in [(0.0, 0.0), (0.5, 1e-5), (0.5, 1e-3), (1.0, 1e-2), (3.0, 0.1)]:
        claim = ApproximateDP(epsilon, delta)
        assert right.top(claim) == wrong.top(claim) == mixed.top(claim)
        assert (right.lattice_weights(claim) == wrong.lattice_weights(claim)).all()
        tops.add(right.top(claim))
    assert len(tops) > 1


HITS = np.random.default_rng(0).random(120) < 0.85
RIGHT = int(HITS.sum())


@pytest.mark.parametrize(
    "evidence",
    [
        Counts(RIGHT, 120, 200),
        Counts(RIGHT, 120, 200, one_sided=True),
        UncommittedCounts(RIGHT, 120, 200),
        Ranking(HITS, 200, committed=120),
        Ranking(HITS, 200, committed=150, one_sided=True),
        Weighted(HITS, weights=np.arange(120), elements=200),
        Weighted(HITS, losses=np.linspace(-3, 3, 120), elements=200),
        Bets(np.linspace(0.5, 0.99, 120), HITS, 200),
        Bets(None, HITS, 200),
    ],
    ids=lambda evidence: evidence.method,
)
@pytest.mark.parametrize("epsilon", [0.0, 0.6, 1.2])
def test_least_delta_changes_nothing(evidence: Evidence, epsilon: float) -> None:
    without = evidence.p_value(ApproximateDP(epsilon, 0))
    for delta in (5e-324, 1e-310, 1e-30):
        found = evidence.p_value(ApproximateDP(epsilon, delta))
        assert without * (1 - 1e-12) <= found <= without * (1 + 1e-8) + 1e-8
