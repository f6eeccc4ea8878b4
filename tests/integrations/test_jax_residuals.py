"""What the audit of a privatizer reads of whole sums: compiled once, and in single precision."""

import jax.numpy as jnp
import numpy as np
import pytest

from canaria.integrations.jax_privacy._residuals import Residuals
from canaria.training.conformance.residuals import FACTS, residual_of

SHAPES, NAMES = [(300, 200), (7,)], ("weight", "bias")


@pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
def test_rows_are_those_of_numpy(kind: jnp.dtype) -> None:
    residuals = Residuals(SHAPES, NAMES, 0.5, known=True)
    rng, seen = np.random.default_rng(0), residuals.begin()
    clean = [jnp.asarray(rng.normal(size=shape), kind) for shape in SHAPES]
    noisy = [one + jnp.asarray(rng.normal(size=one.shape), kind) for one in clean]
    seen = residuals.add(seen, jnp.asarray(3), noisy, clean)
    wide = [[np.asarray(one, np.float64) for one in some] for some in (noisy, clean)]
    noise = [(one - other) / 0.5 for one, other in zip(*wide, strict=True)]
    largest = max(abs(one).max() for one in wide[1])
    expected = residual_of(noise, wide[1], float(jnp.finfo(kind).eps) * largest / 0.5)  # type: ignore[no-untyped-call]
    np.testing.assert_allclose(seen[3], expected, rtol=1e-4)
    assert not np.asarray(seen[jnp.arange(64) != 3]).any()


def test_later_steps_and_correlated_noise_add_nothing() -> None:
    residuals = Residuals(SHAPES, NAMES, 1.0, known=True)
    ones = [jnp.ones(shape) for shape in SHAPES]
    assert not np.asarray(residuals.add(residuals.begin(), jnp.asarray(64), ones, ones)).any()
    correlated = Residuals(SHAPES, NAMES, 1.0, known=False)
    assert correlated.add(correlated.begin(), jnp.asarray(0), ones, ones).shape == (0, FACTS + 2)


def test_a_step_that_is_not_compiled_compiles_its_reading_once() -> None:
    residuals = Residuals(SHAPES, NAMES, 1.0, known=True)
    ones, seen = [jnp.ones(shape) for shape in SHAPES], residuals.begin()
    for step in range(5):
        seen = residuals.add(seen, jnp.asarray(step), ones, ones)
    assert residuals._added._cache_size() == 1  # type: ignore[attr-defined]
