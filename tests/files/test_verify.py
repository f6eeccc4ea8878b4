"""What `verify` recomputes or cross-checks: a file that contradicts itself does not hold."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from canaria import InputError, Result, audit_scores, load, lower_bound, rules
from canaria._core.files import checksum
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Budget,
)
from canaria.files.read import read_result
from canaria.files.verify import check, read_checked
from canaria.game import CoinWarning, replay
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
)
from canaria.training.canaries.designs import Dirac
from tests.report.samples import of_every_kind, scored
from tests.training.simulated import simulated

LADDER = {"top": "the claim", "epsilon": 50.0, "steps": [{"gap": "chance", "epsilon": 39.0}], "how": ""}


FLATTERED = {
    "p_value": 1.0,
    "noise": 1.0,
    "stated_noise": 1.0,
    "weight": 1.0,
    "parts": {"noise": 1e-200},
    "causes": {},
    "explained_by": "",
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


def test_what_every_rule_makes_holds(tmp_path: Path) -> None:
    """With ties and without, down to one element, and with numpy integers."""
    rng, path = np.random.default_rng(0), tmp_path / "result.json"
    for n in (1, 3, 100):
        bits, k = rng.choice([-1, 1], n), np.int64(max(1, n // 3))
        fixed = (Top(k), Tails(k), Around(k), Surest(k), Threshold(np.float64(1)))
        adaptive = (Bet(), All(), UpTo(k), SurestFirst(k))
        for rule in (Ranked(), Soft(), Online(), *fixed, *adaptive):
            scores = np.round(rng.normal(bits))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", CoinWarning)
                game = replay(bits, scores, lambda output, known: output, rule, rng=1)
            assert check(read_result(Result(game.bound(1e-5)).save(path))).holds, rule


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


def test_a_verdict_is_that_of_the_recomputed_bound(tmp_path: Path) -> None:
    """62 of 62 in a budget prove exactly 3: a claim of 3 is not refuted, whatever rounding a file claims."""
    honest = Result(lower_bound(Budget(62, 62, 62, 62)), ApproximateDP(3.0, 0))
    assert honest.bound.epsilon == 3.0
    record = {**honest.to_dict(), "epsilon": 3.00000002, "refuted": True}
    path = tmp_path / "result.json"
    path.write_text(json.dumps({**record, "checksum": checksum(record)}))
    assert check(read_result(path)).faults == ("refuted is stored as True, but its evidence says False",)


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
    assert load(path).to_dict() == result.to_dict()
    path.write_text(path.read_text().replace('"name": "', '"name": "another '))
    with pytest.raises(InputError, match="the file was changed"):
        load(path)
