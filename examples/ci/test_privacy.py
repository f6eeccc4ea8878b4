"""Privacy tests of a small library, as you would write them for yours: `pytest examples/ci`."""

import numpy as np
import pytest

from canaria import classic, combine, play
from canaria.rules import Online

# What is tested: three releases, each with its claim.


def noisy_histogram(included, rng, epsilon=1.0):
    """One count per person, 1 if they are in: adding or removing one changes one count by 1."""
    return included + rng.laplace(scale=1 / epsilon, size=len(included))


def noisy_mean(values, rng, epsilon=1.0):
    """The mean of values that are clipped to [0, 1]: replacing one changes it by at most 1 / n."""
    clipped = np.clip(values, 0, 1)
    return clipped.mean() + rng.laplace(scale=1 / (len(clipped) * epsilon))


def noisy_votes(votes, rng, epsilon=2.0):
    """Randomized response to yes or no."""
    keep = rng.random(len(votes)) < 1 / (1 + np.exp(-epsilon))
    return np.where(keep, votes, ~np.asarray(votes))


def test_histogram(assert_private):
    """Many elements, one run: each count tells about one person, the larger the more likely in."""
    assert_private(
        noisy_histogram, epsilon=1.0, delta=0, score=lambda counts, known: counts, adjacency="add-remove"
    )


def test_mean(assert_private):
    """One number per run tells about one person only with many runs: the worst pair, 2,000 times."""
    runs = classic(
        noisy_mean,
        base=[0.5] * 20,
        index=0,
        pair=(-7.0, 7.0),  # beyond the clipping, which is tested too
        repetitions=2000,
        score=lambda mean: mean,
        rng=assert_private.seed,
    )
    assert_private(runs, epsilon=1.0, delta=0, adjacency="replace")


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_votes(assert_private, epsilon):
    """Every test is counted before any of them runs, and gets its part of the alarm rate."""
    assert_private(
        lambda votes, rng: noisy_votes(votes, rng, epsilon),
        epsilon=epsilon,
        delta=0,
        score=lambda votes, known: votes,
        pairs=[(False, True)] * 1000,
        adjacency="replace",
    )


def test_histogram_in_two_ways(assert_private):
    """Several audits of one mechanism in one test: their part is split again, and the best one counts."""

    def game(rule):
        return play(noisy_histogram, lambda counts, known: counts, rule, n=1000, rng=assert_private.seed)

    assert_private(combine({"ranked": game(None), "learning": game(Online())}), epsilon=1.0, delta=0)
