"""Games against true claims: how often they are refuted, at most."""

import math
from typing import Any

import numpy as np
import pytest

from canaria import InputError, play
from canaria.game import play_many
from canaria.game.classic import Repeated
from canaria.mechanisms import (
    Symmetric,
)
from canaria.rules import All, Bet, Online, Ranked, Soft, Surest, Tails, Threshold, Top, UpTo
from tests.game.audited import PRIVATE, refusal_rate

AUDITS = 10_000


LIMIT = 0.05 + 4 * math.sqrt(0.05 * 0.95 / AUDITS)


N = 24


def size_for(mechanism: Any) -> int:
    """Fewer elements where every element is a round of its own."""
    return 10 if isinstance(mechanism, Symmetric) else N


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize(
    "rule", [All(), Surest(8), Tails(8), Top(8), Threshold(0.5), UpTo(10, 0.3), Bet()], ids=repr
)
@pytest.mark.parametrize("adaptive", [False, True], ids=["one-run", "adaptive"])
def test_true_claims_are_kept(mechanism: Any, rule: Any, adaptive: bool) -> None:
    """10,000 audits each; a test fails by chance with probability below 4e-5."""
    if adaptive and not isinstance(rule, All | UpTo | Bet):
        with pytest.raises(InputError, match="rule"):
            play(mechanism, None, rule, N, mechanism.rounds(N))
        return
    n = size_for(mechanism)
    rounds = mechanism.rounds(n) if adaptive else None
    assert (
        refusal_rate(play_many(mechanism, None, rule, n, AUDITS, rounds, rng=5), mechanism.epsilon) <= LIMIT
    )


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize("rule", [Ranked(), Soft(), Online(3)], ids=repr)
def test_true_claims_are_kept_by_rules_that_look_at_everything(mechanism: Any, rule: Any) -> None:
    """500 audits each (10,000 behind `make test-full`)."""
    limit = 0.05 + 4 * math.sqrt(0.05 * 0.95 / 500)
    assert refusal_rate(play_many(mechanism, None, rule, N, 500, rng=6), mechanism.epsilon) <= limit


@pytest.mark.full
@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize("rule", [Ranked(), Soft(), Online(3)], ids=repr)
def test_true_claims_are_kept_by_rules_that_look_at_everything_at_full_size(
    mechanism: Any, rule: Any
) -> None:
    assert refusal_rate(play_many(mechanism, None, rule, N, AUDITS, rng=6), mechanism.epsilon) <= LIMIT


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
def test_classic_auditing_keeps_true_claims(mechanism: Any) -> None:
    """2,000 classic audits of 24 runs each."""
    base, limit = np.where(np.arange(6) % 2, 1, -1).astype(np.int8), 0.05 + 4 * math.sqrt(0.05 * 0.95 / 2000)
    repeated = Repeated(mechanism, base, 2)
    for rule in (All(), Surest(8), Tails(8), Top(8), Threshold(0.5), UpTo(10, 0.3), Bet()):
        assert refusal_rate(play_many(repeated, None, rule, N, 2000, rng=7), mechanism.epsilon) <= limit


@pytest.mark.full
@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
@pytest.mark.parametrize("rule", [Ranked(), Soft(), Online(3)], ids=repr)
def test_classic_auditing_by_rules_that_look_at_everything(mechanism: Any, rule: Any) -> None:
    """10,000 classic audits of 24 runs each."""
    repeated = Repeated(mechanism, np.where(np.arange(6) % 2, 1, -1).astype(np.int8), 2)
    assert refusal_rate(play_many(repeated, None, rule, N, AUDITS, rng=9), mechanism.epsilon) <= LIMIT
