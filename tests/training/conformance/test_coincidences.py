"""Noise of too few values: near ties of single values, and tensors that begin alike."""

import numpy as np
import pytest
from scipy import stats

from canaria.training.canaries.witnesses import Roles
from canaria.training.conformance.coincidences import _ETA, coincidences, near_ties, usable

STEPS, WITNESSES = 64, 512


def roles() -> Roles:
    every = np.arange(WITNESSES)
    return Roles(
        parameter=np.zeros(WITNESSES, np.int64),
        index=-np.ones(WITNESSES, np.int64),
        shaped=np.ones(WITNESSES, np.bool_),
        whole=every[:0],
        sizes=every[:0],
    )


def seen(seed: int, *, spread: float, noise: type = np.float32, divisor: float = 50.0) -> np.ndarray:
    """What `usable` returns of float32 sums of this spread, with noise that is made in some precision.

    As Opacus does, the noisy sum is divided by the batch size, and multiplied again when it is read.
    """
    rng = np.random.default_rng(seed)
    sums = np.float32(rng.normal(0, spread, (STEPS, WITNESSES)))
    added = np.float32(noise(rng.normal(size=sums.shape)))
    gradient = np.float32((sums + added) / np.float32(divisor))
    values = np.float64(np.float32(gradient * np.float32(divisor)) - sums)
    return usable(values, np.float64(sums), (float(np.finfo(np.float32).eps), 0.0), roles(), rng)


def test_near_ties_are_as_many_as_chance_makes() -> None:
    """Counts of 400 sets of exact values against Poisson's law: mean and spread; false-alarm rate 1e-4."""
    rng, size = np.random.default_rng(0), 2000
    found = [near_ties(np.column_stack([rng.normal(size=size), np.zeros(size)])) for _ in range(400)]
    pairs = np.array([one.pairs for one in found if one is not None])
    mean = size * (size - 1) * _ETA / np.sqrt(np.pi)
    assert abs(pairs.mean() - mean) < 4 * np.sqrt(mean / len(pairs))
    assert stats.chi2.sf((len(pairs) - 1) * pairs.var(ddof=1) / mean, len(pairs) - 1) > 1e-4


@pytest.mark.parametrize("spread", [0.1, 3.0, 10.0])
def test_rounded_sums_are_not_accused(spread: float) -> None:
    """P-values of 300 correct float32 sums are not below uniform ones; false-alarm rate 1e-4."""
    found = [near_ties(seen(seed, spread=spread)) for seed in range(300)]
    p_values = np.array([one.p_value for one in found if one is not None])
    assert len(p_values) == 300
    assert stats.kstest(p_values, "uniform", alternative="greater").pvalue > 1e-4
    assert p_values.min() > 1e-5


@pytest.mark.parametrize("spread", [0.1, 3.0, 10.0])
def test_half_precision_is_found(spread: float) -> None:
    for seed in range(20):
        found = near_ties(seen(seed, spread=spread, noise=np.float16))
        assert found is not None
        assert found.p_value < 1e-6


def test_sums_that_are_too_coarse_are_not_used() -> None:
    assert near_ties(seen(0, spread=1e6)) is None


def tensors(seed: int, bits: int | None, spread: float = 3.0, count: int = 9600) -> np.ndarray:
    """The first three values of noise tensors, each from its own generator, under float32 sums."""
    rng = np.random.default_rng(seed)
    if bits is None:
        values = rng.normal(size=(count, 3))
    else:
        table = rng.normal(size=(2**bits, 3))
        values = table[rng.integers(2**bits, size=count)]
    sums = np.float32(rng.normal(0, spread, values.shape))
    return np.float64(np.float32(sums + np.float32(values)) - sums)


def test_coincidences_are_rarer_than_their_bound() -> None:
    """400 correct audits of 9,600 tensors; the bound allows 2e-4 pairs in all of them together."""
    assert sum(coincidences(tensors(seed, None)) for seed in range(400)) == 0


@pytest.mark.parametrize("spread", [1e3, 1e5, 1e6])
def test_coarse_sums_do_not_coincide_by_themselves(spread: float) -> None:
    assert not any(coincidences(tensors(seed, None, spread)) for seed in range(20))


@pytest.mark.parametrize("bits", [10, 12, 16])
def test_few_seeds_are_found(bits: int) -> None:
    assert all(coincidences(tensors(seed, bits)) > 100 for seed in range(20))


def test_missing_noise_is_no_coincidence() -> None:
    assert coincidences(np.zeros((500, 3))) == 0
    assert near_ties(np.zeros((500, 2))) is None


@pytest.mark.parametrize("parameters", [2, 3, 8])
def test_noise_in_another_order_has_the_same_sums(parameters: int) -> None:
    """Each second step has the noise of the one before, turned round and in reverse order."""
    rng = np.random.default_rng(0)
    sums = np.repeat(rng.normal(size=(25, parameters)), 2, axis=0)
    sums[1::2] *= -1
    sums += 1e-6 * rng.normal(size=sums.shape)
    assert coincidences(sums) == 25
    assert coincidences(rng.normal(size=(1000, parameters))) == 0
