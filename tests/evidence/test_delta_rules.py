"""The two delta rules against linear programs over all mechanisms and all guessers, for a few elements."""

import itertools
import math

import numpy as np
import pytest

from canaria import Counts
from canaria.claims import ApproximateDP
from canaria.evidence import Budget, Evidence, Ranking, UncommittedCounts, Weighted
from tests import oracles

CLAIMS = [(0.0, 0.1), (0.7, 0.02), (1.5, 0.2)]
SOLVER = 1e-7
each_claim = pytest.mark.parametrize(("epsilon", "delta"), CLAIMS)


def hits_of(history: oracles.History, elements: int) -> tuple[int, ...]:
    """The hits, and misses for what was not guessed."""
    return tuple(hit for _, hit in history) + (0,) * (elements - len(history))


def adaptive_rewards(worth: dict[tuple[int, ...], int], elements: int) -> np.ndarray:
    """What every adaptive guesser is paid, given what hit vectors are worth."""
    found = oracles.guessers(elements, lambda history: worth[hits_of(history, elements)])
    return oracles.up_to_symmetry(found, elements)


def indicator(region: frozenset[tuple[int, ...]], elements: int) -> dict[tuple[int, ...], int]:
    return {hits: int(hits in region) for hits in itertools.product((0, 1), repeat=elements)}


def plain_rewards(region: frozenset[tuple[int, ...]], elements: int) -> list[int]:
    """What a guesser of "+1" throughout, in a fixed order, is paid for each bit vector."""
    return [int(tuple((bit + 1) // 2 for bit in bits) in region) for bits in oracles.bit_vectors(elements)]


def budget(elements: int, epsilon: float, delta: float) -> float:
    return elements * delta / (1 + math.exp(epsilon))


def greedy(region: frozenset[tuple[int, ...]], elements: int, epsilon: float, delta: float) -> float:
    """The greedy rule, each hit vector charged the misses that it is away from the region."""
    vectors = list(itertools.product((0, 1), repeat=elements))
    needs = {
        hits: min(sum(b > a for a, b in zip(hits, goal, strict=True)) for goal in region) for hits in vectors
    }
    reached = [oracles.chance([x for x in vectors if needs[x] <= j], epsilon) for j in range(elements + 1)]
    totals = np.cumsum(reached) + budget(elements, epsilon, delta)
    return min(1.0, float((totals / np.arange(1, elements + 2)).min()))


@pytest.mark.parametrize(("elements", "taken", "correct"), [(2, 2, 1), (3, 2, 1), (3, 3, 2), (4, 4, 3)])
@each_claim
def test_symmetric_program_is_the_program_over_all_mechanisms(
    elements: int, taken: int, correct: int, epsilon: float, delta: float
) -> None:
    """The oracle of this file, which takes mechanisms to be symmetric, gives what the plain program gives."""
    right = [[int(bits[:taken].count(1) >= correct) for bits in oracles.bit_vectors(elements)]]
    symmetric = oracles.worst_mean(np.array(right), elements, [(math.exp(epsilon), delta)])
    plain = oracles.all_mechanisms_program(correct, taken, elements, epsilon, delta)
    assert symmetric == pytest.approx(plain, abs=SOLVER)


@pytest.mark.parametrize("elements", [1, 2, 3])
@each_claim
def test_hits_of_adaptive_guessers_are_coupled_with_coins_and_flips(
    elements: int, epsilon: float, delta: float
) -> None:
    """Lemma 3: E[f(X)] <= E[f(Y)] + B for every f that a hit raises by 0 or 1, over all mechanisms and trees.

    By the duality of optimal transport this is the same as a coupling with X <= Y + Z and E[F] <= B: such f
    are the extreme potentials of the cost "misses of Y among the hits of X". The number of hits attains it.
    """
    limits, flips = [(math.exp(epsilon), delta)], budget(elements, epsilon, delta)
    gains = []
    for worth in oracles.unit_steps(elements):
        mean = math.fsum(value * oracles.chance([hits], epsilon) for hits, value in worth.items())
        gains.append(oracles.worst_mean(adaptive_rewards(worth, elements), elements, limits) - mean)
    assert max(gains) <= flips + SOLVER
    assert max(gains) == pytest.approx(flips, abs=SOLVER)


@each_claim
def test_plain_delta_rule_holds_for_sets_that_the_output_chooses(epsilon: float, delta: float) -> None:
    """Theorem 1: every output has its own adaptive guesser and its own increasing set, at most as likely.

    A single guess attains the rule.
    """
    limits, flips = [(math.exp(epsilon), delta)], budget(3, epsilon, delta)
    sets = {region: oracles.chance(region, epsilon) for region in oracles.increasing_sets(3)}
    for level in sorted(set(sets.values())):
        rewards = [adaptive_rewards(indicator(region, 3), 3) for region in sets if sets[region] <= level]
        worst = oracles.worst_mean(oracles.up_to_symmetry(np.concatenate(rewards), 3), 3, limits)
        assert worst <= min(1.0, level + flips) + SOLVER
        if level == pytest.approx(oracles.success(epsilon)):
            assert worst == pytest.approx(level + flips, abs=SOLVER)


def signs_adapt(taken: int, rejects: list[bool]) -> np.ndarray:
    """Rewards of guessers that take the first of three elements in order, given which hit vectors reject."""
    vectors = list(itertools.product((0, 1), repeat=taken))
    small = oracles.guessers(taken, lambda h: int(rejects[vectors.index(hits_of(h, taken))]), adaptive=False)
    return np.repeat(small, 2 ** (3 - taken), axis=1)


@each_claim
def test_no_mechanism_beats_counts_and_weights_that_the_output_chooses(epsilon: float, delta: float) -> None:
    """Theorems 1, 6 and 9: Pr[p-value <= t] <= t, the output choosing number and weights of the guesses."""
    claim = ApproximateDP(epsilon, delta)
    p_values: list[tuple[int, list[float]]] = []
    for taken in (1, 2, 3):
        vectors = list(itertools.product((0, 1), repeat=taken))
        forms: list[list[Evidence]] = [[UncommittedCounts(sum(x), taken, 3) for x in vectors]]
        forms += [
            [Weighted(x, weights=weights, elements=3) for x in vectors]
            for weights in itertools.product((1, 2, 3), repeat=taken)
        ]
        p_values += [(taken, [evidence.p_value(claim) for evidence in form]) for form in forms]
    for level in sorted({p for _, found in p_values for p in found if p < 1}):
        rewards = [signs_adapt(taken, [p <= level for p in found]) for taken, found in p_values]
        together = oracles.up_to_symmetry(np.concatenate(rewards), 3)
        assert oracles.worst_mean(together, 3, [(math.exp(epsilon), delta)]) <= level + SOLVER


@each_claim
def test_greedy_delta_rule_holds_for_every_increasing_set(epsilon: float, delta: float) -> None:
    """Theorem 2: all increasing sets of four hits, up to their order, over all mechanisms."""
    regions = oracles.increasing_sets(4)
    rows = np.array([plain_rewards(region, 4) for region in regions])
    for row in oracles.up_to_symmetry(rows, 4):
        region = regions[rows.tolist().index(row.tolist())]
        worst = oracles.worst_mean(row[None], 4, [(math.exp(epsilon), delta)])
        assert worst <= greedy(region, 4, epsilon, delta) + SOLVER


@each_claim
def test_greedy_delta_rule_holds_for_adaptive_guessers(epsilon: float, delta: float) -> None:
    """Theorem 2: all increasing sets of three hits, all adaptive guessers, over all mechanisms."""
    for region in oracles.increasing_sets(3):
        rewards = adaptive_rewards(indicator(region, 3), 3)
        worst = oracles.worst_mean(rewards, 3, [(math.exp(epsilon), delta)])
        assert worst <= greedy(region, 3, epsilon, delta) + SOLVER


@pytest.mark.parametrize("grid", [[1, 2, 3], [1, 3], [2, 3]], ids=str)
@each_claim
def test_no_mechanism_beats_the_p_value_of_a_ranking(grid: list[int], epsilon: float, delta: float) -> None:
    """Theorems 2 and 7: Pr[p-value <= t] <= t for every mechanism and adaptive guesser, and every t."""
    claim = ApproximateDP(epsilon, delta)
    vectors = list(itertools.product((0, 1), repeat=3))
    found = {hits: Ranking(hits, grid=grid).p_value(claim) for hits in vectors}
    for level in sorted({p for p in found.values() if p < 1}):
        rewards = adaptive_rewards({hits: int(p <= level) for hits, p in found.items()}, 3)
        assert oracles.worst_mean(rewards, 3, [(math.exp(epsilon), delta)]) <= level + SOLVER


@pytest.mark.parametrize("taken", [1, 2, 3])
@each_claim
def test_no_mechanism_beats_the_p_value_of_a_budget(taken: int, epsilon: float, delta: float) -> None:
    """Theorem 13: at most so many guesses out of three, chosen by revealed bits, over all mechanisms."""
    for correct in range(1, taken + 1):
        rewards = oracles.guessers(3, lambda h, v=correct: int(sum(x for _, x in h[:taken]) >= v))
        worst = oracles.worst_mean(oracles.up_to_symmetry(rewards, 3), 3, [(math.exp(epsilon), delta)])
        assert worst <= Budget(correct, taken, taken, 3).p_value(ApproximateDP(epsilon, delta)) + SOLVER


CURVES = [
    [(math.e, 0.05)],
    [(1.0, 0.2)],
    [(0.5, 0.6), (1.0, 0.25), (2.0, 0.08), (4.0, 0.02)],
]


@pytest.mark.parametrize("limits", CURVES, ids=str)
def test_signs_that_adapt_gain_nothing(limits: list[tuple[float, float]]) -> None:
    """Lemma 4: all sign trees over three elements, all increasing sets, all mechanisms, one limit or several.

    No tree does better than the law of hits of the lemma; guessing "+1" throughout does no worse.
    """
    for region in oracles.increasing_sets(3):
        trees = oracles.guessers(3, lambda h, r=region: int(hits_of(h, 3) in r), adaptive=False)
        adapting = oracles.worst_mean(oracles.up_to_symmetry(trees, 3), 3, limits)
        fixed = oracles.worst_mean(np.array([plain_rewards(region, 3)]), 3, limits)
        assert adapting == pytest.approx(fixed, abs=SOLVER)
        assert adapting <= oracles.worst_hits(region, 3, limits) + SOLVER


@pytest.mark.parametrize("correct", [1, 2, 3])
@each_claim
def test_counts_keep_their_p_value_when_signs_adapt(correct: int, epsilon: float, delta: float) -> None:
    """Theorem 4 for signs that use revealed bits: still the optimum over all mechanisms."""
    trees = oracles.guessers(3, lambda h: int(sum(hit for _, hit in h) >= correct), adaptive=False)
    worst = oracles.worst_mean(oracles.up_to_symmetry(trees, 3), 3, [(math.exp(epsilon), delta)])
    p_value = Counts(correct, 3, 3).p_value(ApproximateDP(epsilon, delta))
    assert worst == pytest.approx(p_value, abs=SOLVER)
