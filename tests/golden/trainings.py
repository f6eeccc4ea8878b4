"""Twenty small real trainings, recorded."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy.noise_addition import gaussian_privatizer

from canaria.integrations import jax_privacy
from canaria.training.canaries import Dense, Dirac
from canaria.training.recording import Recording
from tests.integrations.digits import audited

OPACUS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sum", {"canaries": 120}),
    ("sum", {"canaries": 120, "per_coordinate": 2}),
    ("sum", {"canaries": 90, "per_coordinate": 3, "sigma": 1.0}),
    ("sum", {"canaries": Dense(60, 100)}),
    ("sum", {"canaries": 100, "sigma": 0.6, "mode": "ghost"}),
    ("sum", {"canaries": 100, "stated": 3.5}),
    ("rows", {"canaries": 100}),
    ("rows", {"canaries": 80, "per_coordinate": 2, "sigma": 0.8}),
    ("rows", {"canaries": Dense(60, 90), "sigma": 1.0}),
    ("head", {"canaries": 120}),
    ("head", {"canaries": 100, "per_coordinate": 4, "sigma": 1.2}),
    ("sum", {"canaries": 120, "adam": True, "sigma": 0.5}),
)
JAX: tuple[dict[str, Any], ...] = (
    {"canaries": 120},
    {"canaries": 120, "per_coordinate": 2},
    {"canaries": Dense(60, 100)},
    {"canaries": Dirac(90, 3), "noise_multiplier": 1.0},
    {"canaries": 100, "noise_multiplier": 0.5, "sample_rate": 1.0},
    {"canaries": 100, "noise_multiplier": 0.7, "sample_rate": 0.3},
    {"canaries": 80, "noise_multiplier": 2.0, "added": 1.0},
    {"canaries": 80, "noise_multiplier": 1.5, "steps": 7},
)


def trained() -> Iterator[tuple[str, Recording]]:
    for number, (injection, options) in enumerate(OPACUS):
        audit, _ = audited(injection, seed=number, steps=30, **options)
        yield f"opacus {injection} {options}", audit.recording()
    for number, options in enumerate(JAX):
        yield f"jax {options}", _with_jax(number, **options)


def _with_jax(
    seed: int,
    *,
    noise_multiplier: float = 1.2,
    sample_rate: float = 0.1,
    steps: int = 30,
    added: float | None = None,
    **canaries: Any,
) -> Recording:
    """A few steps on gradients of a linear model; `added` is noise other than what is stated."""
    params = {"weights": jnp.zeros((40, 10)), "bias": jnp.zeros(10)}
    noise = gaussian_privatizer(stddev=added or noise_multiplier, prng_key=seed)
    audit = jax_privacy.attach(
        noise,
        params,
        clip_norm=1.0,
        noise_multiplier=noise_multiplier,
        sample_rate=sample_rate,
        rng=seed,
        **canaries,
    )
    state, update = audit.privatizer.init(params), jax.jit(audit.privatizer.update)
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        grads = {name: jnp.asarray(rng.normal(size=value.shape) / 20) for name, value in params.items()}
        _, state = update(grads, state)
    return audit.recording(state)
