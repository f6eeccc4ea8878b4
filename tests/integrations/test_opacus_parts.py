"""The parts of the Opacus audit on which validity and scores rest, on their own."""

import numpy as np
import pytest
import torch
from opacus.optimizers import DPOptimizer
from scipy import stats

from canaria import InputError
from canaria.integrations.opacus import _poisson
from canaria.integrations.opacus._internals import clipping_factors
from canaria.integrations.opacus._places import Places, SampleGradients
from canaria.integrations.opacus._poisson import Poisson
from canaria.training.canaries.witnesses import layout

CPU = torch.device("cpu")


def all_of(parameters: list[torch.nn.Parameter]) -> Places:
    """Every weight carries a canary."""
    sizes = [parameter.numel() for parameter in parameters]
    shapes = [(size,) for size in sizes]
    return Places(parameters, layout(shapes, sum(sizes), np.random.default_rng(0)))


def poisson(things: int, rate: float, width: int | None = None, seed: int = 0) -> Poisson:
    width = width or things
    return Poisson(np.arange(things) % width, width, rate, seed, CPU)


@pytest.mark.parametrize("rate", [0.003, 0.1, 0.7])
def test_every_canary_is_drawn_at_the_stated_rate(rate: float) -> None:
    """A canary drawn more often than the accountant believes would make the bound too high.

    Each of 40 canaries, each of the 64 steps drawn together, and pairs of neighbours; false-alarm rate 1e-4
    for each of the three.
    """
    source, steps = poisson(40, rate), 64 * 625
    drawn = np.array([source.counts().numpy().copy() for _ in range(steps)])
    assert set(np.unique(drawn)) <= {0.0, 1.0}
    by_canary = [stats.binomtest(int(k), steps, rate).pvalue for k in drawn.sum(axis=0)]
    assert min(by_canary) >= 1e-4 / 40
    by_step = [
        stats.binomtest(int(k), steps * 40 // 64, rate).pvalue for k in drawn.reshape(-1, 64, 40).sum((0, 2))
    ]
    assert min(by_step) >= 1e-4 / 64
    together = int((drawn[:, :-1] * drawn[:, 1:])[:, ::2].sum())
    assert stats.binomtest(together, steps * 20, rate**2).pvalue >= 1e-4


def test_rate_one_draws_all_and_shared_slots_are_counted() -> None:
    source = poisson(10, 1.0, width=4)
    assert all(source.counts().tolist() == [3, 3, 2, 2] for _ in range(40))
    assert poisson(1, 0.5, width=3).counts().shape == (3,)
    assert Poisson(np.arange(0), 5, 0.3, 0, CPU).counts().tolist() == [0] * 5


@pytest.mark.parametrize("most_gaps", [0, 2**23])
@pytest.mark.parametrize("rows", [1, 4])
def test_draws_of_several_steps_are_those_of_single_ones(
    most_gaps: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU, whose generator gives the same numbers one by one; also where memory is scarce."""
    several = Poisson(np.arange(50) % 20, 20, 0.2, 0, CPU)
    monkeypatch.setattr(_poisson, "_MOST_GAPS", most_gaps)
    monkeypatch.setattr(_poisson, "_ROWS", rows)
    single = Poisson(np.arange(50) % 20, 20, 0.2, 0, CPU)
    for _ in range(200):
        assert several.counts().tolist() == single.counts().tolist()


@pytest.mark.parametrize("done", [0, 1, 7, 8, 63, 64, 67, 128])
def test_draws_go_on_from_any_step(done: int) -> None:
    source = poisson(50, 0.2)
    for _ in range(done):
        source.counts()
    saved = source.state()
    expected = [source.counts().tolist() for _ in range(40)]
    again = poisson(50, 0.2, seed=99)
    again.restore(saved)
    assert [again.counts().tolist() for _ in range(40)] == expected
    with pytest.raises(InputError, match="another kind of device"):
        again.restore({"begun": torch.zeros(4), "used": 0})


def test_real_rows_are_summed_in_the_precision_of_the_weights() -> None:
    """Under autocast per-sample gradients are bfloat16, in which a sum of 16,000 rows is off by tens."""
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.zeros(50))
    rows = torch.rand(16_000, 50).bfloat16()
    weight.grad_sample = rows
    seen = SampleGradients([weight], all_of([weight])).sums(torch.ones(16_000))
    assert (seen - rows.float().sum(0)).abs().max() < 0.1
    assert (rows.sum(0).float() - rows.float().sum(0)).abs().max() > 1


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_real_rows_are_clipped_as_opacus_clips_them(kind: torch.dtype) -> None:
    """Rows of nearly equal norm are all rounded the same way in bfloat16, and the error grows with the batch."""
    torch.manual_seed(0)
    weights = [torch.nn.Parameter(torch.zeros(40)), torch.nn.Parameter(torch.zeros(8))]
    optimizer = DPOptimizer(
        torch.optim.SGD(weights), noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=3000
    )
    for weight in weights:
        rows = torch.rand(3000, weight.numel()) + 1
        weight.grad_sample = (0.9 * rows / rows.norm(dim=1, keepdim=True)).to(kind)
    seen = [
        SampleGradients([weight], all_of([weight])).sums(clipping_factors(optimizer)) for weight in weights
    ]
    optimizer.clip_and_accumulate()
    for weight, expected in zip(weights, seen, strict=True):
        assert torch.allclose(weight.summed_grad, expected, atol=1e-2)


def test_a_canary_that_rounding_swallows_is_not_counted() -> None:
    """It is not in the sum that gets the noise; to count it would make the bound too high."""
    parameter = torch.nn.Parameter(torch.zeros(20))
    places = all_of([parameter])
    parameter.summed_grad = torch.full((20,), 1e9)
    places.take_sums()
    places.add(places.spread(torch.ones(20)), 1.0)
    parameter.grad = parameter.summed_grad.clone()
    places.subtract_gradients(1.0)
    assert places.read(torch.empty(places.all)).tolist() == [0.0] * 20


def test_what_is_written_to_the_sums_later_does_not_matter() -> None:
    """Also if the gradient is the very sum, as where no noise is added."""
    parameter = torch.nn.Parameter(torch.zeros(20))
    places = all_of([parameter])
    parameter.summed_grad = torch.full((20,), 3.0)
    places.take_sums()
    places.add(places.spread(torch.ones(20)), 2.0)
    parameter.grad = parameter.summed_grad
    parameter.grad /= 10
    places.subtract_gradients(10.0)
    assert places.read(torch.empty(places.all)).tolist() == pytest.approx([-2.0] * 20)


def test_half_precision_is_compared_in_single_precision() -> None:
    parameter = torch.nn.Parameter(torch.zeros(20, dtype=torch.bfloat16))
    places = all_of([parameter])
    parameter.summed_grad = torch.full((20,), 256.0, dtype=torch.bfloat16)
    places.take_sums()
    parameter.grad = torch.full((20,), 1.0, dtype=torch.bfloat16)
    places.subtract_gradients(255.3)
    assert places.read(torch.empty(places.all)).tolist() == pytest.approx([0.7] * 20, abs=1e-4)


def test_rows_are_replaced_whatever_their_memory_looks_like() -> None:
    """As of convolutions with channels last."""
    parameter = torch.nn.Parameter(torch.zeros(2, 3, 4))
    places = Places([parameter], layout([(2, 3, 4)], 24, np.random.default_rng(0)))
    samples = SampleGradients([parameter], places)
    parameter.grad_sample = torch.zeros(5, 4, 3, 2).permute(0, 3, 2, 1)
    values = torch.arange(48.0).view(2, 24)
    samples.put(torch.tensor([1, 3]), values)
    assert torch.equal(parameter.grad_sample[[1, 3]].reshape(2, 24), values)
    assert samples.sums(torch.tensor([0, 1.0, 0, 2.0, 0])).tolist() == (values[0] + 2 * values[1]).tolist()
