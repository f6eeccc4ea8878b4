"""What evidence takes: told beforehand, counted on the way; and what is quick gives what is slow."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaria import Counts, lower_bound
from canaria._core import binomial, effort
from canaria.claims import ApproximateDP
from canaria.claims.families import Gaussian
from canaria.evidence import (
    Bets,
    Budget,
    Evidence,
    MatchedCounts,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    _walks,
)
from canaria.evidence.inversion import EPSILON_GRID
from canaria.evidence.ranking import looks
from tests.evidence.kinds import ALL


def test_work_beyond_what_is_allowed_is_refused() -> None:
    effort.spend(math.inf)
    with effort.at_most(1.0):
        effort.spend(0.6)
        with pytest.raises(effort.TooLongError), effort.at_most(0.1):
            effort.spend(0.2)
        effort.spend(0.3)
        with pytest.raises(effort.TooLongError):
            effort.spend(0.2)
    effort.spend(math.inf)


@pytest.mark.parametrize("evidence", ALL, ids=lambda evidence: f"{type(evidence).__name__}-{evidence.method}")
def test_every_kind_tells_and_counts_its_work(evidence: Evidence) -> None:
    claim, bound = evidence.effort(1e-6)
    assert 0 < claim <= bound < 1
    with pytest.raises(effort.TooLongError), effort.at_most(1e-6):
        lower_bound(evidence, 1e-6)


def test_effort_is_summed_over_parts() -> None:
    part = Budget(1500, 2000, 2000, 10**6)
    one, many = part.effort(1e-5), Split((part,) * 50, (0.01,) * 50).effort(1e-5)
    assert many.claim == pytest.approx(50 * one.claim)
    assert many.bound == pytest.approx(50 * one.claim + one.bound)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 6))
def test_the_mixture_is_largest_at_a_corner(seed: int, epsilon: float) -> None:
    rng = np.random.default_rng(seed)
    length = rng.integers(1, 400)
    hits = rng.random(length) < rng.random() ** np.linspace(0, 3, length)
    evidence = Bets(None, hits)
    largest = max(1.0, float(evidence.wealth(epsilon).max()))
    assert 1 / evidence.p_value(ApproximateDP(epsilon, delta=0)) == pytest.approx(largest, rel=1e-7)
    assert evidence.p_value(ApproximateDP(epsilon, delta=0)) >= 1 / largest


def test_a_bent_path_has_few_corners() -> None:
    steps = np.diff(np.floor(np.sqrt(np.arange(10**5 + 1.0) * 10**5)))
    assert 500 < len(Bets(None, steps > 0)._corners[0]) < 5 * (10**5) ** (2 / 3)


def naive_bound(evidence: Bets | UncommittedCounts, level: float) -> float:
    """The last of the initial run of refuted claims, one claim after the other."""
    run = 0
    while (
        run < len(EPSILON_GRID)
        and evidence.p_value(ApproximateDP(float(EPSILON_GRID[run]), delta=0)) <= level
    ):
        run += 1
    return float(EPSILON_GRID[run - 1]) if run else 0.0


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.01, 0.5, 0.95]))
def test_stretches_of_claims_give_the_walk(seed: int, mixture: bool, confidence: float) -> None:
    """Also where the wealth peaks early and is lost."""
    rng = np.random.default_rng(seed)
    stated = rng.uniform(0.3, 0.999, rng.integers(2, 300))
    hits = rng.random(len(stated)) < stated
    hits[rng.integers(1, len(hits) + 1) :] = False
    evidence = Bets(None if mixture else stated, hits)
    assert lower_bound(evidence, 0.0, confidence).epsilon == naive_bound(evidence, 1 - confidence)


@pytest.mark.parametrize("confidence", [0.01, 0.5, 0.95])
@pytest.mark.parametrize("right", [50, 71, 93, 100])
def test_many_claims_at_once_give_the_walk(right: int, confidence: float) -> None:
    evidence = UncommittedCounts(right, 100, 100)
    assert lower_bound(evidence, 0.0, confidence).epsilon == naive_bound(evidence, 1 - confidence)


@pytest.mark.parametrize("right", [300, 530, 700, 990])
@pytest.mark.parametrize("epsilon", [0.0, 0.4, 2.0])
def test_the_published_search_finds_the_largest_average(right: int, epsilon: float) -> None:
    tails = binomial.tail(np.arange(right + 1), 1000, epsilon)
    averages = (tails[:-1] * binomial.ROUND_UP - tails[-1]) / np.arange(right, 0, -1)
    claim = ApproximateDP(epsilon, 1e-5)
    published = min(1.0, (tails[-1] + 2 * 5000 * 1e-5 * averages.max()) * binomial.ROUND_UP)
    expected = max(published, Counts(right, 1000, 5000).p_value(claim))
    assert PublishedCounts(right, 1000, 5000).p_value(claim) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(0, 4), st.floats(1e-4, 0.3))
def test_rounded_steps_hold_the_crossing_between_them(seed: int, epsilon: float, level: float) -> None:
    rng = np.random.default_rng(seed)
    grid = np.unique(rng.integers(1, 10 ** rng.uniform(3, 7), rng.integers(1, 12)))
    boundary = _walks.smallest_counts(grid, level, epsilon)
    boundary[rng.integers(0, len(grid))] -= rng.integers(0, 50)
    walk = _walks.Walk(grid[boundary <= grid], epsilon)
    if len(walk.looks) == 0:
        return
    low, high = walk.crossing(boundary[boundary <= grid], exact=False)
    exact, _ = walk.crossing(boundary[boundary <= grid], exact=True)
    assert low <= exact <= high
    assert high - low < 0.05 + 0.2 * exact


def long_ranking(rng: np.random.Generator, size: int = 10**6) -> Ranking:
    grid = looks(size)
    steps = np.diff(grid, prepend=0)
    right = np.cumsum(rng.binomial(steps, 0.5 + 0.4 * rng.random() * np.exp(-grid / size * 30)))
    return Ranking.of_counts(grid.tolist(), right.tolist(), size, size)


@pytest.mark.parametrize("delta", [0.0, 1e-7])
@pytest.mark.parametrize("seed", range(4))
def test_rough_walks_decide_as_the_p_value_does(seed: int, delta: float) -> None:
    evidence = long_ranking(np.random.default_rng(seed))
    claim = lower_bound(evidence, delta).epsilon + 0.01
    found = evidence.p_value(ApproximateDP(claim, delta))
    for level in (0.5 * found, 0.97 * found, found * (1 - 1e-7), found, found * (1 + 1e-7), 1.03 * found):
        assert evidence.refutes(ApproximateDP(claim, delta), level) == (found <= level)


@pytest.mark.parametrize("right", [60, 75, 99])
def test_fewer_prices_decide_as_the_p_value_does(right: int) -> None:
    evidence = Budget(right, 100, 120, 10**5)
    found = evidence.p_value(ApproximateDP(0.3, 1e-6))
    for level in (0.5 * found, found * (1 - 1e-7), found * (1 + 1e-7), 2 * found):
        assert evidence.refutes(ApproximateDP(0.3, 1e-6), level) == (found <= level)


@pytest.mark.parametrize("epsilon", [0.0, 0.05, 0.5, 3.0])
def test_the_clearest_part_has_the_smallest_p_value(epsilon: float) -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        inner = Split((long_ranking(rng, 10**5), long_ranking(rng, 10**5)), (0.7, 0.3))
        parts = (long_ranking(rng), Counts(500_800, 10**6, 10**6), inner, long_ranking(rng, 3000))
        split = Split(parts, (0.1, 0.4, 0.3, 0.2))
        claim = ApproximateDP(epsilon, delta=0)
        found = [part.p_value(claim) / share for part, share in zip(parts, split.shares, strict=True)]
        assert split.clearest(claim) is parts[int(np.argmin(found))].clearest(claim)


def test_parts_that_show_less_do_not_change_the_bound() -> None:
    """Also in a split of splits, whose parts have to beat those before."""
    rng = np.random.default_rng(1)
    parts = [long_ranking(rng, 2000) for _ in range(4)] + [Counts(600, 1000, 2000), Budget(60, 90, 100, 2000)]
    split = Split(
        (Split(tuple(parts[:2]), (0.5, 0.5)), Split(tuple(parts[2:4]), (0.5, 0.5)), *parts[4:]),
        (0.25, 0.25, 0.25, 0.25),
    )
    alone = [lower_bound(part, 1e-5, 1 - 0.05 * 0.125).epsilon for part in parts[:4]]
    alone += [lower_bound(part, 1e-5, 1 - 0.05 * 0.25).epsilon for part in parts[4:]]
    assert lower_bound(split, 1e-5).epsilon == pytest.approx(max(alone), abs=1e-6)


def test_a_bound_of_a_family_takes_longer_than_a_claim() -> None:
    """Counts against a curve are made for each stretch of claims."""
    claim, bound = MatchedCounts(Gaussian(), np.ones(500, dtype=bool)).effort(0.0)
    assert 0 < claim < bound
