"""Weighted guesses: the exact law of the weighted sum, certain losses, screens."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaria import lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import UncommittedCounts, Weighted, _weighted_law
from canaria.evidence._caps import LATTICE
from tests import oracles


def enumerated(weights: list[int], statistic: int, epsilon: float) -> float:
    p, total = oracles.success(epsilon), 0.0
    for hits in itertools.product((0, 1), repeat=len(weights)):
        if sum(w for w, hit in zip(weights, hits, strict=True) if hit) >= statistic:
            total += p ** sum(hits) * (1 - p) ** (len(hits) - sum(hits))
    return total


def right_weight(evidence: Weighted, epsilon: float) -> int:
    return int(evidence.hits @ evidence.lattice_weights(ApproximateDP(epsilon, delta=0)))


def test_pinned_p_value() -> None:
    """The pinned value of theory section 11."""
    evidence = Weighted([1, 0, 1, 1, 0], weights=[5, 3, 2, 2, 1])
    assert right_weight(evidence, 0.7) == 9
    assert evidence.p_value(ApproximateDP(0.7, delta=0)) == pytest.approx(0.529153, abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), min_size=1, max_size=10), st.floats(0, 4))
def test_law_is_the_enumeration(guesses: list[tuple[int, bool]], epsilon: float) -> None:
    weights, hits = zip(*guesses, strict=True)
    evidence = Weighted(hits, weights=weights)
    expected = enumerated(list(weights), right_weight(evidence, epsilon), epsilon)
    assert evidence.p_value(ApproximateDP(epsilon, delta=0)) == pytest.approx(
        min(1.0, expected), rel=1e-8, abs=1e-13
    )


@pytest.mark.parametrize("epsilon", [0.0, 0.8, 3.0])
def test_wrapped_law_is_the_direct_convolution(epsilon: float) -> None:
    """Many guesses: the law lives on a circle; convolving group by group is the oracle."""
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 41, 3000)
    hits = rng.random(3000) < oracles.success(epsilon) + 0.01
    evidence = Weighted(hits, weights=weights)
    law, p = np.ones(1), oracles.success(epsilon)
    for weight in weights:
        law = np.r_[law, np.zeros(weight)] * (1 - p) + np.r_[np.zeros(weight), law] * p
    assert evidence.p_value(ApproximateDP(epsilon, delta=0)) == pytest.approx(
        law[right_weight(evidence, epsilon) :].sum(), rel=1e-8
    )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-5, 1e-3]))
def test_screen_agrees_with_the_p_value(seed: int, delta: float) -> None:
    rng = np.random.default_rng(seed)
    losses = rng.normal(0, 2, 150)
    hits = rng.random(150) < 1 / (1 + np.exp(-np.abs(losses)))
    evidence, claims = Weighted(hits, losses=losses), np.linspace(0, 3, 16)
    for claim, verdict in zip(claims, evidence.screen(claims, delta, 0.05), strict=True):
        if verdict:
            assert (evidence.p_value(ApproximateDP(float(claim), delta)) <= 0.05) == (verdict > 0)


def test_weights_follow_the_losses() -> None:
    """|loss| - epsilon, on a lattice of 40 steps, nothing below the claim."""
    evidence = Weighted([1, 1, 1, 1], losses=[2.0, -1.5, 1.0, 0.2])
    assert evidence.lattice_weights(ApproximateDP(0.5, delta=0)).tolist() == [40, 27, 13, 0]
    assert evidence.tally(ApproximateDP(0.5, delta=0)) == (3, 3)


def test_infinite_losses_are_certainty() -> None:
    """100 certain guesses, all right: as good as the exact bound from counts."""
    evidence = Weighted(np.ones(100), losses=np.r_[np.full(60, np.inf), np.full(40, -np.inf)])
    root = 0.05 ** (1 / 100)
    assert lower_bound(evidence).epsilon == math.floor(100 * math.log(root / (1 - root))) / 100


def test_plain_delta_rule_where_delta_is_small() -> None:
    """Two thirds of the budget of flips are less than the tail."""
    evidence = Weighted([1] * 10, weights=[3] * 10, elements=50)
    flips = 50 * 1e-3 / (1 + math.exp(1))
    assert evidence.p_value(ApproximateDP(1.0, 1e-3)) == pytest.approx(oracles.success(1) ** 10 + flips)


def test_weights_have_the_shares_of_a_count_where_all_are_equal() -> None:
    """Equal weights are a number of right guesses, whatever their size."""
    claim = ApproximateDP(1.0, 1e-3)
    evidence, counted = Weighted([1] * 20, weights=[3] * 20, elements=50), UncommittedCounts(20, 20, 50)
    assert evidence.p_value(claim) == pytest.approx(counted.p_value(claim), rel=1e-9)
    assert evidence.p_value(claim) < oracles.success(1) ** 20 + 50 * 1e-3 / (1 + math.exp(1))


def test_a_million_elements_with_delta_refute_something() -> None:
    """The plain delta rule refuted nothing with more than 9,000 elements at delta 1e-5."""
    assert lower_bound(Weighted(np.ones(500), weights=np.ones(500), elements=10**6), 1e-5).epsilon > 3


@pytest.mark.skipif(not oracles.LONG, reason="long doubles are doubles here")
@pytest.mark.parametrize(
    ("guesses", "epsilon"),
    [(1000, 0.0), (10**5, 1.0), *(pytest.param(10**6, e, marks=pytest.mark.full) for e in (0.0, 3.0))],
)
def test_error_of_transforms_is_far_below_what_is_added(guesses: int, epsilon: float) -> None:
    """Rounding 7: against long double transforms, 40 weights; what is added covers it at least twice."""
    drawn = np.random.default_rng(guesses).integers(0, LATTICE + 1, guesses)
    groups, p = np.bincount(drawn, minlength=LATTICE + 1), oracles.success(epsilon)
    spread = math.sqrt(p * (1 - p) * float(drawn @ drawn))
    statistics = [math.floor(p * int(drawn.sum()) + deviation * spread) for deviation in (0.0, 2.0, 5.0)]
    added = 2 * _weighted_law._LEAK + _weighted_law._FFT_ERROR
    for statistic, truth in zip(
        statistics, oracles.long_weighted_tails(groups, statistics, epsilon), strict=True
    ):
        error = float(_weighted_law.upper_tail(groups, statistic, epsilon) - truth) - added
        assert abs(error) <= _weighted_law._FFT_ERROR / 2
