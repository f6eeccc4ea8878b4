"""The cases are what they say: exactly (epsilon, delta)-DP, by the laws of outputs that simulation shows."""

import math

import numpy as np
import pytest

from canaria.claims.accounting import dpsgd_epsilon
from canaria.lab.validity import CASES
from canaria.lab.validity._games import Draw
from canaria.lab.validity.cases import (
    all_or_nothing,
    burst,
    extremal,
    leaky,
    name_and_shame,
    one_sided,
    randomised_response,
    tied,
)
from tests.oracles import success

DRAWS, LEVEL = 1_000_000, 0.05

SMALL: dict[str, tuple[Draw, float, float]] = {
    "randomized response": (randomised_response(1.0), 1.0, 0.0),
    "extremal, all guessed": (extremal(0.5, 0.06, 3), 0.5, 0.06),
    "extremal, two of three": (extremal(1.0, 0.05, 2), 1.0, 0.05),
    "leaky": (leaky(1.0, 0.05), 1.0, 0.05),
    "all or nothing": (all_or_nothing(1.0, 0.05), 1.0, 0.05),
    "name and shame": (name_and_shame, 0.0, 1 / 3),
    "one-sided": (one_sided(1.0), 1.0, 0.0),
}


def divergence(outputs: np.ndarray, bits: np.ndarray, element: int, epsilon: float) -> float:
    """The hockey-stick divergence between the laws of the output given one bit, as seen."""
    size = int(outputs.max()) + 1
    laws = [np.bincount(outputs[bits[:, element] == sign], minlength=size) for sign in (1, -1)]
    given, other = (law / law.sum() for law in laws)
    return max(
        float(np.maximum(one - math.exp(epsilon) * two, 0).sum())
        for one, two in ((given, other), (other, given))
    )


@pytest.mark.parametrize("name", SMALL)
def test_epsilon_is_exact(name: str) -> None:
    """Three elements, a million draws: delta is spent at epsilon, and is not enough below it.

    An output is the sign of each score and whether it is large. Its seen divergence errs by less than 0.005,
    which is more than ten standard errors of 64 outputs.
    """
    draw, epsilon, delta = SMALL[name]
    games = draw((DRAWS, 3), np.random.default_rng(1), LEVEL)
    large = np.abs(games.scores) > (1.0 if name == "one-sided" else 20.0)
    signs = (games.scores > 0) & (name != "one-sided")
    outputs = np.concatenate([signs, large], axis=1) @ (1 << np.arange(6))
    for element in range(3):
        assert divergence(outputs, games.bits, element, epsilon) == pytest.approx(delta, abs=0.005)
        if epsilon > 0:
            assert divergence(outputs, games.bits, element, epsilon - 0.1) > delta + 0.005


def test_ties_are_independent_of_the_bits_that_they_hide() -> None:
    """Members first; given the place, a score is right with probability p(epsilon)."""
    games = tied(1.0)((20_000, 100), np.random.default_rng(2), LEVEL)
    assert (np.diff(games.bits, axis=1) <= 0).all()
    assert set(np.unique(games.scores)) == {-1.0, 1.0}
    assert (games.scores == games.bits).mean() == pytest.approx(success(1.0), abs=4 / math.sqrt(2_000_000))
    silent = tied(0.0)((1000, 100), np.random.default_rng(3), LEVEL)
    assert (np.abs(silent.scores).sum(axis=1) == 5).all()


@pytest.mark.parametrize(
    "name", [name for name, case in CASES.items() if case.known == "earlier" and case.fair]
)
def test_no_guess_is_right_more_often_than_allowed(name: str) -> None:
    """Over each place, given that it was guessed: right as often as p(epsilon), plus delta / (1 + e^epsilon).

    Five standard errors at a hundred or a thousand places: false alarm below 3e-4.
    """
    case = CASES[name]
    audits = 2_000_000 // case.n
    games = case.draw((audits, case.n), np.random.default_rng(4), LEVEL)
    taken = games.scores != 0
    hits = (np.sign(games.scores) == games.bits) & taken
    total = taken.sum(axis=0)
    spent = audits * case.delta * success(-case.epsilon)
    excess = hits.sum(axis=0) - total * success(case.epsilon) - spent
    assert (excess <= 5 * np.sqrt(np.maximum(total, 1) / 4)).all()


def test_a_burst_lays_a_fifth_open() -> None:
    """Open: always right, one in 25 elements; else a coin. Five standard errors."""
    games = burst((20_000, 100), np.random.default_rng(8), LEVEL)
    open_ = np.abs(games.scores) > 20
    hits = np.sign(games.scores) == games.bits
    assert set(open_.sum(axis=1).tolist()) == {0, 20}
    assert open_.any(axis=1).mean() == pytest.approx(0.2, abs=0.015)
    assert hits[open_].all()
    assert hits[~open_].mean() == pytest.approx(0.5, abs=0.002)
    assert open_.mean(axis=0) == pytest.approx(0.04, abs=0.007)


def test_the_others_decide_all_or_none() -> None:
    games = CASES["xor-1"].draw((20_000, 100), np.random.default_rng(5), LEVEL)
    right = (np.sign(games.scores) == games.bits).sum(axis=1)
    assert set(right.tolist()) == {0, 100}
    assert (right == 100).mean() == pytest.approx(success(1.0), abs=0.014)


@pytest.mark.parametrize("name", ["half", "half-counted"])
def test_half_is_exactly_half(name: str) -> None:
    games = CASES[name].draw((50, 100), np.random.default_rng(6), LEVEL)
    assert (games.bits.sum(axis=1) == 0).all()
    assert not CASES[name].fair


def test_truths_of_training_are_those_of_the_accountant() -> None:
    """The accountant's discretisation is on the safe side by up to 1e-3."""
    for steps, rate, case in ((4, 1.0, "training"), (1, 0.5, "training-sampled")):
        exact = CASES[case].epsilon
        assert 0 <= dpsgd_epsilon(1.5, CASES[case].delta, steps, rate, "pld") - exact < 2e-3


def test_truth_of_a_shuffled_pass_is_that_of_the_likelihood_ratio() -> None:
    """By a million values without the row, on both sides: 5 standard errors."""
    case, sigma = CASES["training-shuffled"], 1.5
    values = np.random.default_rng(9).normal(size=(1_000_000, 3))
    ratio = np.exp(values / sigma - 1 / (2 * sigma**2)).mean(axis=1)
    spent = [
        np.maximum(ratio - math.exp(case.epsilon), 0),
        np.maximum(1 - math.exp(case.epsilon) * ratio, 0),
    ]
    worse = max(spent, key=np.mean)
    assert worse.mean() == pytest.approx(case.delta, abs=5 * worse.std() / 1000)
    assert 5 * worse.std() / 1000 < case.delta / 4


@pytest.mark.parametrize("name", ["correlated-in-order", "correlated-banded"])
def test_truths_of_correlated_noise_are_those_of_its_losses(name: str) -> None:
    """By 500,000 losses with and without the row: 5 standard errors."""
    case = CASES[name]
    games = case.draw((1000, 1000), np.random.default_rng(10), LEVEL)
    spent = [
        np.maximum(1 - np.exp(case.epsilon - sign * games.scores[games.bits == sign]), 0) for sign in (1, -1)
    ]
    worse = max(spent, key=np.mean)
    error = worse.std() / math.sqrt(worse.size)
    assert worse.mean() == pytest.approx(case.delta, abs=5 * error)
    assert 5 * error < case.delta / 4


def test_planted_canaries_follow_their_coins() -> None:
    """Column sums are the coins plus Laplace noise: 5 standard errors."""
    for case, scale in (("planted", 1.0), ("zeroed-out", 0.5)):
        games = CASES[case].draw((200, 100), np.random.default_rng(7), LEVEL)
        noise = games.scores - (games.bits > 0)
        assert abs(noise.mean()) < 5 * scale * math.sqrt(2 / noise.size)
        assert np.abs(noise).mean() == pytest.approx(scale, rel=0.04)
