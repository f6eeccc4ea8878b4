"""The games: validity, adaptivity, functions of users, and errors that explain."""

import asyncio
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from canaria import Counts, InputError, audit_scores, many_runs, play
from canaria.claims import ApproximateDP
from canaria.claims.base import PERFECT_PRIVACY
from canaria.evidence import Bets, Budget, Ranking
from canaria.game import play_many, replay
from canaria.mechanisms import (
    Count,
    CountInSets,
    Local,
    NameAndShame,
    RandomizedResponse,
    Symmetric,
    Xor,
    XorInPairs,
)
from canaria.rules import All, Bet, Online, Ranked, Soft, Surest, SurestFirst, Tails, Threshold, UpTo
from canaria.rules._guesses import Guesses, OneShot
from tests.game.audited import PRIVATE, refusal_rate


def test_adaptive_guessing_solves_xor_in_pairs() -> None:
    """One run: half right. Adaptively: every second of a pair is certain."""
    mechanism = XorInPairs()
    blind = play(mechanism, None, All(), 2000, rng=0)
    assert 0.45 < blind.evidence.tally(PERFECT_PRIVACY).correct / 2000 < 0.55
    seeing = play(mechanism, None, UpTo(1000, math.inf), 2000, mechanism.rounds(2000), rng=0)
    assert seeing.evidence == Budget(1000, 1000, 1000, 2000)
    assert seeing.bound().epsilon > 5
    assert seeing.guesses is not None
    assert sorted(seeing.guesses.order.tolist()) == list(range(1, 2000, 2))


def test_adaptive_losses_see_revealed_bits_only() -> None:
    """The score is handed zeros for every bit of its own and later rounds."""
    handed: list[np.ndarray] = []

    def score(output: np.ndarray, known: np.ndarray) -> np.ndarray:
        handed.append(known)
        return np.asarray(output, dtype=float)

    def noisy(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return included + rng.normal(size=len(included))

    game = play(noisy, score, Bet(), 6, [[0, 1], [4], [2, 3, 5]], rng=0)
    assert [np.flatnonzero(known).tolist() for known in handed] == [[], [0, 1], [0, 1, 4]]
    assert (handed[2][[0, 1, 4]] == game.bits[[0, 1, 4]]).all()


def test_count_is_worn_down_adaptively() -> None:
    """One element after the other: the last is certain."""
    mechanism = Count()
    game = play(mechanism, None, Bet(), 30, mechanism.rounds(30), rng=2)
    assert isinstance(game.evidence, Bets)
    assert game.evidence.confidences is not None
    assert game.evidence.confidences[-1] == pytest.approx(1 - 1 / 121)
    assert game.evidence.hits[-1]


def test_functions_with_pairs_of_any_type() -> None:
    """A survey that releases each answer through randomized response: replace-one."""
    pairs = [(f"no-{i}", f"yes-{i}") for i in range(300)]

    def survey(answers: list[str], rng: np.random.Generator) -> list[bool]:
        return [answer.startswith("yes") != (rng.random() < 0.1) for answer in answers]

    def score(output: list[bool], known: np.ndarray) -> list[float]:
        return [float(answer) for answer in output]

    game = play(survey, score, rng=0, pairs=pairs)
    assert game.adjacency == "replace"
    assert 1.2 < game.bound().epsilon < math.log(9)
    assert game.bound().to_dict()["adjacency"] == "replace"


def test_functions_of_included_elements() -> None:
    def release(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return included + rng.normal(scale=0.5, size=len(included))

    game = play(release, lambda output, known: output, n=1000, rng=0)
    assert game.adjacency == "add-remove"
    assert game.bound().epsilon > 2.5


def test_classic_auditing_of_a_function() -> None:
    """A mean that forgets its noise half of the time."""

    def sloppy_mean(rows: list[float], rng: np.random.Generator) -> float:
        return float(np.mean(rows) + (rng.laplace(scale=1.0) if rng.random() < 0.5 else 0.0))

    game = many_runs(sloppy_mean, [0.0] * 9, 3, (0.0, 1.0), 1000, score=lambda output: output, rng=0)
    assert game.adjacency == "replace"
    assert game.bound().epsilon > 0.5


@pytest.mark.parametrize("kind", [list, np.asarray, pd.DataFrame])
def test_classic_auditing_of_two_data_sets(kind: Any) -> None:
    """The mean of ages that are not clipped; runs that change their data do not change those of others."""

    def mean(rows: Any, rng: np.random.Generator) -> float:
        assert type(rows) is type(base)
        found = float(np.mean(rows)) + rng.laplace(scale=5.0)
        if isinstance(rows, pd.DataFrame):
            rows.iloc[0] = 1e9
        else:
            rows[0] = 1e9
        return found

    base, more = kind([30.0, 40.0, 35.0]), kind([30.0, 40.0, 35.0, 900.0])
    game = many_runs(mean, pair=(base, more), repetitions=300, score=float, rng=0)
    assert game.adjacency == "add-remove"
    assert game.bound().epsilon > 3
    assert many_runs(mean, pair=(base, kind([0, 1.0, 2.0])), score=float, rng=0).adjacency == "replace"
    assert (
        many_runs(mean, pair=(base, kind([30.0, 40.0, 35.0, 35.0])), score=float, rng=0).bound().epsilon == 0
    )


@pytest.mark.parametrize("of", [tuple, lambda parts: dict(zip("xy", parts, strict=True))])
def test_rows_of_features_and_labels_are_counted(of: Any) -> None:
    pair = [of((np.ones((rows, 2)), np.ones(rows))) for rows in (50, 49)]
    game = many_runs(lambda data, rng: rng.normal(), pair=(pair[0], pair[1]), score=float, rng=0)
    assert game.adjacency == "add-remove"


def test_classic_auditing_is_tight_where_one_run_is_blind() -> None:
    """XOR: known others make every run certain."""
    assert play(Xor(), n=100, rng=0).bound().epsilon == 0
    assert many_runs(Xor(), [1, -1, 1, 1], 1, repetitions=1000, rng=0).bound().epsilon > 5


def test_one_seed_one_answer() -> None:
    first, second = (play_many(CountInSets(4), None, Ranked(), 40, 5, rng=9) for _ in range(2))
    assert [a.bound().epsilon for a in first] == [b.bound().epsilon for b in second]
    assert all((a.bits == b.bits).all() for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(
    "rule", [Ranked(), Online(3), Soft(), Surest(5), Tails(4), All(), Bet(), UpTo(4)], ids=repr
)
def test_transcripts_keep_the_guesses_in_order(rule: Any) -> None:
    """What was guessed, met with the bits, is what the evidence counts."""
    game = play(RandomizedResponse(2.0), None, rule, 20, rng=3)
    assert game.guesses is not None
    assert len(set(game.guesses.order.tolist())) == len(game.guesses.order)
    if isinstance(rule, Online | Bet | Soft):
        hits = game.evidence.to_dict()["hits"]
        assert "".join(str(int(hit)) for hit in game.guesses.hits(game.bits)) == hits


def test_mechanisms_cannot_overwrite_the_bits() -> None:
    """Randomized response in place once "proved" 5.5 where 0.4 is true."""

    def draw(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        values[rng.random(values.shape) < 0.4] *= -1
        return values

    in_place = Local(draw, lambda output, value: np.where(output == value, math.log(0.6), math.log(0.4)))
    with pytest.raises(InputError, match="draw raised ValueError"):
        play(in_place, n=100, rng=0)


def test_scores_cannot_overwrite_what_is_known() -> None:
    def score(output: np.ndarray, known: np.ndarray) -> np.ndarray:
        known[:] = 1
        return np.asarray(output, dtype=float)

    game = play(lambda data, rng: data, score, Bet(), 6, [[0, 1], [2, 3, 4, 5]], rng=0)
    assert set(game.bits.tolist()) <= {-1, 1}


@dataclass(frozen=True)
class StopWhenAhead:
    """A rule that abstains by revealed bits and counts as if it had not."""

    def decide(self, losses: np.ndarray, taken: int) -> np.ndarray:
        return np.where(losses > 0, 1, 0).astype(np.int8)

    def weigh(self, hits: np.ndarray, losses: np.ndarray, elements: int) -> Counts:
        return Counts(int(hits.sum()), len(hits), elements)


def test_counts_of_adaptive_abstentions_are_refused() -> None:
    """Whoever writes the rule: the evidence itself is checked."""

    def score(output: Any, known: np.ndarray) -> np.ndarray:
        seen = known[known != 0]
        ahead = len(seen) > 0 and (seen > 0).mean() > 0.6
        return np.full(len(known), -1.0 if ahead else 1.0)

    rounds = [[i] for i in range(50)]
    with pytest.raises(InputError, match="evidence of an adaptive game must be Bets, Budget"):
        play_many(lambda data, rng: 0, score, StopWhenAhead(), 50, 20, rounds, rng=0)


def test_counts_are_refused_where_bits_decide_the_order() -> None:
    """Also if every element is guessed in the end: with delta the formula of counts is not known to hold."""

    class CountsAll(SurestFirst):
        def weigh(self, hits: np.ndarray, losses: np.ndarray, elements: int) -> Counts:
            return Counts(int(hits.sum()), len(hits), elements)

    with pytest.raises(InputError, match="evidence of an adaptive game must be Bets, Budget"):
        play(RandomizedResponse(1.0), None, CountsAll(), 20, rng=0)


@pytest.mark.parametrize("mechanism", PRIVATE, ids=lambda m: repr(m)[:28])
def test_rules_may_choose_the_next_element(mechanism: Any) -> None:
    """The surest hidden element first: true claims are kept in 1,000 audits."""
    games = play_many(mechanism, None, SurestFirst(2), 8, 1000, rng=8)
    assert refusal_rate(games, mechanism.epsilon) <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 1000)
    assert all(game.guesses is not None for game in games)


def test_choosing_unravels_parities() -> None:
    """In pairs of bits nothing is certain until one of each pair is revealed; then its partner is next."""
    game = play(XorInPairs(), None, SurestFirst(), 40, rng=0)
    assert game.evidence.tally(ApproximateDP(3.0, delta=0)) == (20, 20)


def test_nothing_to_guess() -> None:
    """No loss, no guess: the bound is 0, not an error."""
    for rule in (Bet(), UpTo(3), All(), Soft(), Threshold(1.0)):
        assert play(Xor(), None, rule, 9, rng=1).bound(1e-5).epsilon == 0
    assert play(NameAndShame(), None, Threshold(math.inf), 9, rng=1).evidence.tally(PERFECT_PRIVACY) == (1, 1)


class Speechless:
    """A rule of a user's own that reveals nothing."""

    def __call__(self, scores: Any, rng: Any) -> "Speechless":
        return self

    def reveal(self, bits: Any) -> None:
        return None


def broken(data: Any, rng: Any) -> Any:
    raise RuntimeError("no\nway")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: play(broken, lambda o, k: o, n=3), "mechanism raised RuntimeError: 'no"),
        (
            lambda: play(lambda d, r: d, lambda o, k: o[:2], n=3),
            r"score must return 3 numbers, one per element, got shape \(2,\)",
        ),
        (lambda: play(lambda d, r: d, lambda o, k: 1 / 0, n=3), "score raised ZeroDivisionError"),
        (lambda: play(lambda d, r: d, lambda o, k: [math.nan] * 3, n=3), "scores must hold numbers, got nan"),
        (lambda: play(lambda d, r: d, n=3), "score must be given for a function"),
        (
            lambda: play(lambda d, r: d, lambda o, k: o, pairs=[(1, 2), (3, 3)]),
            r"pairs must differ, got \(3, 3\) at position 1",
        ),
        (lambda: play(lambda d, r: d, lambda o, k: o, pairs=[(1, 2, 3)]), "pairs must hold pairs"),
        (
            lambda: play(lambda d, r: d, lambda o, k: o, n=5, pairs=[(1, 2)]),
            "pairs must be as many as n, got 1 and 5",
        ),
        (lambda: play(Xor(), n=3, pairs=[(0, 1)] * 3), "pairs go with a function"),
        (lambda: play(XorInPairs(), n=3), "n must be even for elements in pairs, got 3"),
        (lambda: play(Xor(), None, Surest(4), 3), "k must be an integer between 1 and elements = 3, got 4"),
        (
            lambda: play(Xor(), None, UpTo(4), 3),
            "budget must be an integer between 1 and elements = 3, got 4",
        ),
        (lambda: play(Xor(), n=0), "n must be an integer of at least 1, got 0"),
        (lambda: play(Xor()), "n must be an integer of at least 1, got None"),
        (lambda: play("xor", lambda o, k: o, n=3), "mechanism must be callable, got 'xor'"),
        (lambda: play(Xor(), n=3, rounds=[[0, 1], [1, 2]]), "rounds must hold different indices below n = 3"),
        (lambda: play(Xor(), n=3, rounds=[[3]]), "rounds must hold different indices below n = 3"),
        (lambda: play(Xor(), n=3, rounds=[["a"]]), "rounds must hold sets of indices"),
        (lambda: play(Xor(), n=3, rounds=[[0.5, 1.2], [2]]), "rounds must hold sets of indices"),
        (lambda: play(Xor(), n=3, rounds=[[True, False]]), "rounds must hold sets of indices"),
        (lambda: play(Xor(), n=3, rounds="012"), "rounds must hold sets of indices"),
        (
            lambda: play(Count(), None, Threshold(1.0), 4, Count().rounds(4)),
            "Clopper-Pearson is then invalid .stop when ahead.: use Bet",
        ),
        (lambda: play(Count(), None, Ranked(), 4, Count().rounds(4)), "rule must be Bet"),
        (
            lambda: many_runs(Xor(), [1, -1], 2),
            r"index must be an integer between 0 and len\(base\) - 1 = 1, got 2",
        ),
        (lambda: many_runs(lambda d, r: d, [1, 2], 0), "pair and score must be given"),
        (lambda: many_runs(Xor(), [1, -1], 0, pair=(1, 2)), "pair and score go with a function"),
        (lambda: many_runs(lambda d, r: d), "pair and score must be given"),
        (lambda: many_runs(lambda d, r: d, pair=(1, 2), score=float), "two data sets that have a length"),
        (lambda: many_runs(lambda d, r: d, [1, 2], pair=(1, 2), score=float), "index must be"),
        (lambda: many_runs(Xor(), 3, 0), "base must be a sequence of elements, got 3"),
        (lambda: play(Xor(), None, "ranked", 10), "rule must be a rule such as Ranked"),
        (lambda: play(Xor(), None, Ranked, 10), "rule must be a rule such as Ranked"),
        (lambda: play(Xor(), None, Bet, 10, [[0, 1]]), "rule must be a rule such as Ranked"),
        (lambda: play(Xor(), None, lambda scores, rng: None, 10), "rule must commit to guesses"),
        (lambda: play(Xor(), None, Speechless(), 10), "a rule must turn hits into evidence"),
        (lambda: play(lambda d, r: d, lambda o, k: o, pairs=[1, 2]), "pairs must hold pairs"),
        (lambda: play(Local(broken, broken), n=3), "draw raised RuntimeError"),
        (lambda: play(Symmetric(lambda c, r: 3.0, broken), n=3), "draw must return 1 outputs, one per count"),
    ],
)
def test_errors_are_one_line_and_explain(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_counts_compare() -> None:
    assert play(RandomizedResponse(8.0), None, All(), 50, rng=0).evidence == Counts(50, 50, 50)


@dataclass(frozen=True)
class LeavesOut:
    """A user's rule that guesses some elements and forgets to count the others."""

    def __call__(self, scores: np.ndarray, rng: np.random.Generator) -> OneShot:
        top = np.argsort(-np.abs(scores))[:20]
        return OneShot(Guesses(top, np.sign(scores[top]).astype(np.int8)), Ranking)


@dataclass(frozen=True)
class BetsOnSome(Bet):
    """The same, betting."""

    def weigh(self, hits: np.ndarray, losses: np.ndarray, elements: int) -> Bets:
        return Bets([0.9] * 20, hits[:20])


def test_evidence_of_a_users_rule_counts_every_hidden_bit() -> None:
    """Each bit shown with probability delta: epsilon is 0, and delta is charged for all, not for 20."""
    bits = np.random.default_rng(0).choice([-1, 1], 1000)
    scores = bits * np.random.default_rng(1).random(1000)
    for rule in (LeavesOut(), BetsOnSome()):
        with pytest.raises(InputError, match="evidence must count all 1000 hidden bits"):
            replay(bits, scores, lambda output, known: output, rule, rng=0)
    with pytest.raises(InputError, match="evidence must count all 1000 hidden bits"):
        audit_scores(scores, bits, 2e-3, rule=LeavesOut())


@dataclass(frozen=True)
class Mislabels:
    """A user's rule that guesses every sign, and says something else of its guesses."""

    more: int = 0
    one_sided: bool = False

    def __call__(self, scores: np.ndarray, rng: np.random.Generator) -> OneShot:
        guesses = Guesses(np.arange(len(scores)), np.sign(scores).astype(np.int8))
        total = len(scores) + self.more
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), len(hits), total, self.one_sided))


def test_a_users_rule_counts_no_more_elements_than_there_are_and_tells_its_signs() -> None:
    """A file that counted more contradicted its own scores; one sign is charged for half of delta."""
    bits = np.random.default_rng(0).choice([-1, 1], 100)
    scores = bits * np.random.default_rng(1).random(100)
    assert audit_scores(scores, bits, rule=Mislabels()).epsilon > 3
    with pytest.raises(InputError, match="guessed or not, and no more"):
        audit_scores(scores, bits, rule=Mislabels(more=100))
    with pytest.raises(InputError, match="guesses of one sign, fixed in advance; these have both"):
        audit_scores(scores, bits, rule=Mislabels(one_sided=True))


def test_an_element_that_is_chosen_twice_is_refused() -> None:
    """Guessed twice, it would count twice: 14% of audits of a mechanism that reveals nothing claimed more."""

    class TwoLooks:
        def choose(self, losses: np.ndarray) -> np.ndarray:
            best = [int(np.argmax(np.abs(losses))), int(np.argmax(losses))]
            return np.array(best) if len(losses) > 70 else np.arange(0)

        def decide(self, losses: np.ndarray, taken: int) -> np.ndarray:
            return np.where(losses >= 0, 1, -1).astype(np.int8)

        def weigh(self, hits: np.ndarray, losses: np.ndarray, elements: int) -> Bets:
            return Bets(np.full(len(hits), 0.56), hits, elements)

    def nothing(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return np.abs(rng.normal(size=len(included)))

    with pytest.raises(InputError, match="choose must return different positions"):
        play(nothing, lambda output, known: output, rule=TwoLooks(), n=100, rng=0)


def test_a_function_that_leaves_python_is_named() -> None:
    def leaves(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        raise SystemExit(1)

    with pytest.raises(InputError, match="mechanism raised SystemExit: '1'"):
        play(leaves, lambda output, known: output, n=10, rng=0)
    with pytest.raises(InputError, match="score raised SystemExit"):
        play(RandomizedResponse(1.0), lambda output, known: sys.exit(0), n=10, rng=0)


def test_a_rule_that_chooses_nothing_ends_the_game() -> None:
    class Nothing(SurestFirst):
        def choose(self, losses: np.ndarray) -> np.ndarray:
            return np.arange(0)

    played = play(RandomizedResponse(1.0), rule=Nothing(1), n=10, rng=0)
    assert played.bound().epsilon == 0
    assert played.evidence == Counts(0, 0, 10)


@pytest.mark.parametrize(
    "pair",
    [
        (np.zeros(2), np.zeros(3)),
        ({"x": np.zeros(2)}, {"x": np.ones(2)}),
        ([np.zeros(2)], [np.ones(2)]),
        (np.array([]), np.array([1.0])),
    ],
    ids=["lengths", "dicts", "lists", "empty"],
)
def test_pairs_may_be_of_any_type(pair: Any) -> None:
    found = play(lambda data, rng: 0.0, lambda output, known: 0.0 * known, n=3, pairs=[pair] * 3, rng=0)
    assert found.adjacency == "replace"
    with pytest.raises(InputError, match="pairs must differ"):
        play(lambda data, rng: 0.0, lambda output, known: known, n=1, pairs=[(pair[0], pair[0])], rng=0)


def test_cancelled_work_is_named() -> None:
    def cancelled(included: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        raise asyncio.CancelledError

    with pytest.raises(InputError, match="mechanism raised CancelledError"):
        play(cancelled, lambda output, known: output, n=10, rng=0)


def test_a_mechanism_that_changes_its_data_in_place_marks_nothing() -> None:
    """The output is constant; only a run that shares its elements with the caller could tell which it had."""
    pairs = [(np.zeros(2), np.ones(2)) for _ in range(200)]

    def mechanism(data: Any, rng: np.random.Generator) -> float:
        for row in data:
            row[:] = 5.0
        return 0.0

    play(mechanism, lambda output, known: np.zeros(200), pairs=pairs, rng=0)
    assert all((zeros == 0).all() and (ones == 1).all() for zeros, ones in pairs)
    with pytest.raises(InputError, match="pairs must hold elements that can be copied"):
        play(mechanism, lambda output, known: np.zeros(1), pairs=[((k for k in ()), (k for k in ()))], rng=0)
