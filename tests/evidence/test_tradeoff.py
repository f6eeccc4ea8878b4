"""Trade-off curves: the reference column, Gaussian claims, what they do not prove."""

import math

import numpy as np
import pytest
from scipy import special

from canaria import InputError, lower_bound
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
    """80 of 100 right refutes mu = 0.5 but not the mu at which 80 % is the expected accuracy."""
    evidence = Tradeoff(80, 100, 100)
    assert evidence.refutes_curve(tradeoff.gaussian(0.5))
    expected_mu = 2 * float(special.ndtri(0.8))
    assert not evidence.refutes_curve(tradeoff.gaussian(expected_mu))
    mu = evidence.gaussian_mu()
    assert 0.5 < mu < expected_mu
    assert evidence.curve_p_value(tradeoff.gaussian(mu)) == pytest.approx(0.05, rel=1e-6)


def test_gaussian_number_over_claims_on_randomised_response() -> None:
    """Randomised response with epsilon = 2: "if the mechanism is Gaussian" it reads 3.4."""
    correct = round(10_000 * oracles.success(2.0))
    mu = Tradeoff(correct, 10_000, 10_000).gaussian_mu()
    assert tradeoff.gaussian_epsilon(mu, 1e-5) > 3.3


def test_true_gaussian_claim_is_kept() -> None:
    """The sum of a bit and noise, 2,000 audits: refuted in at most 5 % (4-sigma slack)."""
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


@pytest.mark.parametrize(
    "curve", [lambda x: x, lambda x: 1.5 - x, lambda x: max(0.0, 1 - 3 * x), lambda x: 1 - x**2]
)
def test_other_functions_are_refused(curve: tradeoff.Curve) -> None:
    """Rising, above the diagonal, asymmetric, concave."""
    with pytest.raises(InputError, match="curve must be"):
        Tradeoff(80, 100, 100).refutes_curve(curve)
