"""One place makes a result; whoever has a bound gets the report that the command line makes."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from canaria import Counts, InputError, Result, audit_scores, lower_bound, play
from canaria.claims import ApproximateDP
from canaria.files import check, read_result
from canaria.game import result_of_scores
from canaria.mechanisms import RandomizedResponse
from canaria.training import Dirac
from tests.cli.command import canaria
from tests.training.simulated import simulated

DATED = ("command", "checksum")
"""What is not the same in Python: what was typed, and so the checksum."""


def same(made: Result, printed: str) -> bool:
    """Whether a result is what the command line prints."""
    ours, theirs = json.loads(made.to_json()), json.loads(printed)
    return {key: ours[key] for key in ours if key not in DATED} == {
        key: theirs[key] for key in theirs if key not in DATED
    }


def test_counts_are_those_of_the_command_line() -> None:
    ran = canaria(
        "bound",
        *[
            "--correct",
            "73",
            "--guesses",
            "100",
            "--elements",
            "1000",
            "--delta",
            "1e-5",
            "--claimed",
            "1",
            "--json",
        ],
    )
    assert same(
        lower_bound(Counts(73, 100, 1000), 1e-5).result(ApproximateDP(1.0, delta=1e-5), name="counts"),
        ran.out,
    )


def test_scores_are_those_of_the_command_line(tmp_path: Path) -> None:
    rng, path = np.random.default_rng(0), tmp_path / "scores.csv"
    bits = rng.integers(0, 2, 300)
    scores = rng.normal(bits)
    rows = "\n".join(f"{score!r},{bit}" for score, bit in zip(scores.tolist(), bits.tolist(), strict=True))
    path.write_text(f"score,included\n{rows}\n")
    ran = canaria("scores", str(path), "--delta", "1e-5", "--claimed", "2", "--json")
    claim = ApproximateDP(2.0, delta=1e-5)
    made = result_of_scores(scores, bits, claim, rng=0, name="scores in scores.csv")
    assert same(made, ran.out)
    assert made.histogram is not None


def test_a_game_is_that_of_the_command_line() -> None:
    ran = canaria(
        "run",
        *["randomized-response", "--epsilon", "1", "--n", "200", "--delta", "0", "--claimed", "3", "--json"],
    )
    mechanism = RandomizedResponse(1.0)
    claim = ApproximateDP(3.0, delta=0, adjacency="replace")
    game = play(mechanism, n=200, rng=0)
    made = replace(game.result(claim, mechanism=mechanism, name="randomized-response"), seed=0)
    printed = json.loads(ran.out)
    assert printed["ladder"]["top"] == "the mechanism's epsilon"
    assert same(made, json.dumps({**printed, "ladder": made.to_dict()["ladder"]}))


def test_a_training_run_gives_its_own_report() -> None:
    recording = simulated(Dirac(200), 0)
    claim = ApproximateDP(2.0, delta=1e-5)
    made = recording.report(claim, name="mine")
    assert made.to_dict() == recording.report(2.0, 1e-5, name="mine").to_dict()
    assert made.conformance is not None


def test_a_bound_opens_its_report(tmp_path: Path) -> None:
    bits = np.random.default_rng(0).integers(0, 2, 200)
    bound = audit_scores(np.random.default_rng(1).normal(bits), bits, delta=1e-5, rng=0)
    result = bound.result(ApproximateDP(2.0, delta=1e-5), name="mine")
    path = result.report(tmp_path / "report.html", title="A report")
    assert "<title>A report" in path.read_text()
    assert check(read_result(result.save(tmp_path / "result.json"))).holds


def test_the_same_result_gives_the_same_page(tmp_path: Path) -> None:
    """Nothing of the page comes from the clock, the machine or an earlier page."""
    claim = ApproximateDP(1.0, delta=1e-5)
    made = replace(lower_bound(Counts(73, 100, 1000), 1e-5).result(claim), date="2020-02-29")
    first = made.report(tmp_path / "first.html").read_bytes()
    again = read_result(made.save(tmp_path / "result.json")).result
    assert again.report(tmp_path / "again.html").read_bytes() == first
    assert b"the newest result is of 2020-02-29" in first


def test_delta_is_that_of_the_claim() -> None:
    claim = ApproximateDP(1.0, delta=1e-5)
    game = play(RandomizedResponse(1.0), n=200, rng=0)
    claim = replace(claim, adjacency="replace")
    assert game.result(claim, delta=1e-5).bound.delta == game.result(claim).bound.delta == 1e-5
    assert game.result(delta=1e-3).bound.delta == 1e-3
    with pytest.raises(InputError, match="delta must be that of the claim, 1e-05, or left out, got 0"):
        game.result(claim, delta=0)
    with pytest.raises(InputError, match="the bound is at delta = 0, but the claim is at delta = 1e-05"):
        Result(lower_bound(Counts(73, 100, 1000)), ApproximateDP(0.1, delta=1e-5))


@pytest.mark.parametrize("day", ["2026-13-01", "yesterday", "", 3])
def test_a_date_is_a_day(day: object, tmp_path: Path) -> None:
    path = Result(lower_bound(Counts(3, 4, 5))).save(tmp_path / "result.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "date": day}))
    with pytest.raises(InputError, match="date must be a"):
        read_result(path)
