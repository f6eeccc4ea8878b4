"""Weights in half precision with `sum`: what is released is rounded, and conformance allows for it."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import Audit, attach, with_canary_head
from canaria.integrations.opacus._places import Places
from canaria.training import Dense
from canaria.training.canaries.witnesses import layout
from tests.integrations.digits import DELTA, SIGMA, digits

KINDS = [torch.bfloat16, pytest.param(torch.float16, marks=pytest.mark.full)]
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 10))]


def half(
    kind: torch.dtype,
    *,
    seed: int = 0,
    sigma: float = SIGMA,
    stated: float | None = None,
    rows: int = 400,
    steps: int = 50,
    canaries: Any = 1000,
    norm: float | list[float] = 1.0,
    push: float = 0.0,
) -> Audit:
    """Train on digits with weights of this kind; `push` is added to every clipped sum."""
    torch.manual_seed(seed)
    model: Any = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(kind)
    features, labels = digits(rows).tensors
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01 if push else 0.5),
        data_loader=DataLoader(TensorDataset(features.to(kind), labels), batch_size=rows // 10),
        noise_multiplier=sigma,
        max_grad_norm=norm,
        clipping="per_layer" if isinstance(norm, list) else "flat",
    )
    clip = optimizer.clip_and_accumulate

    def clip_and_push() -> None:
        clip()
        for p in optimizer.params:
            p.summed_grad += push

    optimizer.clip_and_accumulate = clip_and_push
    audit = attach(
        optimizer,
        loader,
        injection="sum",
        canaries=canaries,
        rng=seed,
        noise_multiplier=stated,
        on_error="raise",
    )
    while audit.steps < steps:
        for drawn, answers in loader:
            nn.functional.cross_entropy(model(drawn), answers).backward()
            optimizer.step()
            optimizer.zero_grad()
    return audit


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_conforms(kind: torch.dtype, seed: int) -> None:
    """With rounded sums of real rows that are small and large against the noise; false-alarm rate 1e-3 each."""
    for options in ({}, {"push": 20.0}):
        audit = half(kind, seed=seed, **options)
        report = audit.report(claimed=2.0, delta=DELTA, rungs=seed > 1)
        assert report.conformance is not None
        assert report.conformance.p_value >= 1e-3
        assert report.alarming == bool(options)  # what is pushed is no sum of clipped rows, and that is said


@pytest.mark.full
@pytest.mark.parametrize("push", [0.0, 20.0])
def test_p_values_are_uniform(push: float) -> None:
    """20 trainings; false-alarm rate 1e-3."""
    found = [half(torch.bfloat16, seed=seed, push=push).conformance().p_value for seed in range(20)]
    assert stats.kstest(found, "uniform").pvalue >= 1e-3


@pytest.mark.parametrize("canaries", [1000, Dense(300, 500)], ids=["dirac", "dense"])
@pytest.mark.parametrize("kind", KINDS)
def test_half_of_the_noise_is_found(kind: torch.dtype, canaries: Any) -> None:
    assert half(kind, sigma=SIGMA / 2, stated=SIGMA, canaries=canaries).conformance().p_value <= 1e-6
    assert half(kind, canaries=canaries).conformance().p_value >= 1e-3


def test_head_reads_half_precision() -> None:
    kind = torch.bfloat16
    torch.manual_seed(0)
    features, labels = digits(400).tensors
    headed, rows = with_canary_head(nn.Linear(64, 10).to(kind), TensorDataset(features.to(kind), labels), 200)
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=headed,
        optimizer=torch.optim.SGD(headed.parameters(), lr=0.1),
        data_loader=DataLoader(rows, batch_size=60),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
    )
    audit = attach(optimizer, loader, injection="head", canaries=200, rng=0)
    for _ in range(5):
        for inputs, targets in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs).float(), targets).backward()
            optimizer.step()
    assert audit.ended == ""
    assert audit.steps == 50
    assert audit.conformance().p_value > 1e-3


def test_missing_noise_is_found() -> None:
    """Where nothing is added, nothing is rounded."""
    assert half(torch.bfloat16, sigma=0.0, stated=SIGMA).conformance().p_value <= 1e-6


def test_layers_that_are_clipped_apart() -> None:
    audit = half(torch.bfloat16, canaries=300, norm=[0.6, 0.1, 0.8, 0.1])
    assert audit.recording().canary_norm == pytest.approx(1 / math.hypot(1, 0.1, 0.1))
    assert audit.conformance().p_value >= 1e-3


def test_sums_that_swallow_the_noise_are_not_tested() -> None:
    """Sums of 400 clip norms, between which bfloat16 has steps of 2; the bound holds."""
    audit = half(torch.bfloat16, push=400.0, steps=20)
    report = audit.report(claimed=2.0, delta=DELTA, rungs=False)
    assert report.conformance is None
    assert "round the sums by more than a tenth of the noise" in report.facts["conformance"]
    assert report.bound.epsilon <= 2


def test_bounds_stay_below_the_claim() -> None:
    """The accountant's epsilon is below 2 after 50 of 100 steps, also where sums are large."""
    for seed, push in ((2, 20.0), (3, 100.0)):
        assert half(torch.bfloat16, seed=seed, push=push).bound(DELTA).epsilon <= 2


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("batch", [37, 64])
@pytest.mark.parametrize("norm", [0.7, 1.0])
def test_rounding_adds_the_variance_that_is_said(kind: torch.dtype, batch: int, norm: float) -> None:
    """Sums of up to 40 times the noise, with and without canaries; within 5 standard errors.

    What is released is made as Opacus makes it: sum, noise and quotient are numbers of this kind.
    """
    torch.manual_seed(0)
    count = 200_000
    parameter: Any = nn.Parameter(torch.zeros(count, dtype=kind))
    places = Places([parameter], layout([(count,)], count, np.random.default_rng(0), coarse=[0]))
    parameter.summed_grad = (torch.rand(count) * 40).to(kind)
    taking = torch.rand(count) < 0.5
    places.take_sums()
    places.add(places.spread(taking.float()), norm)
    noise = torch.normal(0.0, 1.0, (count,), dtype=kind)
    parameter.grad = (parameter.summed_grad + noise) / batch
    places.subtract_gradients(batch)
    rounding = places.rounding(batch)
    assert rounding is not None
    shift, added = rounding
    assert (shift[~taking] == 0).all()
    left = -places.read(torch.empty(places.all)) - norm * taking.float() - shift
    scores = left.double() / (1 + added.double()).sqrt()
    error = math.sqrt(2 / count)
    assert float(scores.square().mean()) == pytest.approx(1, abs=5 * error)
    assert float(scores.mean()) == pytest.approx(0, abs=5 / math.sqrt(count))
    for some in (taking, ~taking):
        excess = float((left[some] - noise.float()[some]).square().mean())
        assert excess == pytest.approx(float(added[some].mean()), rel=0.05)


def test_the_release_is_what_the_optimizer_uses() -> None:
    """A canary that rounding swallows is not seen, and one that it doubles counts twice: both are released."""
    parameter: Any = nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))
    places = Places([parameter], layout([(2,)], 2, np.random.default_rng(0), coarse=[0]))
    parameter.summed_grad = torch.tensor([512.0, 258.0], dtype=torch.bfloat16)
    places.take_sums()
    places.add(places.spread(torch.ones(2)), 1.0)
    parameter.grad = parameter.summed_grad.clone()
    places.subtract_gradients(1.0)
    assert (-places.read(torch.empty(2))).tolist() == [0.0, 2.0]


def test_an_audit_goes_on_from_its_state() -> None:
    first = half(torch.bfloat16, steps=10)
    state = first.state_dict()
    rounding = first.recording().rounding
    assert rounding is not None
    first.detach()
    again = attach(
        first.optimizer, first.draws.loader, injection="sum", canaries=1000, state=state, rng=9
    ).recording()
    assert again.rounding is not None
    assert np.array_equal(np.array(again.rounding), np.array(rounding))
    assert np.array_equal(again.sums, first.recording().sums)
