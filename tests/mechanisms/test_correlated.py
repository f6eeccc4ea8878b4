"""Correlated noise: losses against all participation patterns, and against JAX Privacy's own."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jax_privacy import batch_selection
from jax_privacy.experimental.monte_carlo import sample_generation
from jax_privacy.matrix_factorization import buffered_toeplitz
from scipy import linalg, special, stats

from canaria import InputError, play
from canaria._core.arrays import Floats
from canaria.claims.noise import gaussian_epsilon
from canaria.mechanisms import (
    BallsInBins,
    Correlated,
    CyclicPoisson,
    InOrder,
    LocalGaussian,
    MinSeparation,
    Strategy,
    SubsampledGaussian,
)
from canaria.mechanisms.participation import Participation

Law = dict[tuple[int, ...], float]
Ways = Iterator[tuple[tuple[int, ...], float]]
STEPS = 12
DENSE = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, (STEPS, STEPS)))
STRATEGIES = {
    "Toeplitz": linalg.toeplitz([1, 0.5, 0.3, *[0] * 9], np.zeros(STEPS)),
    "banded": np.tril(np.triu(DENSE, -2)),
}
LAWS = [
    BallsInBins(3),
    BallsInBins(5),
    CyclicPoisson(3, 0.4),
    CyclicPoisson(4),
    MinSeparation(3, 0.3),
    MinSeparation(4, 0.6, warm=False),
]


def patterns(law: Participation) -> Law:
    """Every way in which a row may take part, with its probability, by the words of the docstrings."""
    ways = {BallsInBins: _of_bins, CyclicPoisson: _of_groups, MinSeparation: _of_coins}[type(law)](law)
    found: Law = {}
    for taking, chance in ways:
        found[taking] = found.get(taking, 0.0) + chance
    assert math.fsum(found.values()) == pytest.approx(1.0, abs=1e-12)
    return {taking: chance for taking, chance in found.items() if chance > 0}


def _of_bins(law: Any) -> Ways:
    for own in range(law.bins):
        yield tuple(int(step % law.bins == own) for step in range(STEPS)), 1 / law.bins


def _of_groups(law: Any) -> Ways:
    for own, taking in itertools.product(range(law.groups), itertools.product([0, 1], repeat=STEPS)):
        turns = [coin for step, coin in enumerate(taking) if step % law.groups == own]
        if sum(turns) == sum(taking):
            yield taking, math.prod(law.rate if coin else 1 - law.rate for coin in turns) / law.groups


def _of_coins(law: Any) -> Ways:
    waits = law.separation - 1 if law.warm else 0
    starts = [1.0, *[law.rate] * waits]
    for taking, first in itertools.product(itertools.product([0, 1], repeat=STEPS), range(1 + waits)):
        free, chance = first, starts[first] / sum(starts)
        for step, coin in enumerate(taking):
            if step < free:
                chance *= 1 - coin
                continue
            chance *= law.rate if coin else 1 - law.rate
            free = step + law.separation if coin else free
        yield taking, chance


def brute_force(matrix: Floats, law: Law, released: Floats, deviation: float) -> Floats:
    terms = []
    for taking, chance in law.items():
        added = matrix @ np.array(taking, dtype=float)
        inner = (matrix @ released).T @ added
        terms.append(math.log(chance) + (inner - added @ added / 2) / deviation**2)
    return np.asarray(special.logsumexp(terms, axis=0))


@pytest.mark.parametrize("law", LAWS, ids=repr)
@pytest.mark.parametrize("name", STRATEGIES)
def test_losses_are_those_of_all_patterns(name: str, law: Participation) -> None:
    matrix = STRATEGIES[name]
    strategy = Strategy.toeplitz(matrix[:3, 0], STEPS) if name == "Toeplitz" else Strategy(matrix)
    released = 2 * np.random.default_rng(1).normal(size=(STEPS, 4))
    found = law.log_ratio(strategy, strategy.statistic(released), 0.7)
    assert found == pytest.approx(brute_force(matrix, patterns(law), released, 0.7), abs=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_draws_follow_the_law(law: Participation) -> None:
    """Pearson's chi-squared on patterns that are expected at least 5 times in 20,000; false alarm 1e-4."""
    drawn = law.draw(STEPS, 20_000, np.random.default_rng(2))
    seen: Law = {}
    for taking in drawn.T.astype(int):
        seen[tuple(taking)] = seen.get(tuple(taking), 0) + 1
    expected = {one: 20_000 * chance for one, chance in patterns(law).items()}
    assert set(seen) <= set(expected)
    common = [one for one, number in expected.items() if number >= 5]
    rest = 20_000 - sum(expected[one] for one in common)
    counts = [seen.get(one, 0) for one in common]
    cells = [(number, expected[one]) for number, one in zip(counts, common, strict=True)]
    if rest > 5:
        cells.append((20_000 - sum(counts), rest))
    if len(cells) > 1:
        statistic = sum((number - mean) ** 2 / mean for number, mean in cells)
        assert stats.chi2.sf(statistic, len(cells) - 1) > 1e-4


@pytest.mark.parametrize(
    ("law", "strategy"),
    [
        (BallsInBins(4), batch_selection.BallsInBinsSampling(iterations=STEPS, cycle_length=4)),
        (
            MinSeparation(4, 0.3),
            batch_selection.BMinSepSampling(sampling_prob=0.3, iterations=STEPS, min_sep=4, warm_start=True),
        ),
        (
            MinSeparation(4, 0.3, warm=False),
            batch_selection.BMinSepSampling(sampling_prob=0.3, iterations=STEPS, min_sep=4, warm_start=False),
        ),
    ],
    ids=repr,
)
def test_losses_are_those_of_jax_privacy(law: Participation, strategy: object) -> None:
    """Its samples are whitened already."""
    column = np.array([1.0, 0.6])
    ours = Strategy.toeplitz(column, STEPS)
    whitened = np.random.default_rng(3).normal(size=(STEPS, 5))
    theirs = sample_generation.compute_privacy_loss(strategy, whitened, 0.9, column)
    found = law.log_ratio(ours, ours.statistic(ours.correlate(whitened)), 0.9)
    assert found == pytest.approx(theirs, abs=1e-6)


def test_in_order_is_one_gaussian() -> None:
    """Any strategy: the loss of an excluded canary is N(-mu^2 / 2, mu^2), of an included one N(mu^2 / 2, mu^2)."""
    strategy, law = Strategy(DENSE), InOrder(4)
    training = Correlated(strategy, law, noise_multiplier=0.8)
    bits = np.tile(np.array([[1], [-1]], dtype=np.int8), (1, 20_000))
    losses = training.sample(bits, np.random.default_rng(4))
    norms = np.linalg.norm(strategy.of(np.arange(STEPS)[:, None] % 4 == np.arange(4)), axis=0)
    assert law.sensitivity(strategy) == pytest.approx(norms.max())
    for first, norm in enumerate(norms):
        mu = norm / training.deviation
        for sign, seen in zip((1, -1), losses[:, first::4], strict=True):
            assert stats.kstest(seen, stats.norm(sign * mu**2 / 2, mu).cdf).pvalue > 1e-4
    assert training.claimed(1e-5) == gaussian_epsilon(1 / 0.8, 1e-5)
    assert training.claimed(0.0) == math.inf


def test_sensitivity_is_that_of_the_worst_gradients() -> None:
    """Against gradients of either sign in every step, for strategies with entries of either sign."""
    for seed in range(20):
        matrix = np.tril(np.random.default_rng(seed).normal(size=(6, 6)))
        np.fill_diagonal(matrix, 1.0)
        signs = np.array(list(itertools.product([-1, 1], repeat=3))).T
        worst = max(np.linalg.norm(matrix[:, first::2] @ signs, axis=0).max() for first in range(2))
        found = InOrder(2).sensitivity(Strategy(matrix))
        assert worst <= found + 1e-12
        assert InOrder(2).sensitivity(Strategy(abs(matrix))) == pytest.approx(
            max(np.linalg.norm(abs(matrix)[:, first::2].sum(axis=1)) for first in range(2))
        )


def test_canaries_of_ours_take_the_worst_steps() -> None:
    """All have the mu of the claim; where they begin is kept if it is given."""
    strategy = Strategy.toeplitz(1 / np.sqrt(np.arange(1, 13)), STEPS)
    law = InOrder(4).worst(strategy)
    assert law == InOrder(4, first=0)
    assert InOrder(4, first=2).worst(strategy) == InOrder(4, first=2)
    assert CyclicPoisson(4).worst(strategy) == CyclicPoisson(4)
    assert law.draw(STEPS, 5, np.random.default_rng(0)).sum(axis=0).tolist() == [3] * 5
    assert law.chances(STEPS).tolist() == [0, 0, 0, 1]
    assert InOrder(4, first=2).chances(STEPS - 2).tolist() == [0, 0, 1]
    assert InOrder(5).often(STEPS, 6).tolist() == [3, 3, 2, 2, 2, 3]
    training = Correlated(strategy, law, noise_multiplier=0.5)
    losses = training.losses(np.zeros((STEPS, 3)))
    assert losses == pytest.approx(-0.5 / 0.5**2)


def test_a_single_participation_shows_the_share_of_the_plain_gaussian() -> None:
    """Columns of one norm, so all canaries have one mu. Mean bounds of 12 runs; four standard errors."""
    mu, columns = 2.0, DENSE / np.linalg.norm(DENSE, axis=0)
    bounds = [
        [play(mechanism, n=600, rng=seed).bound(1e-5).epsilon for seed in range(12)]
        for mechanism in (Correlated(Strategy(columns), InOrder(STEPS), 1 / mu), LocalGaussian(2 / mu))
    ]
    error = math.hypot(*(np.std(found, ddof=1) / math.sqrt(12) for found in bounds))
    assert abs(np.mean(bounds[0]) - np.mean(bounds[1])) <= 4 * error


def test_without_correlation_it_is_dp_sgd() -> None:
    """The same claim, and the same law of losses: Kolmogorov and Smirnov at 1e-4."""
    training = Correlated(Strategy.toeplitz([1.0], 20), CyclicPoisson(1, 0.3), 1.2)
    plain = SubsampledGaussian(dimension=4000, steps=20, sample_rate=0.3, noise_multiplier=1.2)
    bits = np.random.default_rng(5).choice([-1, 1], (1, 4000)).astype(np.int8)
    rng, hidden = np.random.default_rng(6), np.zeros_like(bits)
    losses = [one.loss(one.sample(bits, rng), hidden)[0] for one in (training, plain)]
    for sign in (-1, 1):
        assert stats.ks_2samp(*(loss[bits[0] == sign] for loss in losses)).pvalue > 1e-4


def test_strategies() -> None:
    blt = buffered_toeplitz.BufferedToeplitz.build(
        buf_decay=[0.9, 0.5], output_scale=[0.3, 0.2], dtype=np.float32
    )
    ours = Strategy.buffered([0.9, 0.5], [0.3, 0.2], 8)
    assert ours.whiten(np.eye(8)) == pytest.approx(np.asarray(blt.materialize(8)), abs=1e-6)
    dense = Strategy(DENSE)
    noise = np.random.default_rng(7).normal(size=(STEPS, 3))
    assert dense.whiten(dense.correlate(noise)) == pytest.approx(noise)
    assert dense.bands == STEPS
    assert str(ours) == "8 bands, 8 steps"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Strategy(np.ones(3)), "must be a square matrix"),
        (lambda: Strategy(np.ones((2, 2))), "lower triangular"),
        (lambda: Strategy(np.diag([1.0, 0.0])), "positive on its diagonal"),
        (lambda: Strategy([[1.0], [1.0, 2.0]]), "must be a square matrix of numbers"),
        (lambda: Correlated(np.eye(2), InOrder(2), 1.0), "strategy must be a Strategy"),
        (lambda: Correlated(Strategy(DENSE), "bins", 1.0), "participation must be InOrder, BallsInBins"),
        (lambda: Strategy.toeplitz([1.0, 2.0], 1), "a list of 1 to 1 numbers"),
        (lambda: Strategy.buffered([0.9], [0.1, 0.2], 5), "of one length"),
        (lambda: CyclicPoisson(2, 0.0), "rate must be above 0"),
        (lambda: InOrder(4, first=4), "first must be below the period, 4, got 4"),
        (lambda: Correlated(Strategy(DENSE), CyclicPoisson(4), 1.0), "at most 4 bands"),
        (lambda: Correlated(Strategy(DENSE), InOrder(4), 0.0), "positive and finite"),
        (lambda: Correlated(Strategy(DENSE), InOrder(4), 1.0).losses(np.zeros((3, 2))), "must have 12 rows"),
    ],
)
def test_what_does_not_fit_is_refused(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(InputError, match=said):
        make()


@pytest.mark.parametrize("steps", [STEPS, 7])
@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_how_often_rows_take_part(law: Participation, steps: int) -> None:
    """The chances are those of all patterns; in the long run it is the share."""
    expected = np.zeros(steps + 1)
    for taking, chance in patterns(law).items():
        expected[sum(taking[:steps])] += chance
    found = law.chances(steps)
    assert found == pytest.approx(expected[: len(found)], abs=1e-12)
    assert expected[len(found) :].sum() == 0
    drawn = law.draw(4000, 200, np.random.default_rng(8)).mean()
    assert drawn == pytest.approx(law.share, rel=0.02)


@pytest.mark.parametrize("name", STRATEGIES)
def test_parts_of_strategies(name: str) -> None:
    matrix = STRATEGIES[name]
    strategy = Strategy.toeplitz(matrix[:3, 0], STEPS) if name == "Toeplitz" else Strategy(matrix)
    noise = np.random.default_rng(9).normal(size=(STEPS, 4))
    assert strategy.first(7).whiten(noise[:7]) == pytest.approx(strategy.whiten(noise)[:7])
    back = strategy.back()
    assert [back[5, lag] for lag in range(3)] == pytest.approx([matrix[5, 5 - lag] for lag in range(3)])
    assert back[0, 1:] == pytest.approx(0)
    spread = np.linalg.norm(np.linalg.inv(matrix).sum(axis=0))
    assert strategy.spread_of_sums == pytest.approx(float(spread))
