"""`canaria plan`."""

import json

import pytest

from tests.cli.command import canaria

PLAN = ["plan", "--epsilon", "2", "--delta", "1e-5", "--steps", "100", "--sample-rate", "0.1"]


@pytest.mark.full
def test_plan_in_words() -> None:
    ran = canaria(*PLAN, "--canaries", "200", "--too-small", "2", "--too-small", "4")
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0].startswith("Plan: 200 canaries, 1 per coordinate, in DP-SGD of 100 steps")
    assert "epsilon 2 at delta 1e-05; bounds at 95% confidence" in lines[1]
    assert "by Ranked()" in lines[2]
    assert "    noise /                     2       4" in lines


@pytest.mark.full
def test_plan_for_scarce_coordinates_as_json() -> None:
    claim = ["plan", "--epsilon", "8", "--delta", "1e-5", "--steps", "1", "--sample-rate", "1"]
    words = [*claim, "--coordinates", "50", "--rule", "soft", "--noise-multiplier", "0.7", "--too-small", "3"]
    data = json.loads(canaria(*words, "--json").out)
    assert (data["rule"], data["noise_multiplier"]) == ("Soft()", 0.7)
    assert data["canaries"] == 50 * data["advised"] == 50 * data["per_coordinate"]
    assert data["expected"]["mean"] > 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (PLAN[:-2], "Missing option '--sample-rate'"),
        (
            [*PLAN, "--rule", "bet"],
            "rule must be Ranked(), Around(k), Soft() or Matched(...) for a plan, got Bet(",
        ),
        (
            [*PLAN, "--canaries", "9", "--coordinates", "9"],
            "canaries must be left out where coordinates are given",
        ),
        ([*PLAN, "--too-small", "0"], "too_small must be between 1 and 1000, got 0.0"),
    ],
    ids=["missing", "rule", "both", "factor"],
)
def test_bad_usage_is_one_line_and_code_two(words: list[str], message: str) -> None:
    ran = canaria(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_help_fits_a_screen_and_shows_an_example() -> None:
    ran = canaria("plan", "--help")
    assert ran.code == 0
    assert "Example: canaria plan --epsilon 2 --delta 1e-5 --steps 100 --sample-rate 0.1" in ran.out
    assert ran.out.count("\n") <= 24
