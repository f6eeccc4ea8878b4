"""Results: kept, read back, checked; and files that somebody has changed, broken or made up."""

import io
import json
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from canaria import Counts, InputError, Result, audit_scores, lower_bound, replay, rules, together
from canaria._core import coins
from canaria._core.files import checksum
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Bets,
    Budget,
    PublishedCounts,
    Ranking,
    Split,
    Tradeoff,
    UncommittedCounts,
    from_dict,
    to_dict,
)
from canaria.evidence.bound import Bound
from canaria.evidence.ranking import looks
from canaria.game import CoinWarning
from canaria.mechanisms import DpSgd
from canaria.report.section import explain
from canaria.report.terminal import show
from canaria.results import limits
from canaria.results.ladders import ladder_of_dpsgd
from canaria.results.parts import Histogram, Ladder, Step
from canaria.results.read import read_result
from canaria.results.verify import check, read_checked
from canaria.rules import (
    All,
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
from canaria.rules.ranked import SHARES
from canaria.theory import efficacy
from canaria.training.canaries import Dirac
from tests.evidence.kinds import ALL
from tests.report.samples import of_every_kind, scored
from tests.training.simulated import simulated

HOSTILE: list[Any] = [
    *(None, True, -1, 0, 1e308, -1e308, 10**400, "inf", "-inf", "NaN", "", "x" * 30_000),
    *([], {}, [[]], [1e308] * 3, {"kind": "Counts"}, "<script>alert(1)</script>", "\x1b[2J", "\ud800"),
]


@pytest.mark.parametrize("result", of_every_kind(), ids=lambda result: result.name)
def test_results_come_back_as_they_were(result: Result, tmp_path: Path) -> None:
    again = read_checked(result.save(tmp_path / "result.json")).result
    assert again.to_dict() == result.to_dict()
    assert str(again) == str(result)


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


def test_checksum_covers_everything() -> None:
    record = scored().to_dict()
    for name in record:
        changed = {**record, name: "other"}
        assert (checksum(changed) == record["checksum"]) == (name == "checksum")


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
        ("ladder", LADDER, "ladder ends at 39, not at the bound"),
        ("conformance", FLATTERED, "conformance is stored as p = 1, but its parts give another"),
        ("refuted", 0, "refuted is stored as 0"),
        ("correct", 3, "correct is stored as 3"),
        ("refuted", True, "refuted is stored as True"),
        ("assumptions", [], "assumptions is stored as"),
        ("name", "other", "checksum does not fit"),
    ):
        path.write_text(json.dumps({**record, name: value}))
        assert any(words in fault for fault in check(read_result(path)).faults)
        with pytest.raises(InputError, match="does not hold"):
            read_checked(path)


def written(evidence: dict[str, Any], path: Path, **fields: Any) -> Path:
    """A result file with this evidence and a fitting checksum."""
    record = {**scored().to_dict(), "histogram": None, "ladder": None, "evidence": evidence, **fields}
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    return path


SIX_OF_SEVEN = {"correct": 6, "taken": 7, "elements": 500}
COUNTED = {"kind": "Counts", "correct": 90, "taken": 100, "elements": 500}
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
            one_shot = (Ranked(), Soft(), Online(), Top(k), Tails(k), Surest(k), Threshold(np.float64(1)))
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
    "option", ["--delta 1e-5", "--claimed 1", "--confidence 0.9", "--adjacency replace", "--seed 3"]
)
def test_a_command_that_says_something_else_does_not_hold(option: str, tmp_path: Path) -> None:
    honest = "canaria bound --correct 90 --guesses 100 --elements 1000 --delta 1e-3 --claimed 5"
    result = Result(lower_bound(Counts(90, 100, 1000), 1e-3), ApproximateDP(5.0, 1e-3), command=honest)
    path = tmp_path / "result.json"
    assert check(read_result(result.save(path))).holds
    name = option.split(maxsplit=1)[0]
    for words in (option, option.replace(" ", "=")):
        other = replace(result, command=f"{honest.partition(name)[0]} {words}")
        faults = check(read_result(other.save(path))).faults
        assert len(faults) == 1
        assert f"but the command says {option}" in faults[0]


@pytest.mark.parametrize(
    "typed", ["--delta 1e-6 --delta 1e-3 --claimed inf", "--delta=1e-3 --claimed Infinity", "--delta .001"]
)
def test_the_last_of_several_options_counts_and_numbers_are_numbers(typed: str, tmp_path: Path) -> None:
    result = Result(lower_bound(Counts(90, 100, 1000), 1e-3), ApproximateDP(np.inf, 1e-3))
    kept = replace(result, command=f"canaria bound --correct 90 {typed}")
    assert check(read_result(kept.save(tmp_path / "result.json"))).holds


def test_a_rule_that_is_nearly_a_number_is_read_quickly(tmp_path: Path) -> None:
    """Twenty thousand digits and a letter took 19 s; quadratic time would take minutes for these."""
    for _ in range(50):
        with pytest.raises(InputError, match="not how canaria writes a rule"):
            rule_of("Threshold(t=" + "1" * 19_980 + "x)")


def test_a_field_nested_deeper_than_python_reads_is_no_traceback(tmp_path: Path) -> None:
    """Versions of Python differ in how deep they go: it is refused, or does not hold."""
    path = tmp_path / "result.json"
    record = Result(lower_bound(Counts(90, 100, 100))).to_dict()
    path.write_text(json.dumps({**record, "estimate": "@"}).replace('"@"', "[" * 980 + "]" * 980))
    with suppress(InputError):
        assert not check(read_result(path)).holds


@pytest.mark.parametrize("field", [{"level": 1e-300}, {"noise": -0.1}, {"stated_noise": 0.0}])
def test_conformance_that_nothing_could_fail_is_refused(field: dict[str, float], tmp_path: Path) -> None:
    made = simulated(Dirac(200), 0).report(2.0, 1e-5)
    assert made.conformance is not None
    path = replace(made, conformance=replace(made.conformance, **field)).save(tmp_path / "result.json")
    with pytest.raises(InputError, match="of conformance must be"):
        read_result(path)


def test_a_large_trade_off_is_written_and_read(tmp_path: Path) -> None:
    bound = lower_bound(Tradeoff(9_000_000, 10**7, 10**7))
    assert check(read_result(Result(bound).save(tmp_path / "result.json"))).holds


def test_what_is_clearest_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The report of parts that are all alike would walk each of them, again and again."""
    found: list[float] = []
    once = Split._find_clearest

    def counted(self: Split, epsilon: float) -> Any:
        found.append(epsilon)
        return once(self, epsilon)

    monkeypatch.setattr(Split, "_find_clearest", counted)
    explain(scored())
    assert len(found) == len(set(found)) == 1


def test_three_orders_must_be_of_the_same_elements() -> None:
    """Counts moved between the orders, or within one, contradict each other."""
    rng = np.random.default_rng(0)
    bits = rng.choice([-1, 1], 300)
    made = audit_scores(rng.normal(bits), bits).evidence
    assert isinstance(made, Split)
    both, top, bottom = (part.to_dict() for part in made.parts)
    assert Ranked().could_have_made(made)
    more = {**top, "counts": [*top["counts"][:-1], top["counts"][-1] + 1]}
    raised = {**both, "counts": both["grid"]}
    for parts in ((both, more, bottom), (raised, top, bottom), (top, both, bottom)):
        relabelled = Split(tuple(Ranking.of_counts(**part) for part in parts), made.shares)
        assert not Ranked().could_have_made(relabelled)


def test_conformance_says_what_its_p_value_says(tmp_path: Path) -> None:
    record = simulated(Dirac(1000), 0, noise=1.2).report(claimed=2.0, delta=1e-5).to_dict()
    assert record["conformance"]["p_value"] < 1e-9
    record["conformance"] = {**record["conformance"], "conforms": True}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    assert check(read_result(path)).faults == ("conforms is stored as True, but its p-value says False",)


@pytest.mark.parametrize("name", ["conformance", "histogram", "ladder"])
def test_parts_hold_nothing_more(name: str, tmp_path: Path) -> None:
    record = simulated(Dirac(1000), 0).report(claimed=2.0, delta=1e-5).to_dict()
    record[name] = {**record[name], "more": 1}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(InputError, match=f"{name} must hold nothing more"):
        read_result(path)


def split(depth: int, width: int = 1) -> dict[str, Any]:
    part: dict[str, Any] = {"kind": "Counts", "correct": 1, "taken": 1, "elements": 1}
    for _ in range(depth):
        part = {"kind": "Split", "parts": [part] * width, "shares": [1 / width / 2] * width}
    return part


def parts(inner: list[dict[str, Any]]) -> dict[str, Any]:
    return {"kind": "Split", "parts": inner, "shares": [0.999 / len(inner)] * len(inner)}


def many_looks(number: int, most: int) -> dict[str, Any]:
    grid = np.unique(np.geomspace(8, most, number).astype(np.int64))
    return {"grid": grid.tolist(), "counts": (grid // 2).tolist(), "elements": most}


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        (split(12), "nested 10 deep"),
        (split(400), "nested 10 deep"),
        (split(2, 120), "at most 10000 parts"),
        (
            {"kind": "Ranking", "grid": [10**15], "counts": [6 * 10**14], "elements": 10**15},
            r"json would take about \d+ s to recompute \(a Ranking with 1 looks up to 1000000000000000 guesses\)",
        ),
        (
            {"kind": "Ranking", **many_looks(400, 10**8)},
            r"a Ranking with 38\d looks up to 100000000 guesses\); at most 6 s are allowed",
        ),
        (
            parts([to_dict(Budget(1200 + k % 700, 2000, 2000, 10**6)) for k in range(999)]),
            r"about \d\d s to recompute \(a Split of 999 parts\)",
        ),
    ],
    ids=["deep", "very deep", "wide", "ranking", "looks", "budgets"],
)
def test_small_files_cannot_ask_for_hours_or_gigabytes(evidence: Any, message: str, tmp_path: Path) -> None:
    for read in (read_result, read_checked):
        with pytest.raises(InputError, match=message):
            read(written(evidence, tmp_path / "result.json", delta=1e-9))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seed": -1}, "seed must be"),
        ({"seed": 2**63 + 1}, "seed must be"),
        ({"name": "x" * 20_001}, "name must be a text of at most 20000 characters"),
        ({"command": "x" * 20_001}, "command must be a text"),
        ({"facts": {f"fact {k}": "" for k in range(201)}}, "facts must be at most 200 texts"),
        ({"facts": {"steps": 3}}, "facts must be a text"),
        ({"versions": {"torch": "x" * 20_001}}, "versions must be a text"),
        ({"claim": ApproximateDP(2e6, delta=0)}, "claimed must be at most 1e"),
    ],
)
def test_a_result_holds_nothing_that_its_reader_refuses(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Result(lower_bound(Counts(9, 10, 10)), **wrong)


def test_rule_and_about_of_a_bound_are_held_to_the_same(tmp_path: Path) -> None:
    for long in ({"rule": "x" * 20_001}, {"about": "x" * 20_001}):
        with pytest.raises(InputError, match="must be a text of at most 20000"):
            Result(lower_bound(Counts(9, 10, 10), **long))
    infinite = Result(lower_bound(Counts(9, 10, 10)), ApproximateDP(np.inf, delta=0), seed=2**63)
    assert check(read_result(infinite.save(tmp_path / "result.json"))).holds


def test_many_audits_together_are_written_and_read(tmp_path: Path) -> None:
    """More than a thousand parts, and bounds of bounds."""
    rng = np.random.default_rng(5)
    many = {f"audit {k}": Counts(int(rng.integers(40, 60)), 100, 1000) for k in range(1200)}
    nested = together(many).bound
    for _ in range(6):
        nested = together({"all of them": nested, "one more": Counts(70, 100, 1000)}).bound
    assert check(read_result(Result(nested).save(tmp_path / "result.json"))).holds


def test_what_its_reader_would_refuse_is_not_written(tmp_path: Path) -> None:
    path, rng = tmp_path / "result.json", np.random.default_rng(3)
    one = audit_scores(rng.normal(size=4000), rng.integers(0, 2, 4000), rng=1)
    many = Bound(0.0, 0.0, 0.95, Split((one.evidence,) * 300, (1 / 301,) * 300))
    with pytest.raises(InputError, match=r"would take about \d+ s to recompute \(a Split of 300 parts\)"):
        Result(many).save(path)
    deep = one.evidence
    for _ in range(11):
        deep = Split((deep,), (1.0,))
    with pytest.raises(InputError, match="nested 10 deep"):
        Result(replace(one, evidence=deep)).save(path)
    assert not path.exists()


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


@pytest.mark.parametrize("rule", [Top(30), Top(60), Tails(31), Tails(60), Soft(), Ranked()], ids=repr)
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


def test_what_takes_longer_than_is_likely_is_refused_on_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ever better counts, so that each part has to be inverted."""
    rising = parts([to_dict(PublishedCounts(6000 + 10 * k, 10**4, 10**5)) for k in range(99)])
    path = written(rising, tmp_path / "result.json", delta=1e-9)
    assert check(read_result(path)).recomputed > 0
    monkeypatch.setattr(limits, "ALLOWED", 0.3)
    for read in (lambda path: check(read_result(path)), read_checked):
        with pytest.raises(
            InputError, match=r"a result would take more than 0 s to recompute \(a Split of 99 parts\)"
        ):
            read(path)


@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_what_canaria_writes_is_accepted(delta: float, tmp_path: Path) -> None:
    """Twenty rankings of 10^8 canaries together, every budget, and 10^5 bets."""
    rng, grid = np.random.default_rng(0), looks(10**8)
    steps = np.diff(grid, prepend=0)
    ranked = [
        Ranking.of_counts(grid.tolist(), np.cumsum(rng.binomial(steps, 0.501)).tolist(), 10**8)
        for _ in range(60)
    ]
    audits = {f"ranked {k}": Split(tuple(ranked[3 * k : 3 * k + 3]), SHARES) for k in range(20)}
    budgets = {f"up to {k}": Budget(round(0.6 * k), k, k, 10**6) for k in (1, 100, 2000, 2001, 10**6)}
    stated = rng.uniform(0.5, 0.9, 10**5)
    for many in (audits, budgets, {"bets": Bets(stated, rng.random(10**5) < stated)}):
        path = Result(together(many, delta).bound).save(tmp_path / "result.json")
        assert check(read_result(path)).holds


def test_nothing_of_a_file_may_be_missing_or_more(tmp_path: Path) -> None:
    path, record = tmp_path / "result.json", scored().to_dict()
    for name in record:
        path.write_text(json.dumps({key: value for key, value in record.items() if key != name}))
        with pytest.raises(InputError, match=name):
            read_result(path)
    path.write_text(json.dumps({**record, "more": 1}))
    with pytest.raises(InputError, match="and nothing more, got \\['more'\\]"):
        read_result(path)


def test_endless_files_are_not_read_to_the_end() -> None:
    with pytest.raises(InputError, match="must be at most 67108864 bytes"):
        read_result("/dev/zero")


def test_a_verdict_is_that_of_the_recomputed_bound(tmp_path: Path) -> None:
    """62 of 62 in a budget prove exactly 3: a claim of 3 is not refuted, whatever rounding a file claims."""
    honest = Result(lower_bound(Budget(62, 62, 62, 62)), ApproximateDP(3.0, 0))
    assert honest.bound.epsilon == 3.0
    record = {**honest.to_dict(), "epsilon": 3.00000002, "refuted": True}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    assert check(read_result(path)).faults == ("refuted is stored as True, but its evidence says False",)


def test_projections_stay_within_what_can_be_counted() -> None:
    section = explain(Result(lower_bound(Counts(6 * 10**14, 10**15, 10**15))))
    assert max(size for size, _, _ in section.by_guesses) <= 10**15


def test_counts_alone_are_held_to_their_own_kind() -> None:
    """At the number of guesses that was taken, the curve shows the bound itself."""
    for evidence in (Counts(80, 100, 1000), PublishedCounts(80, 100, 1000), UncommittedCounts(80, 100, 1000)):
        bound = lower_bound(evidence, 1e-5)
        points = {size: epsilon for size, _, epsilon in explain(Result(bound)).by_guesses}
        assert points[100] == bound.epsilon
    adaptive = lower_bound(Budget(80, 100, 100, 64_000), 1e-5)
    points = {size: epsilon for size, _, epsilon in explain(Result(adaptive)).by_guesses}
    assert points[100] <= adaptive.epsilon


def test_truncated_results_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    text = scored().to_json()
    for length in range(0, len(text), 97):
        path.write_text(text[:length])
        with pytest.raises(InputError, match="must be the JSON of one result"):
            read_result(path)


@pytest.mark.parametrize("version", [0, 2, "1", None, [1]], ids=str)
def test_other_formats_are_refused(version: object, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**scored().to_dict(), "format": version, "canaria": "9.0"}))
    with pytest.raises(
        InputError, match=r"must be a result of format 1, got .* \(written by canaria '9.0'\)"
    ):
        read_result(path)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a record, of lists only the first two."""
    yield path
    inside = (
        value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    )
    for key, part in inside:
        yield from places(part, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.mark.parametrize("share", [0.05, pytest.param(1.0, marks=pytest.mark.full)], ids=["some", "all"])
def test_made_up_results_are_refused_or_harmless(share: float, tmp_path: Path) -> None:
    """Every value replaced by every hostile one, the checksum made to fit: an InputError, or it can be shown."""
    path, rng = tmp_path / "result.json", np.random.default_rng(0)
    outcomes = {"shown": 0, "refused": 0}
    for result in (of_every_kind()[3], of_every_kind()[8]):
        record = json.loads(result.to_json())
        for place, value in product(places(record), HOSTILE):
            if rng.random() > share:
                continue
            made = changed(record, place, value)
            if isinstance(made, dict):
                made["checksum"] = checksum(made)
            path.write_text(json.dumps(made))
            outcomes[read_and_show(path)] += 1
    assert outcomes["refused"] > 1000 * share
    assert outcomes["shown"] > 100 * share


def read_and_show(path: Path) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        try:
            found = read_checked(path).result
        except InputError as error:
            return "crashed" if "\n" in str(error) else "refused"
    assert str(found).replace("\n", "").isprintable()
    show([explain(found)], Console(file=io.StringIO()))
    return "shown"


@pytest.mark.parametrize("evidence", ALL, ids=lambda evidence: f"{type(evidence).__name__}-{evidence.method}")
def test_every_kind_explains_itself(evidence: Any) -> None:
    assert evidence.fixed()
    progress = evidence.progress(0.1)
    assert (np.diff(progress.taken) > 0).all()
    assert (progress.correct <= progress.taken).all()
    section = explain(Result(lower_bound(evidence, 1e-6)))
    assert dict(section.by_confidence)[0.95] == section.result.bound.epsilon
    assert len(section.by_guesses) > 1


def test_histogram_counts_every_score_once() -> None:
    rng = np.random.default_rng(0)
    scores, bits = rng.standard_cauchy(5000), rng.integers(0, 2, 5000)
    histogram = Histogram.of(scores, bits)
    assert histogram is not None
    assert sum(histogram.included) == bits.sum()
    assert sum(histogram.excluded) == 5000 - bits.sum()
    assert Histogram.of([1.0, 1.0], [0, 1]) is None
    assert Histogram.of([1e308, -1e308], [0, 1]) is None
    infinite = Histogram.of([-np.inf, 0.0, 1.0, np.inf], [0, 0, 1, 1], bins=2)
    assert infinite == Histogram((0.0, 0.5, 1.0), (0, 2), (2, 0))


class TestLadder:
    def test_of_dpsgd_meets_the_exact_efficacy(self) -> None:
        """One step, everyone in it: N(bit, sigma^2), whose efficacy `LocalGaussian` knows; 4 standard errors."""
        from canaria.mechanisms import LocalGaussian

        mechanism = DpSgd(dimension=200, steps=1, sample_rate=1.0, noise_multiplier=1.0)
        bound = lower_bound(Counts(130, 200, 200))
        ladder = ladder_of_dpsgd(mechanism, 200, 5.0, bound)
        assert ladder is not None
        exact = efficacy(LocalGaussian(2.0), 200, 200, trials=4000, rng=1)
        levels = {step.gap: step.epsilon for step in ladder.steps}
        assert levels["elements"] == pytest.approx(exact.epsilon, abs=0.1)
        assert levels["outputs"] == pytest.approx(levels["interference"])

    def test_knowing_others_helps_where_canaries_share_a_coordinate(self) -> None:
        mechanism = DpSgd(dimension=100, steps=1, sample_rate=1.0, noise_multiplier=0.7)
        ladder = ladder_of_dpsgd(mechanism, 400, 20.0, lower_bound(Counts(300, 400, 400)))
        assert ladder is not None
        levels = [ladder.epsilon, *(step.epsilon for step in ladder.steps)]
        assert (np.diff(levels)[:-1] <= 0).all()
        assert levels[1] - levels[2] > 0.5

    def test_large_audits_are_sampled(self) -> None:
        mechanism = DpSgd(dimension=10**6, steps=1000, sample_rate=0.01, noise_multiplier=1.0)
        ladder = ladder_of_dpsgd(mechanism, 10**6, 8.0, lower_bound(Counts(700, 1000, 10**6)))
        assert ladder is not None
        assert ladder.how.startswith("1 simulated run with the stated noise, 10000 canaries each of 1000000")

    def test_is_not_drawn_from_a_refuted_claim_or_to_infinity(self) -> None:
        mechanism = DpSgd(dimension=10, steps=1, sample_rate=1.0, noise_multiplier=1.0)
        bound = lower_bound(Counts(95, 100, 100))
        assert ladder_of_dpsgd(mechanism, 100, 1.0, bound) is None
        assert ladder_of_dpsgd(mechanism, 100, float("inf"), bound) is None
        with pytest.raises(InputError, match="must be finite"):
            Ladder("top", 1.0, (Step("gap", float("inf")),), "")


@pytest.mark.parametrize("name", ["absent/result.json", ".", "", "file/result.json", "x" * 300], ids=len)
def test_saving_where_nothing_can_be_written(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    with pytest.raises(InputError, match="cannot be written"):
        scored().save(tmp_path / name)
    assert (tmp_path / "file").read_text() == "kept"


def test_saving_through_a_link_and_into_a_device(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("old")
    (tmp_path / "link.json").symlink_to("real.json")
    scored().save(tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    read_checked(tmp_path / "real.json")
    scored().save("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_claims_are_checked() -> None:
    with pytest.raises(InputError, match="epsilon must be at least 0"):
        replace(scored(), claim=ApproximateDP(-1.0, 1e-5))
    with pytest.raises(InputError, match=r"the bound is at delta = 1e-05, but the claim is at delta = 0\.02"):
        replace(scored(), claim=ApproximateDP(1.0, 0.02))


def test_the_way_from_the_guesses_to_the_bound() -> None:
    """Each step is what the evidence itself says: the estimate, the count alone, with delta, the bound."""
    section = explain(scored())
    bound, (right, taken) = section.result.bound, section.result.bound.tally
    alone = Counts(right, taken, 500)
    assert [epsilon for _, epsilon in section.derivation] == [
        bound.estimate,
        lower_bound(alone).epsilon,
        lower_bound(alone, 1e-5).epsilon,
        bound.epsilon,
    ]
    assert explain(Result(lower_bound(Counts(0, 0, 10)))).derivation == ()


def test_a_run_that_is_not_as_stated_is_told_first() -> None:
    halved = simulated(Dirac(1000), 0, noise=1.2).report(claimed=2.0, delta=1e-5)
    assert not halved.refuted
    assert halved.alarming
    assert "is not refuted" in halved.verdict
    assert "NOT match what was stated" in halved.verdict
    assert "NOT match what was stated" in str(halved).splitlines()[2]
    assert not simulated(Dirac(1000), 0).report(claimed=2.0, delta=1e-5).alarming


def test_a_split_of_splits_is_explained_by_its_clearest_part() -> None:
    """As `together` makes of two rankings: the curve is that of the ranking, and adaptive guesses stay adaptive."""
    ranked = scored().bound
    both = together({"one": ranked, "other": Counts(55, 100, 500)}, 1e-5)
    assert len(explain(Result(both.bound)).by_guesses) == len(explain(Result(ranked)).by_guesses)
    inner = Split((Bets(None, [True] * 80 + [False] * 20, 500),), (1.0,))
    section = explain(Result(lower_bound(Split((inner,), (1.0,)), 1e-5)))
    alone = lower_bound(UncommittedCounts(80, 100, 500), 1e-5).epsilon
    assert section.by_guesses[-1] == (100, 80, alone)


def test_a_bound_above_its_last_gap_is_luck_and_holds(tmp_path: Path) -> None:
    """The step before the last may lie below the bound; verify once rejected such files of our own."""
    rising = 0
    for seed in range(12):
        result = simulated(Dirac(300), seed, noise=0.5).report(claimed=8.0, delta=1e-5)
        assert check(read_result(result.save(tmp_path / "result.json"))).holds
        steps = [step.epsilon for step in result.ladder.steps] if result.ladder else []
        rising += len(steps) > 1 and steps[-1] > steps[-2]
    assert rising > 0


def test_a_ladder_is_short(tmp_path: Path) -> None:
    """Each step is a bar of the report: 20,000 of them took minutes and gigabytes."""
    record = scored().to_dict()
    record["ladder"] = {**record["ladder"], "steps": record["ladder"]["steps"] * 50}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    with pytest.raises(InputError, match="steps must be a list of at most 20"):
        read_result(path)
