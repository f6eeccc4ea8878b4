"""Statements of the paper that are not closed forms, each shown by a number (docs/paper.md is the map)."""

import itertools
import math

import numpy as np
import pytest
from scipy import special, stats

from canaria import many_runs
from canaria.claims.base import PERFECT_PRIVACY
from canaria.game import play_many
from canaria.mechanisms import (
    AllOrNothing,
    Count,
    CountInSets,
    LocalLaplace,
    Mechanism,
    NameAndShame,
    RandomizedResponse,
    Symmetric,
    Xor,
    XorInPairs,
    XorRandomizedResponse,
)
from canaria.rules import All, Surest
from canaria.theory import efficacy, gaps, tightness
from tests.mechanisms.models import geometric_log_density, geometric_noise

GEOMETRIC = Symmetric(geometric_noise, geometric_log_density, epsilon=-math.log(0.4))
PRIVATE: list[Mechanism] = [RandomizedResponse(1.0), LocalLaplace(1.0), XorRandomizedResponse(1.0), GEOMETRIC]
by_mechanism = pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:24])


@by_mechanism
@pytest.mark.parametrize("k", [5, 20])
def test_right_guesses_are_dominated_by_a_binomial(mechanism: Mechanism, k: int) -> None:
    """Stochastic dominance, the condition for validity: every tail, 4 standard errors, 5,000 games."""
    games = play_many(mechanism, None, Surest(k), 20, 5_000, rng=1)
    right = np.array([game.evidence.tally(PERFECT_PRIVACY).correct for game in games])
    for count in range(k + 1):
        allowed = stats.binom.sf(count - 1, k, special.expit(mechanism.epsilon))
        assert (right >= count).mean() <= allowed + 4 * math.sqrt(allowed * (1 - allowed) / 5_000) + 1e-9


@by_mechanism
def test_estimates_do_not_exceed_epsilon_in_the_limit(mechanism: Mechanism) -> None:
    """Asymptotic validity: with many guesses p^{-1}(v / r) is at most epsilon plus a little."""
    n = 20_000 if mechanism is not GEOMETRIC else 300
    for game in play_many(mechanism, None, All(), n, 5, rng=2):
        bound = game.bound()
        assert bound.epsilon <= bound.estimate + 1e-12
        assert bound.estimate <= mechanism.epsilon + 4 * math.sqrt(8 / n)


@pytest.mark.parametrize("mechanism", [XorRandomizedResponse(1.0), RandomizedResponse(2.0)], ids=repr)
def test_classic_auditing_is_asymptotically_tight(mechanism: Mechanism) -> None:
    """Also where one-run auditing is blind."""
    bound = many_runs(mechanism, [1, -1, 1], 1, repetitions=200_000, rule=All(), rng=3).bound()
    assert mechanism.epsilon - 0.03 < bound.epsilon <= mechanism.epsilon + 0.02


@pytest.mark.parametrize(
    "mechanism", [NameAndShame(), AllOrNothing(0.2), Xor(), XorInPairs(), Count()], ids=repr
)
def test_gap_mechanisms_are_not_audited_tightly(mechanism: Mechanism) -> None:
    """However many elements and guesses, the efficacy stays far from p(epsilon) = 1."""
    shown = [efficacy(mechanism, n).value for n in (10, 100, 1000)]
    assert max(shown[1:]) <= 0.61
    assert mechanism.epsilon == math.inf


@by_mechanism
def test_only_randomised_response_has_perfect_efficacy(mechanism: Mechanism) -> None:
    """E*_n = p(epsilon) iff the mechanism can be post-processed to local randomized response."""
    shown = efficacy(mechanism, 10, trials=20_000, rng=4)
    missing = float(special.expit(mechanism.epsilon)) - shown.value
    if isinstance(mechanism, RandomizedResponse):
        assert missing == pytest.approx(0, abs=1e-12)
    else:
        assert missing > 10 * shown.error + 0.01


def test_efficacy_is_the_mean_of_success_probabilities() -> None:
    """Per element and given the others, enumerated for Count with 5 elements."""
    n, total = 5, 0.0
    for bits in itertools.product((-1, 1), repeat=n):
        count = sum(bit > 0 for bit in bits)
        guess = 1 if count >= n / 2 else -1
        total += sum(bit == guess for bit in bits) / n / 2**n
    assert efficacy(Count(), n).value == pytest.approx(total)


def test_symmetric_mechanisms_are_no_better_than_count() -> None:
    """Post-processing of Count: the efficacy is at most Count's, and tends to 1/2."""
    for n in (4, 16, 64):
        shown = efficacy(GEOMETRIC, n, trials=4000, rng=5)
        assert 0.5 <= shown.value <= efficacy(Count(), n).value + 4 * shown.error


def test_mean_absolute_deviation_of_a_binomial() -> None:
    for n, chance in itertools.product((1, 5, 40), (0.1, 0.5, 0.8)):
        counts = np.arange(n + 1)
        deviation = stats.binom.pmf(counts, n, chance) @ np.abs(counts - n * chance)
        assert deviation <= math.sqrt(n * chance * (1 - chance)) + 1e-12


def test_local_mechanisms_are_tight_with_abstentions() -> None:
    """The number of elements near the worst loss grows without limit: Laplace, |loss| >= 0.99 epsilon."""
    found = tightness(lambda n: LocalLaplace(1.0), [100, 1000, 10_000], level=0.99, rng=6)
    assert found.low[0] > 20
    assert found.low[2] > 50 * found.low[0]


def test_abstaining_narrows_the_elements_gap() -> None:
    """Fewer guesses, higher efficacy: from all elements to the surest."""
    shown = [gaps(CountInSets(5), 100, k, trials=2000, rng=7).to_dict()["elements"] for k in (100, 30, 5)]
    assert shown[0] > shown[1] > shown[2]


def test_sum_of_dominated_variables_is_dominated() -> None:
    """X_2 given X_1 dominated by Y_2, whatever X_1 was: two Bernoullis, every adaptive choice on a grid."""
    p = 0.7
    allowed = np.array([1.0, 1 - (1 - p) ** 2, p * p])
    for first, after_hit, after_miss in itertools.product((0.0, 0.3, 0.7), repeat=3):
        both = first * after_hit
        any_hit = 1 - (1 - first) * (1 - after_miss)
        assert any_hit <= allowed[1] + 1e-12
        assert both <= allowed[2] + 1e-12
