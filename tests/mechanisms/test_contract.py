"""What every mechanism must do: the one contract, over all mechanisms.

Losses are compared with brute force over all bit vectors that agree with what is revealed.
"""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from canaria.mechanisms import MECHANISMS
from tests.mechanisms.models import CASES, MODELS, NAMES, Model

each = pytest.mark.parametrize(("model", "n"), CASES, ids=NAMES)


def naive_loss(model: Model, output: object, known: np.ndarray, element: int) -> float:
    sides = {}
    for sign in (-1, 1):
        vectors = [
            s
            for s in itertools.product((-1, 1), repeat=len(known))
            if s[element] == sign and all(k in (0, b) for k, b in zip(known, s, strict=True))
        ]
        sides[sign] = special.logsumexp([model.likelihood(output, np.array(s)) for s in vectors])
    return float(sides[1] - sides[-1])


@each
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_loss_is_brute_force_before_and_after_bits_are_revealed(model: Model, n: int) -> None:
    rng = np.random.default_rng(n)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), (12, n))
    outputs = model.mechanism.sample(bits, rng)
    known = bits * (rng.random((12, n)) < rng.choice([0.0, 0.5, 0.9], (12, 1))).astype(np.int8)
    losses = model.mechanism.loss(outputs, known)
    assert losses.shape == bits.shape
    for trial, element in itertools.product(range(12), range(n)):
        if known[trial, element]:
            assert losses[trial, element] == 0
        else:
            expected = naive_loss(model, outputs[trial], known[trial], element)
            assert losses[trial, element] == pytest.approx(expected, abs=1e-9), (trial, element)


@each
def test_samples_follow_the_likelihood(model: Model, n: int) -> None:
    """Chi-square over outputs, or the probability transform; false alarms below 1e-4 each."""
    rng = np.random.default_rng(100 + n)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), n)
    outputs = model.mechanism.sample(np.tile(bits, (4000, 1)), rng)
    if not model.discrete:
        scale = {"LocalLaplace": 2 / 1.5, "LocalGaussian": 0.8, "NoisyCountInSets": 1.1}
        name = type(model.mechanism).__name__
        law = stats.laplace if name == "LocalLaplace" else stats.norm
        centre = outputs.mean(axis=0, keepdims=True) * 0 + model_centre(model, bits)
        assert stats.kstest(((outputs - centre) / scale[name]).ravel(), law.cdf).pvalue > 1e-4
        return
    values, counts = np.unique(outputs, axis=0, return_counts=True)
    chances = np.array([math.exp(model.likelihood(value, bits)) for value in values])
    assert (chances > 0).all()
    common = chances * 4000 >= 5
    observed = np.append(counts[common], 4000 - counts[common].sum())
    expected = np.append(4000 * chances[common], 4000 * max(0.0, 1 - chances[common].sum()))
    kept = expected > 1e-6
    assert observed[~kept].sum() == 0
    statistic = ((observed[kept] - expected[kept]) ** 2 / expected[kept]).sum()
    assert stats.chi2.sf(statistic, max(1, kept.sum() - 1)) > 1e-4


def model_centre(model: Model, bits: np.ndarray) -> np.ndarray:
    if type(model.mechanism).__name__ == "NoisyCountInSets":
        from tests.mechanisms.models import counted

        return counted(bits, 3)
    return bits


@each
def test_rounds_cover_every_element_once(model: Model, n: int) -> None:
    together = np.concatenate(model.mechanism.rounds(n))
    assert sorted(together.tolist()) == list(range(n))


@each
def test_outcomes_are_all_outputs_up_to_symmetry(model: Model, n: int) -> None:
    """Probabilities add up to 1, and the mean of sorted |loss| is that over all bits and outputs."""
    outcomes = model.mechanism.outcomes(n)
    if outcomes is None:
        return
    assert outcomes.chances.sum() == pytest.approx(1)
    hidden = np.zeros((len(outcomes.chances), n), dtype=np.int8)
    sizes = np.sort(special.expit(np.abs(model.mechanism.loss(outcomes.outputs, hidden))), axis=1)
    rng = np.random.default_rng(0)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), (20_000, n))
    losses = model.mechanism.loss(model.mechanism.sample(bits, rng), np.zeros_like(bits))
    simulated = np.sort(special.expit(np.abs(losses)), axis=1)
    error = simulated.std(axis=0) / math.sqrt(20_000)
    assert (np.abs(outcomes.chances @ sizes - simulated.mean(axis=0)) <= 5 * error + 1e-9).all()


@each
def test_loss_never_exceeds_ddp_nor_ddp_epsilon(model: Model, n: int) -> None:
    rng = np.random.default_rng(1)
    bits = rng.choice(np.array([-1, 1], dtype=np.int8), (300, n))
    losses = model.mechanism.loss(model.mechanism.sample(bits, rng), np.zeros_like(bits))
    assert np.abs(losses).max() <= model.mechanism.ddp(n) + 1e-9
    assert model.mechanism.ddp(n) <= model.mechanism.epsilon + 1e-9


@pytest.mark.parametrize("model", MODELS, ids=lambda model: repr(model.mechanism).partition(" at 0x")[0])
def test_finite_epsilon_is_the_worst_likelihood_ratio(model: Model) -> None:
    """Over all neighbours and outputs of discrete mechanisms, n = 3 (2 for pairs)."""
    if not model.discrete or math.isinf(model.mechanism.epsilon):
        return
    rng, n, worst = np.random.default_rng(0), 3, 0.0
    for s in itertools.product((-1, 1), repeat=n):
        bits = np.array(s, dtype=np.int8)
        for output in model.mechanism.sample(np.tile(bits, (200, 1)), rng):
            for element in range(n):
                other = bits.copy()
                other[element] *= -1
                worst = max(worst, model.likelihood(output, bits) - model.likelihood(output, other))
    assert worst == pytest.approx(model.mechanism.epsilon)


def test_every_named_mechanism_is_under_contract() -> None:
    tested = {type(model.mechanism) for model in MODELS}
    assert {make for make, _ in MECHANISMS.values()} <= tested


def test_adjacencies() -> None:
    """Local ones replace; counts, where an excluded element contributes nothing, add and remove."""
    for model in MODELS:
        counting = "Count" in type(model.mechanism).__name__ or type(model.mechanism).__name__ == "Symmetric"
        assert model.mechanism.adjacency == ("add-remove" if counting else "replace")
