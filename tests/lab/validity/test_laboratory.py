"""The laboratory: ours hold, what is known to be wrong is flagged, and others are told apart."""

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from canaria import Counts, InputError
from canaria.bounds.bound import lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence.inversion import first_claim_refuted
from canaria.lab.engines import engine
from canaria.lab.store import Store
from canaria.lab.validity import AUDITORS, CASES, INVALID, OURS, Cell, Foreign, Laboratory, Ours, laboratory
from canaria.lab.validity._games import Game
from tests.cli.command import canaria
from tests.lab.validity import auditors


@pytest.mark.parametrize("most", [500, pytest.param(10**6, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", [auditor.name for auditor in OURS])
def test_ours_hold(name: str, most: int) -> None:
    """The quick form. A cell is flagged by chance once in 30,000; there are about 1,000 of them."""
    small = [case.name for case in CASES.values() if case.n <= most]
    matrix = laboratory([name], small, audits=1, claims=8).run()
    assert not matrix.over_claiming, matrix.verdict
    assert not any(cell.errors for cell in matrix.cells)
    played = {cell.case.name for cell in matrix.cells}
    own = [{"planted"}, {"training"}, {"counted"}, {"rr-0", "burst-0", "first-positive"}]
    own.append({"rr-0", "first-positive", "curve-luck-0.6-200"})
    assert any(played >= cases for cases in own)


@pytest.mark.parametrize(
    ("name", "case", "rate", "audits"),
    [
        ("best k", "rr-0", 0.2, 400),
        ("best k", "rr-3-2000", 0.3, 500),
        ("naive adaptive", "stop-ahead-0", 0.2, 400),
        ("full knowledge", "xor-1", 0.73, 400),
        ("list order", "first-constant", 1.0, 20),
        ("list order", "sorted-rounded", 1.0, 20),
        ("bets in list order", "last-positive", 1.0, 20),
        ("best of five", "rr-0", 0.13, 400),
        ("no delta", "leaky-1-1000", 0.4, 250),
        ("no delta", "all-or-nothing-1000", 0.25, 400),
    ],
)
def test_what_is_known_to_be_wrong_is_flagged(name: str, case: str, rate: float, audits: int) -> None:
    matrix = laboratory([name], [case], audits=audits).run()
    (cell,) = matrix.cells
    assert cell.flagged
    assert cell.rate == pytest.approx(rate, abs=0.1)
    assert matrix.over_claiming == (name,)
    assert f"{name} OVER-CLAIMS in 1 of 1 cases, worst in {case}" in matrix.verdict


def test_a_length_that_the_output_chooses_is_found() -> None:
    """7.5% false claims instead of 5%; 4,000 of them flag it but for once in 300."""
    (cell,) = laboratory(["length by output"], ["lengths"], audits=1, claims=8000).run().cells
    assert cell.flagged
    assert cell.rate == pytest.approx(0.075, abs=0.015)


@pytest.mark.parametrize("name", ["naive adaptive", "full knowledge"])
def test_where_its_assumptions_hold_the_same_rule_is_not_flagged(name: str) -> None:
    assert not laboratory([name], ["rr-1", "skip-1"], audits=400).run().over_claiming


@pytest.mark.full
def test_controls_are_no_accusation_unless_asked_for() -> None:
    matrix = laboratory([*INVALID, "tails:50"], ["rr-0"], audits=400).run()
    assert matrix.over_claiming == ()
    assert "best k (control)" in str(matrix)
    missed = (
        "list order",
        "bets in list order",
        "no delta",
        "product test",
        "length by output",
        "naive adaptive",
        "full knowledge",
    )
    assert matrix.missed == missed
    assert f"Too few audits to flag a control: {', '.join(missed)}." in matrix.verdict


def test_careless_ties_are_found() -> None:
    matrix = laboratory([Foreign("careless", auditors.careless)], ["ties-0", "rr-0"], audits=50).run()
    assert [cell.flagged for cell in matrix.cells] == [True, False]


def test_unfair_bits_are_nobodys_fault() -> None:
    """Counting cards breaks the sign guesser, in the open, without a verdict on it."""
    (cell,) = laboratory(["all"], ["half-counted"], audits=5, claims=500).run().cells
    assert cell.excessive
    assert not cell.flagged
    assert cell.verdict == "over-claims: unfair bits"


def test_an_auditor_that_fails_is_still_measured() -> None:
    matrix = laboratory([Foreign("broken", auditors.broken)], ["rr-0"], audits=60).run()
    (cell,) = matrix.cells
    assert 10 < cell.errors < 50
    assert cell.false == 0
    assert "ZeroDivisionError: 'no non-members below the threshold'" in matrix.verdict
    assert matrix.failing == ("broken",)
    assert "No auditor claims" not in matrix.verdict


@pytest.mark.parametrize(
    "audit",
    [
        auditors.not_a_number,
        auditors.nothing,
        auditors.text,
        auditors.two,
        auditors.of_less,
        auditors.leaving,
    ],
)
def test_an_auditor_that_gives_no_number_does_not_hold(audit: Callable[..., float]) -> None:
    matrix = laboratory([audit], ["rr-1"], audits=3).run()
    (cell,) = matrix.cells
    assert (cell.errors, cell.tightness, cell.verdict) == (3, None, "no bound")
    assert matrix.failing == (audit.__name__,)


@pytest.mark.parametrize("audit", [auditors.whole, auditors.boxed, auditors.boastful])
def test_any_number_is_a_bound(audit: Callable[..., float]) -> None:
    (cell,) = laboratory([audit], ["rr-1"], audits=30).run().cells
    assert (cell.false, cell.errors, cell.verdict) == (30, 0, "over-claims")


def test_below_zero_nothing_is_shown() -> None:
    (cell,) = laboratory([auditors.negative], ["rr-1"], audits=3).run().cells
    assert (cell.false, cell.errors, cell.mean) == (0, 0, 0.0)


def test_few_audits_prove_nothing() -> None:
    (cell,) = laboratory([auditors.timid], ["rr-1"], audits=10).run().cells
    assert cell.verdict == "too few audits"


@pytest.mark.parametrize("ignored", [auditors.no_delta, auditors.no_delta_surest])
def test_ignoring_delta_is_found(ignored: Callable[..., float]) -> None:
    matrix = laboratory([ignored], ["all-or-nothing-0", "burst-0", "rr-1"], audits=60).run()
    assert [cell.flagged for cell in matrix.cells][2] is False
    assert any(cell.flagged for cell in matrix.cells[:2])


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="auditors must have different names"):
        laboratory(["all", "all"])
    with pytest.raises(
        InputError, match=r"no auditor need withstand these cases; .*stop-ahead-0 \(earlier\)"
    ):
        laboratory("ranked", ["stop-ahead-0"])
    with pytest.raises(InputError, match="case must be one of the laboratory's own, got 'rr-1'"):
        Laboratory((AUDITORS["all"],), (replace(CASES["rr-1"], epsilon=2.0),), audits=10)
    with pytest.raises(
        InputError, match="must be a function whose scores know one of nothing, earlier, others"
    ):
        Foreign("mine", auditors.timid, known="everything")  # type: ignore[arg-type]
    with (
        engine(2) as executor,
        pytest.raises(InputError, match="auditor <lambda> cannot be sent to other processes"),
    ):
        laboratory([lambda scores, bits, delta, confidence: 0.0], ["rr-1"], audits=2).run(None, executor)


def test_a_list_sorted_by_bits_is_no_order_of_guessing() -> None:
    """An auditor that takes the list for the order of guessing is not shown one that the bits sorted."""
    assert not CASES["ties-0"].withstood_by(Foreign("in order", auditors.timid, known="earlier"))
    assert CASES["ties-0"].withstood_by(Foreign("of scores", auditors.timid))


@pytest.mark.parametrize("order", ["first", "last", "sorted"])
@pytest.mark.parametrize("scores", ["constant", "positive", "rounded"])
def test_every_auditor_of_scores_meets_every_order(order: str, scores: str) -> None:
    """Also adaptive ones, which once guessed in the order of the list."""
    case = CASES[f"{order}-{scores}"]
    assert all(case.withstood_by(auditor) for auditor in OURS if not auditor.audited)
    games = case.draw((50, case.n), np.random.default_rng(0), 0.05)
    members, positive = games.bits > 0, {"constant": 1.0, "positive": 1.0, "rounded": -9.0}[scores]
    assert (games.scores >= positive).all()
    if order == "sorted":
        assert (np.diff(games.scores, axis=1) <= 0).all()
    else:
        assert (np.diff(games.bits, axis=1) * (1 if order == "last" else -1) >= 0).all()
    assert abs(members.mean() - 0.5) < 0.02


def test_audits_of_runs_are_asked_as_users_ask() -> None:
    """Training and planted canaries: the audit itself answers, and the scores go to all others too."""
    for case, auditor in (("training", "training, adaptive"), ("planted", "black box")):
        played = CASES[case]
        games = played.draw((3, 100), np.random.default_rng(0), 0.05)
        assert len(games.audits) == 3
        assert (games.audits[1].bound(played.delta, 0.95, rng=1).evidence.elements) == 100
        (cell,) = laboratory([auditor], [case], audits=100).run().cells
        assert cell.errors == 0
        assert cell.tightness is not None
        assert 0 < cell.tightness < 1
    with pytest.raises(InputError, match="no auditor need withstand"):
        laboratory(["black box"], ["training"])


def test_an_auditor_cannot_spoil_the_games() -> None:
    alone = laboratory(["all"], ["rr-1"], audits=20).run().cells[0]
    after = laboratory([Foreign("meddling", auditors.meddling), "all"], ["rr-1"], audits=20).run().cells[1]
    assert (alone.mean, alone.false) == (after.mean, after.false)


def test_infinite_bounds_are_false_and_countable() -> None:
    matrix = laboratory([auditors.unlimited], ["rr-8"], audits=200).run()
    assert matrix.cells[0].false == matrix.cells[0].audits == 20
    json.loads(matrix.to_json())


@pytest.mark.parametrize(
    ("false", "audits", "flagged"),
    [(10, 200, False), (25, 200, True), (5313, 100_000, True), (5250, 100_000, False)],
)
def test_flagged_as_at_four_standard_errors(false: int, audits: int, flagged: bool) -> None:
    """Nominal 5%: 100,000 audits have a standard error of 0.069%, so 5.28% is the limit."""
    cell = Cell(
        auditor="one",
        control=False,
        case=CASES["rr-0"],
        confidence=0.95,
        audits=audits,
        false=false,
        errors=0,
        mean=0.0,
        claims=0,
        refuted=0,
    )
    assert cell.flagged == flagged
    low, high = cell.interval
    assert low < cell.rate < high


@pytest.mark.parametrize(
    "auditor",
    [one for one in OURS if isinstance(one, Ours) and not one.family],
    ids=lambda auditor: auditor.name,
)
@pytest.mark.parametrize("case", ["rr-0", "rr-1", "extremal-half"])
def test_the_tested_claim_is_the_one_that_matters(auditor: Ours, case: str) -> None:
    """No bound exceeds the truth unless the first claim at or above it is refuted; one below it may be."""
    played = CASES[case]
    rng = np.random.default_rng(7)
    games = played.draw((6, 100), rng, 0.05)
    for scores, bits in zip(games.scores, games.bits, strict=True):
        evidence = auditor.evidence(Game(scores, bits), rng)
        bound = lower_bound(evidence, played.delta).epsilon
        for truth in (played.epsilon, played.epsilon / 2, 0.01):
            assert first_claim_refuted(evidence, truth, played.delta, 0.05) or bound <= truth


@pytest.mark.parametrize(
    ("auditor", "case", "seen"),
    [("all", "extremal-all", Counts(75, 100, 100)), ("surest:50", "extremal-half", Counts(41, 50, 100))],
)
def test_the_worst_mechanism_attains_the_exact_bound(auditor: str, case: str, seen: Counts) -> None:
    """The exact test errs as often as its p-value says: nothing is lost, and delta bites (4 standard errors)."""
    worst = CASES[case]
    (cell,) = laboratory([auditor], [case], audits=1, claims=2_000).run().cells
    exact = seen.p_value(ApproximateDP(worst.epsilon, worst.delta))
    assert 0.04 < exact <= 0.05
    assert exact > 1.5 * seen.p_value(ApproximateDP(worst.epsilon, delta=0))
    assert cell.rate == pytest.approx(exact, abs=4 * math.sqrt(exact / 2_000))


def test_tightness_does_not_slip() -> None:
    """Mean bound over truth on the same twenty games as when this was written."""
    known = {
        "ranked": 0.739,
        "soft": 0.802,
        "all": 0.8027,
        "budget:50": 0.724,
        "bets": 0.674,
        "mixture": 0.680,
    }
    for cell in laboratory(list(known), ["rr-2"], audits=20).run().cells:
        assert cell.tightness is not None
        assert cell.tightness > known[cell.auditor] - 0.002, cell.auditor


@pytest.mark.full
def test_the_same_on_any_engine_and_resumed(tmp_path: Path) -> None:
    asked = ["validate", "ranked", "bets", "--case", "rr-1", "--case", "stop-ahead-0"]
    asked += ["--audits", "10", "--claims", "20", "--json"]
    alone = canaria(*asked, "--workers", "1", "--out", str(tmp_path / "one"))
    two = canaria(*asked, "--workers", "2", "--out", str(tmp_path / "two"))
    again = canaria(*asked, "--workers", "1", "--out", str(tmp_path / "two"), "--resume")
    assert alone.code == 0
    assert alone.out == two.out == again.out
    written = {path.name for path in (tmp_path / "two").iterdir()}
    assert written >= {"cells.tsv", "false-claims.svg", "false-claims.png", "tightness.svg"}
    with (tmp_path / "two" / "cells.tsv").open(newline="") as file:
        cells = list(csv.DictReader(file, delimiter="\t"))
    shown = [
        {k: "" if v is None else str(v) for k, v in cell.items()} for cell in json.loads(two.out)["cells"]
    ]
    assert cells == shown


def test_a_changed_auditor_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    module = tmp_path / "my_auditor_of_the_day.py"
    module.write_text("def audit(scores, bits, delta, confidence):\n    return 9.0\n")
    asked = ["validate", "my_auditor_of_the_day:audit", "--case", "rr-1", "--audits", "30", "--workers", "1"]
    first = canaria(*asked)
    assert first.code == 1
    assert "my_auditor_of_the_day:audit OVER-CLAIMS in 1 of 1 cases, worst in rr-1" in first.out
    module.write_text("def audit(scores, bits, delta, confidence):\n    return 0.0\n")
    again = canaria(*asked, "--resume")
    assert again.code == 2
    assert "holds another run" in again.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rankd"], "did you mean 'ranked'?"),
        (["tails:60"], "did you mean 'tails:50'?"),
        (["all", "--case", "xor-1"], "no auditor need withstand these cases"),
        (["--case", "rr-3"], "case must be one of rr-0, rr-0.1"),
        (["nowhere:audit"], "module 'nowhere' cannot be imported"),
        (["--audits", "0"], "audits must be an integer of at least 1, got 0"),
        (["--claims", "-1"], "claims must be an integer of at least 0, got -1"),
        (["--confidence", "1"], "confidence must be strictly between 0 and 1"),
        (["--known", "earlyer"], "earlyer"),
    ],
)
def test_bad_words_are_one_line(tmp_path: Path, words: list[str], message: str) -> None:
    ran = canaria("validate", *words, "--out", str(tmp_path / "run"))
    assert ran.code == 2
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("text", ["def audit(:", "raise RuntimeError('no model found')"])
def test_a_module_that_cannot_be_read_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unreadable_today.py").write_text(text)
    ran = canaria("validate", "unreadable_today:audit")
    assert ran.code == 2
    assert "module 'unreadable_today' cannot be imported: " in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.slow
def test_an_auditor_that_talks_does_not_spoil_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "talkative.py").write_text("def audit(*asked):\n    print('hello')\n    return 0.0\n")
    ran = canaria(
        "validate", "talkative:audit", "--case", "rr-1", "--audits", "3", "--workers", "1", "--json"
    )
    assert json.loads(ran.out)["cells"][0]["audits"] == 3


def test_list() -> None:
    ran = canaria("validate", "--list", "--json")
    assert json.loads(ran.out) == {
        "cases": {name: case.about for name, case in CASES.items()},
        "auditors": list(AUDITORS),
    }
    assert "stop when ahead" in canaria("validate", "--list").out


def test_python_door(tmp_path: Path) -> None:
    """Ten lines of a user, with a folder."""
    mine = laboratory([Foreign("boastful", auditors.boastful, known="earlier")], audits=20)
    assert len(mine.cases) == len(CASES)
    matrix = mine.run(Store.open(tmp_path / "run", mine.settings(), resume=False))
    assert len(matrix.cells) == sum(case.withstood_by(mine.auditors[0]) for case in CASES.values())
    assert all(cell.flagged for cell in matrix.cells if cell.case.fair and cell.audits == 20)
    with pytest.raises(InputError, match="auditor must be one of ranked"):
        laboratory(["nobody"])
