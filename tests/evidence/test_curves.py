"""Counts against curves (Theorem 14): pinned values, programs over all mechanisms, closed forms."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from canaria import Counts, InputError, lower_bound
from canaria.claims import ApproximateDP, Claim, Composed, Curve, DpSgd, GaussianDP, LaplaceDP, Signs
from canaria.claims.lines import Lines
from canaria.evidence import Ranking, _curve_count
from tests import oracles
from tests.evidence.programs import SOLVER, worst_count

EXACT = [
    (10, 5, 5, 1.0, 0.388310425, 0.388310425),
    (20, 10, 9, 1.0, 0.453555057, 0.522342537),
    (20, 10, 7, 0.4, 0.486118089, 0.639789431),
    (50, 50, 40, 0.5, 0.054732064, 0.066762395),
    (100, 20, 18, 1.0, 0.579670162, 0.738444978),
    (100, 20, 18, 0.4, 0.045315924, 0.048878744),
    (1000, 40, 36, 0.4, 0.025317910, 0.027739440),
    (1000, 40, 38, 0.7, 0.121237791, 0.135902799),
    (1000, 113, 102, 0.65, 0.052648174, 0.064594365),
    (1000, 226, 224, 1.3, 0.037727444, 0.042982443),
    (200, 100, 75, 0.3, 0.020492998, 0.024543920),
    (200, 100, 75, 0.2, 0.002836419, 0.003166879),
    (1000, 200, 130, 0.15, 0.034702214, 0.042226828),
    (1000, 1000, 700, 0.3, 0.010652214, None),
]
"""n, r, v, mu, the exact supremum for the smooth curve, and what the published recursion gives."""


@pytest.mark.parametrize(("elements", "taken", "correct", "mu", "exact", "published"), EXACT)
def test_gaussian_p_values_are_nearly_exact(
    elements: int, taken: int, correct: int, mu: float, exact: float, published: float | None
) -> None:
    """`curves.md` section 6; lines instead of the smooth curve cost 0.04% at most."""
    claim = GaussianDP(mu)
    p_value = Counts(correct, taken, elements).p_value(claim)
    assert exact * (1 - 1e-7) <= p_value <= 1.02 * exact
    recursion = _curve_count.published(elements, taken, correct, claim.lines())
    assert p_value <= recursion
    if published is not None:
        assert recursion == pytest.approx(published, rel=5e-4)


@pytest.mark.parametrize(
    ("elements", "taken", "correct", "mu", "published"),
    [
        (1000, 100, 95, 0.802601, 0.786812),
        (1000, 100, 98, 0.983485, 0.970439),
        (1000, 226, 224, 1.343216, 1.322400),
        (1000, 113, 102, 0.645528, 0.629099),
        (1000, 30, 29, 0.581904, 0.576212),
        (200, 60, 58, 0.945480, 0.928456),
        (100_000, 200, 198, 0.874578, 0.868044),
        (1000, 500, 460, 0.9103, 0.8803),
        (1000, 1000, 840, 0.7009, 0.6809),
    ],
)
def test_largest_refuted_gaussian(
    elements: int, taken: int, correct: int, mu: float, published: float
) -> None:
    """The table of `curves.md` section 2: exact, but for the last two, which were only certified there."""
    evidence = Counts(correct, taken, elements)
    assert evidence.refutes(GaussianDP(0.999 * mu), 0.05)
    assert not evidence.refutes(GaussianDP((1.0005 if taken < 500 else 1.005) * mu), 0.05)
    lines = GaussianDP(published).lines()
    assert _curve_count.published(elements, taken, correct, lines) == pytest.approx(0.05, rel=2e-3)


SEVEN = list(
    zip(
        (1.0, 1.6, 2.8, 6.0, 15.0),
        GaussianDP(0.7).profile(np.log([1.0, 1.6, 2.8, 6.0, 15.0])).included,
        strict=True,
    )
)
THIRTEEN = list(
    zip(
        (1.0, 2.0, 4.0, 9.0, 30.0),
        GaussianDP(1.3).profile(np.log([1.0, 2.0, 4.0, 9.0, 30.0])).included,
        strict=True,
    )
)
PROGRAMS = [
    *(
        (SEVEN, *case)
        for case in [
            (1, 1, 1, 0.636831),
            (2, 1, 1, 0.714078),
            (2, 2, 1, 0.909666),
            (2, 2, 2, 0.441243),
            (3, 2, 1, 0.932117),
            (3, 2, 2, 0.498269),
            (3, 3, 1, 0.981849),
            (3, 3, 2, 0.743446),
            (3, 3, 3, 0.318084),
        ]
    ),
    *((THIRTEEN, *case) for case in [(2, 2, 1, 0.980455), (3, 3, 2, 0.909179), (3, 3, 3, 0.498730)]),
]


@pytest.mark.parametrize(("limits", "elements", "taken", "correct", "expected"), PROGRAMS)
def test_no_mechanism_beats_a_count_against_lines(
    limits: list[tuple[float, float]], elements: int, taken: int, correct: int, expected: float
) -> None:
    """Full programs, nothing made symmetric; the recursion is the same number where all guesses are right."""
    supremum = worst_count(elements, taken, correct, [(kappa, delta, delta) for kappa, delta in limits])
    assert supremum == pytest.approx(expected, abs=1e-6)
    kappas, deltas = zip(*limits, strict=True)
    ours = _curve_count.p_value(elements, taken, correct, Lines(kappas, deltas))
    assert supremum <= ours + SOLVER
    if correct == taken:
        assert ours == pytest.approx(supremum, rel=1e-4)


TWO_WAYS = list(zip((1.0, 2.0, 5.0, 12.0), (0.35, 0.2, 0.08, 0.03), (0.35, 0.12, 0.01, 0.0005), strict=True))


@pytest.mark.parametrize(
    ("elements", "taken", "correct"),
    [(1, 1, 1), (2, 1, 1), (2, 2, 2), (2, 2, 1), (3, 2, 2), (3, 3, 3), (3, 3, 2)],
)
@pytest.mark.parametrize("signs", list(Signs))
def test_no_mechanism_beats_a_count_whose_directions_differ(
    elements: int, taken: int, correct: int, signs: Signs
) -> None:
    """Both signs: the average of the two deltas; one sign, fixed in advance: its own delta and n / 2."""
    claim = Curve(
        np.log([kappa for kappa, _, _ in TWO_WAYS]), *([limit[side] for limit in TWO_WAYS] for side in (1, 2))
    )
    fixed = {Signs.BOTH: [(-1, 1)], Signs.INCLUDED: [(1,)], Signs.EXCLUDED: [(-1,)], Signs.ONE: [(1,), (-1,)]}
    charged = elements if signs is Signs.BOTH else elements / 2
    ours = _curve_count.p_value(charged, taken, correct, claim.lines(signs))
    for allowed in fixed[signs]:
        assert worst_count(elements, taken, correct, TWO_WAYS, allowed) <= ours + SOLVER


def test_average_of_two_directions_is_pinned() -> None:
    """Exact 0.577755, with the average 0.577778, with the larger of the two 0.608333."""
    kappas, plus, minus = zip(*TWO_WAYS, strict=True)
    assert worst_count(3, 2, 2, TWO_WAYS) == pytest.approx(0.577755, abs=1e-6)
    average = Lines(kappas, (np.array(plus) + np.array(minus)) / 2)
    assert _curve_count.p_value(3, 2, 2, average) == pytest.approx(0.577778, abs=1e-5)
    assert _curve_count.p_value(3, 2, 2, Lines(kappas, plus)) == pytest.approx(0.608333, abs=1e-5)


@pytest.mark.parametrize(
    ("elements", "taken", "correct", "supremum", "half", "whole"),
    [(3, 2, 2, 0.393597, 0.459090, 0.603286), (2, 1, 1, 0.672653, 0.691462, 0.793740)],
)
def test_one_sign_is_charged_for_half(
    elements: int, taken: int, correct: int, supremum: float, half: float, whole: float
) -> None:
    kappas = np.array([1 / 9, 1 / 4, 1 / 2, 1, 2, 4, 9])
    steep = GaussianDP(1.0).profile(np.log(np.maximum(kappas, 1 / kappas))).included
    deltas = np.where(kappas >= 1, steep, 1 - kappas * (1 - steep))
    limits = [(kappa, delta, delta) for kappa, delta in zip(kappas, deltas, strict=True)]
    assert worst_count(elements, taken, correct, limits, (1,)) == pytest.approx(supremum, abs=2e-6)
    lines = Lines(kappas, deltas)
    assert _curve_count.p_value(elements / 2, taken, correct, lines) == pytest.approx(half, rel=1e-4)
    assert _curve_count.p_value(elements, taken, correct, lines) == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize(
    ("elements", "taken", "correct", "expected", "half"),
    [
        (3, 2, 2, 0.5666, 0.4591),
        (2, 2, 2, 0.4227, 0.3461),
    ],
)
def test_a_sign_out_of_the_output_is_not_charged_for_half(
    elements: int, taken: int, correct: int, expected: float, half: float
) -> None:
    """A common sign that the output chooses reaches more than n / 2 would allow: the trap of `curves.md` 7."""
    claim = GaussianDP(1.0)
    kappas = np.array([1 / 9, 1 / 4, 1 / 2, 1, 2, 4, 9])
    steep = claim.profile(np.log(np.maximum(kappas, 1 / kappas))).included
    deltas = np.where(kappas >= 1, steep, 1 - kappas * (1 - steep))
    limits = [(kappa, delta, delta) for kappa, delta in zip(kappas, deltas, strict=True)]
    reached = worst_count(elements, taken, correct, limits)
    assert reached >= expected - 1e-4 > half
    assert _curve_count.p_value(elements, taken, correct, Lines(kappas, deltas)) >= reached - SOLVER


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 150), st.floats(0, 1), st.floats(0, 1), st.floats(0.05, 4), st.floats(1e-6, 0.2))
def test_two_lines_give_the_closed_formula(
    taken: int, share: float, rate: float, epsilon: float, delta: float
) -> None:
    """The exact worst case of (epsilon, delta), where it is below 0.9."""
    elements, correct = taken + round(300 * share), round(taken * rate)
    evidence, claim = Counts(correct, taken, elements), ApproximateDP(epsilon, delta)
    closed = evidence.p_value(claim)
    grow = math.exp(epsilon)
    lines = Lines([grow, 1 / grow], [delta, 1 - (1 - delta) / grow])
    if correct <= taken * lines.mean_accuracy(taken / elements) or not 1e-8 < closed < 0.9:
        return
    found = _curve_count.p_value(elements, taken, correct, lines)
    assert closed * (1 - 1e-8) <= found <= closed * (1 + 2e-8)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_bounds_and_mechanism_enclose_the_supremum(seed: int) -> None:
    """What a mechanism attains is never above either bound; the smaller is close to it where p is small."""
    rng = np.random.default_rng(seed)
    taken = int(rng.integers(1, 400))
    elements = int(taken * rng.uniform(1, 12))
    lines = GaussianDP(float(rng.uniform(0.05, 2))).lines()
    mean = taken * lines.mean_accuracy(taken / elements)
    correct = min(taken, math.ceil(mean + rng.uniform(0, 3) * math.sqrt(taken - mean + 1)))
    if correct <= mean:
        return
    bound, attained = _curve_count.certified(elements, taken, correct, lines)
    found = _curve_count.p_value(elements, taken, correct, lines)
    assert attained * (1 - 1e-6) <= min(bound, _curve_count.published(elements, taken, correct, lines))
    assert found == _curve_count.SMALLEST or attained * (1 - 1e-6) <= found
    if 1e-6 < found < 0.5:
        assert found <= 1.25 * attained


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-6, 0.01, 0.05, 0.3]))
def test_verdicts_agree_with_p_values(seed: int, level: float) -> None:
    rng = np.random.default_rng(seed)
    taken = int(rng.integers(1, 300))
    evidence = Counts(int(rng.integers(taken // 2, taken + 1)), taken, 2 * taken)
    claim = GaussianDP(float(rng.uniform(0.05, 3)))
    p_value = evidence.p_value(claim)
    if evidence.refutes(claim, level):
        assert p_value <= level
    else:
        assert (
            p_value > level
            or _curve_count.published(2 * taken, taken, evidence.correct, claim.lines()) > 1.8 * level
        )


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 3))
def test_weaker_claims_are_not_easier_to_refute(seed: int, factor: float) -> None:
    """The p-value of the supremum rises with mu; the computed one up to what it is above it."""
    rng = np.random.default_rng(seed)
    taken, mu = int(rng.integers(5, 200)), float(rng.uniform(0.05, 1.5))
    evidence = Counts(int(rng.integers(taken // 2, taken + 1)), taken, 3 * taken)
    assert evidence.p_value(GaussianDP(mu)) <= 1.2 * evidence.p_value(GaussianDP(factor * mu))


def largest_chance(
    correct: int, taken: int, elements: int, lines: list[tuple[float, float]]
) -> tuple[float, np.ndarray]:
    """The largest Pr[V >= correct] over laws of V with R_u <= delta + kappa H_(u-1), and that law."""
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
        (5, 5, 5, 2.0, 0.1),
    ],
)
def test_recursion_is_the_program_over_laws(
    correct: int, taken: int, elements: int, epsilon: float, delta: float
) -> None:
    """Theorem 14 (b): the largest chance over all laws of V that its first step leaves."""
    grow = math.exp(epsilon)
    lines = [(grow, delta), (1 / grow, 1 - (1 - delta) / grow)]
    largest, _ = largest_chance(correct, taken, elements, lines)
    found = _curve_count.published(elements, taken, correct, Lines(*zip(*lines, strict=True)))
    assert found == pytest.approx(largest, rel=1e-7)


def test_true_gaussian_claim_is_kept() -> None:
    """The sum of a bit and noise, 2,000 audits: refuted in at most 5% (4-sigma slack)."""
    rng = np.random.default_rng(11)
    mu, audits, n = 1.0, 2000, 100
    bits = rng.integers(0, 2, (audits, n))
    guesses = bits * mu + rng.normal(size=(audits, n)) > mu / 2
    correct = (guesses == bits).sum(axis=1)
    refuted = {v: Counts(int(v), n, n).refutes(GaussianDP(mu), 0.05) for v in np.unique(correct)}
    rate = np.mean([refuted[v] for v in correct])
    assert rate <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / audits)


def test_gaussian_claims_say_nothing_about_other_mechanisms() -> None:
    """Randomized response with epsilon = 2 refutes a Gaussian claim whose epsilon is above 3.3."""
    correct = round(10_000 * oracles.success(2.0))
    claim = GaussianDP(0.79)
    assert claim.epsilon_at(1e-5) > 3.3
    assert Counts(correct, 10_000, 10_000).refutes(claim, 0.05)


def test_number_of_guesses_must_not_come_from_the_output() -> None:
    """A guesser that chooses 1 or 3 guesses is refuted with 0.7721, more than either p-value says."""
    lines = Lines(*zip(*SEVEN, strict=True))
    one, three = (_curve_count.p_value(3, taken, correct, lines) for taken, correct in ((1, 1), (3, 2)))
    assert one == pytest.approx(0.763425, abs=2e-4)
    assert three < 0.7721


@pytest.mark.parametrize(
    "claim",
    [
        GaussianDP(0.4),
        LaplaceDP(0.6),
        ApproximateDP(0.5, 1e-3),
        DpSgd(noise_multiplier=1.0, sample_rate=0.1, steps=5),
    ],
)
def test_every_claim_can_be_refuted_and_kept(claim: GaussianDP) -> None:
    assert Counts(190, 200, 400).refutes(claim, 0.05)
    assert not Counts(102, 200, 400).refutes(claim, 0.05)
    assert Counts(95, 100, 400, one_sided=True).refutes(claim, 0.05)


def test_what_an_attack_found() -> None:
    """Verdicts that contradicted p-values, p-values that jumped at the mean, and what crashed."""
    for evidence, claim, level in (
        (Counts(50313, 100_000, 100_000, one_sided=True), LaplaceDP(0.01253903135101705), 0.26),
        (Counts(1893, 3000, 3000), LaplaceDP(0.536609), 0.42),
    ):
        assert evidence.p_value(claim) <= level
        assert evidence.refutes(claim, level)
    at_the_mean = Counts(5, 10, 10, one_sided=True)
    assert {at_the_mean.p_value(GaussianDP(mu)) for mu in (0.3, 0.4, 0.5, 0.6)} == {1.0}
    for nothing in (
        Composed((ApproximateDP(1.0, 1.0),)),
        Composed((GaussianDP(50.0), LaplaceDP(1.0))),
        Composed((ApproximateDP(math.inf, 0.0), GaussianDP(1.0))),
        Composed((GaussianDP(1e6), GaussianDP(1e6))),
        DpSgd(noise_multiplier=1.0, sample_rate=1.0, steps=10**15),
    ):
        assert nothing.delta_at(1.0) == 1.0
        assert Counts(10, 10, 10).p_value(nothing) == 1.0
    nested = {"kind": "GaussianDP", "mu": 1}
    for _ in range(400):
        nested = {"kind": "Composed", "parts": [nested]}  # type: ignore[dict-item]
    with pytest.raises(InputError, match="claim must not be nested so deeply"):
        Claim.from_dict(nested)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert GaussianDP(1e-320).delta_at(0.0) <= 1e-300
        assert lower_bound(Ranking([1]), 5e-324, 0.45).epsilon == pytest.approx(0.2)
