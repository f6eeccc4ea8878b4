"""Correct trainings, as different as they come: none is accused."""

import pytest
import torch
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from scipy import stats

from canaria.integrations.opacus import attach
from tests.integrations.digits import audited, private

WAYS = [
    (mode, injection)
    for mode in ("hooks", "functorch", "ghost")
    for injection in ("sum", "rows", "head")
    if (mode, injection) != ("ghost", "rows")
]
SCHEDULES = ("none", "learning rate", "noise", "clip norm")
CASES = [
    (mode, injection, schedule)
    for mode, injection in WAYS
    for schedule in SCHEDULES
    if (mode, schedule) != ("ghost", "clip norm")
]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 10))])
@pytest.mark.parametrize("adam", [False, True], ids=["SGD", "AdamW"])
@pytest.mark.parametrize(("mode", "injection", "schedule"), CASES)
def test_none_is_accused(mode: str, injection: str, adam: bool, schedule: str, seed: int) -> None:
    """False-alarm rate 1e-4 each."""
    made = private(injection, canaries=300, seed=seed, mode=mode, rows=150, adam=adam)
    audit = attach(made.optimizer, made.loader, injection=injection, canaries=300, rng=seed)
    schedulers = {
        "none": lambda: None,
        "learning rate": lambda: torch.optim.lr_scheduler.ExponentialLR(made.optimizer, 0.8),
        "noise": lambda: ExponentialNoise(made.optimizer, gamma=0.8),
        "clip norm": lambda: ExponentialGradClip(made.optimizer, gamma=0.8),
    }
    scheduler = schedulers[schedule]()
    for _ in range(3):
        made.one_pass()
        if scheduler is not None:
            scheduler.step()
    report = audit.report(claimed=50.0, delta=1e-5)
    assert report.contradictions == ()
    assert report.conformance is not None
    assert report.conformance.p_value >= 1e-4
    assert not report.alarming


@pytest.mark.full
@pytest.mark.parametrize(("mode", "injection"), [("hooks", "sum"), ("hooks", "rows"), ("ghost", "head")])
def test_p_values_are_uniform(mode: str, injection: str) -> None:
    """100 real trainings; false-alarm rate 2e-4."""
    found = [
        audited(injection, canaries=300, steps=20, rows=150, mode=mode, seed=seed)[0].conformance().p_value
        for seed in range(100)
    ]
    assert stats.kstest(found, "uniform").pvalue >= 1e-4
    assert stats.binom.sf(sum(p_value <= 0.05 for p_value in found) - 1, len(found), 0.05) >= 1e-4
