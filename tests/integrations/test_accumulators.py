"""One dialect: what Opacus and JAX audits keep of the noisy sums is what `canaria.training.likelihood.accumulator` says."""

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
from canaria.training.canaries.designs import Dense, Design, Dirac, hidden_bits
from canaria.training.canaries.witnesses import MOST_STEPS, layout
from canaria.training.likelihood.accumulator import Accumulator, Totals


def by_numpy(specified: Accumulator, steps: "Steps", sigma: float) -> Totals:
    return specified.totals(*steps, np.full(len(steps.rows), sigma))


def by_torch(specified: Accumulator, steps: "Steps", sigma: float) -> Totals:
    kept = in_torch.Accumulator(specified, torch.device("cpu"))
    for one in zip(*steps, strict=True):
        add_to(kept, *one, sigma)
    return kept.totals()


def add_to(
    kept: in_torch.Accumulator, row: np.ndarray, noise: np.ndarray, whole: np.ndarray, sigma: float
) -> None:
    """A step with clip norm 2, half of it canaries."""
    read, totals = kept.next_row()
    read.copy_(torch.tensor(-2 * np.concatenate([row / 2, noise])))
    totals.copy_(torch.tensor(-2 * whole))
    kept.add(torch.tensor(row), clip_norm=2.0, stated=sigma, totalled=True)


def by_jax(specified: Accumulator, steps: "Steps", sigma: float) -> Totals:
    kept = in_jax.Accumulator(specified, sigma)
    state = jax.jit(
        lambda *steps: jax.lax.scan(lambda now, step: (kept.add(now, *step), None), kept.begin(), steps)
    )(*(jnp.asarray(part, jnp.float32) for part in steps))[0]
    return kept.totals(state)


each_framework = pytest.mark.parametrize("accumulated", [by_torch, by_jax])


class Steps(NamedTuple):
    """What an accumulator gets: at canaries, at witnesses, and of whole parameters, a row for each step."""

    rows: np.ndarray
    noise: np.ndarray
    whole: np.ndarray


class Run(NamedTuple):
    """An accumulator, and what it gets."""

    specified: Accumulator
    steps: Steps
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
    whole = rng.normal(size=(steps, len(laid.roles.sizes))) * sigma * np.sqrt(laid.roles.sizes)
    specified = Accumulator.of(design, laid.layers, laid.roles, sample_rate=rate)
    return Run(specified, Steps(rows, noise, whole), sigma)


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
    found = run.specified.believed_factors(run.steps.rows[:16], np.full(16, 2.0))
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
    steps = [part * sigmas[:, None] for part in run.steps]
    kept = in_torch.Accumulator(run.specified, torch.device("cpu"))
    for *one, sigma in zip(*steps, sigmas.tolist(), strict=True):
        add_to(kept, *one, sigma)
    assert kept.noise_changes
    assert_same(kept.totals(), run.specified.totals(*steps, sigmas))


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
    assert got.totals == pytest.approx(wanted.totals, rel=1e-4, abs=1e-6)


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
    in_torch.forget_sums()
    in_torch.subtract_gradients(-1.0)
    assert in_torch.read(torch.empty(in_torch.all)).tolist() == [*canaries, *witnesses]
    leaves = [jnp.asarray(numbers) for numbers in marked]
    assert in_jax.read(leaves).tolist() == canaries
    assert in_jax.read_witnesses(leaves).tolist() == witnesses
