"""The order of a list, rounds and scores that know it: nothing may be learned from them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from canaria import Counts, InputError, audit_scores
from canaria.claims import ApproximateDP
from canaria.game import replay
from canaria.rules import All, Bet, Ranked, SurestFirst, Tails, Threshold, UpTo
from canaria.rules._guesses import Guesses, OneShot


def members_first(n: int, rng: np.random.Generator) -> np.ndarray:
    """Fair coins, sorted: members are listed first, as in most files."""
    return -np.sort(-rng.choice([-1, 1], n))


WORTHLESS = {
    "constant": lambda n, rng: np.ones(n),
    "positive": lambda n, rng: 1 + rng.random(n),
    "rounded": lambda n, rng: np.round(rng.normal(size=n)),
}


@pytest.mark.parametrize("scores", WORTHLESS.values(), ids=WORTHLESS)
@pytest.mark.parametrize("flip", [1, -1], ids=["members first", "members last"])
@pytest.mark.parametrize(
    "rule", [Bet(), UpTo(50), SurestFirst(50), All(), Ranked(), Tails(50), Threshold(1.0)], ids=repr
)
def test_the_order_of_the_list_tells_nothing(rule: Any, flip: int, scores: Any) -> None:
    """Worthless scores, a sorted list: 100 audits; more than 16 false claims have probability below 2e-5."""
    false = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        bits, given = flip * members_first(200, rng), scores(200, rng)
        game = replay(bits, given, lambda output, known: output, rule, rng=seed)
        false += game.evidence.p_value(ApproximateDP(0.0, delta=0)) <= 0.05
    assert false <= 16


@dataclass(frozen=True)
class FirstOfTheList:
    """A user's rule that trusts the order of the list."""

    k: int

    def __call__(self, scores: np.ndarray, rng: np.random.Generator) -> OneShot:
        guesses = Guesses(np.arange(self.k), np.ones(self.k, dtype=np.int8))
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), self.k, len(scores)))


def test_a_users_rule_cannot_use_the_order_either() -> None:
    """50 audits of 50 guesses each by position; more than 10 false claims have probability below 1e-4."""
    rng = np.random.default_rng(1)
    false = 0
    for seed in range(50):
        bits, scores = members_first(200, rng), rng.normal(size=200)
        game = replay(bits, scores, lambda output, known: output, FirstOfTheList(50), rng=seed)
        alone = audit_scores(scores, bits, rule=FirstOfTheList(50), rng=seed)
        false += (game.bound().epsilon > 0) + (alone.epsilon > 0)
    assert false <= 20


@pytest.mark.parametrize(
    "rounds",
    [
        lambda bits: [[i] for i in range(len(bits))],
        lambda bits: np.array_split(np.arange(len(bits)), 10),
        lambda bits: [np.flatnonzero(bits > 0)],
        lambda bits: [np.flatnonzero(bits > 0), np.flatnonzero(bits < 0)],
    ],
    ids=["one by one", "blocks", "members alone", "members, then others"],
)
def test_rounds_that_follow_the_bits_are_refused(rounds: Any) -> None:
    bits = members_first(200, np.random.default_rng(0))
    with pytest.raises(InputError, match=r"rounds must be made without sight|must be independent fair coins"):
        replay(bits, np.ones(200), lambda output, known: output, Bet(), rounds(bits), rng=0)


def test_rounds_of_a_shuffled_list_are_played() -> None:
    bits = np.random.default_rng(0).choice([-1, 1], 200)
    blocks = np.array_split(np.arange(200), 10)
    assert replay(bits, 9.0 * bits, lambda output, known: output, Bet(), blocks, rng=0).bound().epsilon > 3


def like_the_neighbours(output: Any, known: np.ndarray) -> np.ndarray:
    """A score that believes that neighbours in the list are alike."""
    return 3.0 * np.convolve(known, np.ones(5), "same")


def test_a_score_cannot_learn_a_sorted_list() -> None:
    """One that ignores revealed bits may meet a sorted list; one that uses them may not."""
    bits = members_first(200, np.random.default_rng(0))
    with pytest.raises(InputError, match="shuffle the elements"):
        replay(bits, None, like_the_neighbours, SurestFirst(), rng=0)
    for rule in (Bet(), UpTo(100), All()):
        rounds = np.array_split(np.random.default_rng(7).permutation(200), 10)
        with pytest.raises(InputError, match="shuffle the elements"):
            replay(bits, None, like_the_neighbours, rule, rounds, rng=0)
    plain = replay(bits, 9.0 * bits, lambda output, known: output, SurestFirst(10), rng=0)
    assert plain.bound().epsilon > 3
