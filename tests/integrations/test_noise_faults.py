"""Noise that is right in each place and wrong as a whole, and what may be done with the noisy sum after it."""

import re
from typing import Any

import jax
import optax
import pytest
import torch
from jax import numpy as jnp
from torch import nn

from canaria.integrations.jax_privacy import attach as attach_to_jax
from canaria.integrations.opacus import attach
from tests.integrations.digits import audited, private

SHARED = re.compile(r"parameter \d of \d \([\d x]+\) and parameter \d of \d \([\d x]+\) share noise")


def privatizer(keys_of: Any) -> optax.GradientTransformation:
    """Adds standard normal noise, with the keys that are made of one key a step."""

    def update(sums: Any, state: Any, params: Any = None) -> Any:
        following, key = jax.random.split(jax.random.wrap_key_data(state))
        leaves, structure = jax.tree.flatten(sums)
        noise = [
            jax.random.normal(k, x.shape) for k, x in zip(keys_of(key, len(leaves)), leaves, strict=True)
        ]
        noisy = [leaf + more for leaf, more in zip(leaves, noise, strict=True)]
        return jax.tree.unflatten(structure, noisy), jax.random.key_data(following)

    return optax.GradientTransformation(lambda _: jax.random.key_data(jax.random.key(1)), update)


@pytest.mark.parametrize(
    "shapes",
    [
        pytest.param([(20, 32), (32,), (32, 3), (3,)], marks=pytest.mark.full),
        pytest.param([(400, 400), (400,), (100, 400)], marks=pytest.mark.full),
    ],
    ids=str,
)
def test_one_jax_key_for_all_parameters_is_found(shapes: list[tuple[int, ...]]) -> None:
    params = [jnp.zeros(shape) for shape in shapes]
    stated = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1}
    found = []
    for keys_of in (lambda key, count: [key] * count, jax.random.split):
        audit = attach_to_jax(privatizer(keys_of), params, canaries=700, rng=0, **stated)
        update = audit.privatizer.update
        state = jax.lax.scan(
            lambda now, _, update=update: (update(params, now)[1], None),
            audit.privatizer.init(params),
            length=40,
        )[0]
        found.append(audit.conformance(state))
    assert [one.conforms for one in found] == [False, True]
    assert SHARED.search(found[0].answer)


def _seeded_for_every_parameter(optimizer: Any) -> None:
    """Gives every parameter noise from a generator in the same state."""

    def broken() -> None:
        optimizer.seen = getattr(optimizer, "seen", 0) + 1
        for p in optimizer.params:
            generator = torch.Generator().manual_seed(optimizer.seen)
            noise = torch.randn(p.shape, generator=generator) * optimizer.noise_multiplier
            p.grad = p.summed_grad + noise * optimizer.max_grad_norm

    optimizer.add_noise = broken


@pytest.mark.parametrize("injection", ["sum", "rows"])
def test_one_torch_generator_for_all_parameters_is_found(injection: str) -> None:
    audit, _ = audited(injection, steps=40, tamper=_seeded_for_every_parameter)
    assert not audit.conformance().conforms
    assert SHARED.search(audit.conformance().answer)


@pytest.mark.parametrize("injection", ["rows", "head"])
def test_a_tiny_clip_norm_is_no_accusation(injection: str) -> None:
    """Opacus adds 1e-6 to the norms that it divides by; the weight has a standard error of 0.03."""
    audit, _ = audited(injection, clip=1e-6, batches=4, sigma=1.0, steps=100)
    assert audit.conformance().conforms
    assert audit.conformance().weight == pytest.approx(1, abs=0.12)


@pytest.mark.parametrize("hooked", ["before", "step"])
def test_what_hooks_do_to_the_noisy_gradient_is_no_accusation(hooked: str) -> None:
    """Clipping after the noise is post-processing, whenever its hook was registered."""
    made = private("sum")
    optimizer = made.optimizer.original_optimizer

    def clipped(*_: Any) -> None:
        nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 0.1)

    if hooked == "step":
        count = made.optimizer.step_hook
        made.optimizer.attach_step_hook(lambda own: (count(own), clipped()))

    else:
        optimizer.register_step_pre_hook(clipped)
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
    if hooked == "before":
        optimizer.register_step_pre_hook(clipped)
    while audit.steps < 40:
        made.one_pass()
    assert audit.conformance().conforms
