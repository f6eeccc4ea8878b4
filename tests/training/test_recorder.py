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
from canaria.training.likelihood.accumulator import Accumulator, table_of

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
    assert result.bound.epsilon > DpSgd(noise_multiplier=2.0, sample_rate=0.5, steps=10).epsilon_at(1e-5)
    found = [users(seed, steps=3).conformance() for seed in range(40)]
    assert min(one.p_value for one in found) > 1e-4
    assert np.mean([one.weight for one in found]) == pytest.approx(1, abs=0.02)
    with pytest.raises(InputError, match="the family dpsgd is for single rows, not for users of 4"):
        recorder.bound(1e-5, family="dpsgd")
    with pytest.raises(
        InputError, match="about single rows, the bound about users of 4: give the ε and δ of"
    ):
        recorder.report(DpSgd(noise_multiplier=2.0, sample_rate=0.5, steps=10), delta=1e-5)


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
    with pytest.raises(InputError, match=r"call see\(\) for the previous step"):
        apart.draw()


LOOPS: dict[str, Callable[[np.ndarray], Any]] = {
    "numpy": np.asarray,
    "float32": np.float32,
    "torch": torch.tensor,
    "jax": jnp.asarray,
}


def norms_of(gradients: Any, names: tuple[str, ...]) -> Any:
    """The norms of rows over these parameters, in any framework."""
    return sum((gradients[name] ** 2).reshape(len(gradients[name]), -1).sum(1) for name in names) ** 0.5


def clipped(gradients: Any, *, normed: tuple[str, ...] = ("weight", "bias"), clip: float = 2.0) -> Any:
    """The sum of rows that are clipped by their norm over some of the parameters."""
    norms = norms_of(gradients, normed)
    scales = clip / (norms + (clip - norms) * (norms < clip) + 1e-12)
    return {
        name: (one.T * scales).T.sum(0) if one.ndim == 2 else _weighted(one, scales)
        for name, one in gradients.items()
    }


def _weighted(rows: Any, scales: Any) -> Any:
    return (rows * scales.reshape(-1, 1, 1)).sum(0)


def whole_steps(
    seed: int,
    *,
    clip: Callable[[Any], Any] | None = None,
    convert: Callable[[np.ndarray], Any] = np.asarray,
    steps: int = 30,
    **stated: Any,
) -> Recorder:
    """A loop by `Recorder.step`, with a clip norm of 2 and a batch of 8 rows."""
    rng = np.random.default_rng([2, seed])
    parameters = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    made = {"canaries": 600, "sample_rate": RATE, "noise_multiplier": SIGMA, "clip_norm": 2.0, "steps": steps}
    recorder = Recorder(parameters, rng=seed, **{**made, **stated})

    def add_noise(total: Any) -> Any:
        return {name: one + convert(2 * SIGMA * rng.normal(size=one.shape)) for name, one in total.items()}

    for _ in range(steps):
        rows = {name: convert(rng.normal(size=(8, *shape))) for name, shape in SHAPES.items()}
        recorder.step((clip or clipped)(rows), add_noise, clip=clip)
    return recorder


@pytest.mark.parametrize("convert", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("clip", [None, clipped], ids=["sum", "clip"])
def test_a_step_in_one_call(convert: Callable[[np.ndarray], Any], clip: Any) -> None:
    recorder = whole_steps(0, convert=convert, clip=clip)
    result = recorder.report(claimed=4.2, delta=1e-5, rungs=False)
    assert not result.alarming
    assert result.conformance is not None
    assert result.conformance.weight == pytest.approx(1, abs=0.15)
    assert result.facts["exercised"].startswith("the clipper" if clip else "the noise")
    assert ("your own sum (" in result.coverage) == (clip is not None)


def test_correct_whole_steps_conform() -> None:
    """Kolmogorov and Smirnov at 1e-4 over 60 runs, and no contradiction in any."""
    found = [whole_steps(seed, clip=clipped, steps=10).recording() for seed in range(60)]
    assert stats.kstest([one.conformance().p_value for one in found], "uniform").pvalue > 1e-4
    assert {one.contradictions for one in found} == {()}


def each_apart(gradients: Any) -> Any:
    return {name: clipped({name: one}, normed=(name,))[name] for name, one in gradients.items()}


def large_ones_pass(gradients: Any) -> Any:
    """Rows that are larger than its author expected are not clipped."""
    whole = {name: one.reshape(len(one), -1) for name, one in gradients.items()}
    large = np.linalg.norm(np.concatenate(list(whole.values()), axis=1), axis=1) > 100
    total = clipped({name: one[~large] for name, one in gradients.items()})
    return {name: total[name] + one[large].sum(0) for name, one in gradients.items()}


def small_ones_grow(gradients: Any) -> Any:
    """Rows below the clip norm are scaled up to three of them."""
    whole = {name: one.reshape(len(one), -1) for name, one in gradients.items()}
    norms = np.linalg.norm(np.concatenate(list(whole.values()), axis=1), axis=1)
    small = (norms > 0) & (norms < 2)
    factors = np.where(small, 6 / np.where(small, norms, 1), 2 / np.maximum(norms, 2))
    return {name: np.einsum("i,i...->...", factors, one) for name, one in gradients.items()}


@pytest.mark.parametrize(
    ("clip", "said"),
    [
        (
            lambda rows: clipped(rows, normed=("weight",)),
            "a canary weighed 10 clip norms in parameter 'bias', above the limit of 1",
        ),
        (each_apart, "a gradient over all parameters weighed 1.41 clip norms"),
        (lambda rows: clipped(rows, clip=3.0), "a canary weighed 1.5 clip norms in parameter 'weight'"),
        (lambda rows: {name: one.sum(0) for name, one in rows.items()}, "weighed 10 clip norms in parameter"),
        (large_ones_pass, "the clipper made 1e+05 clip norms of a gradient of 1e+05"),
        (small_ones_grow, "the clipper made 3 clip norms of a gradient of 0."),
    ],
    ids=[
        "without the bias",
        "each apart",
        "to another norm",
        "not at all",
        "not large ones",
        "small ones grow",
    ],
)
def test_clippers_that_do_not_clip_are_contradictions(clip: Any, said: str) -> None:
    result = whole_steps(1, clip=clip, steps=10).report(delta=1e-5, rungs=False)
    assert result.alarming
    assert any(said in one for one in result.contradictions)


@pytest.mark.parametrize(
    "clip",
    [
        lambda rows: {name: one / len(rows["bias"]) for name, one in clipped(rows).items()},
        lambda rows: clipped(rows, clip=0.5),
        lambda rows: {
            name: clipped({name: one}, normed=(name,), clip=2**0.5)[name] for name, one in rows.items()
        },
    ],
    ids=["a mean", "to less", "by layer"],
)
def test_functions_that_are_no_clipped_sum_are_refused_before_training(clip: Any) -> None:
    with pytest.raises(
        InputError, match="clip must return the sum of gradients, each clipped to clip_norm as a whole"
    ):
        whole_steps(1, clip=clip)


def test_the_order_of_a_dict_makes_no_difference() -> None:
    """`jit` and `grad` of JAX sort its keys."""

    def turned(arrays: dict[str, Any]) -> dict[str, Any]:
        return dict(reversed(arrays.items()))

    found = []
    for other in (dict, turned):
        rng = np.random.default_rng(0)
        recorder = Recorder(
            {name: np.zeros(shape) for name, shape in SHAPES.items()},
            canaries=100,
            sample_rate=RATE,
            noise_multiplier=1.0,
            rng=0,
        )
        for _ in range(5):
            added = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
            sums = other({name: np.ones(shape) for name, shape in SHAPES.items()})
            noisy = recorder.step(sums, lambda sums, added=added: {k: v + added[k] for k, v in sums.items()})
            assert list(noisy) == list(sums)
        found.append(recorder.recording().sums)
    assert np.array_equal(*found)


@pytest.mark.parametrize("normed", [("weight", "bias"), ("weight",)])
def test_canaries_one_by_one_are_clipped_like_rows(normed: tuple[str, ...]) -> None:
    """Their gradients are 10 clip norms, so that a bias that is left out of the norm shows."""
    rng = np.random.default_rng(0)
    parameters = {name: np.zeros(shape) for name, shape in SHAPES.items()}
    recorder = Recorder(
        parameters, canaries=200, sample_rate=RATE, noise_multiplier=SIGMA, clip_norm=2.0, rng=0
    )
    for _ in range(8):
        real = {name: rng.normal(size=shape) for name, shape in SHAPES.items()}
        total = {name: one.copy() for name, one in real.items()}
        for canary in recorder.draw_each():
            row = {name: np.zeros((1, *shape)) for name, shape in SHAPES.items()}
            row[list(SHAPES)[canary.parameter]].flat[canary.place] = canary.gradient
            total = {name: total[name] + one for name, one in clipped(row, normed=normed).items()}
        noisy = {name: one + 2 * SIGMA * rng.normal(size=one.shape) for name, one in total.items()}
        recorder.see(noisy, real=real, clipped=total)
    found = recorder.recording()
    assert found.injection == "gradients"
    assert len(found.contradictions) == (len(normed) == 1)
    assert all("a canary weighed 10 clip norms in parameter 'bias'" in one for one in found.contradictions)


def unit_rows(rows: np.ndarray) -> np.ndarray:
    return (rows / np.maximum(1, np.linalg.norm(rows, axis=1, keepdims=True))).sum(0)


def test_a_function_may_add_its_noise_in_place() -> None:
    rng, totals = np.random.default_rng(0), []
    recorder = Recorder(np.zeros(500), canaries=100, sample_rate=0.5, noise_multiplier=1, rng=0)

    def add_noise(total: np.ndarray) -> np.ndarray:
        total += rng.normal(size=500)
        return total

    for _ in range(10):
        totals.append(np.zeros(500))
        recorder.step(totals[-1], add_noise, clip=unit_rows)
    assert not np.any(totals)
    assert recorder.recording().conformance().p_value > 1e-4
    assert recorder.recording().contradictions == ()


def test_all_steps_that_are_stated_must_be_seen() -> None:
    few, many = whole_steps(0, steps=30), whole_steps(0, steps=30)
    few._planned, many._planned = 100, 10
    (said,) = few.report(delta=1e-5, rungs=False).contradictions
    assert said.startswith("30 of 100 stated steps were seen: the recorder did not see the others")
    stopped = few.report(delta=1e-5, rungs=False, unfinished=True)
    assert stopped.contradictions == ()
    assert "30 of 100 stated steps were seen" in str(stopped)
    assert many.recording().contradictions == ("training made 30 steps, where 10 are stated",)


def test_canaries_never_weigh_more_beside_large_sums() -> None:
    """Rounding to the nearest would make some canaries of 1.1 weigh more beside real sums of 10^7."""
    real = np.linspace(-1e7, 1e7, 1000).astype(np.float32)
    recorder = Recorder(real, canaries=1000, sample_rate=1, noise_multiplier=1, clip_norm=1.1, rng=0)
    noisy = recorder.step(real, lambda total: total)
    assert (noisy.astype(np.float64) - real).max() <= 1.1
    with pytest.raises(InputError, match="clipped_sum must be in single or double precision, got float16"):
        Recorder(real, canaries=10, sample_rate=1, noise_multiplier=1).step(np.float16(real / 1e7), abs)


def test_misuse_is_one_line() -> None:
    made = {"canaries": 10, "sample_rate": 0.5, "noise_multiplier": 1.0}
    recorder = Recorder(np.zeros(20), **made)
    with pytest.raises(InputError, match=r"call draw\(\) before every see"):
        recorder.see(np.zeros(20), real=np.zeros(20))
    recorder.draw()
    with pytest.raises(InputError, match=r"call see\(\) for the previous step"):
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
    with pytest.raises(InputError, match="several rows make a user: give unit='user', got 'row'"):
        Recorder(np.zeros(50), **made, rows=2)
    with pytest.raises(InputError, match="parameters must be an array, or a list or dict of arrays"):
        Recorder(["a"], **made)
    with pytest.raises(InputError, match="no training step was seen"):
        Recorder(np.zeros(20), **made).report()


def test_a_lack_of_noise_does_not_withdraw_what_its_size_gives() -> None:
    """All weights show it, and the claim is still compared with the noise that was measured."""
    rng, sums = np.random.default_rng(0), np.zeros(2000)
    recorder = Recorder(sums, canaries=1000, sample_rate=0.1, noise_multiplier=1.0, steps=20, rng=0)
    for _ in range(20):
        recorder.step(sums, lambda total: total + rng.normal(scale=0.5, size=2000))
    result = recorder.report(claimed=3.7, delta=1e-5)
    (said,) = result.contradictions
    assert "but the noise that was measured gives ε ≥" in said
    assert result.rungs[-1].withdrawn == ""
