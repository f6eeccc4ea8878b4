"""Monotonicity laws: what must never raise a bound does not, for every kind of evidence.

Where a grid is walked, the laws are about p-values at a fixed claim. They are theorems: more hits shrink the
rejection set, and delta and elements enter through the budget of flips alone. Compared with the documented
rounding: a part in 10^9, and what the transforms of weighted evidence add.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from canaria import Counts, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Bets,
    Budget,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
    _walks,
)
from canaria.evidence.ranking import looks
from tests import oracles

OURS = {name for name, kind in Evidence.kinds().items() if kind.__module__.startswith("canaria.")}
ROUNDING = 1 + 2e-9
TRANSFORM = 2.1e-14
BISECTED = 2e-8


@dataclass(frozen=True)
class Case:
    """Hits, a number in [0, 1) for each of them, elements, and a claim."""

    hits: np.ndarray
    values: np.ndarray
    elements: int
    epsilon: float
    delta: float


@st.composite
def cases(draw: st.DrawFn) -> Case:
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    length = draw(st.integers(1, 60))
    accuracy = draw(st.sampled_from([0.5, 0.7, 0.9, 0.97, 1.0]))
    return Case(
        rng.random(length) < accuracy,
        rng.random(length) ** draw(st.sampled_from([0.1, 1.0, 3.0])),
        length + draw(st.sampled_from([0, 1, 30, 10_000])),
        draw(st.one_of(st.floats(0, 4), st.sampled_from([0.0, 1e-9, 0.01, 20.0, 700.0]))),
        draw(st.one_of(st.floats(0, 1), st.sampled_from([0.0, 5e-324, 1e-12, 1e-5, 1e-3, 0.02, 1.0]))),
    )


Form = Callable[[Any, Any, int], Evidence]
FORMS: dict[str, Form] = {
    "Counts": lambda hits, values, elements: Counts(int(hits.sum()), len(hits), elements),
    "PublishedCounts": lambda hits, values, elements: PublishedCounts(int(hits.sum()), len(hits), elements),
    "UncommittedCounts": lambda hits, values, elements: UncommittedCounts(
        int(hits.sum()), len(hits), elements
    ),
    "Budget": lambda hits, values, elements: Budget(int(hits.sum()), len(hits), len(hits), elements),
    "Budget, large": lambda hits, values, elements: Budget(
        4000 + 40 * int(hits.sum()), 8000, 8000, 8000 + elements
    ),
    "Ranking": lambda hits, values, elements: Ranking(hits, elements, committed=len(hits)),
    "Weighted, weights": lambda hits, values, elements: Weighted(hits, weights=values, elements=elements),
    "Weighted, losses": lambda hits, values, elements: Weighted(hits, losses=6 * values, elements=elements),
    "Bets": lambda hits, values, elements: Bets(values, hits, elements),
    "Bets, mixture": lambda hits, values, elements: Bets(None, hits, elements),
    "Split": lambda hits, values, elements: Split(
        (Ranking(hits, elements, committed=len(hits)), Bets(values, hits, elements)), (0.7, 0.3)
    ),
}
each = pytest.mark.parametrize("form", FORMS)
laws = settings(max_examples=40, deadline=None, derandomize=True)


def test_every_kind_is_here() -> None:
    assert {form.partition(",")[0] for form in FORMS} == OURS - {"MatchedCounts"}


def not_above(low: float, high: float) -> bool:
    """Whether a p-value is at most another, up to the rounding of both."""
    return low <= high * ROUNDING + TRANSFORM


@each
@laws
@given(case=cases(), place=st.integers(0, 10**6))
def test_one_more_hit_never_raises_the_p_value(form: str, case: Case, place: int) -> None:
    misses = np.flatnonzero(~case.hits)
    better = case.hits.copy()
    better[misses[place % len(misses)] if len(misses) else 0] = True
    before = FORMS[form](case.hits, case.values, case.elements).p_value(
        ApproximateDP(case.epsilon, case.delta)
    )
    after = FORMS[form](better, case.values, case.elements).p_value(ApproximateDP(case.epsilon, case.delta))
    assert not_above(after, before)


@each
@laws
@given(
    case=cases(),
    factor=st.sampled_from([1 + 1e-7, 1 + 1e-5, 1.01, 2.0, 1e4]),
    more=st.sampled_from([0.0, 0.0, 1e-9, 0.1]),
)
def test_more_delta_never_lowers_the_p_value(form: str, case: Case, factor: float, more: float) -> None:
    evidence = FORMS[form](case.hits, case.values, case.elements)
    larger = min(1.0, case.delta * factor + more)
    assert not_above(
        evidence.p_value(ApproximateDP(case.epsilon, case.delta)),
        evidence.p_value(ApproximateDP(case.epsilon, larger)),
    )


@each
@laws
@given(case=cases(), more=st.sampled_from([1, 7, 1000, 10**9]))
def test_more_elements_never_lower_the_p_value(form: str, case: Case, more: int) -> None:
    few = FORMS[form](case.hits, case.values, case.elements)
    many = FORMS[form](case.hits, case.values, case.elements + more)
    assert not_above(
        few.p_value(ApproximateDP(case.epsilon, case.delta)),
        many.p_value(ApproximateDP(case.epsilon, case.delta)),
    )


@pytest.mark.parametrize("form", ["Counts", "Budget"])
@laws
@given(case=cases(), more=st.floats(0, 2))
def test_a_larger_claim_never_lowers_the_p_value(form: str, case: Case, more: float) -> None:
    """Bisection rests on it."""
    evidence = FORMS[form](case.hits, case.values, case.elements)
    larger = evidence.p_value(ApproximateDP(case.epsilon + more, case.delta))
    assert not_above(evidence.p_value(ApproximateDP(case.epsilon, case.delta)), larger)


@dataclass(frozen=True)
class Counted:
    """Counts of up to 10^9, a delta and an error probability."""

    correct: int
    taken: int
    elements: int
    delta: float
    beta: float

    def bound(self) -> float:
        return lower_bound(Counts(self.correct, self.taken, self.elements), self.delta, 1 - self.beta).epsilon


@st.composite
def counted(draw: st.DrawFn) -> Counted:
    taken = int(10 ** draw(st.floats(0, 9)))
    return Counted(
        round(taken * (1 - 0.5 * draw(st.floats(0, 1)) ** 2)),
        taken,
        round(taken * 10 ** draw(st.floats(0, 3))),
        draw(st.sampled_from([0.0, 1e-15, 1e-9, 1e-6, 1e-3])) * draw(st.floats(0, 1)),
        10 ** draw(st.floats(-12, -0.1)),
    )


def not_lower(better: float, worse: float) -> bool:
    """Whether a bound is at least another, up to the rounding of the search."""
    return better >= worse - BISECTED * max(1.0, worse)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(counted(), st.integers(1, 1000), st.floats(1, 100))
def test_bounds_from_counts(case: Counted, more: int, factor: float) -> None:
    """More right guesses, more room for error or less delta never lower a bound; abstentions never raise it."""
    bound = case.bound()
    assert not_lower(replace(case, correct=min(case.taken, case.correct + more)).bound(), bound)
    assert not_lower(replace(case, beta=min(0.999, case.beta * factor)).bound(), bound)
    assert not_lower(replace(case, delta=case.delta / factor).bound(), bound)
    assert not_lower(bound, replace(case, elements=case.elements * more).bound())


@pytest.mark.skipif(not oracles.LONG, reason="long doubles are doubles here")
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(
    ("first", "second"), [(20_000, 20_000), (10**6, 3 * 10**5), (10**7, 10**6), (10**9, 10**7)]
)
def test_convolutions_miss_less_than_is_added(first: int, second: int, epsilon: float) -> None:
    """Rounding 5: what is missing, in all, against long double arithmetic; only that could lower a crossing."""
    (_, left), (_, right) = _walks.windows(np.array([first, second]), epsilon)
    computed, added = _walks.convolve(left, right)
    exact = oracles.long_convolution(left, right)
    assert added == _walks._FFT_ERROR
    assert float(np.maximum(exact - computed, 0).sum()) <= added
    assert float(np.abs(computed - exact).sum()) <= 2 * added


@pytest.mark.skipif(not oracles.LONG, reason="long doubles are doubles here")
@pytest.mark.parametrize("epsilon", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("level", [0.01, 1e-6, 1e-12])
@pytest.mark.parametrize("guesses", [10**5, 10**7])
def test_crossings_by_transforms_are_never_too_low(guesses: int, level: float, epsilon: float) -> None:
    """Rounding 5: whole walks with 40 looks, between the long double value and what is added at every look."""
    grid = looks(guesses)
    boundary = _walks.smallest_counts(grid, level, epsilon)
    reached = boundary <= grid
    steps = _walks.windows(np.diff(grid[reached], prepend=0), epsilon)
    exact = oracles.long_crossing(steps, boundary[reached].tolist())
    excess = float(_walks.crossing_of(steps, boundary[reached]) - exact)
    assert 0 <= excess <= 2 * len(grid) * _walks._FFT_ERROR
