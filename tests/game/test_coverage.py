"""Games against true claims: how often they are refuted, at most."""

import math
from typing import Any

import numpy as np
import pytest

from canaria import InputError, play
from canaria.game import play_many
from canaria.game.many_runs import Repeated
from canaria.mechanisms import (
    Symmetric,
)
from canaria.rules import All, Around, Bet, Online, Ranked, Soft, Surest, Tails, Threshold, Top, UpTo
from tests.game.audited import PRIVATE, refusal_rate

N = 24
by_size = pytest.mark.parametrize("audits", [1_000, pytest.param(10_000, marks=pytest.mark.full)])


def limit(audits: int) -> float:
    """Four standard errors above 5%: exceeded by chance with probability below 3e-4."""
    return 0.05 + 4 * math.sqrt(0.05 * 0.95 / audits)


def size_for(mechanism: Any) -> int:
    """Fewer elements where every element is a round of its own."""
    return 10 if isinstance(mechanism, Symmetric) else N


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize(
    "rule", [All(), Surest(8), Tails(8), Top(8), Threshold(0.5), UpTo(10, 0.3), Bet()], ids=repr
)
@pytest.mark.parametrize("adaptive", [False, True], ids=["one-run", "adaptive"])
@by_size
def test_true_claims_are_kept(mechanism: Any, rule: Any, adaptive: bool, audits: int) -> None:
    if adaptive and not isinstance(rule, All | UpTo | Bet):
        with pytest.raises(InputError, match="rule"):
            play(mechanism, None, rule, N, mechanism.rounds(N))
        return
    n = size_for(mechanism)
    rounds = mechanism.rounds(n) if adaptive else None
    games = play_many(mechanism, None, rule, n, audits, rounds, rng=5)
    assert refusal_rate(games, mechanism.epsilon) <= limit(audits)


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize("rule", [Ranked(), Around(8), Soft(), Online(3)], ids=repr)
@pytest.mark.parametrize("audits", [200, pytest.param(10_000, marks=pytest.mark.full)])
def test_true_claims_are_kept_by_rules_that_look_at_everything(
    mechanism: Any, rule: Any, audits: int
) -> None:
    games = play_many(mechanism, None, rule, N, audits, rng=6)
    assert refusal_rate(games, mechanism.epsilon) <= limit(audits)


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize("audits", [500, pytest.param(2_000, marks=pytest.mark.full)])
def test_classic_auditing_keeps_true_claims(mechanism: Any, audits: int) -> None:
    """Classic audits of 24 runs each."""
    repeated = Repeated(mechanism, np.where(np.arange(6) % 2, 1, -1).astype(np.int8), 2)
    for rule in (All(), Surest(8), Tails(8), Top(8), Threshold(0.5), UpTo(10, 0.3), Bet()):
        games = play_many(repeated, None, rule, N, audits, rng=7)
        assert refusal_rate(games, mechanism.epsilon) <= limit(audits)


@pytest.mark.full
@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize("rule", [Ranked(), Around(8), Soft(), Online(3)], ids=repr)
def test_classic_auditing_by_rules_that_look_at_everything(mechanism: Any, rule: Any) -> None:
    """10,000 classic audits of 24 runs each."""
    repeated = Repeated(mechanism, np.where(np.arange(6) % 2, 1, -1).astype(np.int8), 2)
    games = play_many(repeated, None, rule, N, 10_000, rng=9)
    assert refusal_rate(games, mechanism.epsilon) <= limit(10_000)
