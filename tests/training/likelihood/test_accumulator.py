"""The specification that every integration follows, on its own."""

import math

import numpy as np
import pytest

from canaria.training.canaries.designs import Dirac
from canaria.training.canaries.witnesses import MOST_STEPS, Seen, layout, shares
from canaria.training.likelihood.accumulator import Accumulator


@pytest.mark.parametrize("seed", range(20))
def test_shares_add_up_fit_and_leave_no_parameter_out(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 1000, rng.integers(1, 30)).tolist()
    count = int(rng.integers(1, sum(sizes) + 1))
    given = shares(sizes, count)
    assert sum(given) == count
    assert all(0 <= share <= size for share, size in zip(given, sizes, strict=True))
    if count >= len(sizes):
        assert min(given) >= 1
    if count >= 4 * len(sizes):
        assert all(share >= min(size, 4) for share, size in zip(given, sizes, strict=True))


@pytest.mark.parametrize("seed", range(10))
def test_canaries_and_witnesses_lie_apart_within_their_parameters(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shapes = [(1,), (30, 20), (30,), (0,), (), (2,), (8, 3, 3, 3)]
    count = int(rng.integers(1, 800))
    found = layout(shapes, count, rng)
    assert sum(found.layers) == count
    for shape, canaries, witnesses in zip(shapes, found.canaries, found.witnesses, strict=True):
        both = np.concatenate([canaries, witnesses])
        assert len(np.unique(both)) == len(both)
        assert ((both >= 0) & (both < math.prod(shape))).all()
    assert len(found.roles.index) == sum(map(len, found.witnesses))
    for place, some in zip(found.roles.parameter, np.concatenate(found.witnesses), strict=True):
        assert some < math.prod(shapes[place])


def test_canaries_are_scattered() -> None:
    """Over the whole of a parameter, not side by side; other seeds put them elsewhere."""
    one, other = (layout([(100, 100)], 500, np.random.default_rng(seed)).canaries[0] for seed in (0, 1))
    for places in (one, other):
        assert np.histogram(places, 10, (0, 10_000))[0].min() >= 20
        assert np.diff(places).max() > 50
    assert len(np.intersect1d(one, other)) < 60


def test_where_weights_are_scarce_canaries_come_first() -> None:
    found = layout([(20, 10), (10,)], 210, np.random.default_rng(0))
    assert sum(found.layers) == 210
    assert len(found.roles.index) == 0
    found = layout([(20, 10), (10,)], 200, np.random.default_rng(0))
    assert len(found.roles.index) == 10


def test_canaries_with_a_parameter_of_their_own_fill_it() -> None:
    shapes = [(20, 10), (50,), (50,), (10,)]
    found = layout(shapes, 50, np.random.default_rng(0), home=[1, 2], coarse=[3])
    assert [len(some) for some in found.canaries] == [0, 50, 50, 0]
    assert found.layers == (50,)
    assert (found.spans == 2).all()
    assert [len(some) for some in found.witnesses] == [200, 0, 0, 0]
    assert found.roles.whole.tolist() == [0, 1, 2]


def test_some_canaries_span_several_parameters() -> None:
    """One weight of each, none used twice, and small parameters at most to the half."""
    shapes = [(40, 30), (40,), (40, 30), (3,), (1,)]
    found = layout(shapes, 400, np.random.default_rng(0), spanning=16)
    assert sum(found.layers) == 400
    assert found.layers[-1] == 16
    assert (found.spans[:-16] == 1).all()
    assert (found.spans[-16:] >= 2).all()
    assert found.spans.max() == 3
    for canaries, coordinates, witnesses in zip(
        found.canaries, found.coordinates, found.witnesses, strict=True
    ):
        assert len(np.unique(np.concatenate([canaries, witnesses]))) == len(canaries) + len(witnesses)
        assert len(np.unique(coordinates)) == len(coordinates)
    assert len(found.canaries[3]) <= 2
    for seed in range(20):
        tight = layout([(8, 6), (8,), (5, 5), (4,)], 80, np.random.default_rng(seed), spanning=10)
        assert (tight.spans >= 1).all()
        assert sum(map(len, tight.canaries)) <= 85
    alone = layout([(100,)], 64, np.random.default_rng(0), spanning=8)
    assert (alone.spans == 1).all()


def test_aligned_witnesses_of_equal_parameters_are_the_same() -> None:
    shapes = [(40, 30), (40,), (40, 30), (3,)]
    roles = layout(shapes, 100, np.random.default_rng(0)).roles
    aligned = [set(roles.index[(roles.parameter == place) & (roles.index >= 0)]) for place in range(4)]
    assert aligned[0] == aligned[2]
    assert {0, 1, 2, 3, 30, 31, 600, 601} <= aligned[0]
    assert len(aligned[3]) == 1


def test_of_many_steps_squares_are_added_up_and_the_first_signs_kept() -> None:
    roles = layout([(10, 10)], 20, np.random.default_rng(0)).roles
    values = np.random.default_rng(1).normal(size=(MOST_STEPS + 100, len(roles.index)))
    seen = Seen.of(values, values[:, :1], roles)
    assert seen.steps == MOST_STEPS + 100
    squares = (values[:, ~roles.shaped] ** 2).sum(axis=1)
    assert seen.by_step[7] == pytest.approx(squares[7] + squares[MOST_STEPS + 7])
    assert seen.by_step[200] == pytest.approx(squares[200])
    assert len(seen.signs) == len(seen.totals) == MOST_STEPS
    assert seen.totals[5, 0] == values[5, 0] / 10
    assert seen.cells.sum() == roles.shaped.sum() * seen.steps


def test_a_parameter_without_its_noise_is_believed_to_have_none() -> None:
    rng = np.random.default_rng(0)
    laid = layout([(300,), (300,)], 200, rng)
    found = Accumulator.of(Dirac(200), laid.layers, laid.roles, sample_rate=0.1)
    noise = rng.normal(size=(16, 200)) * np.repeat([2.0, 0.2], 100)
    first, second = found.believed_factors((rng.random((16, 200)) < 0.05) + noise, np.full(16, 2.0))
    assert first == 1.0
    assert second < 0.3
