"""Coverage: the true claim is refuted in at most 5% of audits, for every kind of evidence.

10,000 audits of randomized response each, 4,000 where each has to be judged by itself; a test fails by chance
with probability below 2e-4 (four standard errors above the nominal rate).
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from canaria import Counts
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Bets,
    Budget,
    Evidence,
    PublishedCounts,
    Ranking,
    UncommittedCounts,
    Weighted,
    _walks,
    bets,
)
from canaria.evidence._mixture import log_mixture
from canaria.evidence.boundaries import scores
from tests import oracles

EPSILONS = (
    0.0,
    pytest.param(0.5, marks=pytest.mark.full),
    1.0,
    pytest.param(2.0, marks=pytest.mark.full),
    4.0,
)
GUESSES, LEVEL = 60, 0.05
LOSSES = np.random.default_rng(8).normal(0, 3, GUESSES)
STATED = np.random.default_rng(9).uniform(0.5, 0.995, GUESSES)

Maker = Callable[[np.ndarray], Evidence]
KINDS: dict[str, Maker] = {
    "Counts": lambda hits: Counts(int(hits.sum()), GUESSES, GUESSES),
    "PublishedCounts": lambda hits: PublishedCounts(int(hits.sum()), GUESSES, GUESSES),
    "UncommittedCounts": lambda hits: UncommittedCounts(int(hits.sum()), GUESSES, GUESSES),
    "Budget": lambda hits: Budget(int(hits.sum()), GUESSES, GUESSES, GUESSES),
    "Ranking": Ranking,
    "Weighted by loss": lambda hits: Weighted(hits, losses=LOSSES),
    "Weighted": lambda hits: Weighted(hits, weights=np.arange(GUESSES)),
    "Bets": lambda hits: Bets(STATED, hits),
    "mixture Bets": lambda hits: Bets(None, hits),
}


def audits(kind: str) -> int:
    return 2_000 if kind == "Bets" else 5_000


def limit(audits: int) -> float:
    return LEVEL + 4 * math.sqrt(LEVEL * (1 - LEVEL) / audits)


def right_guesses(hits: np.ndarray, claim: ApproximateDP) -> np.ndarray:
    return hits.sum(axis=1)


def smallest_score(hits: np.ndarray, claim: ApproximateDP) -> np.ndarray:
    """What the p-value of a ranking depends on: it grows with it."""
    grid, budget = Ranking(hits[0]).grid, GUESSES * claim.delta * (1 - oracles.success(claim.epsilon))
    counts, places = np.unique(np.cumsum(hits, axis=1)[:, grid - 1], axis=0, return_inverse=True)
    smallest = scores(counts, grid, claim.epsilon, budget).min(axis=1)
    return np.asarray(smallest[places.ravel()])


def right_weight(kind: str) -> Callable[[np.ndarray, ApproximateDP], np.ndarray]:
    def total(hits: np.ndarray, claim: ApproximateDP) -> np.ndarray:
        evidence = KINDS[kind](hits[0])
        assert isinstance(evidence, Weighted)
        return hits @ evidence.lattice_weights(claim)

    return total


def largest_mixture(hits: np.ndarray, claim: ApproximateDP) -> np.ndarray:
    """What the p-value of mixture bets depends on."""
    taken, spent = np.arange(1, hits.shape[1] + 1), GUESSES * claim.delta
    highest = bets._highest(claim.epsilon, bets._cap(claim.epsilon, spent))
    return np.round(log_mixture(np.cumsum(hits, axis=1), taken, claim.epsilon, highest).max(axis=1), 10)


def each_audit(hits: np.ndarray, claim: ApproximateDP) -> np.ndarray:
    return np.arange(len(hits))


STATISTICS = {
    "Ranking": smallest_score,
    "Bets": each_audit,
    "mixture Bets": largest_mixture,
    "Weighted by loss": right_weight("Weighted by loss"),
    "Weighted": right_weight("Weighted"),
}


def refusal_rate(kind: str, hits: np.ndarray, epsilon: float, delta: float = 0.0) -> float:
    """How often the true claim is refuted; audits with equal statistics are judged once."""
    claim = ApproximateDP(epsilon, delta)
    statistic = STATISTICS.get(kind, right_guesses)(hits, claim)
    _, first, counts = np.unique(statistic, return_index=True, return_counts=True)
    refuted = [KINDS[kind](hits[index]).p_value(claim) <= LEVEL for index in first]
    return float(np.asarray(refuted) @ counts) / len(hits)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", KINDS)
def test_randomised_response(kind: str, epsilon: float) -> None:
    rng = np.random.default_rng(1)
    hits = rng.random((audits(kind), GUESSES)) < oracles.success(epsilon)
    assert refusal_rate(kind, hits, epsilon) <= limit(audits(kind))


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "PublishedCounts"])
@pytest.mark.parametrize("delta", [1e-4, 3e-3])
def test_mechanism_that_attains_the_exact_bound(kind: str, epsilon: float, delta: float) -> None:
    """Raised randomized response, aimed at the number of hits that the exact test rejects at."""
    rng = np.random.default_rng(2)
    aims = [
        v
        for v in range(1, GUESSES + 1)
        if Counts(v, GUESSES, GUESSES).p_value(ApproximateDP(epsilon, delta)) <= LEVEL
    ]
    aim = aims[0] if aims else GUESSES
    right = oracles.extremal_hits(aim, GUESSES, epsilon, delta, audits(kind), rng)
    places = rng.random((audits(kind), GUESSES)).argsort(axis=1)
    assert refusal_rate(kind, places < right[:, None], epsilon, delta) <= limit(audits(kind))


def test_exact_counts_lose_nothing() -> None:
    """Against its own worst mechanism the exact test errs as often as its p-value says."""
    rng = np.random.default_rng(3)
    right = oracles.extremal_hits(44, GUESSES, 0.5, 3e-3, 200_000, rng)
    claimed = Counts(44, GUESSES, GUESSES).p_value(ApproximateDP(0.5, 3e-3))
    assert (right >= 44).mean() == pytest.approx(claimed, abs=4 * math.sqrt(claimed / 200_000))


def stop_when_ahead(hits: np.ndarray, epsilon: float) -> np.ndarray:
    """The stopping attack: guess on until Clopper-Pearson would refute the claim, then abstain."""
    right = np.cumsum(hits, axis=1)
    taken = np.arange(1, hits.shape[1] + 1)
    tails = np.array(
        [
            [Counts(v, r, r).p_value(ApproximateDP(epsilon, delta=0)) for v in range(r + 1)]
            + [1.0] * (hits.shape[1] - r)
            for r in taken
        ]
    )
    ahead = tails[taken - 1, right] <= LEVEL
    return np.where(ahead.any(axis=1), ahead.argmax(axis=1) + 1, hits.shape[1])


@pytest.mark.parametrize("epsilon", [0.0, 1.0, 2.0])
def test_stopping_attack_on_adaptive_kinds(epsilon: float) -> None:
    """Stop as soon as it looks good: `Budget` and `Bets` hold, in 2,000 audits."""
    rng = np.random.default_rng(4)
    hits = rng.random((2000, GUESSES)) < oracles.success(epsilon)
    stops = stop_when_ahead(hits, epsilon)
    budget = stated = mixture = 0
    for row, stop in zip(hits, stops, strict=True):
        seen = row[:stop]
        budget += (
            Budget(int(seen.sum()), int(stop), GUESSES, GUESSES).p_value(ApproximateDP(epsilon, delta=0))
            <= LEVEL
        )
        stated += Bets(STATED[:stop], seen, GUESSES).p_value(ApproximateDP(epsilon, delta=0)) <= LEVEL
        mixture += Bets(None, seen, GUESSES).p_value(ApproximateDP(epsilon, delta=0)) <= LEVEL
    assert max(budget, stated, mixture) / 2000 <= limit(2000)


@pytest.mark.parametrize(("elements", "rate"), [(100, 0.20), (1000, 0.34)])
def test_naive_adaptive_clopper_pearson_fails(elements: int, rate: float) -> None:
    """The rule that the paper proves "valid": a constant mechanism is accused 4 and 7 times too often."""
    rng = np.random.default_rng(5)
    right = np.cumsum(rng.random((4000, elements)) < 0.5, axis=1)
    least = _walks.smallest_counts(np.arange(1, elements + 1), LEVEL, epsilon=0.0)
    accused = (right >= least).any(axis=1).mean()
    assert accused > 3 * LEVEL
    assert accused == pytest.approx(rate, abs=0.03)
