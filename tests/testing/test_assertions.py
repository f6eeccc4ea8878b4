"""Privacy claims as assertions: what fails, what passes, and what could never fail."""

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from canaria import (
    Counts,
    InputError,
    Result,
    assert_private,
    audit_scores,
    combine,
    lower_bound,
    many_runs,
    plant,
    play,
)
from canaria.bounds.reach import reach, remedy
from canaria.claims import ApproximateDP, LaplaceDP
from canaria.evidence import (
    AuditWarning,
    Bets,
    Budget,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
)
from canaria.files.read import read_result
from canaria.files.verify import check, read_checked
from canaria.mechanisms import LocalLaplace, RandomizedResponse, XorInPairs, XorRandomizedResponse
from canaria.rules import All, Bet, Online, Soft, Surest, Threshold, UpTo
from canaria.testing import assert_private_training
from canaria.testing.examine import examine, examine_training
from canaria.training.canaries.designs import Dirac
from tests.training.simulated import simulated, watched


def noisy(scale: float) -> Callable[[Any, np.random.Generator], Any]:
    return lambda included, rng: included + rng.laplace(scale=scale, size=len(included))


def own(output: Any, known: Any) -> Any:
    return output


def test_a_true_claim_passes_and_gives_the_bound() -> None:
    bound = assert_private(noisy(1.0), 1.0, 0, score=own)
    assert 0.3 < bound.epsilon <= 1
    assert bound.confidence == 0.999
    assert bound.adjacency == "add-remove"
    assert bound.evidence.elements == 1000
    assert bound.epsilon == assert_private(noisy(1.0), 1.0, 0, score=own).epsilon
    assert bound.epsilon != assert_private(noisy(1.0), 1.0, 0, score=own, rng=1).epsilon


def test_a_false_claim_fails_with_the_sentence_of_the_bound() -> None:
    """Noise four times too small."""
    with pytest.raises(AssertionError) as caught:
        assert_private(noisy(0.25), 1.0, 0, score=own)
    bound = play(noisy(0.25), own, n=1000, rng=0).bound(0.0, 0.999)
    assert str(caught.value) == f"the claim epsilon = 1 at delta 0 is REFUTED. {bound.explanation}"
    assert "With 99.9% confidence ε is at least 3." in str(caught.value)


def test_delta_pairs_rules_and_rounds_reach_the_game() -> None:
    def replaced(data: Any, rng: np.random.Generator) -> Any:
        return np.asarray(data) + rng.laplace(scale=2.0, size=len(data))

    game: dict[str, Any] = {"score": own, "pairs": [(-1.0, 1.0)] * 300, "rule": Surest(100)}
    bound = assert_private(replaced, 1.0, 1e-5, adjacency="replace", **game)
    assert (bound.delta, bound.adjacency, bound.evidence.elements) == (1e-5, "replace", 300)
    assert bound.evidence == Counts(bound.tally.correct, 100, 300)
    mechanism = XorInPairs()
    with pytest.raises(AssertionError, match="ε is at least"):
        assert_private(mechanism, 3.0, 0, n=400, rounds=mechanism.rounds(400))


def test_the_adjacency_of_the_claim_is_checked() -> None:
    assert assert_private(RandomizedResponse(1.0), 1.0, 0, adjacency="replace").adjacency == "replace"
    with pytest.raises(InputError, match="can be up to twice"):
        assert_private(RandomizedResponse(1.0), 1.0, 0, adjacency="add-remove")


def test_a_claim_tested_with_pairs_must_state_its_adjacency() -> None:
    """Laplace noise of scale 1 on values in [-1, 1] is 1-DP, add-remove, and 2-DP if records are replaced."""

    def released(data: Any, rng: np.random.Generator) -> Any:
        return np.asarray(data) + rng.laplace(scale=1.0, size=len(data))

    game: dict[str, Any] = {"score": own, "pairs": [(-1.0, 1.0)] * 4000}
    for claim in ({"epsilon": 1.0, "delta": 0}, {"claim": LaplaceDP(1.0)}):
        with pytest.raises(InputError, match="adjacency of the claim is not stated"):
            assert_private(released, **claim, **game)
    assert 1 < assert_private(released, 2.0, 0, adjacency="replace", **game).epsilon < 2
    assert assert_private(released, claim=LaplaceDP(2.0), adjacency="replace", **game).epsilon < 2
    with pytest.raises(AssertionError, match="REFUTED"):
        assert_private(released, claim=LaplaceDP(1.0, "replace"), **game)


def test_an_audit_that_was_made_is_held_to_the_confidence_of_the_test() -> None:
    game = play(LocalLaplace(1.5), n=400, rng=0)
    wanted = game.bound(1e-6, 0.999).epsilon
    loose = game.bound(confidence=0.6)
    audits = (game, loose, Result(loose), combine({"game": loose}))
    found = [assert_private(audit, 1.5, 1e-6, adjacency="replace").epsilon for audit in audits]
    found.append(assert_private(game.evidence, 1.5, 1e-6).epsilon)
    assert found == pytest.approx([wanted] * 5)
    runs = many_runs(RandomizedResponse(2.0), base=[1, -1], index=1, repetitions=300, rng=0)
    assert assert_private(runs, 2.0, 0, adjacency="replace").epsilon > 1
    with pytest.raises(AssertionError, match=r"claim epsilon = 0\.5 at delta 0 is REFUTED"):
        assert_private(runs, 0.5, 0, adjacency="replace")


@pytest.mark.parametrize(
    ("mechanism", "epsilon", "options", "message"),
    [
        (RandomizedResponse(1.0), -1.0, {}, "epsilon must be at least 0"),
        (RandomizedResponse(1.0), 1.0, {"delta": 2.0}, "delta must be between 0 and 1"),
        (RandomizedResponse(1.0), 1.0, {"confidence": 1.0}, "confidence must be strictly between 0 and 1"),
        (Counts(5, 9, 9), 0.1, {"n": 100}, "n goes with a mechanism"),
        (noisy(1.0), 1.0, {}, "score must be given for a function"),
        ("nothing", 1.0, {"score": own}, "mechanism must be callable"),
        (RandomizedResponse(1.0), 1.0, {"adjacency": "swap"}, "adjacency must be one of"),
    ],
    ids=["epsilon", "delta", "confidence", "options", "score", "text", "adjacency"],
)
def test_misuse_is_one_line(mechanism: Any, epsilon: float, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        assert_private(mechanism, epsilon, **{"delta": 0, **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "n", "epsilon", "delta", "confidence"),
    [
        (None, 20, 2.0, 0.0, 0.999),
        (None, 1000, 6.0, 1e-5, 0.99),
        (Surest(10), 500, 1.0, 0.0, 0.999),
        (Surest(30), 100, 1.0, 1e-4, 0.9997),
        (UpTo(10), 500, 1.0, 0.0, 0.999),
        (All(), 8, 1.0, 0.0, 0.99),
        (Threshold(0.0), 10, 1.0, 1e-4, 0.999),
        (Soft(), 10, 1.0, 1e-4, 0.999),
        (Online(), 10, 1.0, 0.0, 0.999),
        (Bet(), 10, 1.0, 1e-6, 1 - 1e-5),
    ],
    ids=str,
)
def test_a_test_that_cannot_fail_is_an_error_with_a_way_out(
    rule: Any, n: int, epsilon: float, delta: float, confidence: float
) -> None:
    """And the way out is one: with twice the size or the level that it names, a mechanism that hides nothing fails.

    Twice, because not even there are guesses perfect: as many top scores as bottom scores are guessed.
    """

    def laid_open(included: Any, rng: np.random.Generator) -> Any:
        return np.where(included, 50.0, -50.0)

    def at(rule: Any, n: int, confidence: float) -> None:
        assert_private(laid_open, epsilon, delta, score=own, rule=rule, n=n, confidence=confidence)

    with pytest.raises(InputError, match="this test cannot fail: even") as caught:
        at(rule, n, confidence)
    assert "\n" not in str(caught.value)
    level = re.search(r"probability of ([\d.e-]+) would be enough for perfect", str(caught.value))
    size = re.search(r"; (\d+) (elements|guesses) would be enough for perfect", str(caught.value))
    if level:
        confidence = 1 - 2 * float(level[1])
    elif size and size[2] == "elements":
        n = int(size[1]) * (2 if int(size[1]) > n else 1)
    else:
        assert size is not None
        rule, n = type(rule)(int(size[1])), max(n, int(size[1]))
    with pytest.raises(AssertionError, match="is REFUTED"):
        at(rule, n, confidence)


def test_nothing_is_refuted_at_a_level_of_delta() -> None:
    with pytest.raises(InputError, match=r"at a false-alarm probability of delta or less, here 0\.001"):
        assert_private(RandomizedResponse(1.0), 1.0, delta=0.0011)
    with pytest.raises(InputError, match=r"cannot fail.*bounds end at 700"):
        assert_private(RandomizedResponse(1.0), math.inf, 0)
    for n in (1, 10, 1000, 100_000):
        assert reach(Counts(n, n, n), 1.1e-3, 0.999) == 0


@pytest.mark.parametrize("rule", [Soft(), Bet()], ids=str)
def test_a_rule_that_believes_the_mechanism_cannot_convict_it(rule: Any) -> None:
    with pytest.raises(InputError, match=r"this test cannot fail: .* trusts the losses"):
        assert_private(RandomizedResponse(1.0), 1.0, 0, rule=rule)
    with pytest.raises(InputError, match=r"Bet\(\) trusts the losses"):
        assert_private(XorRandomizedResponse(1.0), 1.0, 0, n=4, rounds=[[0, 1, 2], [3]])
    with pytest.raises(AssertionError, match="REFUTED"):
        assert_private(RandomizedResponse(4.0), 1.0, 0, rule=rule)


def test_guesses_that_were_too_timid_leave_a_note_and_no_warning() -> None:
    """Perfect guesses could refute the claim, but not with the confidences that were stated."""

    def response(data: Any, rng: np.random.Generator) -> Any:
        return np.where(rng.random(len(data)) < 1 / (1 + math.exp(-1)), data, ~data)

    game = {"score": lambda output, known: np.where(output, 1.0, -1.0), "rule": Bet(), "n": 1000}
    verdict = examine(response, ApproximateDP(1.0, 1e-5), game, 0.999, rng=0)
    assert verdict.passed
    assert verdict.notes[0].startswith(
        "with these scores the claim would not be refuted even if every guess were right"
    )
    assert str(verdict).endswith(verdict.notes[0])


KINDS: dict[str, Callable[[np.ndarray], Evidence]] = {
    "Counts": lambda hits: Counts(int(hits.sum()), len(hits), 12),
    "PublishedCounts": lambda hits: PublishedCounts(int(hits.sum()), len(hits), 12),
    "UncommittedCounts": lambda hits: UncommittedCounts(int(hits.sum()), len(hits), len(hits)),
    "Budget": lambda hits: Budget(int(hits.sum()), len(hits), len(hits), 12),
    "Ranking": lambda hits: Ranking(hits, 12, grid=[3, 5, 6], committed=6),
    "Weighted": lambda hits: Weighted(hits, weights=np.arange(1, 7)),
    "Weighted by loss": lambda hits: Weighted(hits, losses=np.linspace(1, 7, 6)),
    "Bets": lambda hits: Bets(np.linspace(0.6, 0.999, 6), hits),
    "sure Bets": lambda hits: Bets(np.full(6, 1 - 1e-9), hits),
    "mixture Bets": lambda hits: Bets(None, hits),
    "Split": lambda hits: Split((Ranking(hits), Counts(int(hits[:5].sum()), 5, 6)), (0.5, 0.5)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("delta", [0.0, 1e-3])
def test_no_audit_reaches_beyond(kind: str, delta: float) -> None:
    """Every way in which six guesses can go; all right is what reaches farthest."""
    bounds = [
        lower_bound(KINDS[kind](np.array(hits)), delta, 0.9).epsilon
        for hits in itertools.product((False, True), repeat=6)
    ]
    far = [reach(KINDS[kind](np.array(hits)), delta, 0.9) for hits in ([True] * 6, [False] * 6)]
    assert far[0] is not None
    assert max(bounds) <= far[0] + 1e-9
    assert far[0] == far[1]


def test_the_size_of_what_took_no_guess_is_not_known() -> None:
    assert reach(Counts(0, 0, 10), 0.0, 0.95) is None
    assert reach(Split((Counts(0, 0, 10), Counts(1, 2, 10)), (0.5, 0.5)), 0.0, 0.95) is None
    assert not examine(Counts(0, 0, 10), ApproximateDP(1.0, 0.0), {}, 0.95).refuted


def test_a_remedy_is_found() -> None:
    """More guesses where they are too few; another level where no number of them would do."""
    few, many = lower_bound(Counts(0, 5, 5)), lower_bound(Counts(0, 70_000, 70_000), 1e-5)
    assert remedy(few, 1.0) == "10 elements would be enough for perfect guesses"
    assert remedy(many, 10.2) == "a false-alarm probability of 0.1 would be enough for perfect guesses"
    assert remedy(many, 12.0) == "no audit of this kind is enough"


def test_a_verdict_on_training_says_what_was_not_tested() -> None:
    """As the report of the same run does."""
    few = simulated(Dirac(1000), 1)
    verdict = examine_training(few, ApproximateDP(2.0, 1e-5), {}, 0.99)
    assert [note.partition(":")[0] for note in verdict.notes] == ["not tested, noise"]
    assert "noise" in few.report().facts
    assert "not tested, noise" in verdict.result("run").facts["notes"]
    assert examine_training(few, ApproximateDP(2.0, 1e-5), {}, 0.99, conformance=False).notes == ()


def test_training_is_held_to_its_claim_and_to_its_word() -> None:
    recording = simulated(Dirac(1000), 1)
    with pytest.warns(AuditWarning, match="not tested, noise"):
        assert 0.1 < assert_private_training(recording, 2.0, 1e-5, confidence=0.9).epsilon < 2
    verdict = examine_training(recording, ApproximateDP(2.0, 1e-5), {}, 0.99)
    assert verdict.passed
    assert (1 - verdict.bound.confidence, verdict.conformance.level) == pytest.approx((0.005, 0.005))
    assert "training matches what was stated, as far as it was tested (p = " in str(verdict)
    with pytest.raises(
        AssertionError,
        match=r"training was NOT what(.|\n)*is not refuted(.|\n)*training does NOT match what was stated: noise multiplier 1\.2",
    ):
        assert_private_training(simulated(Dirac(1000), 0, noise=0.5), 2.0, 1e-5)
    with pytest.raises(AssertionError, match="is REFUTED"):
        assert_private_training(simulated(Dirac(1000), 0, weight=10.0), 2.0, 1e-5, conformance=False)


def test_training_with_another_rule() -> None:
    recording = simulated(Dirac(800, 4), 0)
    how: dict[str, Any] = {"adaptive": True, "conformance": False}
    with pytest.warns(AuditWarning, match="the rule takes its stakes from the scores"):
        bound = assert_private_training(recording, 2.1, 1e-6, confidence=0.95, **how)
    assert bound.rule == "Bet()"
    assert bound.confidence == 0.95
    with pytest.warns(AuditWarning, match="not tested, noise"):
        assert assert_private_training(recording, 2.1, 1e-6, rule=Surest(100)).rule == "Surest(k=100)"


def test_few_canaries_leave_the_claim_to_conformance() -> None:
    recording = simulated(Dirac(40), 0)
    verdict = examine_training(recording, ApproximateDP(3.0, 1e-5), {}, 0.999)
    assert verdict.passed
    assert verdict.notes[0].startswith(
        "the bound cannot refute the claim, only conformance can fail: even 40"
    )
    with pytest.raises(InputError, match="this test cannot fail: even 40"):
        assert_private_training(recording, 3.0, 1e-5, conformance=False)
    with pytest.raises(AssertionError, match="NOT match what was stated"):
        assert_private_training(simulated(Dirac(40), 0, noise=0.3), 3.0, 1e-5)


def test_what_is_no_training_audit_is_refused() -> None:
    recording = simulated(Dirac(40), 0)
    with pytest.raises(InputError, match="audit must be an audited training run"):
        assert_private_training(Counts(1, 2, 3), 1.0, 1e-5)
    with pytest.raises(InputError, match="noise_multiplier must be positive"):
        assert_private_training(replace(recording, noise_multiplier=0.0), 1.0, 1e-5)
    planted = plant(np.zeros((50, 3)), np.ones((4, 3)), rng=0)
    with pytest.raises(InputError, match=r"cannot be asked for bound\(delta, confidence\).*pass the bound"):
        assert_private(planted, 1.0, 0)


def test_a_verdict_is_kept_as_a_result_that_holds(tmp_path: Any) -> None:
    verdict = examine_training(simulated(Dirac(1000), 0), ApproximateDP(2.0, 1e-5), {}, 0.99)
    stored = read_result(verdict.result("training", "pytest x").save(tmp_path / "result.json"))
    assert check(stored).holds
    assert stored.result.claimed == 2.0
    assert stored.result.seed == 0
    assert stored.result.conformance is not None


@pytest.mark.full
def test_correct_training_fails_no_more_often_than_stated() -> None:
    """400 training runs at 10%: a binomial test with a false-alarm probability of 1e-4."""
    runs = [
        examine_training(simulated(Dirac(200), seed), ApproximateDP(2.0, 1e-5), {}, 0.9)
        for seed in range(400)
    ]
    failed = sum(not verdict.passed for verdict in runs)
    assert 0 < failed <= stats.binom.isf(1e-4, 400, 0.1)


class Broken(RandomizedResponse):
    """Shows every bit, and states another epsilon."""

    def sample(self, bits: Any, rng: Any) -> Any:
        return bits.copy()


@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("rule", [Bet(), Soft()], ids=repr)
def test_rules_that_believe_losses_cannot_refute_what_is_stated(rule: Any, delta: float) -> None:
    with pytest.raises(InputError, match="this test cannot fail"):
        assert_private(Broken(1.0), 1.0, delta, rule=rule)


def test_stakes_that_are_too_small_are_noted() -> None:
    """Passing says nothing if even right guesses alone would not refute the claim, or none was taken."""
    game = {"score": lambda output, known: 2.0 * output - 1, "rule": Bet(), "n": 500}
    shown = examine(lambda data, rng: data, ApproximateDP(1.5, 0), game, 0.999, rng=0)
    assert shown.passed
    assert any("even if every guess were right" in note for note in shown.notes)
    silent = examine(audit_scores(np.zeros(100), np.arange(100) < 50), ApproximateDP(1.0, 0), {}, 0.95)
    assert any("no guess was taken" in note for note in silent.notes)


def test_conformance_is_judged_at_one_level(tmp_path: Path) -> None:
    """A test, the result that it writes and the report of that say the same."""
    recording = next(
        run
        for run in (simulated(Dirac(200), seed, noise=1.15) for seed in range(500))
        if 1e-4 < run.conformance().p_value < 1e-3
    )
    verdict = examine_training(recording, ApproximateDP(2.0, 1e-5), {}, 0.9999)
    assert verdict.conforms
    kept = read_checked(verdict.result("run").save(tmp_path / "run.json")).result
    assert kept.conformance is not None
    assert kept.conformance.conforms
    assert "(level 5e-05)" in str(kept.conformance)
    assert not kept.alarming
    assert not recording.report().conformance.conforms


def everything(included: Any, rng: np.random.Generator) -> np.ndarray:
    return included.astype(float)


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"score": lambda output, known: np.zeros(len(output))}, "every score is the same"),
        ({"score": lambda output, known: -output}, "included elements have lower scores"),
        ({"score": lambda output, known: 0.1 * output, "rule": UpTo(100, 0.5)}, "no guess was taken"),
    ],
    ids=["constant", "upside down", "timid"],
)
def test_the_plain_function_warns_of_a_pass_that_says_little(options: dict[str, Any], note: str) -> None:
    """As the fixture of the plugin prints."""
    with pytest.warns(AuditWarning, match=f"the test passed, but {note}"):
        assert_private(everything, 1.0, 0.0, **options)


def test_the_plain_function_warns_of_what_training_did_not_test() -> None:
    run = watched(Dirac(1200, 12), 0, np.full(20, 2.0), [(97,), (3,)])
    with pytest.warns(AuditWarning) as warned:
        assert_private_training(run, 3.0, 1e-5)
    notes = " ".join(str(one.message) for one in warned)
    assert "the test passed, but not tested, independence: whether two parameters share" in notes
    assert "the test passed, but not tested, steps" in notes


def test_conformance_held_where_nothing_could_fail_is_refused() -> None:
    """An attack found result files that `verify` refused to read."""
    recording = simulated(Dirac(1000), 1)
    with pytest.raises(InputError, match="tested at level 5e-13, where nothing could fail"):
        assert_private_training(recording, 2.0, 1e-5, confidence=1 - 1e-12)
