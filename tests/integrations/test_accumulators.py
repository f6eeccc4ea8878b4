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
from canaria.training.accumulator import Accumulator, Totals
from canaria.training.canaries import Dense, Design, Dirac, hidden_bits
from canaria.training.witnesses import MOST_STEPS, layout


def by_numpy(specified: Accumulator, rows: np.ndarray, noise: np.ndarray, sigma: float) -> Totals:
    return specified.totals(rows, noise, np.full(len(rows), sigma))


def by_torch(specified: Accumulator, rows: np.ndarray, noise: np.ndarray, sigma: float) -> Totals:
    kept = in_torch.Accumulator(specified, torch.device("cpu"))
    for row in np.concatenate([rows, noise], axis=1):
        kept.next_row().copy_(torch.tensor(row))
        kept.add(torch.zeros(len(row)), scale=1.0, clip_norm=1.0, stated=sigma)
    return kept.totals()


def by_jax(specified: Accumulator, rows: np.ndarray, noise: np.ndarray, sigma: float) -> Totals:
    kept = in_jax.Accumulator(specified, sigma)
    state = jax.jit(
        lambda *steps: jax.lax.scan(lambda now, step: (kept.add(now, *step), None), kept.begin(), steps)
    )(jnp.asarray(rows, jnp.float32), jnp.asarray(noise, jnp.float32))[0]
    return kept.totals(state)


each_framework = pytest.mark.parametrize("accumulated", [by_torch, by_jax])


class Run(NamedTuple):
    """What an accumulator gets."""

    specified: Accumulator
    rows: np.ndarray
    noise: np.ndarray
    sigma: float


def drawn(
    design: Design,
    shapes: list[tuple[int, ...]],
    rate: float,
    sigma: float,
    steps: int,
    factors: list[float] | None = None,
) -> Run:
    """Steps of DP-SGD, the noise of each parameter multiplied by a factor."""
    rng, bits = np.random.default_rng(0), hidden_bits(design.count, 0)
    laid = layout(shapes, design.coordinates, rng)
    taking = (rng.random((steps, design.count)) < rate) & (bits > 0)
    if isinstance(design, Dense):
        rows = taking @ design.gradients()
    else:
        rows = np.zeros((steps, design.coordinates))
        for canary in range(design.count):
            rows[:, canary % design.coordinates] += taking[:, canary]
    rows += rng.normal(size=rows.shape) * sigma * np.repeat(factors or [1.0] * len(shapes), laid.layers)
    noise = rng.normal(size=(steps, len(laid.roles.index))) * sigma
    return Run(Accumulator.of(design, laid.layers, laid.roles, sample_rate=rate), rows, noise, sigma)


@each_framework
@pytest.mark.parametrize("steps", [1, 2, 3, 16, 37, 64])
def test_after_any_number_of_steps(accumulated: Callable[..., Totals], steps: int) -> None:
    run = drawn(Dirac(120, 2), [(10, 10), (50,)], 0.1, 2.4, steps)
    assert_same(accumulated(*run), by_numpy(*run))


@each_framework
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize(("rate", "sigma"), [(0.1, 0.4), (0.5, 0.1), (1.0, 1.0)])
def test_at_any_rate_and_noise(
    accumulated: Callable[..., Totals], most: int, rate: float, sigma: float
) -> None:
    """With and without products of several steps in torch."""
    run = drawn(Dirac(60 * most, most), [(50,), (90,)], rate, sigma, 37)
    assert_same(accumulated(*run), by_numpy(*run))


@each_framework
@pytest.mark.parametrize("factors", [[1.0, 0.1, 0.0], [3.0, 1.0, 1.0]])
def test_where_the_noise_of_a_parameter_is_off(
    accumulated: Callable[..., Totals], factors: list[float]
) -> None:
    """Parameters with more and with fewer coordinates than it takes to see it."""
    run = drawn(Dirac(400, 2), [(150,), (140,), (20,)], 0.1, 2.0, 40, factors)
    found = run.specified.believed_factors(run.rows[:16], np.full(16, 2.0))
    assert min(found) < 0.4 or max(found) > 2.5
    assert_same(accumulated(*run), by_numpy(*run))


@each_framework
def test_many_steps(accumulated: Callable[..., Totals]) -> None:
    """More than are kept apart."""
    run = drawn(Dirac(8), [(40,)], 0.1, 1.0, MOST_STEPS + 33)
    assert_same(accumulated(*run), by_numpy(*run), rough=20)


@each_framework
@pytest.mark.parametrize("design", [Dense(50, 70), Dense(200, 30)], ids=repr)
def test_dense_canaries(accumulated: Callable[..., Totals], design: Dense) -> None:
    run = drawn(design, [(100,)], 0.1, 1.0, 35)
    assert_same(accumulated(*run), by_numpy(*run))


@pytest.mark.parametrize(
    "sigmas", [np.repeat([0.5, 3.0], 20), np.linspace(2, 0.3, 37)], ids=["two", "linear"]
)
def test_noise_that_changes_in_torch(sigmas: np.ndarray) -> None:
    """Every step has its own noise in the table; parameters may be off at the same time."""
    run = drawn(Dirac(400, 2), [(150,), (140,), (20,)], 0.1, 1.0, len(sigmas), [1.0, 0.1, 1.0])
    rows, noise = run.rows * sigmas[:, None], run.noise * sigmas[:, None]
    kept = in_torch.Accumulator(run.specified, torch.device("cpu"))
    for row, sigma in zip(np.concatenate([rows, noise], axis=1), sigmas, strict=True):
        kept.next_row().copy_(torch.tensor(row))
        kept.add(torch.zeros(len(row)), scale=1.0, clip_norm=1.0, stated=float(sigma))
    assert kept.noise_changes
    assert_same(kept.totals(), run.specified.totals(rows, noise, sigmas))


def assert_same(found: Totals, expected: Totals, rough: float = 1.0) -> None:
    assert np.allclose(found.sums, expected.sums, atol=1e-4 * rough)
    assert found.table.shape == expected.table.shape
    assert np.allclose(found.table, expected.table, rtol=1e-4, atol=2e-3 * rough)
    got, wanted = found.witnessed, expected.witnessed
    assert got.steps == wanted.steps
    assert got.by_step == pytest.approx(wanted.by_step, rel=1e-4)
    assert got.by_place == pytest.approx(wanted.by_place, rel=1e-4)
    assert np.array_equal(got.cells, wanted.cells)
    assert np.array_equal(got.signs, wanted.signs)


SHAPES = [(7, 11), (), (1,), (40,)]


def test_canaries_and_witnesses_have_the_same_places() -> None:
    """Small parameters are not left out in either, and scalars count."""
    laid = layout(SHAPES, 30, np.random.default_rng(0))
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    in_torch, in_jax = places_in_torch.Places(parameters, laid), places_in_jax.Places(laid)
    assert in_torch.layers == in_jax.layers == laid.layers
    marked, first = [], 0
    for shape in SHAPES:
        size = int(np.prod(shape))
        marked.append(np.arange(first, first + size, dtype=np.float32).reshape(shape))
        first += size
    canaries, witnesses = (
        np.concatenate([one.ravel()[some] for one, some in zip(marked, places, strict=True)]).tolist()
        for places in (laid.canaries, laid.witnesses)
    )
    for parameter, numbers in zip(parameters, marked, strict=True):
        parameter.grad = torch.tensor(numbers)
    assert in_torch.read("grad", torch.empty(in_torch.all)).tolist() == [*canaries, *witnesses]
    leaves = [jnp.asarray(numbers) for numbers in marked]
    assert in_jax.read(leaves).tolist() == canaries
    assert in_jax.read_witnesses(leaves).tolist() == witnesses
