"""Trade-off curves: the reference column, Gaussian claims, what they do not prove."""

import math
from typing import Any

import numpy as np
import pytest
from scipy import optimize, special

from canaria import InputError, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Tradeoff, tradeoff
from tests import oracles


@pytest.mark.parametrize(
    ("correct", "taken", "elements", "delta", "expected"),
    [
        (73, 100, 1000, 1e-5, 0.592),
        (80, 100, 64_000, 1e-5, 0.893),
        (900, 1000, 1_000_000, 1e-5, 1.920),
        (490, 500, 100_000, 1e-4, 3.178),
    ],
)
def test_reference_bounds(correct: int, taken: int, elements: int, delta: float, expected: float) -> None:
    """The column of theory section 3 for the (epsilon, delta) curve."""
    bound = lower_bound(Tradeoff(correct, taken, elements), delta)
    assert bound.epsilon == pytest.approx(expected, abs=1e-3)


def test_gaussian_claims() -> None:
    """80 of 100 right refutes mu = 0.5 but not the mu at which 80% is the expected accuracy."""
    evidence = Tradeoff(80, 100, 100)
    assert evidence.refutes_curve(tradeoff.gaussian(0.5))
    expected_mu = 2 * float(special.ndtri(0.8))
    assert not evidence.refutes_curve(tradeoff.gaussian(expected_mu))
    mu = evidence.gaussian_mu()
    assert 0.5 < mu < expected_mu
    assert evidence.curve_p_value(tradeoff.gaussian(mu)) == pytest.approx(0.05, rel=1e-6)


def test_gaussian_number_over_claims_on_randomised_response() -> None:
    """Randomized response with epsilon = 2: "if the mechanism is Gaussian" it reads 3.4."""
    correct = round(10_000 * oracles.success(2.0))
    mu = Tradeoff(correct, 10_000, 10_000).gaussian_mu()
    assert tradeoff.gaussian_epsilon(mu, 1e-5) > 3.3


def test_true_gaussian_claim_is_kept() -> None:
    """The sum of a bit and noise, 2,000 audits: refuted in at most 5% (4-sigma slack)."""
    rng = np.random.default_rng(11)
    mu, audits, n = 1.0, 2000, 100
    bits = rng.integers(0, 2, (audits, n))
    guesses = bits * mu + rng.normal(size=(audits, n)) > mu / 2
    correct = (guesses == bits).sum(axis=1)
    refuted = {v: Tradeoff(int(v), n, n).refutes_curve(tradeoff.gaussian(mu)) for v in np.unique(correct)}
    rate = np.mean([refuted[v] for v in correct])
    assert rate <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / audits)


def test_gaussian_epsilon_is_the_known_curve() -> None:
    """delta(epsilon) of the Gaussian mechanism, inverted."""
    epsilon = tradeoff.gaussian_epsilon(1.0, 1e-5)
    delta = special.ndtr(-epsilon + 0.5) - math.exp(epsilon) * special.ndtr(-epsilon - 0.5)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert tradeoff.gaussian_epsilon(0.0, 0.0) == 0.0


@pytest.mark.parametrize("mu", [math.inf, 1e200])
def test_no_noise_to_speak_of_is_refused(mu: float) -> None:
    with pytest.raises(InputError, match="mu must be at most 1,000,000, got"):
        tradeoff.gaussian_epsilon(mu, 0.1)
    with pytest.raises(InputError, match="mu must be at most 1,000,000, got"):
        tradeoff.gaussian(mu)


@pytest.mark.parametrize("curve", [3, lambda x: None, lambda x: "x"], ids=["3", "None", "text"])
def test_what_is_no_function_of_rates_is_refused(curve: Any) -> None:
    with pytest.raises(InputError, match="curve must be a function from rates to rates"):
        Tradeoff(80, 100, 100).refutes_curve(curve)


@pytest.mark.parametrize(
    "curve", [lambda x: x, lambda x: 1.5 - x, lambda x: max(0.0, 1 - 3 * x), lambda x: 1 - x**2]
)
def test_other_functions_are_refused(curve: tradeoff.Curve) -> None:
    """Rising, above the diagonal, asymmetric, concave."""
    with pytest.raises(InputError, match="curve must be"):
        Tradeoff(80, 100, 100).refutes_curve(curve)


def largest_chance(
    correct: int, taken: int, elements: int, lines: list[tuple[float, float]]
) -> tuple[float, np.ndarray]:
    """The largest Pr[V >= correct] over laws of V with R_u <= delta + kappa H_(u-1) for all lines, and that law."""
    right = np.arange(taken + 1.0)
    limits = [
        right * (right >= u) - kappa * (taken - right) * (right >= u - 1)
        for u in range(1, correct + 1)
        for kappa, _ in lines
    ]
    solved = optimize.linprog(
        -(right >= correct).astype(float),
        A_ub=limits,
        b_ub=elements * np.tile([delta for _, delta in lines], correct),
        A_eq=[np.ones(taken + 1)],
        b_eq=[1.0],
        bounds=(0, None),
        method="highs",
    )
    assert solved.success
    return -float(solved.fun), solved.x


@pytest.mark.parametrize(
    ("correct", "taken", "elements", "epsilon", "delta"),
    [
        (1, 2, 2, 1.0, 0.05),
        (8, 10, 10, 0.5, 0.01),
        (10, 12, 40, 0.7, 0.01),
        (25, 30, 30, 1.0, 0.003),
        (15, 20, 100, 0.0, 0.002),
        (5, 5, 5, 2.0, 0.1),
        (20, 20, 20, 3.0, 0.0),
    ],
)
def test_recursion_is_the_program_over_laws(
    correct: int, taken: int, elements: int, epsilon: float, delta: float
) -> None:
    """Theorem 14: the largest chance over all laws of V that step 1 leaves is what the recursion finds."""
    grow = math.exp(epsilon)
    lines = [(grow, delta), (1 / grow, 1 - (1 - delta) / grow)]
    largest, _ = largest_chance(correct, taken, elements, lines)
    p_value = Tradeoff(correct, taken, elements).p_value(ApproximateDP(epsilon, delta))
    assert p_value == pytest.approx(largest, rel=1e-7)


@pytest.mark.parametrize(
    ("correct", "taken", "elements", "mu"), [(8, 10, 10, 0.5), (25, 30, 30, 0.7), (12, 12, 40, 0.4)]
)
def test_gaussian_recursion_is_the_program_over_laws(
    correct: int, taken: int, elements: int, mu: float
) -> None:
    """Theorem 14 for a smooth curve: tangents are added where the best law needs them, until it stays."""
    found, places = 1.0, np.linspace(-4, 4, 9)
    for _ in range(12):
        slopes = np.exp(-mu * places - mu**2 / 2)
        offsets = special.ndtr(places + mu) - slopes * special.ndtr(places)
        found, law = largest_chance(
            correct, taken, elements, list(zip(slopes.tolist(), offsets.tolist(), strict=True))
        )
        wrong = np.cumsum(((taken - np.arange(taken + 1)) * law)[::-1])[::-1] / elements
        places = np.unique(np.r_[places, special.ndtri(np.clip(wrong[:correct], 1e-12, 1 - 1e-12))])
    p_value = Tradeoff(correct, taken, elements).curve_p_value(tradeoff.gaussian(mu))
    assert p_value == pytest.approx(found, rel=1e-6)
