"""The delta rules at scale: pinned values."""

import itertools
import math

import numpy as np
import pytest

from canaria import Counts, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Bets, Evidence, Ranking, UncommittedCounts, _sway, _walks, bets
from canaria.evidence.boundaries import scores
from canaria.evidence.ranking import looks
from tests import oracles
from tests.evidence.programs import (
    SOLVER,
    State,
    budget,
    crosses,
    mean_flips,
    worst_of_blocks,
)


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
    found = scores(evidence.counts, evidence.grid, epsilon, budget(epsilon, 12 * delta))
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
