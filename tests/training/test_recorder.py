"""The recorder: any loop, any arrays, the same numbers as an attached audit keeps."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from dp_accounting.pld import privacy_loss_distribution
from jax import numpy as jnp
from scipy import stats

from canaria import InputError
from canaria.claims import DpSgd
from canaria.training import Recorder
from canaria.training.accumulator import Accumulator, table_of

SHAPES = {"weight": (30, 40), "bias": (40,)}
RATE, SIGMA, STEPS = 0.1, 1.0, 50
Change = Callable[[dict[str, np.ndarray], np.random.Generator], dict[str, np.ndarray]]


def trained(
    seed: int,
    *,
    noise: float = SIGMA,
    weight: float = 1.0,
    clip: float = 2.0,
    steps: int = STEPS,
    convert: Callable[[np.ndarray], Any] = np.asarray,
) -> Recorder:
    """A loop with real rows; `noise` is what is added, `weight` by what canaries are multiplied."""
    rng = np.random.default_rng(seed)
    parameters = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    recorder = Recorder(
        parameters, canaries=600, sample_rate=RATE, noise_multiplier=SIGMA, clip_norm=clip, rng=seed
    )
    for _ in range(steps):
        real = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
        canaries = recorder.draw()
        noisy = {
            name: convert(real[name] + weight * canaries[name] + clip * noise * rng.normal(size=shape))
            for name, shape in SHAPES.items()
        }
        recorder.see(noisy, real={name: convert(one) for name, one in real.items()})
    return recorder


def test_correct_loops_conform() -> None:
    """Kolmogorov and Smirnov at 1e-4 over 100 runs."""
    found = [trained(seed, steps=20).conformance().p_value for seed in range(100)]
    assert stats.kstest(found, "uniform", alternative="greater").pvalue > 1e-4
    assert min(found) > 1e-4


@pytest.mark.parametrize(("fault", "part"), [({"noise": 0.9}, "size"), ({"weight": 3.0}, "weight")])
def test_faults_are_found(fault: dict[str, float], part: str) -> None:
    found = trained(0, **fault).conformance()
    assert found.p_value < 1e-6
    assert found.parts[part] < 1e-6


@pytest.mark.parametrize(
    "convert", [torch.tensor, jnp.asarray, lambda one: torch.tensor(one).requires_grad_()]
)
def test_arrays_of_every_framework_are_read(convert: Callable[[np.ndarray], Any]) -> None:
    plain, other = trained(3, steps=20), trained(3, steps=20, convert=convert)
    assert other.recording().sums == pytest.approx(plain.recording().sums, abs=1e-3)
    assert other.bound(1e-5).epsilon == pytest.approx(plain.bound(1e-5).epsilon, abs=0.05)


def test_what_is_kept_is_the_specification() -> None:
    """Whatever the number of steps: 16 are held back."""
    for steps in (3, 16, 37):
        recorder = trained(1, steps=steps)
        recording = recorder.recording()
        assert (recording.steps, recorder.steps) == (steps, steps)
        assert recording.roles is not None
    rng = np.random.default_rng(0)
    recorder = Recorder(np.zeros(200), canaries=100, sample_rate=RATE, noise_multiplier=SIGMA, rng=0)
    seen = []
    for _ in range(20):
        canaries, noise = recorder.draw(), rng.normal(size=200)
        recorder.see(canaries + noise, real=np.zeros(200))
        seen.append((canaries + noise)[recorder._laid.canaries[0]])
    specified = Accumulator.of(
        recorder._design, recorder._laid.layers, recorder._laid.roles, sample_rate=RATE
    )
    expected = specified.likelihoods(np.array(seen), np.ones(20), [1.0])
    assert recorder.recording().table == pytest.approx(table_of(expected))


def test_the_report_is_as_everywhere() -> None:
    result = trained(0).report(claimed=3.0, delta=1e-5)
    assert result.refuted is False
    assert len(result.rungs) == 4
    assert "what becomes of the noisy sum" in result.facts["untouched"]
    broken = trained(0, noise=0.25).report(claimed=2.0, delta=1e-5, rungs=False)
    assert broken.refuted
    assert broken.alarming


def test_nothing_that_is_drawn_tells_the_bits_of_others() -> None:
    """Only included canaries ever add something, each on a weight of its own, and each by its own coins."""
    recorder = Recorder(
        [np.zeros(50), np.zeros((5, 5))], canaries=60, sample_rate=0.5, noise_multiplier=1, rng=0
    )
    added = []
    for _ in range(40):
        one = recorder.draw()
        recorder.see(one, real=[np.zeros(50), np.zeros((5, 5))])
        added.append(np.concatenate([part.ravel() for part in one]))
    ever = np.array(added).any(axis=0)
    assert ever.sum() == (recorder.recording().bits > 0).sum()
    assert set(np.unique(added)) == {0.0, 1.0}


def users(seed: int, *, rows: int = 4, sigma: float = 2.0, steps: int = 10) -> Recorder:
    """A loop in which canaries are users of several rows, each drawn at rate 1/2."""
    rng = np.random.default_rng([1, seed])
    recorder = Recorder(
        np.zeros(900),
        canaries=500,
        sample_rate=0.5,
        noise_multiplier=sigma,
        unit="user",
        rows=rows,
        rng=seed,
    )
    for _ in range(steps):
        real = rng.normal(size=900)
        recorder.see(real + recorder.draw() + rng.normal(0, sigma, 900), real=real)
    return recorder


def epsilon_of_users(*, rows: int, sigma: float, steps: int, delta: float) -> float:
    """By the accountant: in every step the number of rows that take part is binomial."""
    numbers = np.arange(rows + 1)
    chances = stats.binom.pmf(numbers, rows, 0.5)
    once = privacy_loss_distribution.from_mixture_gaussian_mechanism(
        sigma, numbers.tolist(), chances.tolist(), value_discretization_interval=1e-3
    )
    return float(once.self_compose(steps).get_epsilon_for_delta(delta))


def test_users_of_several_rows_conform_and_leak_more_than_rows() -> None:
    recorder = users(0)
    result = recorder.report(claimed=22.0, delta=1e-5)
    assert result.refuted is False
    assert result.facts["unit"].startswith("a user of 4 rows, each clipped and drawn by itself")
    assert "to someone who knows the other users" in str(result)
    assert result.rungs == ()
    assert result.bound.epsilon > DpSgd(2.0, 0.5, 10).epsilon_at(1e-5)
    found = [users(seed, steps=3).conformance() for seed in range(40)]
    assert min(one.p_value for one in found) > 1e-4
    assert np.mean([one.weight for one in found]) == pytest.approx(1, abs=0.02)
    with pytest.raises(InputError, match="the family dpsgd is of single rows, not of users of 4"):
        recorder.bound(1e-5, family="dpsgd")
    with pytest.raises(
        InputError, match="about single rows, the bound about users of 4: give the ε and δ of"
    ):
        recorder.report(DpSgd(2.0, 0.5, 10), delta=1e-5)


@pytest.mark.parametrize("rows", [2, pytest.param(5, marks=pytest.mark.full)])
def test_users_are_never_over_claimed(rows: int) -> None:
    """20 audits at 95%: 6 or more are too high with probability 4e-4 at most, if bounds hold."""
    true = epsilon_of_users(rows=rows, sigma=2.0 * rows, steps=1, delta=1e-2)
    found = [users(seed, rows=rows, sigma=2.0 * rows, steps=1).bound(1e-2).epsilon for seed in range(20)]
    assert sum(one > true for one in found) <= 5


def test_the_table_of_users_is_the_likelihood_of_all_their_rows() -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(
        np.zeros(50), canaries=20, sample_rate=0.3, noise_multiplier=1.5, unit="user", rows=3, rng=0
    )
    values, expected = [], np.zeros(20)
    numbers = np.arange(4)
    for _ in range(5):
        seen = recorder.draw() + rng.normal(0, 1.5, 50)
        recorder.see(seen, real=np.zeros(50))
        values.append(seen[recorder._laid.canaries[0]])
    for one in values:
        likely = stats.norm.pdf(one[:, None], numbers, 1.5) @ stats.binom.pmf(numbers, 3, 0.3)
        expected += np.log(likely / stats.norm.pdf(one, 0, 1.5))
    table = recorder.recording().table
    assert table is not None
    assert table[:, 1] == pytest.approx(expected)


def test_canaries_one_by_one_are_those_of_the_sum() -> None:
    """And as many take part whatever their bits, since excluded ones do too."""
    made = {"canaries": 60, "sample_rate": 0.5, "noise_multiplier": 1.0, "clip_norm": 3.0, "rng": 4}
    shapes = [np.zeros(50), np.zeros((5, 5))]
    together, apart = Recorder(shapes, **made), Recorder(shapes, **made)
    total = [np.zeros(50), np.zeros(25)]
    each = apart.draw_each()
    for one in each:
        total[one.parameter][one.place] += 3.0 * one.included
    for summed, added in zip(total, together.draw(), strict=True):
        assert summed == pytest.approx(added.ravel())
    assert 0 < sum(one.included for one in each) < len(each)
    with pytest.raises(InputError, match="draw was called twice"):
        apart.draw()


def test_misuse_is_one_line() -> None:
    made = {"canaries": 10, "sample_rate": 0.5, "noise_multiplier": 1.0}
    recorder = Recorder(np.zeros(20), **made)
    with pytest.raises(InputError, match="draw what canaries add before every step"):
        recorder.see(np.zeros(20), real=np.zeros(20))
    recorder.draw()
    with pytest.raises(InputError, match="draw was called twice"):
        recorder.draw()
    with pytest.raises(
        InputError, match=r"noisy_sum must be shaped as parameters are, \[\(20,\)\], got \[\(3,\)\]"
    ):
        recorder.see(np.zeros(3), real=np.zeros(20))
    with pytest.raises(InputError, match="canaries must be at most the number of weights, 5, got 10"):
        Recorder(np.zeros(5), **made)
    with pytest.raises(InputError, match="sample_rate must be above 0"):
        Recorder(np.zeros(50), **{**made, "sample_rate": 0})
    with pytest.raises(InputError, match="clip_norm must be positive"):
        Recorder(np.zeros(50), **made, clip_norm=0)
    with pytest.raises(InputError, match="unit must be row, user or client, got 'person'"):
        Recorder(np.zeros(50), **made, unit="person")
    with pytest.raises(InputError, match="several rows are a user: give unit='user', got 'row'"):
        Recorder(np.zeros(50), **made, rows=2)
    with pytest.raises(InputError, match="parameters must be an array, or a list or dict of arrays"):
        Recorder(["a"], **made)
    with pytest.raises(InputError, match="no training step was seen"):
        Recorder(np.zeros(20), **made).report()
