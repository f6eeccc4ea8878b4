"""Records of training runs, simulated: bounds, adaptive bounds, interference and conformance."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from canaria import InputError
from canaria.mechanisms.interference import Interference, unit_rows
from canaria.rules import Bet, Tails
from canaria.training.canaries.designs import Dense, Design, Dirac, design_of
from tests.training.simulated import SIGMA, simulated


def brute_force_ratio(
    sums: np.ndarray, vectors: np.ndarray, known: np.ndarray, element: int, steps: int, sigma: float
) -> float:
    """The log likelihood ratio at q = 1 with the hidden others taken as the Gaussians they are treated as."""
    count, width = vectors.shape
    mean, cover = np.zeros(width), steps * sigma**2 * np.eye(width)
    for other in range(count):
        if other == element:
            continue
        centre = {0: steps / 2, 1: steps, -1: 0}[int(known[other])]
        mean += centre * vectors[other]
        if known[other] == 0:
            cover += steps**2 / 4 * np.outer(vectors[other], vectors[other])
    with_it = stats.multivariate_normal.logpdf(sums, mean + steps * vectors[element], cover)
    return float(with_it - stats.multivariate_normal.logpdf(sums, mean, cover))


@pytest.mark.parametrize("seed", range(4))
def test_interference_scores_are_those_of_the_whole_covariance(seed: int) -> None:
    """Revealed one after the other: the updated matrix gives what a fresh start gives, and brute force."""
    rng = np.random.default_rng(seed)
    vectors = unit_rows(7, 12, rng)
    bits = 2 * rng.integers(0, 2, 7).astype(np.int8) - np.int8(1)
    sums = 3 * (vectors[bits > 0].sum(axis=0)) + rng.normal(size=12)
    score = Interference(sums, vectors, steps=3, sample_rate=1.0, noise_multiplier=0.8)
    known = np.zeros(7, dtype=np.int8)
    for element in rng.permutation(7):
        expected = [0.0 if known[k] else brute_force_ratio(sums, vectors, known, k, 3, 0.8) for k in range(7)]
        assert np.allclose(score(known), expected, atol=1e-8)
        known[element] = bits[element]


def test_interference_goes_back_when_bits_are_hidden_again() -> None:
    vectors, rng = unit_rows(30, 40, np.random.default_rng(0)), np.random.default_rng(1)
    score = Interference(rng.normal(size=40), vectors, steps=5, sample_rate=0.3, noise_multiplier=1.0)
    hidden = np.zeros(30, dtype=np.int8)
    first, seen = score(hidden), hidden.copy()
    seen[:3] = [1, -1, 1]
    assert not np.allclose(score(seen)[3:], first[3:])
    assert np.allclose(score(hidden), first)


@pytest.mark.parametrize("design", [Dirac(4000, 4), Dirac(4000, 8), Dense(200, 200)], ids=str)
def test_adaptive_bounds_are_higher_on_average(design: Design) -> None:
    """The same kind of evidence (bets) on the same runs; at d/n = 4 there is too little interference to see."""
    runs = [simulated(design, seed, sigma=1.0) for seed in range(6)]
    one_run = [run.bound(rule=Bet()).epsilon for run in runs]
    adaptive = [run.bound(adaptive=True).epsilon for run in runs]
    assert np.mean(adaptive) > np.mean(one_run)


@pytest.mark.parametrize("design", [Dirac(300), Dirac(600, 4), Dense(100, 300)], ids=str)
def test_conformance_is_uniform_for_correct_training(design: Design) -> None:
    """Kolmogorov and Smirnov over 150 runs; false-alarm rate 1e-4."""
    p_values = [simulated(design, seed, steps=30).conformance().p_value for seed in range(150)]
    assert stats.kstest(p_values, "uniform").pvalue >= 1e-4


@pytest.mark.parametrize("design", [Dirac(1000), Dense(500, 1000)], ids=str)
@pytest.mark.parametrize(
    ("faults", "part"),
    [({"noise": 0.5}, "noise"), ({"noise": 1.3}, "noise"), ({"weight": 10.0}, "weight")],
    ids=str,
)
def test_conformance_names_the_fault(design: Design, faults: dict[str, float], part: str) -> None:
    found = simulated(design, 1, **faults).conformance()
    assert found.p_value < 1e-6
    assert found.parts[part] < 1e-6
    assert not found.conforms
    assert "NOT match what was stated" in str(found)
    estimate, truth = (
        (found.noise, SIGMA * faults.get("noise", 1)) if part == "noise" else (found.weight, 10.0)
    )
    assert estimate == pytest.approx(truth, rel=0.2)


def test_conformance_sees_an_offset_and_other_settings() -> None:
    run = simulated(Dirac(1000), 2)
    assert run.conformance().conforms
    assert simulated(Dirac(1000), 2, offset=0.1).conformance().parts["offset"] < 1e-3
    assert run.conformance(noise_multiplier=2 * SIGMA).p_value < 1e-6
    assert run.conformance(sample_rate=1.0).p_value < 1e-6
    assert run.conformance(steps=200).p_value < 1e-6


@pytest.mark.parametrize("design", [Dirac(5, 4), Dirac(10, 7), Dirac(1001, 4)], ids=str)
def test_canaries_that_do_not_fill_their_coordinates(design: Dirac) -> None:
    run = simulated(design, 0)
    assert np.isfinite(run.losses(np.zeros(design.count, dtype=np.int8))).all()
    assert run.bound(adaptive=True).evidence.elements == design.count


def test_report_without_stated_noise() -> None:
    bare = replace(simulated(Dirac(100), 0), noise_multiplier=0.0)
    assert bare.report().conformance is None
    assert "not tested" in str(bare.report())


def test_score_of_sums_orders_by_the_sum() -> None:
    run = simulated(Dirac(500), 0)
    losses = run.losses(np.zeros(500, dtype=np.int8), "sum")
    assert (np.argsort(losses) == np.argsort(run.sums)).all()
    assert run.bound(1e-5, score="sum", rule=Tails(50)).rule == repr(Tails(50))


def test_bound_says_what_it_is_about() -> None:
    bound = simulated(Dirac(100), 0).bound(1e-5)
    assert bound.adjacency == "add-remove"
    assert "someone who knows the other rows" in str(bound)
    assert bound.to_dict()["about"] in bound._repr_html_()


def test_report_prints_claim_conformance_and_ways() -> None:
    report = simulated(Dirac(1000), 0).report(claimed=2.0000014, delta=1e-5)
    text = str(report)
    for words in (
        "the claim ε = 2 is not refuted",
        "conformance",
        "exercised",
        "untouched",
        "add-remove",
    ):
        assert words in text
    assert report.to_dict()["refuted"] is False
    assert simulated(Dirac(1000), 0, noise=0.05).report(claimed=1.0, delta=0.0).refuted


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Dirac(0), "canaries must be an integer of at least 1"),
        (lambda: Dirac(10, 11), "per_coordinate must be an integer between 1 and canaries = 10"),
        (lambda: Dense(9000, 10), "canaries must be an integer between 1 and 8000"),
        (lambda: design_of(Dense(5, 5), 2), "a design holds its own"),
        (lambda: simulated(Dirac(10), 0).bound(score="other"), "score must be 'likelihood' or 'sum'"),
        (lambda: simulated(Dirac(3), 0).conformance(), "at least 4 coordinates"),
        (
            lambda: simulated(Dirac(10), 0).conformance(noise_multiplier=0),
            "noise_multiplier must be positive",
        ),
        (lambda: simulated(Dirac(10), 0).conformance(sample_rate=2), "sample_rate must be above 0"),
        (lambda: simulated(Dirac(10), 0).report(claimed=-1, delta=0.0), "claimed must be at least 0"),
        (
            lambda: simulated(Dirac(10), 0).report(claimed=1.0),
            "delta of the claim epsilon = 1.0 must be given",
        ),
    ],
)
def test_misuse_is_one_line(make: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()  # type: ignore[operator]
