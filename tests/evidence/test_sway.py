"""Sway, and the identity behind it."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pytest

from canaria.claims import ApproximateDP
from canaria.evidence import Bets, Evidence, Ranking, UncommittedCounts, Weighted, _sway
from tests import oracles
from tests.evidence.programs import (
    State,
)


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
