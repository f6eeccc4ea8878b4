"""The size of the noise, measured: intervals that cover it, and e-values that may always be looked at."""

import math

import numpy as np
import pytest
from scipy import integrate, stats

from canaria.training.conformance.measured import Squares


def test_the_e_value_is_the_mean_likelihood_ratio() -> None:
    """Against numerical integration over the precisions that are mixed."""
    values = np.random.default_rng(0).normal(size=12) * 0.7
    squares = Squares(float(values @ values), len(values))
    for ratio in (0.5, 1.0, 1.7):

        def density(precision: float, ratio: float = ratio) -> float:
            likelihood = stats.norm(scale=ratio / math.sqrt(precision)).logpdf(values).sum()
            against = stats.norm(scale=ratio).logpdf(values).sum()
            return math.exp(likelihood - against) * stats.gamma(2.0, scale=0.5).pdf(precision)

        mean, _ = integrate.quad(density, 0, math.inf)
        assert squares.log_e_value(ratio) == pytest.approx(math.log(mean), abs=1e-6)


def test_nothing_seen_says_nothing() -> None:
    empty = Squares(0.0, 0)
    assert empty.log_e_value() == pytest.approx(0.0, abs=1e-12)
    assert empty.running_interval(0.05) == (0.0, math.inf)


def test_no_noise_at_all_is_certain() -> None:
    silent = Squares(0.0, 1000)
    assert silent.log_e_value() > 1000
    assert silent.running_interval(0.05) == (0.0, 0.0)
    assert silent.interval(0.95) == (0.0, 0.0)


@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_intervals_cover_at_their_rate(ratio: float) -> None:
    """Of 10,000 runs 95% do; a band of 4.5 standard errors fails correct code once in 100,000 times."""
    totals = np.random.default_rng(1).chisquare(5000, 10_000) * ratio**2
    inside = [
        low <= ratio <= high for low, high in (Squares(t, 5000).interval(0.95) for t in totals.tolist())
    ]
    assert abs(np.mean(inside) - 0.95) < 4.5 * math.sqrt(0.95 * 0.05 / 10_000)


def test_running_intervals_cover_at_all_times() -> None:
    """The truth leaves an interval, at any of 200 steps, in at most 5% of 2,000 runs."""
    steps = np.cumsum(np.random.default_rng(2).chisquare(20, (2000, 200)), axis=1)
    ever = 0
    for run in steps:
        ever += any(
            Squares(float(total), 20 * (place + 1)).log_e_value() >= math.log(20)
            for place, total in enumerate(run)
        )
    assert ever <= 100
    low, high = Squares(float(steps[0, -1]), 4000).running_interval(0.05)
    assert low < 1 < high
    for end in (low, high):
        assert Squares(float(steps[0, -1]), 4000).log_e_value(end) == pytest.approx(math.log(20), abs=1e-6)
