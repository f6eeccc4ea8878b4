"""Training audits as tests: real Opacus and JAX Privacy, by the fixture and outside of pytest."""

from typing import Any

import jax
import jax.numpy as jnp
import pytest
import torch
from jax_privacy.noise_addition import gaussian_privatizer

from canaria import InputError, combine
from canaria.claims import ApproximateDP
from canaria.integrations import jax_privacy
from canaria.testing import assert_private_training
from tests.integrations.digits import DELTA, SIGMA, audited

torch.set_num_threads(1)


@pytest.mark.privacy(audits=2)
@pytest.mark.parametrize("injection", ["sum", "rows"])
def test_correct_training_passes(assert_private_training: Any, injection: str) -> None:
    """Epsilon 2 by the accountant. The false-alarm rate is that of the plugin."""
    audit, made = audited(injection, canaries=500, steps=50, seed=assert_private_training.seed)
    claimed = made.engine.get_epsilon(DELTA)
    assert claimed < 2
    assert assert_private_training(audit, claimed, DELTA).about is not None
    assert assert_private_training(audit.recording(), claimed, DELTA, conformance=False).epsilon <= claimed


def test_other_noise_fails_by_conformance_alone() -> None:
    audit, _ = audited("sum", canaries=500, steps=50, sigma=1.5 * SIGMA, stated=SIGMA)
    with pytest.raises(
        AssertionError, match=r"is not refuted(.|\n)*NOT match what was stated: noise multiplier 3\.6"
    ):
        assert_private_training(audit, 4.0, DELTA)
    assert_private_training(audit, 4.0, DELTA, conformance=False)


def test_half_of_the_noise_fails_without_conformance_too() -> None:
    audit, _ = audited("sum", canaries=500, steps=50, sigma=SIGMA / 2, stated=SIGMA)
    with pytest.raises(AssertionError, match=r"the noise is only 0\.499 times"):
        assert_private_training(audit, 4.0, DELTA, conformance=False)


def test_no_noise_fails_by_the_bound() -> None:
    audit, _ = audited("sum", canaries=500, steps=50, sigma=0.01, stated=SIGMA)
    with pytest.raises(AssertionError, match="is REFUTED"):
        assert_private_training(audit, 2.0, DELTA, conformance=False)


def test_several_audits_of_one_training_run() -> None:
    """Asked in two ways: both bounds hold at once."""
    audit, _ = audited("sum", canaries=500, steps=50, seed=1)
    recording = audit.recording()
    seen = combine({"ranked": audit, "adaptive": recording.transcript(adaptive=True)}, delta=DELTA)
    assert seen.bound.about == seen.bounds["ranked"].about
    assert not seen.refutes(ApproximateDP(2.0, DELTA, "add-remove"))


def test_jax_audits_are_held_by_their_recording() -> None:
    params = {"weights": jnp.zeros((50, 40))}
    privatizer = gaussian_privatizer(stddev=SIGMA, prng_key=0)
    audit = jax_privacy.attach(
        privatizer, params, canaries=1000, clip_norm=1.0, noise_multiplier=SIGMA, sample_rate=0.1, rng=0
    )
    state, step = audit.privatizer.init(params), jax.jit(audit.privatizer.update)
    for _ in range(50):
        _, state = step(params, state)
    assert assert_private_training(audit.recording(state), 2.0, DELTA).epsilon < 2
    with pytest.raises(InputError, match="the recording of a JAX audit"):
        assert_private_training(audit, 2.0, DELTA)
