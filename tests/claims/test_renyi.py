"""Rényi claims against exact divergences of small mechanisms, and against dp-accounting."""

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant

from canaria import InputError
from canaria._core.arrays import Floats
from canaria.claims import (
    ApproximateDP,
    Claim,
    Composed,
    Curve,
    DpSgd,
    GaussianDP,
    LaplaceDP,
    RenyiDP,
    ZeroConcentratedDP,
    as_replace_one,
    parse_claim,
)

EPSILONS = np.linspace(0, 8, 33)
ORDERS = np.concatenate([1 + np.logspace(-4, 0, 40), np.logspace(0.31, 4, 80)])


def laws(seed: int) -> tuple[Floats, Floats, Floats]:
    """Three laws on a few outcomes, at distances from very near to far."""
    rng = np.random.default_rng(seed)
    weights = np.exp(rng.normal(scale=rng.choice([0.05, 0.5, 3.0]), size=(3, rng.integers(2, 6))))
    first, second, third = weights / weights.sum(axis=1, keepdims=True)
    return first, second, third


def divergence(p: Floats, q: Floats, order: float) -> float:
    """Rényi's, in both directions: the larger one."""
    one, other = np.log(p), np.log(q)
    sums = [np.logaddexp.reduce(order * a + (1 - order) * b) for a, b in ((one, other), (other, one))]
    return float(max(sums) / (order - 1))


def delta(p: Floats, q: Floats, epsilon: float) -> float:
    """The smallest delta at which two laws are (epsilon, delta)-close."""
    return float(max(np.maximum(a - math.exp(epsilon) * b, 0).sum() for a, b in ((p, q), (q, p))))


@pytest.mark.parametrize("seed", range(60))
def test_a_renyi_claim_is_never_too_strong(seed: int) -> None:
    p, q, _ = laws(seed)
    order = float(np.random.default_rng(seed).choice(ORDERS))
    promised = RenyiDP(order, divergence(p, q, order)).profile(EPSILONS).included
    rho = max(divergence(p, q, one) / one for one in ORDERS) * 1.001  # the orders are a grid
    concentrated = ZeroConcentratedDP(rho).profile(EPSILONS).included
    for epsilon, one, other in zip(EPSILONS.tolist(), promised, concentrated, strict=True):
        assert delta(p, q, epsilon) <= min(one, other)


@pytest.mark.parametrize("seed", range(60))
def test_a_replaced_row_is_never_promised_too_much(seed: int) -> None:
    """One row is removed (first to second), and another is added (second to third)."""
    p, middle, q = laws(seed)
    pairs = ((p, middle), (middle, q))
    curve = Curve(EPSILONS, [max(delta(a, b, one) for a, b in pairs) for one in EPSILONS.tolist()])
    rho = max(divergence(a, b, one) / one for one in ORDERS for a, b in pairs) * 1.001
    for claim in (curve, ZeroConcentratedDP(rho)):
        promised = as_replace_one(claim)
        assert promised.adjacency == "replace"
        deltas = promised.profile(EPSILONS).included
        assert all(delta(p, q, one) <= two for one, two in zip(EPSILONS.tolist(), deltas, strict=True))


@pytest.mark.parametrize(("order", "epsilon"), [(16.0, 0.5), (1.5, 2.0), (64.0, 0.01)])
def test_renyi_epsilons_are_those_of_dp_accounting(order: float, epsilon: float) -> None:
    theirs, _ = rdp_privacy_accountant.compute_epsilon([order], [epsilon], 1e-5)
    assert RenyiDP(order, epsilon).epsilon_at(1e-5) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("rho", [1e-6, 0.02, 0.5, 8.0, 100.0])
def test_concentrated_dp_is_between_gaussian_noise_and_the_usual_formula(rho: float) -> None:
    found = ZeroConcentratedDP(rho).epsilon_at(1e-5)
    assert GaussianDP(math.sqrt(2 * rho)).epsilon_at(1e-5) < found
    assert found < rho + 2 * math.sqrt(rho * math.log(1e5))


@pytest.mark.parametrize("claim", [RenyiDP(1.0001, 0.0), RenyiDP(1e5, 1e5), ZeroConcentratedDP(0.0)])
def test_extreme_claims_are_profiles(claim: Claim) -> None:
    deltas = claim.profile(np.linspace(0, 700, 50)).included
    assert (np.diff(deltas) <= 0).all()
    assert (deltas <= 1).all()
    assert claim.epsilon_at(0.0) == math.inf


def test_replacing_has_closed_forms() -> None:
    assert as_replace_one(GaussianDP(0.7)) == GaussianDP(1.4, "replace")
    assert as_replace_one(LaplaceDP(0.7)) == LaplaceDP(1.4, "replace")
    found = as_replace_one(ApproximateDP(1.0, 1e-5, "add-remove"))
    assert (found.epsilon, found.adjacency) == (2.0, "replace")  # type: ignore[attr-defined]
    assert found.delta_at(2.0) == pytest.approx((1 + math.e) * 1e-5)
    sgd = as_replace_one(DpSgd(noise_multiplier=1.0, sample_rate=0.1, steps=10))
    assert 2.855 < sgd.epsilon_at(1e-5) < 3 * 2.855
    both = as_replace_one(Composed((GaussianDP(3.0), LaplaceDP(1.0))))
    assert both.adjacency == "replace"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: as_replace_one(GaussianDP(1.0, "replace")), "about replaced rows already"),
        (lambda: RenyiDP(1.0, 1.0), "order must be above 1"),
        (lambda: RenyiDP(2.0, -1.0), "epsilon must be at least 0"),
        (lambda: ZeroConcentratedDP(math.inf), "rho must be"),
        (lambda: parse_claim("zcdp:rh=1", 1e-5), "the claim must be an epsilon, zcdp"),
        (lambda: parse_claim("zcd:rho=1", 1e-5), "did you mean 'zcdp'"),
        (lambda: parse_claim("nan", 1e-5), "the claim must be a number"),
        (lambda: parse_claim("gaussian:noise_multiplier=0", 1e-5), "noise_multiplier must be"),
    ],
)
def test_what_is_no_claim_is_refused(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


def test_claims_are_parsed_written_and_read() -> None:
    assert parse_claim("2", 1e-5) == ApproximateDP(2.0, 1e-5)
    assert parse_claim("gaussian:noise_multiplier=2", 1e-5) == GaussianDP(0.5)
    found = parse_claim("rdp:order=8,epsilon=0.5", 1e-5)
    assert found == RenyiDP(8, 0.5)
    assert Claim.from_dict({"kind": "RenyiDP", **found.to_dict()}) == found
