"""Clipping per layer: a canary has one weight in each layer (Theorem 34)."""

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats

from canaria.integrations.opacus import Audit, attach
from tests.integrations.digits import DELTA, audited, private

NORMS = [0.5, 0.1, 0.7, 0.5]
SEEDS = [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 10))]


def per_layer(
    injection: str, *, canaries: int = 100, norms: list[float] | None = None, **options: Any
) -> Audit:
    """Digits; 100 canaries have a weight in the two matrices, and biases of 16 and 10 are too small."""
    return audited(injection, canaries=canaries, clip=norms or NORMS, clipping="per_layer", **options)[0]


def test_table_is_the_likelihood_of_all_layers() -> None:
    """By the density of what every layer shows, and all participations of two canaries over five steps."""
    made = private("sum", clipping="per_layer", clip=NORMS, batches=5, sigma=0.8)
    optimizer, clipped, shown = made.optimizer, [], []
    clip = optimizer.clip_and_accumulate

    def clip_and_keep() -> None:
        clip()
        clipped.append([p.summed_grad.clone() for p in optimizer.params])

    optimizer.clip_and_accumulate = clip_and_keep
    audit = attach(optimizer, made.loader, injection="sum", canaries=240, per_coordinate=2, rng=3)
    optimizer.original_optimizer.register_step_pre_hook(
        lambda *_: shown.append([p.grad * optimizer.expected_batch_size for p in optimizer.params])
    )
    made.one_pass()
    steps, rate = len(shown), audit.sample_rate
    assert steps == 5
    laid = audit._steps.injection.places.layout
    places = {place: torch.tensor(chosen) for place, chosen in enumerate(laid.canaries) if len(chosen)}
    assert sorted(places) == [0, 2]
    seen = {
        place: torch.stack(
            [
                noisy[place].ravel()[at] - sums[place].ravel()[at]
                for noisy, sums in zip(shown, clipped, strict=True)
            ]
        ).numpy()
        for place, at in places.items()
    }
    scale = 0.8 * math.hypot(*NORMS)
    expected = []
    for canaries in range(3):
        patterns = []
        for taking in itertools.product(range(canaries + 1), repeat=steps):
            chances = stats.binom.logpmf(np.array(taking), canaries, rate).sum()
            densities = [
                stats.norm.logpdf(seen[place], np.array(taking)[:, None] * NORMS[place], scale).sum(axis=0)
                for place in places
            ]
            patterns.append(chances + sum(densities))
        expected.append(special.logsumexp(patterns, axis=0))
    table = audit.recording().table
    assert table is not None
    assert table == pytest.approx((np.array(expected) - expected[0]).T, abs=2e-4)


def test_canaries_have_a_weight_in_every_layer_with_room() -> None:
    """Ten canaries also have one in the biases; a thousand have one in the first matrix alone."""
    small, large = per_layer("sum", canaries=10, steps=10), per_layer("sum", canaries=1000, steps=10)
    assert small.recording().canary_norm == 1
    assert large.recording().canary_norm == pytest.approx(NORMS[0] / math.hypot(*NORMS))
    assert large.noise_multiplier == pytest.approx(small.noise_multiplier)
    report = large.report(claimed=50.0, delta=DELTA, rungs=False)
    assert "of 0.5 clip norms" in report.facts["canaries"]
    assert report.conformance is not None
    assert report.conformance.stated_noise == pytest.approx(small.noise_multiplier)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("injection", ["sum", "rows"])
def test_correct_training_is_not_accused(injection: str, seed: int) -> None:
    """Also with canaries of less than the clip norm; false-alarm rate 1e-3 each. The accountant's claim is 2."""
    audit = per_layer(injection, seed=seed, rows=300)
    report = audit.report(claimed=2.0, delta=DELTA, rungs=seed > 0)
    assert report.contradictions == ()
    assert report.conformance is not None
    assert report.conformance.p_value >= 1e-3
    assert not report.alarming
    assert report.bound.epsilon <= 2


@pytest.mark.full
@pytest.mark.parametrize("injection", ["sum", "rows"])
def test_p_values_are_uniform(injection: str) -> None:
    """20 trainings; false-alarm rate 1e-3."""
    found = [per_layer(injection, seed=seed, rows=200, steps=30).conformance().p_value for seed in range(20)]
    assert stats.kstest(found, "uniform").pvalue >= 1e-3


@pytest.mark.parametrize("runs", [1, pytest.param(10, marks=pytest.mark.full)])
def test_same_bound_as_flat_clipping(runs: int) -> None:
    """Of the same total norm, with little noise so that bounds are large: mean scores agree within 5 errors.

    A bound of one run varies by about 0.5.
    """
    kinds: list[dict[str, Any]] = [{"clip": 1.0}, {"clip": [0.6, 0.8], "clipping": "per_layer"}]
    scores, bounds = [], []
    for options in kinds:
        audits = [wide(seed, **options) for seed in range(runs)]
        records = [audit.recording() for audit in audits]
        assert all(record.canary_norm == 1 for record in records)
        scores.append(
            np.concatenate([record.bits * record.losses(np.zeros_like(record.bits)) for record in records])
        )
        bounds.append([audit.bound(DELTA).epsilon for audit in audits])
    flat, apart = scores
    error = math.sqrt(flat.var() / len(flat) + apart.var() / len(apart))
    assert abs(flat.mean() - apart.mean()) <= 5 * error
    assert np.mean(bounds[1]) == pytest.approx(np.mean(bounds[0]), abs=2.0 / math.sqrt(runs))
    assert min(bounds[1]) > 1


def wide(seed: int, **options: Any) -> Audit:
    """A network without biases, in which 600 canaries have a weight in each layer."""
    made = private("sum", seed=seed, hidden=64, sigma=0.7, biases=False, **options)
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=600, rng=seed)
    while audit.steps < 50:
        made.one_pass()
    return audit


def doubled(layer: int) -> Any:
    """One layer is clipped to twice its norm; noise is as stated."""

    def tamper(optimizer: Any) -> None:
        stated, clip = optimizer.max_grad_norms, optimizer.clip_and_accumulate

        def clip_less() -> None:
            optimizer.max_grad_norms = [n * (1 + (i == layer)) for i, n in enumerate(stated)]
            clip()
            optimizer.max_grad_norms = stated

        optimizer.clip_and_accumulate = clip_less

    return tamper


@pytest.mark.parametrize("layer", [0, 2])
def test_a_layer_clipped_to_twice_its_norm_is_certain(layer: int) -> None:
    """Real rows weigh more there, too, so canaries seem to weigh more than twice the norm."""
    (found,) = per_layer("rows", steps=20, tamper=doubled(layer)).recording().contradictions
    assert re.match(r"canaries weighed [2-5][.\d]* norms of a layer", found)


def quieter(layer: int, factor: float) -> Any:
    """The noise of one layer is so many times what is stated."""

    def tamper(optimizer: Any) -> None:
        own = optimizer.add_noise

        def add_noise() -> None:
            own()
            p = optimizer.params[layer]
            p.grad = p.summed_grad + factor * (p.grad - p.summed_grad)

        optimizer.add_noise = add_noise

    return tamper


@pytest.mark.parametrize("layer", range(4))
def test_noise_that_is_wrong_in_one_layer_is_found(layer: int) -> None:
    """Also in the layers that have no weight for every canary."""
    found = per_layer("sum", steps=50, tamper=quieter(layer, 0.5)).conformance()
    assert found.p_value <= 1e-6
    assert f"parameter {layer + 1} of 4" in found.answer or "noise multiplier" in found.answer


def test_noise_for_each_layer_by_its_own_norm_is_found() -> None:
    """A common mistake: it hides every layer less than the sensitivity of all needs."""

    def tamper(optimizer: Any) -> None:
        def add_noise() -> None:
            for p, norm in zip(optimizer.params, optimizer.max_grad_norms, strict=True):
                p.grad = p.summed_grad + torch.randn_like(p) * optimizer.noise_multiplier * norm

        optimizer.add_noise = add_noise

    assert per_layer("sum", steps=50, tamper=tamper).conformance().p_value <= 1e-6


def test_half_of_the_noise_is_found() -> None:
    assert per_layer("rows", steps=50, sigma=1.2112, stated=2.4224).conformance().p_value <= 1e-6
