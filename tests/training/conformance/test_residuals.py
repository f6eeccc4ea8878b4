"""The tests of noise against the sum, on noise whose law is known."""

import numpy as np
import pytest
from scipy import stats

from canaria._core.arrays import Floats
from canaria.training.conformance import residuals
from canaria.training.conformance.residuals import EDGES, FACTS, beside_the_noise, residual_of

SIZES = np.array([50.0, 5.0, 4000.0])
NAMES = ("weight", "bias", "head")


def drawn(rng: np.random.Generator, count: int) -> Floats:
    """Rows of correct steps. Counts are drawn apart from lengths, which changes no test's law by itself."""
    lengths = [rng.chisquare(size, count) for size in SIZES]
    beyond = rng.binomial(int(SIZES.sum()), 2 * stats.norm.sf(EDGES)[:, None], (len(EDGES), count))
    return np.stack([rng.normal(size=count), np.zeros(count), *beyond, *lengths], axis=1)


@pytest.mark.parametrize("chance", [1e-3, 1e-2, 0.1])
def test_gaussian_noise_is_accused_as_rarely_as_stated(
    chance: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 audits, each with four tests. False-alarm rate 1e-4."""
    monkeypatch.setattr(residuals, "LEAST_CHANCE", chance)
    monkeypatch.setattr(residuals, "_LITTLE", 0.0)
    monkeypatch.setattr(residuals, "_FEWER", 0.0)
    rng = np.random.default_rng(0)
    found = [beside_the_noise(drawn(rng, steps), SIZES, NAMES) for steps in rng.integers(5, 60, 2000)]
    for cause in ("hold more of the rows", "is only", "are beyond", "always has the same length"):
        accused = sum(any(cause in one for one in some) for some in found)
        assert stats.poisson.sf(accused - 1, 2000 * chance) > 1e-4, cause


def test_each_fault_is_named() -> None:
    steps = drawn(np.random.default_rng(0), 40)
    along, one_length, together = np.eye(FACTS + 3)[0], steps.copy(), steps.copy()
    assert not beside_the_noise(steps, SIZES, NAMES)
    assert not beside_the_noise(steps - 3 * along, SIZES, NAMES)  # less of the rows
    (more,) = beside_the_noise(steps + 1.5 * along, SIZES, NAMES)
    assert "noisy sums hold more of the rows" in more
    one_length[:, FACTS:] = SIZES
    (same,) = beside_the_noise(one_length, SIZES, NAMES)
    assert "always has the same length" in same
    together[:, FACTS:] *= (SIZES.sum() / steps[:, FACTS:].sum(axis=1))[:, None]  # of all parameters as one
    assert beside_the_noise(together, SIZES, NAMES) == (same,)


@pytest.mark.parametrize(
    ("where", "ratio", "found"),
    [
        (np.s_[:, FACTS:], 0.97, "the noise is only 0.9"),
        (np.s_[:, FACTS], 0.8, "the noise in weight is only 0.8"),
        (np.s_[:, FACTS + 1], 0.7, "the noise in bias is only 0."),
        (np.s_[7, FACTS:], 0.8, "the noise of step 8 is only 0."),
        (np.s_[7, FACTS + 2], 0.0, "the noise in head of step 8 is only 0 times"),
    ],
)
def test_noise_that_is_a_little_too_small_is_found_and_placed(
    where: tuple[slice | int, slice | int], ratio: float, found: str
) -> None:
    steps = drawn(np.random.default_rng(0), 40)
    more = steps.copy()
    steps[where] *= ratio**2
    assert any(one.startswith(found) for one in beside_the_noise(steps, SIZES, NAMES))
    more[where] *= 4  # costs accuracy alone
    assert not any("is only" in one for one in beside_the_noise(more, SIZES, NAMES))


@pytest.mark.parametrize(("most", "edge"), [(2.0, 2), (2.5, 3), (3.5, 4)])
def test_noise_that_is_cut_is_found(most: float, edge: int) -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 10_000))
    rows = [
        [residual_of([one], [np.ones(10_000)], 0.0) for one in some]
        for some in (noise, noise.clip(-most, most))
    ]
    right, cut = (beside_the_noise(np.array(some), np.array([10_000.0]), NAMES) for some in rows)
    assert right == ()
    # The lengths of noise that is cut at 2 deviations tell as much.
    assert any(f"beyond {edge} deviations" in one or "is only" in one for one in cut)


@pytest.mark.parametrize("steps_in_a_deviation", [2, 2.5, 4, 10.3])
def test_discrete_normal_noise_is_not_called_cut(steps_in_a_deviation: float) -> None:
    rng, lattice = np.random.default_rng(0), 1 / steps_in_a_deviation
    noise = np.rint(rng.normal(size=(60, 10_000)) / lattice) * lattice
    rows = np.array([residual_of([one], [np.ones(10_000)], 0.0) for one in noise])
    assert beside_the_noise(rows, np.array([10_000.0]), NAMES) == ()


def test_few_steps_coarse_numbers_and_no_noise_say_nothing() -> None:
    steps = drawn(np.random.default_rng(0), 40) + 9 * np.eye(FACTS + 3)[0]
    assert beside_the_noise(steps[:4], SIZES, NAMES) == ()
    assert beside_the_noise(steps + 0.1 * np.eye(FACTS + 3)[1], SIZES, NAMES) == ()


def test_a_row_is_what_its_parts_are() -> None:
    noise, total = [np.array([1.0, 2.0]), np.array([[-3.5]])], [np.array([3.0, 0.0]), np.array([[4.0]])]
    assert residual_of(noise, total, 0.5).tolist() == [(3 - 14) / 5, 0.5, 1.5, 1, 0, 5.0, 12.25]
