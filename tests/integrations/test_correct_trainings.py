"""Correct trainings, as different as they come: none is accused."""

from collections.abc import Iterable
from itertools import combinations, product
from typing import Any

import pytest
import torch
from opacus.schedulers import ExponentialGradClip, ExponentialNoise
from scipy import stats

from canaria.integrations.opacus import attach
from tests.integrations.digits import audited, private

MODES = ("hooks", "functorch", "ghost")
INJECTIONS = ("sum", "rows", "head")
SCHEDULES = ("none", "learning rate", "noise", "clip norm")
CASES = [
    (mode, injection, schedule, base)
    for mode, injection, schedule, base in product(MODES, INJECTIONS, SCHEDULES, ("SGD", "AdamW"))
    if (mode, injection) != ("ghost", "rows") and (mode, schedule) != ("ghost", "clip norm")
]
PAIRWISE = (
    ("hooks", "sum", "clip norm", "SGD"),
    ("hooks", "rows", "learning rate", "SGD"),
    ("hooks", "rows", "none", "SGD"),
    ("hooks", "head", "clip norm", "AdamW"),
    ("hooks", "head", "noise", "SGD"),
    ("functorch", "sum", "learning rate", "AdamW"),
    ("functorch", "rows", "noise", "AdamW"),
    ("functorch", "rows", "clip norm", "SGD"),
    ("functorch", "head", "none", "SGD"),
    ("ghost", "sum", "none", "AdamW"),
    ("ghost", "sum", "noise", "SGD"),
    ("ghost", "head", "learning rate", "SGD"),
)
"""Every pair of values that occurs in a case occurs in one of these. `make test-all` runs the other cases."""


def test_a_fifth_of_the_cases_holds_every_pair() -> None:
    def pairs(cases: Iterable[tuple[str, ...]]) -> set[Any]:
        return {pair for case in cases for pair in combinations(enumerate(case), 2)}

    assert pairs(PAIRWISE) == pairs(CASES)


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.full) for seed in range(1, 10))])
@pytest.mark.parametrize(
    ("mode", "injection", "schedule", "base"),
    [pytest.param(*case, marks=[pytest.mark.slow] * (case not in PAIRWISE)) for case in CASES],
)
def test_none_is_accused(mode: str, injection: str, schedule: str, base: str, seed: int) -> None:
    """False-alarm rate 1e-4 each."""
    made = private(injection, canaries=300, seed=seed, mode=mode, rows=150, adam=base == "AdamW")
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
