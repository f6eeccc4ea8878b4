"""Boundaries: the first counts as extreme, by brute force, and bounds on them and on tails that cost less."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from canaria._core import binomial
from canaria.evidence import boundaries

CLAIMS = np.array([0.0, 0.01, 0.3, 1.0, 2.5, 6.0, 40.0])


def test_deviations_bound_tails_from_both_sides() -> None:
    for looks in (1, 2, 3, 7, 20, 61, 400):
        counts = np.arange(1, looks + 1)[:, None]
        tails = binomial.tail(counts, looks, CLAIMS)
        above = special.ndtr(-boundaries.deviations(counts - 1, np.array(looks), CLAIMS))
        below = special.ndtr(-boundaries.deviations(counts, np.array(looks), CLAIMS))
        assert (below <= tails * (1 + 1e-12)).all()
        assert (tails <= np.maximum(above * (1 + 1e-12), binomial.SMALLEST_TAIL)).all()
        assert (tails <= boundaries.most_likely(counts, np.array(looks), CLAIMS)).all()


def test_nothing_is_said_about_very_many_trials() -> None:
    looks = np.array([10**8 + 1])
    assert boundaries.most_likely(looks, looks, 1.0).tolist() == [1.0]
    assert boundaries.counts_below(looks, np.array([0.01]), np.array([1.0]), 0.0).tolist() == [0]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1e-9, 1e-3, 0.05, 0.4]),
    st.sampled_from([0.0, 1e-4, 0.1, 3.0, 50.0]),
)
def test_first_counts_are_the_first(seed: int, level: float, budget: float) -> None:
    rng = np.random.default_rng(seed)
    looks = np.unique(rng.integers(1, int(10 ** rng.uniform(0.5, 3.3)), 6))
    claim = float(rng.choice(CLAIMS))
    found = boundaries.first_counts(looks, level, claim, budget)
    for look, first in zip(looks.tolist(), found.tolist(), strict=True):
        counts = np.arange(look + 1)
        fine = boundaries.scores(counts, np.full_like(counts, look), claim, budget) <= level
        assert first == (int(fine.argmax()) if fine.any() else look + 1)


@settings(max_examples=200, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1e-30, 1e-9, 1e-3, 0.05, 0.4]),
    st.sampled_from([0.0, 1e-4, 0.1, 3.0]),
)
def test_counts_below_are_not_above_the_first(seed: int, level: float, budget: float) -> None:
    rng = np.random.default_rng(seed)
    looks = np.unique(rng.integers(1, int(10 ** rng.uniform(0.5, 7)), 10))[:, None]
    levels = np.full(len(CLAIMS), level)
    first = boundaries.first_counts(looks, levels, CLAIMS, np.full(len(CLAIMS), budget))
    below = boundaries.counts_below(looks, levels, CLAIMS, budget)
    assert (below <= first).all()


@pytest.mark.parametrize("claim", [0.0, 1.0, 3.0])
def test_counts_below_are_near(claim: float) -> None:
    """Without delta they are one or two counts below, or claims near the bound could not be screened."""
    looks = np.unique(np.rint(np.geomspace(100, 10**6, 40)).astype(np.int64))[:, None]
    levels, claims = np.array([1e-3]), np.array([claim])
    apart = boundaries.first_counts(looks, levels, claims, 0.0) - boundaries.counts_below(
        looks, levels, claims, 0.0
    )
    assert apart.max() <= 2
