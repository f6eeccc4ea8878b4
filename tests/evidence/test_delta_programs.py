"""The delta rules at scale: no mechanism of small size beats a p-value."""

import itertools
import math
from functools import partial

import numpy as np
import pytest

from canaria import Counts
from canaria.claims import ApproximateDP
from canaria.evidence import Ranking, UncommittedCounts, Weighted
from tests import oracles
from tests.evidence.programs import (
    CLAIMS,
    SOLVER,
    State,
    at_most,
    below,
    by_count,
    each_claim,
    levels_of,
    p_values,
    row,
    worst,
    worst_of_blocks,
)


@pytest.mark.parametrize(("elements", "taken", "correct"), [(2, 2, 1), (3, 2, 2), (3, 3, 2)])
def test_programs_agree_with_those_over_all_mechanisms(elements: int, taken: int, correct: int) -> None:
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
