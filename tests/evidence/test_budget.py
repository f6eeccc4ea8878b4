"""Budget: dominated by a binomial, hedged against delta."""

import functools

import numpy as np
import pytest

from canaria import Counts, lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import Budget
from tests import oracles


def test_without_delta_it_is_clopper_pearson_at_the_budget() -> None:
    """Guesses that were not taken count as wrong."""
    assert Budget(60, 70, 100, 1000).p_value(ApproximateDP(0.3, delta=0)) == pytest.approx(
        Counts(60, 100, 1000).p_value(ApproximateDP(0.3, delta=0))
    )


def test_reference_values() -> None:
    """Theory section 6: greedy 0.671, hedge 0.717."""
    evidence = Budget(80, 100, 100, 64_000)
    flips = lambda epsilon: 64_000 * 1e-5 / (1 + np.exp(epsilon))  # noqa: E731
    assert evidence._greedy(0.671, flips(0.671))[0] == pytest.approx(0.05, abs=2e-4)
    assert evidence.p_value(ApproximateDP(0.717, 1e-5)) == pytest.approx(0.05, abs=1e-4)
    assert lower_bound(evidence, 1e-5).epsilon == 0.71


@pytest.mark.parametrize(("budget", "correct"), [(6, 4), (12, 9)])
@pytest.mark.parametrize("price", [0.02, 0.3])
def test_recursion_is_the_naive_one(budget: int, correct: int, price: float) -> None:
    epsilon, flips = 0.6, 0.05
    p = oracles.success(epsilon)

    @functools.cache
    def wins(left: int, needed: int) -> float:
        if needed == 0:
            return 1.0
        if left == 0:
            return 0.0
        hit, miss = wins(left - 1, needed - 1), wins(left - 1, needed)
        return max(p * hit + (1 - p) * miss, hit - price * (1 - p))

    expected = price * flips + wins(budget, correct)
    cost = Budget(correct, budget, budget, 100)._at_price(epsilon, flips, price)
    assert cost.total == pytest.approx(expected)


def test_no_adaptive_spending_of_delta_beats_the_p_value() -> None:
    """Policies that force hits while the budget of flips lasts, simulated: 4-sigma slack."""
    rng = np.random.default_rng(5)
    epsilon, delta, elements, budget, correct = 0.5, 2e-4, 500, 50, 39
    p, trials = oracles.success(epsilon), 20_000
    claimed = Budget(correct, budget, budget, elements).p_value(ApproximateDP(epsilon, delta))
    flips = elements * delta / (1 + np.exp(epsilon))
    for reserve in range(1, 6):
        steps = rng.random((trials, budget)) < p
        hits, spent = np.zeros(trials), np.zeros(trials)
        for k in range(budget):
            short = correct - hits - (budget - k - 1)
            force = (short > -reserve) & (short <= 1) & (hits < correct)
            spent += force * (1 - p)
            hits += np.where(force, 1, steps[:, k])
        share = min(1.0, flips / max(spent.mean(), 1e-12))
        plain = (steps.sum(axis=1) >= correct).mean()
        rate = share * (hits >= correct).mean() + (1 - share) * plain
        assert rate <= claimed + 4 * np.sqrt(claimed / trials)


def test_large_budgets_are_answered() -> None:
    """10^9 guesses: the greedy rule, in closed form."""
    bound = lower_bound(Budget(7 * 10**8, 10**9, 10**9, 10**9), 1e-9).epsilon
    assert 0.83 <= bound <= lower_bound(Counts(7 * 10**8, 10**9, 10**9)).epsilon


@pytest.mark.parametrize(
    ("correct", "epsilon", "delta"), [(80, 0.71, 1e-5), (80, 1.2, 1e-9), (95, 1.0, 1e-4)]
)
def test_hedge_is_the_infimum_over_prices(correct: int, epsilon: float, delta: float) -> None:
    """No price of ever finer grids around the best is better, by more than the documented rounding."""
    evidence, flips = Budget(correct, 100, 100, 64_000), 64_000 * delta / (1 + np.exp(epsilon))
    found, best = evidence._hedged(epsilon, flips), 0.03
    for factor in (30.0, 1.05, 1.001, 1.00002):
        costs = [
            evidence._at_price(epsilon, flips, best * factor**power) for power in np.linspace(-1, 1, 100)
        ]
        total, best = min((cost.total, cost.price) for cost in costs)
        assert found <= total * (1 + 1e-9)


@pytest.mark.parametrize("size", [1, 60])
@pytest.mark.parametrize("delta", [1e-6, 1e-4, 1e-3])
def test_screen_agrees_with_the_p_value(size: int, delta: float) -> None:
    """With the hedge, and beyond 2,000 guesses without it."""
    evidence, claims = Budget(40 * size, 50 * size, 50 * size, 3000 * size), np.linspace(0, 2, 41)
    for claim, verdict in zip(claims, evidence.screen(claims, delta / size, 0.05), strict=True):
        if verdict:
            assert (evidence.p_value(ApproximateDP(float(claim), delta / size)) <= 0.05) == (verdict > 0)
