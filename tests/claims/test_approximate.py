"""Claims: their privacy profile, and what they may be compared with."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from canaria import InputError
from canaria.claims import ApproximateDP


@given(st.floats(0, 20), st.floats(0, 1), st.floats(0, 20))
def test_the_profile_is_that_of_the_worst_mechanism(epsilon: float, delta: float, other: float) -> None:
    """The bit itself with probability delta, else randomized response: its hockey stick, summed by hand."""
    right, wrong = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    laws = [(delta, 0.0), (0.0, delta), ((1 - delta) * right, (1 - delta) * wrong)]
    laws.append((laws[2][1], laws[2][0]))
    by_hand = sum(max(0.0, p - math.exp(other) * q) for p, q in laws)
    assert ApproximateDP(epsilon, delta).delta_at(other) == pytest.approx(by_hand, abs=1e-12)


@given(st.floats(0, 20), st.floats(0, 0.9), st.floats(0, 20))
def test_epsilon_is_the_inverse_of_delta(epsilon: float, delta: float, other: float) -> None:
    claim = ApproximateDP(epsilon, delta)
    found = claim.epsilon_at(claim.delta_at(other))
    assert found <= epsilon
    assert claim.delta_at(found) == pytest.approx(claim.delta_at(other), abs=1e-9)


def test_nothing_is_promised_below_its_own_delta() -> None:
    claim = ApproximateDP(1.0, delta=1e-5)
    assert claim.epsilon_at(1e-6) == math.inf
    assert claim.epsilon_at(1e-5) == 1.0
    assert claim.epsilon_at(1.0) == 0.0
    assert ApproximateDP(math.inf, delta=0).delta_at(3.0) == 1.0
    for wrong in (-1.0, math.nan):
        with pytest.raises(InputError):
            claim.delta_at(wrong)
        with pytest.raises(InputError):
            claim.epsilon_at(wrong)
