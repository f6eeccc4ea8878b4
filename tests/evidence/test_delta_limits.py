"""The delta rules at scale: what does not depend on delta, and where they end."""

import numpy as np
import pytest

from canaria import Counts
from canaria.claims import ApproximateDP
from canaria.evidence import Bets, Evidence, Ranking, UncommittedCounts, Weighted
from canaria.evidence.ranking import looks
from tests import oracles


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
