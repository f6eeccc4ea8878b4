"""Binomial tails and probabilities against 40-digit arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from canaria._core import binomial
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


@settings(max_examples=150, deadline=None)
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
    from canaria.evidence import _walks

    for epsilon in (0.0, 1.0, 6.0, 40.0):
        for low, chances in _walks.windows(np.array([1, 7, 100, 100_000]), epsilon):
            assert low >= 0
            assert chances.sum() == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize(
    ("correct", "taken", "expected"), [(0, 9, 0), (3, 6, 0), (9, 9, math.inf), (3, 4, math.log(3))]
)
def test_estimate(correct: int, taken: int, expected: float) -> None:
    assert binomial.estimate(correct, taken) == pytest.approx(expected)
