"""What the audit of a privatizer reads of whole sums: compiled once, and in single precision."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from canaria.claims.accounting import dpsgd_epsilon
from canaria.integrations.jax_privacy import attach
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
    np.testing.assert_allclose(seen[3, : FACTS + 2], expected, rtol=1e-4)
    assert not np.asarray(seen[jnp.arange(64) != 3]).any()


def test_later_steps_and_correlated_noise_add_nothing() -> None:
    residuals = Residuals(SHAPES, NAMES, 1.0, known=True)
    ones = [jnp.ones(shape) for shape in SHAPES]
    assert not np.asarray(residuals.add(residuals.begin(), jnp.asarray(64), ones, ones)).any()
    correlated = Residuals(SHAPES, NAMES, 1.0, known=False)
    assert correlated.add(correlated.begin(), jnp.asarray(0), ones, ones).shape[0] == 0


def test_a_step_that_is_not_compiled_compiles_its_reading_once() -> None:
    residuals = Residuals(SHAPES, NAMES, 1.0, known=True)
    ones, seen = [jnp.ones(shape) for shape in SHAPES], residuals.begin()
    for step in range(5):
        seen = residuals.add(seen, jnp.asarray(step), ones, ones)
    assert residuals._added._cache_size() == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "added_in_half"), [(jnp.float16, True), (jnp.float16, False), (jnp.bfloat16, False)]
)
def test_noise_that_is_added_in_half_precision_is_found(kind: jnp.dtype, added_in_half: bool) -> None:
    """Not a noisy sum that is rounded afterwards. XLA itself adds numbers in bfloat16 in single precision."""
    audit = attach(
        _privatizer(kind, added_in_half=added_in_half),
        jnp.zeros(2000),
        noise_multiplier=1.0,
        sample_rate=0.1,
        clip_norm=1.0,
        canaries=500,
        steps=40,
        rng=0,
    )
    grads, update = jnp.sin(jnp.arange(2000.0)) / 2, jax.jit(audit.privatizer.update)
    state = audit.privatizer.init(grads)
    for _ in range(40):
        _, state = update(grads, state)
    report = str(audit.report(state, claimed=dpsgd_epsilon(1.0, 1e-5, 40, 0.1), delta=1e-5))
    assert ("noise was added in half precision" in report) == added_in_half


def _privatizer(kind: jnp.dtype, *, added_in_half: bool) -> Any:
    def update(sums: Any, key: Any, params: Any = None) -> Any:
        key, once = jax.random.split(key)
        noise = jax.random.normal(once, sums.shape)
        halved = sums.astype(kind) + noise.astype(kind)
        noisy = halved if added_in_half else (sums + noise).astype(kind)
        return noisy.astype(sums.dtype), key

    return optax.GradientTransformation(lambda _: jax.random.key(7), update)
