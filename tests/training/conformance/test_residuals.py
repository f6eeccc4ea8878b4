"""The tests of noise against the sum, on noise whose law is known."""

import numpy as np
import pytest
from scipy import stats

from canaria._core.arrays import Floats
from canaria.training.conformance import residuals
from canaria.training.conformance.residuals import beside_the_noise

SIZES = np.array([50.0, 5.0, 4000.0])


def drawn(rng: np.random.Generator, steps: int, unit: float = 1.0) -> tuple[Floats, Floats]:
    lengths = np.stack([rng.chisquare(size, steps) for size in SIZES], axis=1)
    return unit * rng.normal(size=steps), unit**2 * lengths


@pytest.mark.parametrize("chance", [1e-3, 1e-2, 0.1])
def test_gaussian_noise_is_accused_as_rarely_as_stated(
    chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 audits, each with three tests. False-alarm rate 1e-4."""
    monkeypatch.setattr(residuals, "LEAST_CHANCE", chance)
    rng = np.random.default_rng(0)
    accused = sum(
        len(beside_the_noise(*drawn(rng, steps, unit), SIZES))
        for steps, unit in zip(rng.integers(5, 60, 2000), 10 ** rng.uniform(-3, 3, 2000), strict=True)
    )
    assert stats.poisson.sf(accused - 1, 3 * 2000 * chance) > 1e-4


def test_each_fault_is_named() -> None:
    rng = np.random.default_rng(0)
    along, lengths = drawn(rng, 40)
    assert not beside_the_noise(along, lengths, SIZES)
    assert not beside_the_noise(along - 3, lengths, SIZES)  # less of the rows
    (more,) = beside_the_noise(along + 1.5, lengths, SIZES)
    assert "noisy sums hold more of the rows" in more
    one_length = np.broadcast_to(SIZES, lengths.shape)
    (same,) = beside_the_noise(along, one_length, SIZES)
    assert "always has the same length" in same
    together = lengths * (SIZES.sum() / lengths.sum(axis=1))[:, None]  # of all parameters as one
    assert beside_the_noise(along, together, SIZES) == (same,)


def test_few_steps_and_no_noise_say_nothing() -> None:
    along, lengths = drawn(np.random.default_rng(0), 4)
    assert beside_the_noise(along + 9, lengths, SIZES) == ()
    assert beside_the_noise(np.zeros(9), np.zeros((9, 3)), SIZES) == ()
