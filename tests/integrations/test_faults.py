"""Real trainings, Opacus and JAX, with the faults of the noise that simulated ones are tested with."""

from typing import Any

import jax
import numpy as np
import optax
import pytest
import torch
from jax import numpy as jnp
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader

from canaria.bounds.conformance import Conformance
from canaria.integrations.jax_privacy import attach as attach_to_jax
from canaria.integrations.opacus import attach
from tests.integrations.digits import digits
from tests.training.faults import FAULTS, NAMES, SHAPES
from tests.training.simulated import Fault

STEPS = 100
DEFAULT = ("by shape", "mirrored", "used again", "coins", "in any order")
"""The others are found by the simulated trainings of `make test`."""
faults = pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=() if name in DEFAULT else pytest.mark.full, id=name)
        for (fault, _), name in zip(FAULTS, NAMES, strict=True)
    ],
)
runs = pytest.mark.parametrize("runs", [1, pytest.param(20, marks=pytest.mark.full)])


def noise_of(fault: Fault | None, seed: int, steps: int = STEPS) -> list[np.ndarray]:
    rng = np.random.default_rng([seed, 5])
    noise = [rng.normal(size=(steps, int(np.prod(shape)))) for shape in SHAPES]
    return noise if fault is None else fault(noise, rng)


def by_opacus(fault: Fault | None, seed: int, steps: int = STEPS) -> Conformance:
    """A network with parameters of these sizes, trained on digits."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(digits(150), batch_size=15),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    noise = noise_of(fault, seed, steps)

    def add_noise() -> None:
        for p, of_parameter in zip(optimizer.params, noise, strict=True):
            own = torch.tensor(of_parameter[audit.steps], dtype=torch.float32)
            p.grad = p.summed_grad + own.view_as(p)

    optimizer.add_noise = add_noise
    audit = attach(optimizer, loader, injection="sum", canaries=1000, rng=seed)
    while audit.steps < steps:
        for rows, labels in loader:
            nn.functional.cross_entropy(model(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            if audit.steps == steps:
                break
    return audit.conformance()


def by_jax(fault: Fault | None, seed: int, steps: int = STEPS) -> Conformance:
    """Parameters of these shapes, and any clipped sums."""
    noise = [
        jnp.asarray(one.reshape(steps, *shape), jnp.float32)
        for one, shape in zip(noise_of(fault, seed, steps), SHAPES, strict=True)
    ]

    def add(sums: Any, step: Any, params: Any = None) -> Any:
        return [leaf + own[step] for leaf, own in zip(sums, noise, strict=True)], step + 1

    privatizer = optax.GradientTransformation(lambda _: jnp.zeros((), jnp.int32), add)
    sums = [jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32) for shape in SHAPES]
    stated = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1}
    audit = attach_to_jax(privatizer, sums, canaries=1000, rng=seed, **stated)
    state = jax.lax.scan(
        lambda now, _: (audit.privatizer.update(sums, now)[1], None),
        audit.privatizer.init(sums),
        length=steps,
    )[0]
    jax.clear_caches()
    return audit.conformance(state)


@faults
@runs
@pytest.mark.parametrize("trained", [by_opacus, pytest.param(by_jax, marks=pytest.mark.full)])
def test_faults_of_the_noise_are_found(trained: Any, fault: Fault, runs: int) -> None:
    """1,000 canaries, 100 steps: p <= 1e-4 in 19 of 20 runs."""
    found = [trained(fault, seed).p_value for seed in range(runs)]
    assert sum(p_value <= 1e-4 for p_value in found) >= runs * 19 / 20


@pytest.mark.parametrize("trained", [by_opacus, by_jax])
def test_one_noiseless_step_of_fifty_is_found(trained: Any) -> None:
    def silent(noise: list[np.ndarray], _: Any) -> list[np.ndarray]:
        for one in noise:
            one[31] = 0
        return noise

    found = trained(silent, 0, steps=50)
    assert found.p_value <= 1e-6
    assert "step 32" in found.answer
    assert trained(None, 0, steps=50).p_value >= 1e-4


@pytest.mark.parametrize("trained", [by_opacus, by_jax])
def test_a_twentieth_of_the_noise_less_is_found(trained: Any) -> None:
    found = trained(lambda noise, _: [0.95 * one for one in noise], 0, steps=30)
    assert found.p_value <= 1e-9
