"""Claims that are curves: profiles against closed forms and quadrature, both directions, what is refused."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, special, stats

from canaria import InputError
from canaria._core import effort
from canaria.claims import (
    ApproximateDP,
    Claim,
    Composed,
    Curve,
    DpSgd,
    GaussianDP,
    LaplaceDP,
    Signs,
    families,
    to_dict,
)
from canaria.claims.lines import Lines
from canaria.claims.noise import gaussian_epsilon

CLAIMS: list[Claim] = [
    ApproximateDP(1.0, 1e-3),
    GaussianDP(0.7),
    LaplaceDP(1.2),
    DpSgd(noise_multiplier=1.1, sample_rate=0.2, steps=3),
    Curve([0.0, 0.5, 2.0], [0.4, 0.2, 1e-4], [0.4, 0.1, 1e-6]),
    Composed((GaussianDP(0.4), LaplaceDP(0.5))),
]
EPSILONS = np.array([0.0, 0.1, 0.7, 1.5, 3.0])


@pytest.mark.parametrize("mu", [1e-4, 0.3, 1.0, 4.0])
def test_gaussian_deltas_are_never_too_low(mu: float) -> None:
    """Against the integral of (dP - e^eps dQ)+, in the tail where the two terms cancel as well."""
    for epsilon in (0.0, 0.5 * mu, 3 * mu, 6 * mu):
        start = epsilon / mu + mu / 2
        exact, _ = integrate.quad(
            lambda x, e=epsilon: stats.norm.pdf(x - mu) * -np.expm1(e - mu * x + mu * mu / 2),
            start,
            start + 12,
            epsabs=0,
            epsrel=1e-11,
        )
        assert exact * (1 - 1e-9) <= GaussianDP(mu).delta_at(epsilon) <= exact * (1 + 1e-6)


def test_gaussian_epsilon_is_the_known_curve() -> None:
    """delta(epsilon) of the Gaussian mechanism, inverted."""
    epsilon = gaussian_epsilon(1.0, 1e-5)
    delta = special.ndtr(-epsilon + 0.5) - math.exp(epsilon) * special.ndtr(-epsilon - 0.5)
    assert delta == pytest.approx(1e-5, rel=1e-6)
    assert gaussian_epsilon(0.0, 0.0) == 0.0
    assert families.Gaussian().at(epsilon, 1e-5).mu == pytest.approx(1.0, rel=1e-6)


def test_laplace_noise_is_the_integral() -> None:
    for epsilon in (0.0, 0.3, 0.99):
        points = np.linspace(-20, 21, 2_000_001)
        excess = stats.laplace.pdf(points - 1) - math.exp(epsilon) * stats.laplace.pdf(points)
        exact = integrate.trapezoid(np.maximum(excess, 0), points)
        assert LaplaceDP(1.0).delta_at(epsilon) == pytest.approx(exact, abs=1e-8)
    assert LaplaceDP(1.0).delta_at(1.0) == 0.0


def test_deltas_of_dpsgd_are_never_too_low() -> None:
    """One step: the mixture in closed form, in both directions; every element in every batch: Gaussian."""
    noise, rate = 0.8, 0.3
    claim = DpSgd(noise_multiplier=noise, sample_rate=rate, steps=1)
    points = np.linspace(-12, 13, 2_000_001)
    without = stats.norm.pdf(points, scale=noise)
    with_it = (1 - rate) * without + rate * stats.norm.pdf(points - 1, scale=noise)
    for epsilon in (0.0, 0.2, 0.9):
        grow = math.exp(epsilon)
        included = integrate.trapezoid(np.maximum(with_it - grow * without, 0), points)
        excluded = integrate.trapezoid(np.maximum(without - grow * with_it, 0), points)
        found = claim.profile(np.array([epsilon]))
        assert included <= found.included[0] + 1e-10
        assert found.included[0] <= included * 1.01 + 1e-6
        assert excluded <= found.excluded[0] + 1e-10
        assert found.excluded[0] <= excluded * 1.01 + 1e-6
    assert DpSgd(noise_multiplier=2.0, sample_rate=1.0, steps=16).delta_at(1.0) == GaussianDP(2.0).delta_at(
        1.0
    )


def test_deltas_of_two_steps_are_never_too_low() -> None:
    """Two steps: the product of two mixtures, on a grid."""
    noise, rate, epsilon = 1.0, 0.4, 0.5
    points = np.linspace(-7, 8, 3001)
    without = stats.norm.pdf(points, scale=noise)
    with_it = (1 - rate) * without + rate * stats.norm.pdf(points - 1, scale=noise)
    step = points[1] - points[0]
    excess = np.multiply.outer(with_it, with_it) - math.exp(epsilon) * np.multiply.outer(without, without)
    exact = np.maximum(excess, 0).sum() * step**2
    found = DpSgd(noise_multiplier=noise, sample_rate=rate, steps=2).profile(np.array([epsilon])).included[0]
    assert exact * (1 - 1e-6) <= found <= exact * 1.01


def test_directions_of_dpsgd_are_pinned() -> None:
    """`curves.md` section 6, to three digits."""
    found = DpSgd(noise_multiplier=2.4224026, sample_rate=0.1, steps=100).profile(np.array([1.0]))
    assert found.included[0] == pytest.approx(3.044e-3, rel=2e-3)
    assert found.excluded[0] == pytest.approx(1.457e-3, rel=2e-3)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_profiles_fall_and_epsilon_is_their_inverse(claim: Claim) -> None:
    deltas = [claim.delta_at(epsilon) for epsilon in EPSILONS]
    assert all(0 <= later <= sooner for sooner, later in itertools.pairwise(deltas))
    for delta in (0.3, 0.05, 5e-3):
        epsilon = claim.epsilon_at(delta)
        assert claim.delta_at(epsilon) <= delta * (1 + 1e-6)
        assert epsilon == 0 or claim.delta_at(0.99 * epsilon) > delta


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
@pytest.mark.parametrize("signs", list(Signs))
def test_lines_say_what_the_profile_says(claim: Claim, signs: Signs) -> None:
    """No line is below the profile, and at every listed slope there is one that is no higher."""
    lines = claim.lines(signs)
    assert (np.diff(lines.kappas) > 0).all()
    assert (np.diff(lines.deltas) < 0).all()
    steep = lines.kappas >= 1
    included, excluded = claim.profile(np.log(lines.kappas[steep]))
    least = {
        Signs.BOTH: (included + excluded) / 2,
        Signs.INCLUDED: included,
        Signs.EXCLUDED: excluded,
        Signs.ONE: np.maximum(included, excluded),
    }[signs]
    assert (lines.deltas[steep] >= least * (1 - 1e-9) - 1e-12).all()


def test_lines_of_one_direction_are_those_of_the_other_turned_round() -> None:
    """For a symmetric curve the lines with slopes below 1 are mirrored: Gaussian DP is its own mirror."""
    lines = GaussianDP(1.0).lines(Signs.INCLUDED)
    for q in (0.01, 0.2, 0.6, 0.9):
        smooth = float(special.ndtr(special.ndtri(q) + 1.0))
        assert smooth <= lines.largest(q) <= smooth * (1 + 3e-4)


def test_only_the_lower_envelope_is_kept() -> None:
    lines = Lines([1.0, 2.0, 3.0, 4.0, 4.0, 8.0], [0.5, 0.4, 0.1, 0.2, 0.09, 0.09])
    assert lines.kappas.tolist() == [1.0, 3.0, 4.0]
    assert lines.largest(0.1) == pytest.approx(0.4)
    assert lines.mean_accuracy(0.6) == pytest.approx((0.6 - 0.125) / 0.6)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_a_point_is_a_weaker_claim(claim: Claim) -> None:
    for charged in (50.0, 1000.0):
        point = claim.point(charged)
        assert point.delta >= claim.delta_at(point.epsilon)
        spent = charged * point.delta / (1 + math.exp(point.epsilon))
        assert spent == pytest.approx(0.07, rel=1e-2) or isinstance(claim, ApproximateDP | Curve)


@pytest.mark.parametrize("claim", CLAIMS, ids=str)
def test_claims_are_written_and_read(claim: Claim) -> None:
    again = Claim.from_dict(to_dict(claim))
    assert type(again) is type(claim)
    assert str(again) == str(claim)
    assert again.delta_at(0.5) == claim.delta_at(0.5)


def test_composition_is_never_too_low() -> None:
    """Two Laplace queries against a lattice sum; Gaussian ones exactly."""
    composed = Composed((LaplaceDP(0.7), LaplaceDP(0.7)))
    points = np.linspace(-12, 13, 4001)
    one, other = stats.laplace.pdf((points - 1) * 0.7) * 0.7, stats.laplace.pdf(points * 0.7) * 0.7
    step = points[1] - points[0]
    for epsilon in (0.0, 0.5, 1.1):
        excess = np.multiply.outer(one, one) - math.exp(epsilon) * np.multiply.outer(other, other)
        exact = np.maximum(excess, 0).sum() * step**2
        assert exact * (1 - 1e-3) <= composed.delta_at(epsilon) <= exact * 1.02 + 1e-4
    assert composed.delta_at(1.41) < 1e-9
    assert Composed((GaussianDP(3.0), GaussianDP(4.0))).delta_at(2.0) == GaussianDP(5.0).delta_at(2.0)
    both = Composed(
        (
            DpSgd(noise_multiplier=1.0, sample_rate=0.2, steps=2),
            DpSgd(noise_multiplier=1.0, sample_rate=0.2, steps=3),
        )
    )
    assert both.delta_at(0.7) == pytest.approx(
        DpSgd(noise_multiplier=1.0, sample_rate=0.2, steps=5).delta_at(0.7), rel=1e-2
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: GaussianDP(-1), "mu must"),
        (lambda: GaussianDP(math.inf), "mu must be at most 1,000,000"),
        (lambda: LaplaceDP(math.nan), "epsilon must"),
        (lambda: DpSgd(noise_multiplier=0.0, sample_rate=0.1, steps=10), "noise_multiplier must be between"),
        (lambda: DpSgd(noise_multiplier=1.0, sample_rate=0.0, steps=10), "sample_rate must be above 0"),
        (lambda: DpSgd(noise_multiplier=1.0, sample_rate=0.1, steps=0), "steps must"),
        (lambda: Curve([], []), "epsilons must rise"),
        (lambda: Curve([1.0, 0.5], [0.1, 0.2]), "epsilons must rise"),
        (lambda: Curve([0.0, 0.5], [0.1]), "deltas must be as long as epsilons"),
        (lambda: Curve([0.0], [1.5]), "deltas must be between 0 and 1"),
        (lambda: Curve([0.0], [0.5], [-0.1]), "reverse must be between 0 and 1"),
        (lambda: Composed(()), "parts must be claims, at least one"),
        (
            lambda: Composed(
                (GaussianDP(1.0, "replace"), DpSgd(noise_multiplier=1.0, sample_rate=0.1, steps=2))
            ),
            "parts must be for one adjacency",
        ),
        (lambda: Lines([0.0], [0.5]), "kappas must be positive"),
        (lambda: Lines([1.0], [2.0]), "deltas must be between 0 and 1"),
        (lambda: Claim.from_dict({"kind": "Nonsense"}), "claim must be of a kind out of"),
        (lambda: Claim.from_dict({"kind": "GaussianDP", "sigma": 1}), "GaussianDP cannot be read"),
    ],
)
def test_what_is_no_claim_is_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    "claim",
    [
        Composed(tuple(LaplaceDP(0.5 + k / 1000) for k in range(20))),
        Composed(tuple(ApproximateDP(20 + k / 1000, 1e-6) for k in range(20))),
        Composed(tuple(DpSgd(noise_multiplier=100 + k / 1000, sample_rate=0.5, steps=1) for k in range(20))),
        Composed((Composed((LaplaceDP(1.0),) * 10), Composed((GaussianDP(1.0), LaplaceDP(1.0))))),
        Composed((Curve(np.linspace(0, 5, 1000), np.linspace(0.5, 0.001, 1000) ** 2), LaplaceDP(0.1))),
    ],
    ids=["Laplace", "approximate", "DP-SGD", "nested", "curve"],
)
def test_composing_counts_its_work(claim: Composed) -> None:
    with pytest.raises(effort.TooLongError), effort.at_most(0.02):
        claim.delta_at(1.0)
