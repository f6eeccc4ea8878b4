"""Ranking: exact crossing probabilities, mean flips, non-monotone p-values."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaria import lower_bound
from canaria._core import binomial
from canaria.claims import ApproximateDP
from canaria.evidence import Ranking, _walks
from canaria.evidence.boundaries import PER_EXCESS, flips_that_matter
from canaria.evidence.ranking import looks
from tests import oracles

HITS = [1, 1, 1, 1, 1, 0, 1, 1, 0, 1, 1, 0]


@pytest.mark.parametrize(("epsilon", "expected"), [(0.3, 0.147496), (0.0, 0.0766602)])
def test_pinned_p_values(epsilon: float, expected: float) -> None:
    """The pinned values of theory section 11."""
    assert Ranking(HITS, grid=[4, 6, 9, 12]).p_value(ApproximateDP(epsilon, delta=0)) == pytest.approx(
        expected, rel=1e-5
    )


def test_p_value_is_not_monotone() -> None:
    """The example of theory section 4, and why the inverter must not skip ahead."""
    grid = [8, 9, 10, 12, 14, 16, 19, 22, 25, 30]
    counts = [8, 9, 10, 12, 13, 15, 17, 19, 22, 26]
    evidence = Ranking.of_counts(grid, counts, 30, 30)
    assert (
        evidence.p_value(ApproximateDP(1.002, delta=0))
        > 0.05
        > evidence.p_value(ApproximateDP(1.142, delta=0))
    )
    bound = lower_bound(evidence).epsilon
    assert bound < 1.002
    assert all(
        evidence.p_value(ApproximateDP(k / 100, delta=0)) <= 0.05 for k in range(round(bound * 100) + 1)
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.floats(0, 3))
def test_crossing_is_the_enumeration(data: st.DataObject, epsilon: float) -> None:
    """All 2^k sequences of up to 10 hits."""
    grid = sorted(data.draw(st.sets(st.integers(1, 10), min_size=1, max_size=5)))
    boundary = [data.draw(st.integers(0, k + 1)) for k in grid]
    computed = _walks.crossing(np.array(grid), np.array(boundary), epsilon)
    assert computed == pytest.approx(oracles.every_crossing(grid, boundary, epsilon), abs=1e-12)


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 4.0])
def test_transforms_agree_with_direct_convolution(epsilon: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large walks use Fourier transforms; the direct sum is the oracle."""
    grid = looks(20_000)
    boundary = _walks.smallest_counts(grid, 0.01, epsilon)
    fast = _walks.crossing(grid, boundary, epsilon)
    monkeypatch.setattr(_walks, "_DIRECT", 10**12)
    assert fast == pytest.approx(_walks.crossing(grid, boundary, epsilon), rel=1e-9)


def test_boundary_is_the_smallest_count_with_a_rarer_tail() -> None:
    grid = np.r_[np.arange(1, 60), 1000, 10**5, 10**7]
    for epsilon, level in itertools.product(
        (0.0, 1.0, 3.0, 9.0, 40.0), (0.9, 0.5, 0.05, 1e-6, 1e-60, 1e-249)
    ):
        counts = _walks.smallest_counts(grid, level, epsilon)
        assert (binomial.tail(counts, grid, epsilon) <= level).all()
        assert (binomial.tail(counts - 1, grid, epsilon) > level).all()


def naive_mean_flips(evidence: Ranking, epsilon: float, delta: float) -> float:
    """The mean-flips rule by enumeration of all hit sequences."""
    p, length = oracles.success(epsilon), int(evidence.grid[-1])
    budget = evidence.elements * delta * (1 - p)

    def score(count: int, look: int) -> float:
        excess = count - look * p
        return float(binomial.tail(count, look, epsilon)) + (
            budget / (PER_EXCESS * excess) if excess > 0 else math.inf
        )

    level = min(score(v, k) for v, k in zip(evidence.counts.tolist(), evidence.grid.tolist(), strict=True))
    first = {
        k: next((c for c in range(k + 1) if score(c, k) <= level * (1 + 1e-9)), None)
        for k in evidence.grid.tolist()
    }
    crossed = flips = 0.0
    for hits in itertools.product((0, 1), repeat=length):
        sums, chance = np.cumsum(hits), p ** sum(hits) * (1 - p) ** (length - sum(hits))
        needed = max(0, min(int(c - sums[k - 1]) for k, c in first.items() if c is not None))
        crossed += chance * (needed == 0)
        flips += chance * needed
    return min(1.0, crossed + (1 - crossed) * budget / flips)


@pytest.mark.parametrize("delta", [1e-4, 0.01, 0.1])
@pytest.mark.parametrize("epsilon", [0.0, 0.7])
def test_mean_flips_are_the_enumeration(epsilon: float, delta: float) -> None:
    """Few flips are needed here, so that every number of them counts by itself."""
    evidence = Ranking([1, 1, 1, 1, 0, 1, 1, 0, 1], grid=[3, 5, 9])
    expected = naive_mean_flips(evidence, epsilon, delta)
    assert evidence.p_value(ApproximateDP(epsilon, delta)) == pytest.approx(expected, rel=1e-6)


def with_crossings(evidence: Ranking, claim: ApproximateDP, flips: np.ndarray | None = None) -> float:
    """The rule from crossings at all these numbers of flips; by default the library's own."""
    boundary = evidence.boundary(claim)
    reached = boundary <= evidence.grid
    grid, boundary = evidence.grid[reached], boundary[reached]
    budget = evidence.charged * claim.delta * (1 - oracles.success(claim.epsilon))
    if len(grid) == 0:
        return 1.0
    if budget == 0:
        return _walks.crossing(grid, boundary, claim.epsilon)
    flips = flips_that_matter(grid, boundary, claim.epsilon) if flips is None else flips
    crossed = np.array([_walks.crossing(grid, boundary - some, claim.epsilon) for some in flips])
    mean = float(np.diff(flips, prepend=-1) @ (1 - crossed))
    return min(1.0, crossed[0] + (1 - crossed[0]) * budget / mean) if mean > 0 else 1.0


def test_gaps_between_flips_only_raise_the_p_value() -> None:
    """Where many flips are needed, some of them stand for the rest."""
    hits = np.random.default_rng(3).random(300) < 0.85
    evidence, claim = Ranking(hits, elements=3000, committed=300), ApproximateDP(0.8, 1e-3)
    boundary = evidence.boundary(claim)
    exact = with_crossings(evidence, claim, np.arange(int(boundary[boundary <= evidence.grid].min())))
    assert exact <= evidence.p_value(claim) <= 1.05 * exact


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-5, 1e-3, 1e-2]), st.floats(0, 3))
def test_bounds_on_the_p_value_close_in_on_the_rule_with_every_crossing(
    seed: int, delta: float, epsilon: float
) -> None:
    """Which crossings are computed, and in which order, must not tell."""
    rng, claim = np.random.default_rng(seed), ApproximateDP(epsilon, delta)
    length = int(rng.integers(5, 5000))
    total = length + int(rng.integers(0, 500))
    evidence = Ranking(rng.random(length) < rng.uniform(0.5, 1), total, committed=length)
    expected = with_crossings(evidence, claim)
    low, high = np.array(list(evidence.closer(claim))).T
    assert (np.diff(low) >= -1e-12).all()
    assert (np.diff(high) <= 1e-12).all()
    assert low[-1] == high[-1] == pytest.approx(expected, rel=1e-8, abs=1e-12)
    assert high[-1] >= expected * (1 - 1e-12) - 1e-13
    assert evidence.p_value(claim) == pytest.approx(high[-1], abs=1e-14)


@pytest.mark.parametrize(
    ("length", "epsilon"), [(10**7, 1.0), (10**7, 5.0), (10**8, 6.0), (10**9, 8.0), (10**9, 14.0)]
)
@pytest.mark.parametrize("flips", [0.01, 1.0, 30.0])
def test_bounds_on_the_p_value_hold_for_long_walks(length: int, epsilon: float, flips: float) -> None:
    """Rounding 13: bounds by differences of unions are never past the rule with every crossing."""
    rng, grid = np.random.default_rng(length), looks(length)
    for at in epsilon - np.array([0.0, 1.0, 3.0]) * np.exp(epsilon / 2) / np.sqrt(length):
        counts = np.cumsum(rng.binomial(np.diff(grid, prepend=0), oracles.success(epsilon)))
        evidence = Ranking.of_counts(grid, counts, length, length)
        claim = ApproximateDP(float(at), flips * (1 + np.exp(at)) / length)
        expected = with_crossings(evidence, claim)
        low, high = np.array(list(evidence.closer(claim))).T
        assert (low <= expected * (1 + 2e-9)).all()
        assert (high >= expected * (1 - 1e-12)).all()
        assert high[-1] == pytest.approx(expected, rel=1e-8)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=80), st.floats(0, 3), st.sampled_from([0.0, 1e-4, 1e-2]))
def test_p_value_falls_with_hits(hits: list[bool], epsilon: float, delta: float) -> None:
    """Where some flips stand for others, up to a few percent."""
    base = Ranking(hits).p_value(ApproximateDP(epsilon, delta))
    better = list(hits)
    if False in better:
        better[better.index(False)] = True
    assert Ranking(better).p_value(ApproximateDP(epsilon, delta)) <= base * (1.05 if delta else 1) + 1e-9


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 1e-4, 1e-3, 1e-2]), st.floats(0.6, 0.97))
def test_screen_and_verdict_agree_with_the_p_value(seed: int, delta: float, accuracy: float) -> None:
    """Claims are settled for less as by the p-value, where some flips stand for others up to a few percent."""
    rng = np.random.default_rng(seed)
    hits = rng.random(int(rng.integers(20, 800))) < accuracy
    evidence, claims, level = Ranking(hits), np.arange(0, 4, 0.05), float(rng.choice([0.01, 0.05, 0.5]))
    for claim, verdict in zip(claims.tolist(), evidence.screen(claims, delta, level), strict=True):
        p_value = evidence.p_value(ApproximateDP(claim, delta))
        assert evidence.refutes(ApproximateDP(claim, delta), level) == (p_value <= level)
        assert verdict in (0, 1 if p_value <= (1.05 if delta else 1) * level else -1)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6), st.sampled_from([0.0, 1e-3, 0.02]), st.sampled_from([0.05, 0.5, 0.7, 0.9, 0.97])
)
def test_what_is_screened_is_so_at_any_level(seed: int, delta: float, level: float) -> None:
    """Few looks, hits as bad as chance: above a level of 1/2 boundaries may lie below the mean."""
    rng = np.random.default_rng(seed)
    hits = rng.random(int(rng.integers(2, 60))) < rng.uniform(0.2, 0.9)
    grid = np.unique(rng.integers(1, len(hits) + 1, int(rng.integers(1, 8))))
    evidence, claims = Ranking(hits, grid=grid), np.arange(0, 2, 0.05)
    for claim, verdict in zip(claims.tolist(), evidence.screen(claims, delta, level), strict=True):
        p_value = evidence.p_value(ApproximateDP(claim, delta))
        assert verdict <= 0 or p_value <= (1.05 if delta else 1) * level
        assert verdict >= 0 or p_value > level


def test_a_boundary_below_the_mean_is_crossed_often() -> None:
    evidence = Ranking.of_counts([5, 12], [2, 7], 12, 12)
    assert evidence.p_value(ApproximateDP(0.9, delta=0)) > 0.94
    assert evidence.screen(np.array([0.9]), 0.0, 0.9).tolist() != [1]


def test_screen_rounds_up_like_the_p_value() -> None:
    evidence = Ranking([1])
    assert evidence.p_value(ApproximateDP(0.0, delta=0)) > 0.5
    assert evidence.screen(np.zeros(1), 0.0, 0.5).tolist() == [0]


def test_counts_at_the_looks_are_all_that_matters() -> None:
    hits = np.random.default_rng(0).random(500) < 0.8
    evidence = Ranking(hits, elements=700, committed=500)
    again = Ranking.of_counts(**evidence.to_dict())
    assert again.p_value(ApproximateDP(0.7, 1e-5)) == evidence.p_value(ApproximateDP(0.7, 1e-5))
    assert lower_bound(again, 1e-5).epsilon == lower_bound(evidence, 1e-5).epsilon


def test_default_looks_are_geometric_from_eight_to_all() -> None:
    assert looks(3).tolist() == [3]
    grid = looks(10**6)
    assert (grid[0], grid[-1], len(grid)) == (8, 10**6, 40)
    assert (np.diff(grid) > 0).all()
