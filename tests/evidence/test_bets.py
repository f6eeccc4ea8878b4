"""Bets: wealth, mixtures, supermartingales."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate

from canaria import lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Bets
from tests import oracles


def test_pinned_wealth() -> None:
    """The pinned values of theory section 11."""
    evidence = Bets([0.9, 0.8, 0.6, 0.95, 0.95, 0.97], [1, 0, 1, 1, 1, 1])
    expected = [1.445878, 0.765945, 0.765945, 1.168989, 1.784116, 2.780250]
    assert evidence.wealth(0.5) == pytest.approx(expected, abs=1e-6)
    assert evidence.p_value(ApproximateDP(0.5, 1e-3)) == pytest.approx(
        1 / 2.780250 + 6e-3 / (1 + math.exp(0.5)), abs=1e-6
    )
    assert evidence.tally(0.5) == (4, 5)


def test_pinned_mixture() -> None:
    assert Bets(None, [1] * 27 + [0] * 3).wealth(0.5)[-1] == pytest.approx(141.594, abs=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 30), st.integers(0, 30), st.floats(0, 3))
def test_mixture_is_the_integral(right: int, wrong: int, epsilon: float) -> None:
    p, hits = oracles.success(epsilon), [1] * right + [0] * wrong
    if not hits:
        return
    log_scale = right * math.log(p) + wrong * math.log1p(-p)
    value, _ = integrate.quad(
        lambda q: math.exp(right * math.log(q) + wrong * math.log1p(-q) - log_scale) if q < 1 else 0.0, p, 1
    )
    assert Bets(None, hits).wealth(epsilon)[-1] == pytest.approx(value / (1 - p), rel=1e-6)


@pytest.mark.parametrize("confidences", [None, [0.9, 0.6, 0.99, 0.7, 0.8, 0.95, 0.75, 0.55]])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_wealth_is_a_martingale_under_randomised_response(
    confidences: list[float] | None, epsilon: float
) -> None:
    """The mean over all 2^8 hit sequences is exactly 1 at every step."""
    p, mean = oracles.success(epsilon), np.zeros(8)
    for hits in itertools.product((0, 1), repeat=8):
        chance = p ** sum(hits) * (1 - p) ** (8 - sum(hits))
        mean += chance * Bets(confidences, hits).wealth(epsilon)
    assert mean == pytest.approx(np.ones(8), rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.booleans(), st.sampled_from([0.0, 1e-5, 1e-3]))
def test_screen_agrees_with_the_p_value(seed: int, mixture: bool, delta: float) -> None:
    rng = np.random.default_rng(seed)
    stated = rng.uniform(0.5, 0.99, 150)
    evidence = Bets(None if mixture else stated, rng.random(150) < stated)
    claims = np.linspace(0, 3, 16)
    for claim, verdict in zip(claims, evidence.screen(claims, delta, 0.05), strict=True):
        if verdict:
            assert (evidence.p_value(ApproximateDP(float(claim), delta)) <= 0.05) == (verdict > 0)


def test_reference_bounds_of_mixture_bets() -> None:
    """Theory section 6: accuracy 0.731 gives 0.361 at 100 guesses and 0.774 at 1,000.

    Hits are spread evenly, so that the wealth is largest at the end.
    """
    for taken, expected in ((100, 0.361), (1000, 0.774)):
        hits = np.diff(np.floor(np.arange(taken + 1) * oracles.success(1.0))) > 0
        assert lower_bound(Bets(None, hits)).epsilon == pytest.approx(expected, abs=0.02)


def test_certain_bets_are_refused() -> None:
    with pytest.raises(ValueError, match="confidences must be at least 0 and below 1, got 1"):
        Bets([0.5, 1.0], [1, 1])
