"""Binomial tails and probabilities against 40-digit arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import special, stats

from canaria._core import binomial
from canaria.claims import ApproximateDP
from canaria.evidence import Counts, _walks
from tests import oracles


@st.composite
def binomial_cases(draw: st.DrawFn) -> tuple[int, int, float]:
    """(correct, taken, epsilon) from near the mean to far in the tails, up to 10^9 trials."""
    taken = int(10 ** draw(st.floats(0, 9)))
    epsilon = draw(st.sampled_from([0.0, 1e-6, 0.01, 0.5, 1.0, 3.0, 8.0, 20.0, 40.0, 200.0, 700.0]))
    wrong = float(binomial.failure(epsilon))
    deviation = draw(st.floats(-12, 36)) * math.sqrt(taken * wrong * (1 - wrong))
    correct = round(min(max(taken * (1 - wrong) + deviation, 0), taken))
    return correct, taken, epsilon


@settings(max_examples=25, deadline=None)
@given(binomial_cases())
def test_tail_is_right_to_nine_digits(case: tuple[int, int, float]) -> None:
    """Rounded up, the tail is never below the true one, and within 2e-9 of it."""
    truth = oracles.precise_tail(*case)
    computed = float(binomial.tail(*case))
    assert binomial.rounded_up(computed) >= truth * (1 - 1e-15)
    assert abs(computed - truth) <= 1e-9 * truth or computed == binomial.SMALLEST_TAIL


@settings(max_examples=150, deadline=None)
@given(binomial_cases())
def test_pmf_is_right_to_nine_digits(case: tuple[int, int, float]) -> None:
    truth = oracles.precise_pmf(*case)
    assume(truth > 1e-300)
    assert abs(math.exp(float(binomial.log_pmf(*case))) - truth) <= 1e-9 * truth


def test_tail_outside_the_range() -> None:
    assert binomial.tail([-1, 0, 4], [3, 3, 3], 1.0).tolist() == [1.0, 1.0, 0.0]


def test_windows_hold_the_whole_law() -> None:
    """What a window leaves out is below any digit of the sum."""
    for epsilon in (0.0, 1.0, 6.0, 40.0):
        for low, chances in _walks.windows(np.array([1, 7, 100, 100_000]), epsilon):
            assert low >= 0
            assert chances.sum() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(
    ("correct", "taken", "expected"), [(0, 9, 0), (3, 6, 0), (9, 9, math.inf), (3, 4, math.log(3))]
)
def test_estimate(correct: int, taken: int, expected: float) -> None:
    assert binomial.estimate(correct, taken) == pytest.approx(expected)


HUGE = [(taken, epsilon) for taken in (2 * 10**9, 10**12, 10**15) for epsilon in (16.0, 24.0, 30.0)]
HUGE = [(taken, epsilon) for taken, epsilon in HUGE if 1 < taken * math.exp(-epsilon) < 10**6]


@pytest.mark.parametrize(("taken", "epsilon"), HUGE)
def test_counts_with_delta_round_up_beyond_a_thousand_million_guesses(taken: int, epsilon: float) -> None:
    """Rounding 1: never below 40-digit arithmetic, and within a millionth of it."""
    wrong = taken / (1 + math.exp(epsilon))
    for deviation in (-2, 0, 2, 5):
        correct = min(taken, round(taken - wrong + deviation * math.sqrt(wrong)))
        for delta in (1e-3 / taken, 1e-3 * math.sqrt(wrong) / taken):
            truth = oracles.precise_exact_p_value(correct, taken, taken, epsilon, delta)
            computed = Counts(correct, taken, taken).p_value(ApproximateDP(epsilon, delta))
            assert truth <= computed <= truth * (1 + 1e-6)


@pytest.mark.parametrize(
    ("looks", "epsilon"),
    [
        ([2 * 10**9, 6 * 10**9, 3 * 10**10], 20.0),
        ([2 * 10**10, 10**11, 10**12], 23.5),
        ([10**13, 10**14, 10**15], 30.0),
    ],
)
@pytest.mark.parametrize("level", [0.3, 0.01, 1e-6])
def test_crossings_round_up_beyond_a_thousand_million_guesses(
    looks: list[int], epsilon: float, level: float
) -> None:
    """Rounding 1 and 3: the walk of a ranking, raised as its first law is, and within a millionth of the truth."""
    boundary = _walks.smallest_counts(np.array(looks), level, epsilon)
    truth = oracles.precise_crossing(looks, boundary.tolist(), epsilon)
    computed = binomial.rounded_up(_walks.crossing(np.array(looks), boundary, epsilon))
    assert truth * float(binomial.round_more(looks[0])) <= computed <= truth * (1 + 1e-6)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 4.0, 8.0, 16.0])
@pytest.mark.parametrize("taken", [10**10, 10**12, 10**14, 10**15])
def test_errors_of_large_laws_are_covered(taken: int, epsilon: float) -> None:
    """Rounding 1 and 3: what a law of many trials is raised by is at least ten times its error, but for 1e-9."""
    wrong = float(binomial.failure(epsilon))
    for deviation in np.linspace(-6, 6, 25):
        correct = round(taken * (1 - wrong) + deviation * math.sqrt(taken * wrong * (1 - wrong)))
        truth = oracles.precise_pmf(correct, taken, epsilon)
        error = abs(math.exp(float(binomial.log_pmf(correct, taken, epsilon))) / truth - 1)
        assert error <= max(5e-10, (float(binomial.round_more(taken)) - 1) / 10)


@pytest.mark.parametrize("trials", [2 * 10**9, 10**12, 10**15])
def test_tails_near_the_mean_of_huge_counts_are_quick_and_exact(
    trials: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`betaincc` took up to 0.7 s for each of them on some machines; the lower tail says as much."""
    for epsilon in (0.0, 1.0, 8.0):
        wrong = float(binomial.failure(epsilon))
        spread = math.sqrt(trials * wrong * (1 - wrong))
        counts = np.floor(trials * (1 - wrong) + np.array([-2.0, -1.0, 1.5, 2.2]) * spread)
        slow = special.betaincc(trials - counts + 1, counts, wrong)
        with monkeypatch.context() as patched:
            patched.setattr(
                binomial.special, "betaincc", lambda rest, right, q: np.full(np.shape(rest), np.nan)
            )
            quick = binomial.tail(counts, trials, epsilon)
        assert (quick >= slow).all()
        assert quick == pytest.approx(slow, rel=2 * (float(binomial.round_more(trials)) - 1))


@pytest.mark.parametrize("rate", [0.0, 1e-9, 0.01, 0.5, 1.0])
def test_logarithms_of_masses_at_any_rate(rate: float) -> None:
    for trials in (0, 1, 7, 1000, 10**6):
        counts = np.unique(np.linspace(0, trials, 9).astype(np.int64))
        expected = stats.binom.logpmf(counts, trials, rate)
        assert binomial.log_mass(counts, trials, rate) == pytest.approx(expected, rel=1e-9, abs=1e-9)
