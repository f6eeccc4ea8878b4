"""Counts: closed forms, linear programs over all mechanisms, 40-digit arithmetic, published values."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaria import Counts, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import PublishedCounts, UncommittedCounts
from tests import oracles

TABLE = [
    (73, 100, 1000, 1e-5, 0.607, 0.605),
    (80, 100, 64_000, 1e-5, 0.911, 0.516),
    (900, 1000, 1_000_000, 1e-5, 1.937, 0.159),
    (490, 500, 100_000, 1e-4, 3.203, 0.0),
]


@pytest.mark.parametrize(("correct", "taken", "elements", "delta", "exact", "published"), TABLE)
def test_reference_bounds(
    correct: int, taken: int, elements: int, delta: float, exact: float, published: float
) -> None:
    """The table of theory section 3."""
    assert lower_bound(Counts(correct, taken, elements), delta).epsilon == pytest.approx(exact, abs=1e-3)
    old = lower_bound(PublishedCounts(correct, taken, elements), delta).epsilon
    assert old == pytest.approx(published, abs=1e-3)


@pytest.mark.parametrize(
    ("elements", "taken", "correct", "epsilon", "delta", "expected"),
    [
        (2, 2, 1, 1.0, 0.05, 0.944734),
        (3, 2, 1, 1.0, 0.05, 0.953266),
        (100_000, 2000, 2000, 0.0, 1e-6, 5.0e-5),
        (100_000, 2000, 1990, 0.0, 1e-6, 5.05048e-5),
    ],
)
def test_reference_p_values(
    elements: int, taken: int, correct: int, epsilon: float, delta: float, expected: float
) -> None:
    """The pinned values of theory sections 3 and 11."""
    assert Counts(correct, taken, elements).p_value(ApproximateDP(epsilon, delta)) == pytest.approx(
        expected, rel=1e-5
    )


def test_published_value_below_the_truth_is_not_used() -> None:
    """N = r = 2, v = 1: true 0.944734, published 0.94214."""
    assert oracles.published_p_value(1, 2, 2, 1.0, 0.05) == pytest.approx(0.94214, abs=1e-5)
    assert PublishedCounts(1, 2, 2).p_value(ApproximateDP(1.0, 0.05)) == pytest.approx(0.944734, abs=1e-6)


def test_published_value_first_fails_at_seven_eighths() -> None:
    """Over all r up to 12 and some claims; without the guard a bound at a level of 0.875 could be too high."""
    below = [
        exact.p_value(ApproximateDP(epsilon, delta))
        for taken in range(1, 13)
        for correct in range(1, taken + 1)
        for epsilon in (0.0, 0.7, 2.0)
        for delta in (1e-4, 0.01)
        for exact in [Counts(correct, taken, 2 * taken)]
        if oracles.published_p_value(correct, taken, 2 * taken, epsilon, delta) * (1 + 1e-8)
        < exact.p_value(ApproximateDP(epsilon, delta))
    ]
    assert 0.875 <= min(below) < 0.88


SMALL = [(n, r, v) for n in (1, 2, 3) for r in range(1, n + 1) for v in range(1, r + 1)]
SMALL += [(4, 2, 1), (4, 3, 2), (4, 4, 3), (4, 4, 4)]


@pytest.mark.parametrize(("elements", "taken", "correct"), SMALL)
@pytest.mark.parametrize(("epsilon", "delta"), [(0.0, 0.1), (1.0, 0.05), (1.5, 0.3), (0.3, 0.0)])
def test_exact_p_value_is_the_optimum_over_all_mechanisms(
    elements: int, taken: int, correct: int, epsilon: float, delta: float
) -> None:
    """The linear program over every (epsilon, delta)-DP mechanism and guesser."""
    optimum = oracles.all_mechanisms_program(correct, taken, elements, epsilon, delta)
    assert Counts(correct, taken, elements).p_value(ApproximateDP(epsilon, delta)) == pytest.approx(
        optimum, abs=1e-7
    )


@pytest.mark.parametrize(
    ("elements", "correct", "epsilon", "delta"), [(3, 2, 0.7, 0.02), (4, 3, 1.2, 0.01), (5, 5, 0.0, 0.03)]
)
def test_extremal_mechanism_is_private_and_attains_the_bound(
    elements: int, correct: int, epsilon: float, delta: float
) -> None:
    """Raised randomized response: exactly (epsilon, delta)-DP, and as bad as the bound says."""
    right = np.arange(elements + 1)
    p = oracles.success(epsilon)
    law = np.array([math.comb(elements, k) * p**k * (1 - p) ** (elements - k) for k in right])
    upper = law[correct:].sum()
    claimed = Counts(correct, elements, elements).p_value(ApproximateDP(epsilon, delta))
    law = np.where(right >= correct, law * claimed / upper, law * (1 - claimed) / (1 - upper))
    each = law / [math.comb(elements, k) for k in right]
    vectors = list(itertools.product((-1, 1), repeat=elements))
    first, second = vectors[0], (1, *vectors[0][1:])
    here = np.array([each[sum(a == b for a, b in zip(first, out, strict=True))] for out in vectors])
    there = np.array([each[sum(a == b for a, b in zip(second, out, strict=True))] for out in vectors])
    assert np.maximum(here - math.exp(epsilon) * there, 0).sum() == pytest.approx(delta, rel=1e-6)
    assert law[correct:].sum() == pytest.approx(claimed)


@settings(max_examples=200, deadline=None)
@given(
    st.floats(0, 5),
    st.floats(0, 1),
    st.floats(0, 1),
    st.sampled_from([0.0, 1e-3, 0.5, 2.0, 8.0, 30.0, 700.0]),
    st.sampled_from([0.0, 1e-12, 1e-6, 1e-3, 1.0]),
)
def test_p_value_against_precise_arithmetic(
    size: float, taken_share: float, correct_share: float, epsilon: float, delta: float
) -> None:
    """Never below the truth, and within 3e-9 of it, from v = 0 to v = r and delta = 0 to 1."""
    elements = int(10**size)
    taken = round(taken_share * elements)
    correct = round(correct_share * taken)
    computed = Counts(correct, taken, elements).p_value(ApproximateDP(epsilon, delta))
    truth = oracles.precise_exact_p_value(correct, taken, elements, epsilon, delta)
    assert truth * (1 - 1e-15) <= computed <= max(truth, 1e-250) * (1 + 3e-9)
    assert computed <= 1


@settings(max_examples=25, deadline=None)
@given(st.floats(0, 9), st.floats(0.5, 1), st.floats(-12, -0.05), st.sampled_from([0.0, 1e-9, 1e-5]))
def test_bound_is_refuted_and_nothing_much_above_it_is(
    size: float, accuracy: float, log_beta: float, delta: float
) -> None:
    """p(bound) <= beta by 40-digit arithmetic, and p(bound + 1e-6) > beta; r up to 10^9."""
    taken = int(10**size)
    correct = round(accuracy * taken)
    confidence = 1 - 10**log_beta
    bound = lower_bound(Counts(correct, taken, taken), delta, confidence).epsilon
    beta = 1 - confidence
    if taken > 10**7 and bound > 0:
        assert Counts(correct, taken, taken).p_value(ApproximateDP(bound, delta)) <= beta
        return
    if bound > 0:
        assert oracles.precise_exact_p_value(correct, taken, taken, bound, delta) <= beta
    above = bound + 1e-6 * max(1.0, bound)
    assert oracles.precise_exact_p_value(correct, taken, taken, above, delta) > beta


def test_clopper_pearson_in_closed_form() -> None:
    """All right: p^r = beta, so epsilon = logit(beta^(1/r))."""
    root = 0.05 ** (1 / 100)
    expected = math.log(root / (1 - root))
    assert lower_bound(Counts(100, 100, 100)).epsilon == pytest.approx(expected, rel=2e-8)
    assert lower_bound(Counts(100, 100, 100)).epsilon <= expected


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.floats(0, 1), st.floats(0, 4), st.sampled_from([1e-6, 1e-3, 0.05]))
def test_published_p_value_is_the_naive_loop(taken: int, share: float, epsilon: float, delta: float) -> None:
    correct = max(1, round(share * taken))
    exact = Counts(correct, taken, 2 * taken).p_value(ApproximateDP(epsilon, delta))
    expected = max(oracles.published_p_value(correct, taken, 2 * taken, epsilon, delta), exact)
    computed = PublishedCounts(correct, taken, 2 * taken).p_value(ApproximateDP(epsilon, delta))
    assert computed == pytest.approx(expected, rel=1e-6)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.floats(0.5, 1), st.sampled_from([1e-6, 1e-4, 1e-2]))
def test_published_p_value_is_monotone_where_it_can_reject(taken: int, share: float, delta: float) -> None:
    """Bisection is therefore safe for it, too."""
    evidence = PublishedCounts(max(1, round(share * taken)), taken, taken)
    values = np.array([evidence.p_value(ApproximateDP(epsilon, delta)) for epsilon in np.linspace(0, 6, 121)])
    low = values < 0.5
    assert not (np.diff(values)[low[:-1] & low[1:]] < -1e-9).any()


def test_exact_p_value_is_monotone_in_every_argument() -> None:
    """Up in epsilon, delta and elements; down in the right guesses."""
    epsilons = np.linspace(0, 5, 101)
    values = [Counts(80, 100, 1000).p_value(ApproximateDP(epsilon, 1e-4)) for epsilon in epsilons]
    assert (np.diff(values) >= 0).all()
    assert (np.diff([Counts(v, 100, 1000).p_value(ApproximateDP(1.0, 1e-4)) for v in range(101)]) <= 0).all()
    assert (
        np.diff([Counts(80, 100, 10**k).p_value(ApproximateDP(1.0, 1e-6)) for k in range(2, 9)]) >= 0
    ).all()
    assert (np.diff([Counts(80, 100, 1000).p_value(ApproximateDP(1.0, 10**-k)) for k in range(9)]) <= 0).all()


def test_uncommitted_counts_use_the_plain_delta_rule() -> None:
    evidence = UncommittedCounts(73, 100, 1000)
    flips = 1000 * 1e-5 / (1 + math.exp(0.5))
    expected = float(oracles.precise_tail(73, 100, 0.5)) + flips
    assert evidence.p_value(ApproximateDP(0.5, 1e-5)) == pytest.approx(expected)
    assert evidence.p_value(ApproximateDP(0.5, 1e-5)) > Counts(73, 100, 1000).p_value(
        ApproximateDP(0.5, 1e-5)
    )


def test_nothing_right_and_nothing_taken_prove_nothing() -> None:
    assert lower_bound(Counts(0, 10, 10), 1e-5).epsilon == 0
    assert lower_bound(Counts(0, 0, 10)).epsilon == 0
    assert lower_bound(Counts(10, 10, 10), delta=1.0).epsilon == 0
