"""One dialect: what Opacus and JAX audits keep of the noisy sums is what `canaria.training.accumulator` says."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp

from canaria.integrations.jax_privacy import _accumulator as in_jax
from canaria.integrations.jax_privacy import _places as places_in_jax
from canaria.integrations.opacus import _accumulator as in_torch
from canaria.integrations.opacus import _places as places_in_torch
from canaria.training.accumulator import Accumulator, Last, places
from canaria.training.canaries import Dense, Design, Dirac, hidden_bits
from canaria.training.differences import Pairs


class Seen(NamedTuple):
    """What an accumulator has of all steps."""

    sums: np.ndarray
    table: np.ndarray
    pairs: Pairs | None


def by_numpy(specified: Accumulator, rows: np.ndarray) -> Seen:
    stated = np.full(len(rows), specified.noise_multiplier)
    totals = specified.totals(rows, stated)
    last = Last(rows[-1], stated[0], stated[0] ** 2) if len(rows) % 2 else None
    return Seen(totals.sums, totals.table, specified.pairs(totals, last))


def by_torch(specified: Accumulator, rows: np.ndarray) -> Seen:
    kept = in_torch.Accumulator(specified, torch.device("cpu"))
    for row in rows:
        kept.next_row().copy_(torch.tensor(row))
        kept.add(0.0, scale=1.0, clip_norm=1.0, stated=specified.noise_multiplier)
    totals = kept.totals()
    return Seen(totals.sums, totals.table, kept.pairs(totals))


def by_jax(specified: Accumulator, rows: np.ndarray) -> Seen:
    kept = in_jax.Accumulator(specified)
    state = jax.jit(
        lambda rows: jax.lax.scan(lambda now, row: (kept.add(now, row), None), kept.begin(), rows)
    )(jnp.asarray(rows, jnp.float32))[0]
    return Seen(*kept.totals(state))


each_framework = pytest.mark.parametrize("accumulated", [by_torch, by_jax])


def drawn(
    design: Design, layers: tuple[int, ...], rate: float, sigma: float, steps: int, factors: list[float]
) -> tuple[Accumulator, np.ndarray]:
    """Steps of DP-SGD, the noise of each parameter multiplied by a factor."""
    rng, bits = np.random.default_rng(0), hidden_bits(design.count, 0)
    drawn = (rng.random((steps, design.count)) < rate) & (bits > 0)
    if isinstance(design, Dense):
        rows = drawn @ design.gradients()
    else:
        rows = np.zeros((steps, design.coordinates))
        for canary in range(design.count):
            rows[:, canary % design.coordinates] += drawn[:, canary]
    rows += rng.normal(size=rows.shape) * sigma * np.repeat(factors, layers)
    return Accumulator.of(design, bits, layers, sample_rate=rate, noise_multiplier=sigma), rows


@each_framework
@pytest.mark.parametrize("steps", [1, 2, 3, 16, 37, 64])
def test_after_any_number_of_steps(accumulated: Callable[..., Seen], steps: int) -> None:
    specified, rows = drawn(Dirac(120, 2), (40, 20), 0.1, 2.4, steps, [1.0, 1.0])
    assert_same(accumulated(specified, rows), by_numpy(specified, rows))


@each_framework
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 0.4), (0.5, 0.1), (1.0, 1.0)])
def test_at_any_rate_and_noise(
    accumulated: Callable[..., Seen], most: int, rate: float, sigma: float
) -> None:
    """With and without products of several steps in torch."""
    specified, rows = drawn(Dirac(60 * most, most), (20, 40), rate, sigma, 37, [1.0, 1.0])
    assert_same(accumulated(specified, rows), by_numpy(specified, rows))


@each_framework
@pytest.mark.parametrize("factors", [[1.0, 0.1, 0.0], [3.0, 1.0, 1.0]])
def test_where_the_noise_of_a_parameter_is_off(
    accumulated: Callable[..., Seen], factors: list[float]
) -> None:
    """Parameters with more and with fewer coordinates than it takes to see it."""
    specified, rows = drawn(Dirac(400, 2), (100, 90, 10), 0.1, 2.0, 40, factors)
    assert min(specified.believed_noise(rows[:16])) < 0.8 or max(specified.believed_noise(rows[:16])) > 5
    assert_same(accumulated(specified, rows), by_numpy(specified, rows))


@each_framework
def test_more_coordinates_than_are_compared(accumulated: Callable[..., Seen]) -> None:
    specified, rows = drawn(Dirac(10_000), (9_000, 995, 5), 0.1, 1.0, 21, [1.0, 1.0, 1.0])
    assert specified.places < 4200
    assert_same(accumulated(specified, rows), by_numpy(specified, rows))


@each_framework
@pytest.mark.parametrize("design", [Dense(50, 70), Dense(200, 30)], ids=repr)
def test_dense_canaries(accumulated: Callable[..., Seen], design: Dense) -> None:
    specified, rows = drawn(design, (design.coordinates,), 0.1, 1.0, 35, [1.0])
    assert (specified.places > 0) == (design.coordinates == 70)
    assert_same(accumulated(specified, rows), by_numpy(specified, rows))


def assert_same(found: Seen, expected: Seen) -> None:
    assert np.allclose(found.sums, expected.sums, atol=1e-4)
    assert found.table.shape == expected.table.shape
    assert np.allclose(found.table, expected.table, rtol=1e-4, atol=2e-3)
    assert (found.pairs is None) == (expected.pairs is None)
    if found.pairs is not None and expected.pairs is not None:
        assert found.pairs.pairs == expected.pairs.pairs
        assert (found.pairs.count, found.pairs.places) == (expected.pairs.count, expected.pairs.places)
        assert (found.pairs.odd, found.pairs.twins) == (expected.pairs.odd, expected.pairs.twins)
        assert found.pairs.extremes == pytest.approx(expected.pairs.extremes, rel=1e-4)
        assert len(found.pairs.by_parameter) == len(expected.pairs.by_parameter)
        for got, wanted in zip(found.pairs.by_parameter, expected.pairs.by_parameter, strict=True):
            assert got == pytest.approx(wanted, rel=1e-4, abs=1e-6)


SHAPES = [(7, 11), (), (1,), (40,)]


def test_canaries_have_the_same_places() -> None:
    """Small parameters are not left out in either, and scalars count."""
    sizes = [int(np.prod(shape)) for shape in SHAPES]
    expected = places(sizes, 30)
    in_both = [
        places_in_torch.Places([torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES], 30),
        places_in_jax.Places(SHAPES, 30),
    ]
    marked = [np.arange(float(size)).reshape(shape) for size, shape in zip(sizes, SHAPES, strict=True)]
    values = np.concatenate([np.arange(size)[some] for size, some in zip(sizes, expected, strict=True)])
    for found in in_both:
        assert found.layers == tuple(some.stop - some.start for some in expected)
        assert min(found.layers) == 1
    (from_torch, from_jax), out = in_both, torch.empty(30)
    for (parameter, _), numbers in zip(from_torch._slices, marked, strict=True):
        parameter.grad = torch.tensor(numbers, dtype=torch.float32)
    from_torch.read("grad", out)
    assert out.tolist() == values.tolist()
    assert from_jax.read([jnp.asarray(numbers) for numbers in marked]).tolist() == values.tolist()
