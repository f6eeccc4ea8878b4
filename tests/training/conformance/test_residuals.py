"""The tests of noise against the sum, on noise whose law is known."""

import numpy as np
import pytest
from scipy import stats

from canaria._core.arrays import Floats
from canaria.training.conformance import residuals
from canaria.training.conformance.residuals import beside_the_noise, residual_of

SIZES = np.array([50.0, 5.0, 4000.0])


def drawn(rng: np.random.Generator, count: int, unit: float = 1.0) -> Floats:
    lengths = [rng.chisquare(size, count) for size in SIZES]
    return np.stack(
        [unit * rng.normal(size=count), np.zeros(count), *(unit**2 * one for one in lengths)], axis=1
    )


@pytest.mark.parametrize("chance", [1e-3, 1e-2, 0.1])
def test_gaussian_noise_is_accused_as_rarely_as_stated(
    chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 audits, each with three tests. False-alarm rate 1e-4."""
    monkeypatch.setattr(residuals, "LEAST_CHANCE", chance)
    rng = np.random.default_rng(0)
    accused = sum(
        len(beside_the_noise(drawn(rng, steps, unit), SIZES))
        for steps, unit in zip(rng.integers(5, 60, 2000), 10 ** rng.uniform(-3, 3, 2000), strict=True)
    )
    assert stats.poisson.sf(accused - 1, 3 * 2000 * chance) > 1e-4


def test_each_fault_is_named() -> None:
    steps = drawn(np.random.default_rng(0), 40)
    along, one_length, together = np.eye(5)[0], steps.copy(), steps.copy()
    assert not beside_the_noise(steps, SIZES)
    assert not beside_the_noise(steps - 3 * along, SIZES)  # less of the rows
    (more,) = beside_the_noise(steps + 1.5 * along, SIZES)
    assert "noisy sums hold more of the rows" in more
    one_length[:, 2:] = SIZES
    (same,) = beside_the_noise(one_length, SIZES)
    assert "always has the same length" in same
    together[:, 2:] *= (SIZES.sum() / steps[:, 2:].sum(axis=1))[:, None]  # of all parameters as one
    assert beside_the_noise(together, SIZES) == (same,)


def test_few_steps_coarse_numbers_and_no_noise_say_nothing() -> None:
    steps = drawn(np.random.default_rng(0), 40) + 9 * np.eye(5)[0]
    assert beside_the_noise(steps[:4], SIZES) == ()
    assert beside_the_noise(steps + 0.1 * np.eye(5)[1], SIZES) == ()
    assert beside_the_noise(np.zeros((9, 5)), SIZES) == ()


def test_a_row_is_what_its_parts_are() -> None:
    noise, total = [np.array([1.0, 2.0]), np.array([[3.0]])], [np.array([3.0, 0.0]), np.array([[4.0]])]
    assert residual_of(noise, total, 0.5).tolist() == [(3 + 12) / 5, 0.5, 5.0, 9.0]
