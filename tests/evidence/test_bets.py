"""Bets: wealth, mixtures, supermartingales."""

import functools
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, optimize

from canaria import lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Bets
from canaria.evidence._mixture import log_mixture
from tests import oracles


def test_pinned_wealth() -> None:
    """The pinned values of theory section 11."""
    evidence = Bets([0.9, 0.8, 0.6, 0.95, 0.95, 0.97], [1, 0, 1, 1, 1, 1])
    expected = [1.445878, 0.765945, 0.765945, 1.168989, 1.784116, 2.780250]
    assert evidence.wealth(0.5) == pytest.approx(expected, abs=1e-6)
    assert evidence.p_value(ApproximateDP(0.5, delta=0)) == pytest.approx(1 / 2.780250, abs=1e-6)
    assert evidence.tally(ApproximateDP(0.5, delta=0)) == (4, 5)


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


@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.02), (0.7, 0.1), (1.5, 0.2)])
def test_no_mechanism_beats_bets_whose_stakes_adapt(epsilon: float, delta: float) -> None:
    """Theorem 10 with delta: Pr[p-value <= t] <= t over all mechanisms and all trees of elements, signs, stakes.

    A linear program for three elements and stakes 0.7, 0.9 and 0.99; t takes a dozen of the values that occur.
    """
    claim = ApproximateDP(epsilon, delta)

    @functools.cache
    def p_value(history: oracles.History) -> float:
        stakes, hits = zip(*history, strict=True) if history else ((0.5,), (0,))
        return Bets(stakes, hits, 3).p_value(claim)

    histories = itertools.product(itertools.product((0.7, 0.9, 0.99), (0, 1)), repeat=3)
    levels = sorted({round(p, 12) for p in map(p_value, histories) if p < 1 - 1e-9})
    assert len(levels) > 3
    for level in levels[:: max(1, len(levels) // 12)]:
        trees = oracles.guessers(3, lambda h, t=level: int(p_value(h) <= t + 1e-11), (0.7, 0.9, 0.99))
        worst = oracles.worst_mean(oracles.up_to_symmetry(trees, 3), 3, [(math.exp(epsilon), delta)])
        assert worst <= level + 1e-7


def largest_chance(rejects: np.ndarray, epsilon: float, flips: float) -> float:
    """The best that an adversary does who raises hit chances by `flips` in all, on average, at will.

    `rejects[k, h]` tells whether h hits among k guesses reject. The dual: each unit of flips has a price, and
    at every guess the chance of a hit is p, or 1 for what that costs.
    """
    p = oracles.success(epsilon)

    def at(price: float) -> float:
        value = rejects[-1].astype(float)
        for rejected in rejects[-2::-1]:
            hit, miss = np.append(value[1:], 0.0), value
            value = np.where(rejected, 1.0, np.maximum(p * hit + (1 - p) * miss, hit - price * (1 - p)))
        return price * flips + float(value[0])

    return float(optimize.minimize_scalar(at, bounds=(0.0, 1 / (1 - p)), method="bounded").fun)


@pytest.mark.parametrize("delta", [0.0, 1e-3, 0.01])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_no_spending_of_delta_beats_the_mixture(epsilon: float, delta: float) -> None:
    """Theorems 10 and 11 (a): the exact worst case over adaptive spending and stopping, by dynamic programming."""
    claim, length = ApproximateDP(epsilon, delta), 20
    flips = length * delta / (1 + math.exp(epsilon))
    alone = np.ones((length + 1, length + 1))
    for guesses in range(1, length + 1):
        for right in range(guesses + 1):
            hits = [0] * (guesses - right) + [1] * right
            alone[guesses, right] = Bets(None, hits, length).p_value(claim)
    all_right = Bets(None, [1] * length, length).p_value(claim)
    assert alone[length, length] == pytest.approx(all_right, rel=1e-7)
    for level in np.unique(alone[alone < 1])[::7]:
        assert largest_chance(alone <= level, epsilon, flips) <= level + 1e-9


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


@pytest.mark.parametrize("elements", [10**4, 10**6])
def test_capped_mixture_is_the_integral(elements: int) -> None:
    """Wealth of the average over [p, p e^eta], also where all of its weight lies at the upper end."""
    for epsilon, right, wrong in [(0.0, 30, 3), (0.5, 400, 20), (1.0, 5000, 300), (2.0, 70, 0), (0.0, 3, 40)]:
        p, spent = oracles.success(epsilon), elements * 1e-4
        eta = min(-math.log(p), 0.1 / spent)
        highest = p * math.exp(eta)
        values, weights = np.polynomial.legendre.leggauss(400)
        q = p + (highest - p) * (values + 1) / 2
        logs = right * np.log(q / p) + wrong * np.log((1 - q) / (1 - p))
        exact = logs.max() + math.log(float(weights @ np.exp(logs - logs.max())) / 2)
        found = float(log_mixture(right, right + wrong, epsilon, highest))
        assert exact - 0.05 * max(1.0, exact * 0.01) <= found <= exact + 1e-8


def test_a_delta_too_small_for_logarithms_is_no_delta() -> None:
    """Logarithms of denormal numbers have few digits: the p-value must not fall below that without delta."""
    evidence = Bets([0.9] * 50, [1] * 50)
    without = evidence.p_value(ApproximateDP(0.5, delta=0))
    for delta in (5e-324, 1e-310, 1e-290, 1e-200):
        assert evidence.p_value(ApproximateDP(0.5, delta)) == pytest.approx(without, rel=1e-9)
