"""The specification that every integration follows, on its own."""

import itertools

import numpy as np
import pytest

from canaria.training.accumulator import Accumulator, places, shares
from canaria.training.canaries import Dense, Dirac, hidden_bits


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


@pytest.mark.parametrize("seed", range(5))
def test_places_lie_within_their_parameters(seed: int) -> None:
    sizes, count = [1, 700, 30, 0, 2], 200
    chosen = places(sizes, count + seed)
    assert [some.stop - some.start for some in chosen] == shares(sizes, count + seed)
    assert all(0 <= some.start <= some.stop <= size for some, size in zip(chosen, sizes, strict=True))


def made(design: Dirac | Dense, layers: tuple[int, ...], seed: int = 0) -> tuple[Accumulator, np.ndarray]:
    bits = hidden_bits(design.count, seed)
    return Accumulator.of(design, bits, layers, sample_rate=0.1, noise_multiplier=2.0), bits


def test_steps_are_compared_where_no_canary_is_included() -> None:
    """Of every parameter; of many coordinates, some thousands."""
    design, layers = Dirac(40_000, 2), (3, 19_900, 97)
    found, bits = made(design, layers)
    included = np.bincount(np.flatnonzero(bits > 0) % 20_000, minlength=20_000)
    assert (included[found.compared] == 0).all()
    assert 1000 <= len(found.compared) <= 4200
    quiet = np.flatnonzero(included == 0)
    for first, last in ((0, 3), (3, 19_903), (19_903, 20_000)):
        inside = ((first <= quiet) & (quiet < last)).sum()
        assert ((first <= found.compared) & (found.compared < last)).sum() >= min(inside, 8)


@pytest.mark.parametrize(
    ("design", "directions"),
    [(Dense(50, 70), None), (Dense(400, 500), 256), (Dense(300, 20), 0), (Dense(2, 4), None)],
    ids=repr,
)
def test_directions_of_dense_canaries_see_none_that_is_included(
    design: Dense, directions: int | None
) -> None:
    found, bits = made(design, (design.coordinates,))
    assert found.directions is not None
    expected = design.coordinates - int((bits > 0).sum()) if directions is None else directions
    assert found.directions.shape == (design.coordinates, expected)
    assert np.abs(design.gradients()[bits > 0] @ found.directions).max(initial=0) <= 1e-12
    assert np.allclose(found.directions.T @ found.directions, np.eye(expected), atol=1e-12)


def test_a_parameter_without_its_noise_is_believed_to_have_none() -> None:
    rng = np.random.default_rng(0)
    found, _ = made(Dirac(200), (100, 100))
    noise = rng.normal(size=(16, 200)) * np.repeat([2.0, 0.2], 100)
    first, second = found.believed_noise((rng.random((16, 200)) < 0.05) + noise)
    assert first == 2.0
    assert second < 0.6


@pytest.mark.parametrize("layers", [(40, 40), (100, 5, 30, 30), (7,), (3, 2, 1, 1, 1)], ids=str)
def test_twins_have_the_same_index_in_two_parameters(layers: tuple[int, ...]) -> None:
    """How often the differences there have a sign, and the same one, by brute force."""
    design, rng = Dirac(sum(layers)), np.random.default_rng(0)
    found, bits = made(design, layers, seed=1)
    differences = np.round(rng.normal(size=(6, len(found.compared))), 1)
    have, agree = found.signs(differences)
    ends = np.cumsum([0, *layers])
    at = {int(place): column for column, place in enumerate(found.compared)}
    assert all(bits[place] < 0 for place in at)
    for one, other in itertools.combinations(range(len(layers)), 2):
        counted = [0, 0]
        for index in range(min(layers[one], layers[other])):
            first, second = int(ends[one]) + index, int(ends[other]) + index
            if first in at and second in at:
                product = np.sign(differences[:, at[first]] * differences[:, at[second]])
                counted[0] += int(np.abs(product).sum())
                counted[1] += int(product.sum())
        assert (have[one, other], agree[one, other]) == tuple(counted)
