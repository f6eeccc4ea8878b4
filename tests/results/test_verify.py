"""What `verify` recomputes or cross-checks: a file that contradicts itself does not hold."""

import json
import re
import warnings
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canaria import Counts, InputError, Result, audit_scores, lower_bound, replay, rules
from canaria._core import coins
from canaria._core.files import checksum
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Budget,
    from_dict,
)
from canaria.game import CoinWarning
from canaria.results.parts import Histogram
from canaria.results.read import read_result
from canaria.results.verify import check, read_checked
from canaria.rules import (
    All,
    Around,
    Bet,
    Online,
    Ranked,
    Soft,
    Surest,
    SurestFirst,
    Tails,
    Threshold,
    Top,
    UpTo,
    rule_of,
)
from canaria.training.canaries import Dirac
from tests.report.samples import of_every_kind, scored
from tests.training.simulated import simulated

LADDER = {"top": "the claim", "epsilon": 50.0, "steps": [{"gap": "chance", "epsilon": 39.0}], "how": ""}


FLATTERED = {
    "p_value": 1.0,
    "noise": 1.0,
    "stated_noise": 1.0,
    "weight": 1.0,
    "parts": {"noise": 1e-200},
    "clearest": "",
    "level": 1e-3,
    "conforms": True,
}


def test_edited_results_do_not_hold(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    record = scored().to_dict()
    for name, value, words in (
        ("epsilon", 9.0, "epsilon is stored as 9, but its evidence gives"),
        ("epsilon", 0.25, "epsilon is stored as 0.25, but its evidence gives"),
        (
            "histogram",
            {"edges": [0, 1], "included": [1], "excluded": [1]},
            "histogram counts 2 scores of 500",
        ),
        ("ladder", LADDER, "ladder starts at 50, not at the claim 4.0"),
        ("ladder", LADDER, "ladder ends at 39, not by steps at the bound"),
        ("ladder", {**LADDER, "epsilon": 4.0, "steps": []}, "ladder ends at 4, not by steps at the bound"),
        ("ladder", {**LADDER, "steps": 2 * LADDER["steps"]}, "ladder has 'chance' before its last step"),
        ("conformance", FLATTERED, "conformance is stored as p = 1, but its parts give another"),
        ("refuted", 0, "refuted is stored as 0"),
        ("correct", 3, "correct is stored as 3"),
        ("refuted", True, "refuted is stored as True"),
        ("assumptions", [], "assumptions is stored as"),
    ):
        path.write_text(json.dumps({**record, name: value}))
        assert any(words in fault for fault in check(read_result(path)).faults)
        with pytest.raises(InputError, match="does not hold"):
            read_checked(path)


def test_a_ladder_does_not_lead_up_to_the_bound(tmp_path: Path) -> None:
    """A refuted claim has no ladder; one that starts there contradicts the verdict beside it."""
    record, path = scored(1.0).to_dict(), tmp_path / "result.json"
    assert record["refuted"]
    assert record["ladder"] is None
    steps = [{"gap": "elements", "epsilon": 0.5}, {"gap": "chance", "epsilon": record["epsilon"]}]
    path.write_text(json.dumps({**record, "ladder": {**LADDER, "epsilon": 1.0, "steps": steps}}))
    assert any("ladder leads from the claim 1 up to" in fault for fault in check(read_result(path)).faults)


SIX_OF_SEVEN = {"correct": 6, "taken": 7, "elements": 500}


COUNTED = {"kind": "Counts", "correct": 90, "taken": 100, "elements": 500}


RANKED = {
    "kind": "Ranking",
    "grid": [3, 4, 5, 6],
    "counts": [3, 4, 5, 6],
    "elements": 500,
    "committed": 6,
    "one_sided": False,
}


BETTED = {"kind": "Bets", "confidences": [0.9, 0.8], "hits": "11", "elements": 500}


@pytest.mark.parametrize(
    ("rule", "evidence"),
    [
        ("Threshold(t=2.0)", COUNTED),
        ("Bet()", COUNTED),
        ("SurestFirst(block=1)", COUNTED),
        ("UpTo(budget=100, t=0.0)", COUNTED),
        (
            "UpTo(budget=50, t=0.0)",
            {"kind": "Budget", "correct": 9, "taken": 9, "budget": 9, "elements": 500},
        ),
        ("Online(blocks=30)", COUNTED),
        ("Soft()", COUNTED),
        ("Ranked()", COUNTED),
        ("Tails(k=7)", COUNTED),
        ("Around(k=7)", COUNTED),
        ("Around(k=3)", RANKED),
        ("Around(k=4)", {**RANKED, "one_sided": True}),
        ("Around(k=4)", {**RANKED, "committed": 7}),
        ("Around(k=501)", RANKED),
        ("Top(k=7)", COUNTED),
        ("Surest(k=7)", COUNTED),
        ("Tails(k=7)", {"kind": "UncommittedCounts", **SIX_OF_SEVEN}),
        ("All()", {"kind": "UncommittedCounts", **SIX_OF_SEVEN}),
        ("Soft()", {"kind": "Weighted", "hits": "11", "losses": [1, 2], "weights": None, "elements": 500}),
        ("Soft()", {"kind": "Weighted", "hits": "11", "losses": None, "weights": [1, 2], "elements": 2}),
        ("Soft()", {"kind": "Weighted", "hits": "11", "losses": [0, 2], "weights": None, "elements": 2}),
        ("Bet()", {**BETTED, "confidences": [0.9, 0.9999999]}),
        ("Bet()", {**BETTED, "confidences": None}),
        ("Online(blocks=30)", BETTED),
        ("Online(blocks=30)", {**BETTED, "confidences": [0.9, 0.8], "elements": 2}),
        ("Online(blocks=2)", {**BETTED, "confidences": [0.5, 0.6, 0.7, 0.7], "hits": "1111", "elements": 4}),
    ],
)
def test_evidence_that_the_rule_cannot_have_made_does_not_hold(
    rule: str, evidence: dict[str, Any], tmp_path: Path
) -> None:
    """The bound itself is what the evidence gives: only the label is wrong."""
    kept = lower_bound(from_dict(evidence), 1e-5, rule=rule)
    path = Result(kept).save(tmp_path / "result.json")
    faults = check(read_result(path)).faults
    assert any(f"rule is stored as {rule}, which cannot have made this evidence" in fault for fault in faults)


@pytest.mark.parametrize(
    "rule", ["Tails(k=07)", "Tails(k=7, j=1)", "Tails(7)", "Ranked(1)", "Tails(k=np.int64(7))"]
)
def test_rules_are_written_one_way(rule: str, tmp_path: Path) -> None:
    path = Result(lower_bound(Counts(6, 7, 500), rule=rule)).save(tmp_path / "result.json")
    assert any("not how canaria writes a rule" in fault for fault in check(read_result(path)).faults)


def test_every_rule_knows_what_it_made(tmp_path: Path) -> None:
    """Every rule, with ties and without, down to one element: what it makes holds, also with numpy integers."""
    rng = np.random.default_rng(0)
    for n, scale in product((1, 2, 3, 9, 100, 1000), (0.0, 1.0, 3.0)):
        bits = rng.choice([-1, 1], n)
        for scores in (rng.normal(scale * bits), np.round(rng.normal(scale * bits)), np.zeros(n)):
            k = np.int64(max(1, n // 3))
            fixed = (Top(k), Tails(k), Around(k), Surest(k))
            one_shot = (Ranked(), Soft(), Online(), *fixed, Threshold(np.float64(1)))
            for rule in (*one_shot, Bet(), All(), UpTo(k), SurestFirst(k)):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", CoinWarning)
                    game = replay(bits, scores, lambda output, known: output, rule, rng=1)
                    bounds = [game.bound(1e-5)]
                    if rule in one_shot:
                        bounds.append(audit_scores(scores, bits, 1e-5, rule=rule, rng=1))
                for bound in bounds:
                    assert rule_of(str(bound.rule)) == rule
                    assert rule.could_have_made(bound.evidence), (rule, bound.evidence)
    path = Result(bound).save(tmp_path / "result.json")
    assert check(read_result(path)).holds


def test_coins_that_were_never_tossed_do_not_hold(tmp_path: Path) -> None:
    """Everything included: told by the evidence itself, or by the histogram."""
    rng, path = np.random.default_rng(0), tmp_path / "result.json"
    evidence = Ranked()(rng.normal(size=1000), rng).reveal(np.ones(1000, dtype=np.int8))
    faults = check(read_result(Result(lower_bound(evidence, rule="Ranked()")).save(path))).faults
    assert faults == ("1000 of 1000 elements are included, which fair coins show with probability 2e-301",)
    told = Histogram((0.0, 1.0), (900,), (100,))
    counted = Result(lower_bound(Counts(90, 100, 1000)), histogram=told)
    assert "900 of 1000 elements" in check(read_result(counted.save(path))).faults[0]


@pytest.mark.parametrize(
    "option",
    [
        "--delta 1e-5",
        "--claimed 1",
        "--confidence 0.9",
        "--adjacency replace",
        "--seed 3",
        "--correct 50",
        "--guesses 90",
        "--elements 100",
        "--method steinke",
        "--rule ranked",
    ],
)
def test_a_command_that_says_something_else_does_not_hold(option: str, tmp_path: Path) -> None:
    honest = "canaria bound --correct 90 --guesses 100 --elements 1000 --delta 1e-3 --claimed 5"
    result = Result(lower_bound(Counts(90, 100, 1000), 1e-3), ApproximateDP(5.0, 1e-3), command=honest)
    path = tmp_path / "result.json"
    assert check(read_result(result.save(path))).holds
    name = option.split(maxsplit=1)[0]
    others = re.sub(rf"{name} \S+", "", honest)
    for words in (option, option.replace(" ", "=")):
        other = replace(result, command=f"{others} {words}")
        faults = check(read_result(other.save(path))).faults
        assert len(faults) == 1
        assert f"but the command says {option}" in faults[0]


@pytest.mark.parametrize(
    "typed",
    [
        "--delta 1e-6 --delta 1e-3 --claimed inf",
        "--delta=1e-3 --claimed Infinity",
        "--delta .001 --claimed=inf",
    ],
)
def test_the_last_of_several_options_counts_and_numbers_are_numbers(typed: str, tmp_path: Path) -> None:
    result = Result(lower_bound(Counts(90, 100, 1000), 1e-3), ApproximateDP(np.inf, 1e-3))
    counts = "--correct 90 --guesses 100 --elements 1000"
    kept = replace(result, command=f"canaria bound {counts} {typed}")
    assert check(read_result(kept.save(tmp_path / "result.json"))).holds


def test_a_command_that_cannot_have_made_the_result_does_not_hold(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, 200)
    scored = Result.of_scores(
        np.random.default_rng(1).normal(bits), bits, ApproximateDP(1.0, 0), rule=Top(20), rng=0
    )
    path = tmp_path / "result.json"
    for command, fault in {
        "canaria scores x.csv --rule top:20 --claimed 1 --delta 0": None,
        "canaria scores x.csv --rule top:3 --claimed 1 --delta 0": "the command says --rule top:3",
        "canaria scores x.csv --rule nonsense --claimed 1": "the command says --rule nonsense",
        "canaria scores x.csv --rule top:20": "but the command does not say --claimed",
        "canaria scores x.csv --rule top:20 --claimed 1 --delta 0 --adjacency replace": "says --adjacency",
        "canaria scores x.csv --claimed 1 --delta 0": "but the command does not say --rule",
        "canaria run top:20 --claimed 1 --delta 0": "but the command does not say --n",
        "canaria bound --claimed 1 --delta 0": "but the command does not say --correct",
        "canaria plan --help": "which makes no result",
        "canaria": "which makes no result",
    }.items():
        faults = check(read_result(replace(scored, command=command).save(path))).faults
        assert not faults if fault is None else fault in faults[0]


def test_what_a_command_leaves_out_has_its_default(tmp_path: Path) -> None:
    evidence, path = Counts(90, 100, 1000), tmp_path / "result.json"
    command = "canaria bound --correct 90 --guesses 100 --elements 1000"
    for result, fault in (
        (Result.of_counts(evidence, command=command), None),
        (Result.of_counts(evidence, confidence=0.99, command=command), "does not say --confidence"),
        (Result.of_counts(evidence, adjacency="replace", command=command), "does not say --adjacency"),
        (Result.of_counts(evidence, delta=1e-3, command=command), "does not say --delta"),
        (replace(Result.of_counts(evidence, command=command), seed=1), "does not say --seed"),
    ):
        faults = check(read_result(result.save(path))).faults
        assert not faults if fault is None else fault in faults[0]


def test_a_rule_that_is_nearly_a_number_is_read_quickly(tmp_path: Path) -> None:
    """Twenty thousand digits and a letter took 19 s; quadratic time would take minutes for these."""
    for _ in range(50):
        with pytest.raises(InputError, match="not how canaria writes a rule"):
            rule_of("Threshold(t=" + "1" * 19_980 + "x)")


def test_conformance_says_what_its_p_value_says(tmp_path: Path) -> None:
    record = simulated(Dirac(1000), 0, noise=1.2).report(claimed=2.0, delta=1e-5).to_dict()
    assert record["conformance"]["p_value"] < 1e-9
    record["conformance"] = {**record["conformance"], "conforms": True}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    assert check(read_result(path)).faults == ("conforms is stored as True, but its p-value says False",)


def test_a_rule_that_borrows_a_name_of_ours_is_recorded_with_its_module(tmp_path: Path) -> None:
    class Top:
        """The highest tenth; prints almost like the rule of that name."""

        def __call__(self, scores: Any, rng: np.random.Generator) -> Any:
            return rules.Top(len(scores) // 10)(scores, rng)

        def __repr__(self) -> str:
            return "Top(fraction=0.1)"

    rng = np.random.default_rng(4)
    bits = rng.integers(0, 2, 400)
    scores = rng.normal(2.0 * bits)
    for bound in (
        audit_scores(scores, bits, rule=Top(), rng=1),
        replay(bits, scores, lambda output, known: output, rule=Top(), rng=1).bound(),
    ):
        assert bound.rule == f"{__name__}.Top(fraction=0.1)"
        assert check(read_result(Result(bound).save(tmp_path / "result.json"))).holds


@pytest.mark.parametrize(
    "rule", [Top(30), Top(60), Tails(31), Tails(60), Around(21), Soft(), Ranked()], ids=repr
)
def test_a_histogram_cannot_show_more_included_elements_than_the_evidence(rule: Any, tmp_path: Path) -> None:
    """Every possible number of included elements is tried on a histogram, against all bits that fit."""
    rng, path = np.random.default_rng(6), tmp_path / "result.json"
    bits = rng.integers(0, 2, 60)
    scores = rng.normal(3.0 * bits - 1.5)
    bound = audit_scores(scores, bits, rule=rule, rng=1)
    fewest, most = rule.included(bound.evidence)
    assert fewest <= bits.sum() <= most
    for included in range(61):
        told = Histogram((0.0, 1.0), (included,), (60 - included,))
        found = check(read_result(Result(bound, histogram=told).save(path)))
        fair = coins.fair_chance(included, 60) >= coins.IMPOSSIBLE
        assert found.holds == (fewest <= included <= most and fair), included


def test_included_elements_of_a_rule_are_those_of_some_bits() -> None:
    """The range is exact: its ends are reached by bits that make the same evidence."""
    scores = np.random.default_rng(7).normal(size=8)
    for rule in (Top(3), Top(8), Tails(3), Tails(4), Tails(8)):
        seen: dict[Any, set[int]] = {}
        for signs in product((-1, 1), repeat=8):
            bits = np.array(signs, dtype=np.int8)
            evidence = rule(scores, np.random.default_rng(0)).reveal(bits)
            seen.setdefault(evidence, set()).add(int((bits > 0).sum()))
        for evidence, numbers in seen.items():
            assert rule.included(evidence) == (min(numbers), max(numbers))


def test_a_verdict_is_that_of_the_recomputed_bound(tmp_path: Path) -> None:
    """62 of 62 in a budget prove exactly 3: a claim of 3 is not refuted, whatever rounding a file claims."""
    honest = Result(lower_bound(Budget(62, 62, 62, 62)), ApproximateDP(3.0, 0))
    assert honest.bound.epsilon == 3.0
    record = {**honest.to_dict(), "epsilon": 3.00000002, "refuted": True}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    assert check(read_result(path)).faults == ("refuted is stored as True, but its evidence says False",)


@pytest.mark.parametrize("rule", [Ranked(), Around(133), Soft()], ids=str)
def test_a_histogram_that_shows_another_order_does_not_hold(rule: Any, tmp_path: Path) -> None:
    """Of the highest scores the evidence says how many are included; mirrored, or swapped, they are not."""
    bits, path = np.random.default_rng(0).permutation(np.arange(400) % 2), tmp_path / "result.json"
    losses = 2 * np.random.default_rng(1).normal(2.0 * bits) - 2
    honest = Result.of_scores(losses, bits, rule=rule, rng=0)
    assert check(read_result(honest.save(path))).holds
    shown = honest.histogram
    assert shown is not None
    mirrored = replace(shown, included=shown.included[::-1], excluded=shown.excluded[::-1])
    swapped = replace(shown, included=shown.excluded, excluded=shown.included)
    for other in (mirrored, swapped):
        faults = check(read_result(replace(honest, histogram=other).save(path))).faults
        assert "among the highest" in faults[0]


def reformatted(value: Any) -> Any:
    """A record as programs rewrite it that know one kind of number, like jq: 2.0 becomes 2."""
    if isinstance(value, dict):
        return {name: reformatted(part) for name, part in reversed(value.items())}
    if isinstance(value, list):
        return [reformatted(part) for part in value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    return int(float(value)) if float(value).is_integer() else value


def test_files_that_other_programs_have_formatted_hold(tmp_path: Path) -> None:
    """In another order, with other spaces, and with numbers as JSON knows them."""
    for number, result in enumerate(of_every_kind()):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(reformatted(json.loads(result.to_json())), indent=3))
        assert check(read_result(path)).holds, result.name


def test_a_changed_name_leaves_the_bound_but_not_the_file(tmp_path: Path) -> None:
    result = next(iter(of_every_kind()))
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**json.loads(result.to_json()), "name": "other"}))
    found = check(read_result(path))
    assert found.bound_holds
    assert found.changed
    assert not found.holds


def test_equal_audits_are_equal() -> None:
    for one, again in zip(of_every_kind(), of_every_kind(), strict=True):
        assert one.bound == again.bound
        assert hash(one.bound.evidence) == hash(again.bound.evidence)
    found = list(of_every_kind())
    assert len({one.bound for one in found}) > len(found) / 2


def test_an_edited_epsilon_accuses_nothing_else(tmp_path: Path) -> None:
    record = scored().to_dict()
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "epsilon": record["epsilon"] + 0.5}))
    assert [fault.split()[0] for fault in check(read_result(path)).faults] == ["epsilon"]


def test_a_result_is_loaded_with_its_bound_computed_again(tmp_path: Path) -> None:
    result = scored()
    path = result.save(tmp_path / "result.json")
    assert Result.load(path).to_dict() == result.to_dict()
    path.write_text(path.read_text().replace('"name": "', '"name": "another '))
    with pytest.raises(InputError, match="the file was changed"):
        Result.load(path)
