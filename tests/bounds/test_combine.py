"""Several audits of one mechanism: all bounds hold at once."""

import json
import math

import numpy as np
import pytest

from canaria import Bound, Counts, InputError, Result, combine, lower_bound, play
from canaria.bounds.combine import bound_of, confidence_at
from canaria.claims import ApproximateDP
from canaria.evidence import Split
from canaria.mechanisms import RandomizedResponse, XorInPairs
from canaria.rules import Surest
from tests import oracles

WHITE, BLACK = Counts(90, 100, 1000), Counts(60, 100, 1000)


def test_every_audit_is_held_at_its_share() -> None:
    seen = combine(
        {"white": WHITE, "black": BLACK}, delta=1e-5, confidence=0.9, shares={"white": 0.7, "black": 0.3}
    )
    assert seen.bounds["white"].epsilon == pytest.approx(lower_bound(WHITE, 1e-5, 1 - 0.1 * 0.7).epsilon)
    assert seen.bounds["black"].epsilon == pytest.approx(lower_bound(BLACK, 1e-5, 1 - 0.1 * 0.3).epsilon)
    assert seen.best == "white"
    assert seen.bound.epsilon == pytest.approx(seen.bounds["white"].epsilon, abs=1e-9)
    assert seen.bound.confidence == 0.9
    assert seen.bound.evidence == Split((WHITE, BLACK), (0.7, 0.3))
    assert seen.bound.evidence.p_value(ApproximateDP(seen.bound.epsilon, 1e-5)) <= 0.1 * (1 + 1e-12)
    assert seen.refutes(ApproximateDP(seen.bound.epsilon - 0.01, seen.bound.delta))
    assert not seen.refutes(ApproximateDP(seen.bound.epsilon, seen.bound.delta))


def test_one_audit_alone_loses_nothing() -> None:
    assert combine({"only": WHITE}).bound.epsilon == pytest.approx(lower_bound(WHITE).epsilon, rel=1e-13)


def test_audits_of_every_form_are_inverted_anew() -> None:
    """A bound that was asked at another confidence and delta, a result, evidence, and a game."""
    mechanism = RandomizedResponse(1.0)
    game = play(mechanism, rule=Surest(100), n=100, rng=0)
    loose = game.bound(delta=0.01, confidence=0.5)
    forms = {"bound": loose, "result": Result(loose), "game": game}
    seen = combine(forms, delta=0.0)
    wanted = game.bound(0.0, confidence_at(0.05 / 3)).epsilon
    assert [bound.epsilon for bound in seen.bounds.values()] == pytest.approx([wanted] * 3)
    assert {bound.rule for bound in seen.bounds.values()} == {"Surest(k=100)"}
    assert seen.bound.adjacency == "replace"
    with pytest.raises(InputError, match="for one adjacency, got replace and unspecified"):
        combine({"bare": game.evidence, **forms}, delta=0.0)
    with pytest.raises(InputError, match="must be the same"):
        seen.refutes(ApproximateDP(1.0, 0, "add-remove"))
    assert combine({"bare": game.evidence}, delta=0.0).bound.adjacency == "unspecified"
    assert combine({"bound": loose}).bound.delta == 0.01


def test_an_audit_that_answers_another_question_is_inverted_anew() -> None:
    """An audit of the user's own that forgets which confidence it was asked for."""

    class Forgetful:
        def bound(self, delta: float, confidence: float) -> Bound:
            return lower_bound(WHITE, 0.01, 0.5)

    seen = combine({"own": Forgetful()}, delta=0.0).bounds["own"].epsilon
    assert seen == pytest.approx(lower_bound(WHITE).epsilon, rel=1e-12)
    assert bound_of(Forgetful(), 0.0, 0.99).epsilon == lower_bound(WHITE, 0.0, 0.99).epsilon


def test_an_adaptive_and_a_one_run_audit_of_the_same_mechanism() -> None:
    mechanism = XorInPairs()
    seen = combine(
        {
            "one run": play(mechanism, n=200, rng=0),
            "adaptive": play(mechanism, n=200, rounds=mechanism.rounds(200), rng=0),
        }
    )
    assert seen.bounds["one run"].epsilon == 0
    assert seen.best == "adaptive"
    assert seen.bound.epsilon > 3


def test_words_and_json() -> None:
    seen = combine({"white box": WHITE, "black box": BLACK})
    first, *lines = str(seen).split("\n")
    assert first == "ε ≥ 1.542 at δ = 0, with 95% confidence, as white box shows; all 2 bounds hold at once:"
    assert "every audit that was made is listed" in seen.explanation
    assert [line.split("  ")[1] for line in lines] == ["white box", "black box"]
    assert "90 of 100 guesses right, 1000 elements" in lines[0]
    assert "none shows more" in str(combine({"black box": BLACK}, confidence=0.99))
    record = json.loads(json.dumps(seen.to_dict(), allow_nan=False))
    assert record["epsilon"] == seen.bound.epsilon
    assert set(record["audits"]) == {"white box", "black box"}


@pytest.mark.parametrize("epsilon", [0.0, 1.0])
def test_bounds_hold_at_once(epsilon: float) -> None:
    """20,000 audits of randomized response, three dependent looks at each.

    A true claim is refuted in at most 5%; without the split, in more. False alarms below 4e-5 each.
    """
    rng = np.random.default_rng(5)
    audits, looks = 20_000, (40, 70, 100)
    right = np.cumsum(rng.random((audits, 100)) < oracles.success(epsilon), axis=1)[:, np.array(looks) - 1]

    def refuted(confidence: float) -> float:
        least = [
            next(v for v in range(k + 1) if lower_bound(Counts(v, k, 100), 0.0, confidence).epsilon > epsilon)
            for k in looks
        ]
        return float((right >= np.array(least)).any(axis=1).mean())

    split = combine({f"{k}": Counts(k, k, 100) for k in looks}).bounds["40"].confidence
    error = math.sqrt(0.05 * 0.95 / audits)
    assert refuted(split) <= 0.05 + 4 * error
    assert refuted(0.95) > 0.05 + 4 * error


@pytest.mark.parametrize("level", [0.5, 0.05, 0.01 / 3, 1e-5, 1e-9, 3e-15], ids=str)
def test_a_confidence_never_errs_more_often_than_asked(level: float) -> None:
    assert 0 < 1 - confidence_at(level) <= level


@pytest.mark.parametrize(
    ("audits", "options", "message"),
    [
        ({}, {}, "audits must be a dict"),
        ([WHITE], {}, "audits must be a dict"),
        ({"a": 3}, {}, "audit must be a bound, evidence"),
        ({"a": WHITE, "b": BLACK}, {"shares": {"a": 0.5}}, "shares must be a dict with the names"),
        (
            {"a": WHITE, "b": BLACK},
            {"shares": {"a": 0.9, "b": 0.2}},
            "shares must be positive and add up to at most 1",
        ),
        (
            {"a": WHITE, "b": BLACK},
            {"shares": {"a": 1.0, "b": 0.0}},
            "shares must be positive and add up to at most 1",
        ),
        ({"a": WHITE}, {"confidence": 1.0}, "confidence must be strictly between"),
        ({"a": lower_bound(WHITE, 0.0), "b": lower_bound(WHITE, 1e-5)}, {}, "delta must be given"),
        (
            {"a": lower_bound(WHITE, adjacency="replace"), "b": lower_bound(WHITE, adjacency="add-remove")},
            {},
            "audits must be for one adjacency, got add-remove and replace",
        ),
    ],
    ids=["empty", "list", "number", "names", "above 1", "zero", "certain", "deltas", "adjacencies"],
)
def test_what_cannot_be_put_together(audits: object, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        combine(audits, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_equal_shares_add_up_for_any_number_of_audits() -> None:
    for count in (3, 7, 49, 98, 107, 1000):
        seen = combine({f"{k}": Counts(0, 0, 10) for k in range(count)}).bound.evidence
        assert isinstance(seen, Split)
        assert sum(seen.shares) == pytest.approx(1)


def test_the_joint_result_names_every_audit() -> None:
    seen = combine({"white box": WHITE, "black box": BLACK})
    result = seen.result(ApproximateDP(1.0, delta=0))
    assert result.refuted
    assert result.facts["audit 1"].startswith("white box: ε ≥ 1.542 with 97.5% confidence, 90 of 100")
    assert result.facts["audit 2"].startswith("black box: ε ≥ 0.000")
