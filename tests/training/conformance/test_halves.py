"""Noise that is added in half precision, and noisy sums that are rounded, which needs no privacy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from canaria.training import Recorder
from canaria.training.conformance.halves import Halves


def half(values: Any) -> Any:
    return np.asarray(values).astype(np.float16).astype(np.float64)


def brain(values: Any) -> Any:
    return torch.tensor(values).bfloat16().double().numpy()


def to_bits(values: Any, bits: int) -> Any:
    fractions, exponents = np.frexp(values)
    return np.ldexp(np.rint(np.ldexp(fractions, bits)), exponents - bits)


def seen(release: Callable[[Any, Any], Any], seed: int, size: float, deviation: float = 1.0) -> Halves:
    rng, found = np.random.default_rng(seed), Halves()
    for _ in range(40):
        sums, noise = size * rng.normal(size=1000), deviation * rng.normal(size=1000)
        found.add(release(sums, noise), sums, deviation)
    return found


@pytest.mark.parametrize("round_", [half, brain])
@pytest.mark.parametrize(("size", "deviation"), [(0.1, 0.3), (0.1, 7.0), (0.5, 1.0), (0.5, 7.0), (1.0, 1.0)])
def test_adding_in_half_precision_is_found(round_: Any, size: float, deviation: float) -> None:
    for seed in range(5):
        found = seen(lambda y, z: round_(round_(y) + round_(z)), seed, size * deviation, deviation)
        assert found.clear(), (found._all, found._on_grid)


def parts(y: Any, z: Any) -> tuple[Any, Any]:
    """The sum with noise in two parts, each with noise of its own that is as large."""
    apart = np.random.default_rng(int(1e6 * abs(z[0]))).normal(scale=z.std(), size=len(z))
    return (y + z + apart) / 2, (y + z - apart) / 2


CORRECT = {
    "single precision": lambda y, z: (y + z).astype(np.float32).astype(np.float64),
    "rounded afterwards": lambda y, z: half(y + z),
    "to bfloat16": lambda y, z: brain(y + z),
    "of integers": lambda y, z: np.rint(100 * (y + z)) / 128,
    "to four levels": lambda y, z: np.sign(y + z) * (1 + (abs(y + z) > 1)),
    "to steps of a 64th": lambda y, z: np.rint(64 * (y + z)) / 64,
    "zeros": lambda y, z: 0 * z,
    "to five bits": lambda y, z: to_bits(y + z, 5),
    "to nine bits": lambda y, z: to_bits(y + z, 9),
    "to powers of two": lambda y, z: np.sign(y + z) * 2 ** np.rint(np.log2(abs(y + z))),
    "to small steps of float16": lambda y, z: 1024 * half((y + z) / 1024),
    "to steps of float16 that are coarse in some runs": lambda y, z: 300 * half((y + z) / 300),
    "of two workers": lambda y, z: half(sum(half(one) for one in parts(y, z))),
    "of two workers, bfloat16": lambda y, z: brain(sum(brain(one) for one in parts(y, z))),
}


@pytest.mark.parametrize("release", CORRECT)
def test_rounding_afterwards_is_no_fault(release: str) -> None:
    """Also of discrete noise. 40 audits of 40 steps; chance of one false alarm 4e-8."""
    for seed in range(8):
        for size in (0.0, 0.1, 0.5, 5.0, 200.0):
            assert not seen(CORRECT[release], seed, size).clear()


def test_a_recorder_reports_it() -> None:
    rng = np.random.default_rng(0)
    recorder = Recorder(np.zeros(2000), canaries=300, sample_rate=0.1, noise_multiplier=1.0, rng=0)
    for _ in range(20):
        sums = 0.3 * rng.normal(size=2000)
        recorder.step(sums, lambda some: half(half(some) + half(rng.normal(size=2000))))
    assert "noise was added in half precision" in str(recorder.report(claimed=3.0, delta=1e-5))


@pytest.mark.parametrize("round_", [half, brain, lambda noisy: np.rint(2**12 * noisy) / 2**12])
def test_rounded_noise_beside_sums_of_zero_is_no_fault(round_: Any) -> None:
    """As of embeddings, of which most rows are in no batch. False-alarm rate 3e-4."""
    rng = np.random.default_rng(0)
    recorder = Recorder(np.zeros(4000), canaries=300, sample_rate=0.1, noise_multiplier=1.0, rng=0)
    for _ in range(40):
        sums = rng.normal(size=4000) * (rng.random(4000) < 0.05)
        recorder.step(sums, lambda some: round_(some + rng.normal(size=4000)))
    assert recorder.recording().conformance().p_value > 1e-4
