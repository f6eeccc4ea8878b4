"""`canaria run` and `canaria gaps`."""

import json
from pathlib import Path

import pytest

from canaria.mechanisms._parse import MECHANISMS
from tests.cli.command import canaria

NAMED = [
    ["randomized-response", "--epsilon", "1"],
    ["local-laplace", "--epsilon", "2"],
    ["local-gaussian", "--sigma", "1"],
    ["name-and-shame"],
    ["all-or-nothing", "--p", "0.3"],
    ["xor"],
    ["xor-randomized-response", "--epsilon", "1"],
    ["xor-in-pairs"],
    ["count"],
    ["count-in-sets", "--size", "4"],
    ["noisy-count-in-sets", "--size", "4", "--sigma", "1"],
]


def test_no_mechanism_is_left_out() -> None:
    assert {words[0] for words in NAMED} == set(MECHANISMS)


@pytest.mark.parametrize("words", NAMED, ids=lambda words: words[0])
def test_every_mechanism_by_name(words: list[str]) -> None:
    data = json.loads(canaria("gaps", *words, "--n", "20", "--k", "10", "--trials", "500", "--json").out)
    parts = data["efficacy"] + data["elements"] + data["outputs"] + data["interference"]
    assert parts == pytest.approx(data["epsilon"])
    names = ("efficacy", "elements", "outputs", "interference", "epsilon")
    assert {f"{name}_epsilon" for name in names} | {"efficacy_error"} <= set(data)
    ran = json.loads(canaria("run", *words, "--n", "20", "--adaptive", "--trials", "3", "--json").out)
    assert len(ran["bounds"]) == 3
    assert ran["mean"] == pytest.approx(sum(float(bound["epsilon"]) for bound in ran["bounds"]) / 3)


def test_gaps_in_words() -> None:
    out = canaria("gaps", "local-laplace", "--epsilon", "2", "--n", "100").out
    assert "10000 simulated games" in out
    assert "efficacy         0.81" in out
    assert "noisy-count-in-sets --size --sigma" in canaria("gaps", "--list").out


def test_a_claim_is_held_against_one_game() -> None:
    words = ("run", "randomized-response", "--epsilon", "1", "--n", "200", "--claimed", "1", "--delta", "0")
    refused = canaria(*words, "--trials", "3")
    assert refused.code == 2
    assert refused.err == "canaria: --claimed applies to a single game; leave out --trials\n"
    assert canaria(*words).code == 0


def test_run_in_words_and_by_rule() -> None:
    assert canaria("run", "xor-in-pairs", "--n", "200", "--adaptive").out.startswith("ε ≥ 3.")
    several = canaria("run", "xor-in-pairs", "--n", "200", "--adaptive", "--trials", "3")
    assert several.out.startswith("mean of the bounds of 3 games: 3.")
    for rule in (
        "all",
        "bet",
        "budget:50",
        "budget:50:0.5",
        "surest:20",
        "ranked",
        "soft",
        "online",
        "threshold:0.5",
    ):
        ran = canaria(
            "run", "randomized-response", "--epsilon", "3", "--n", "100", "--rule", rule, "--seed", "1"
        )
        assert ran.code == 0, rule


def test_functions_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(
        "def release(included, rng):\n    return included + rng.normal(scale=0.3, size=len(included))\n"
        "def score(output, known):\n    return output\n"
        "number = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    data = json.loads(canaria("run", "mine:release", "--score", "mine:score", "--n", "300", "--json").out)
    assert data["epsilon"] > 2
    assert data["adjacency"] == "add-remove"
    for words, message in (
        (["mine:absent", "--score", "mine:score"], "must name a function that exists, got 'mine:absent'"),
        (["absent:release", "--score", "mine:score"], "module 'absent' cannot be imported"),
        (["mine:number", "--score", "mine:score"], "must name a function that exists, got 'mine:number'"),
        (["mine:release"], "score must be given for a function"),
        (["mine:release", "--score", "mine:score", "--epsilon", "3"], "--epsilon is for built-in mechanisms"),
        (["mine:release", "--score", "mine:score", "--adaptive"], "for a function use --rule online"),
    ):
        ran = canaria("run", *words, "--n", "30")
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert message in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gaps", "nothing", "--n", "5"], "mechanism must be one of randomized-response, local-laplace"),
        (["gaps", "count-in-sets", "--n", "5"], "mechanism count-in-sets takes --size, got none"),
        (["gaps", "xor", "--n", "5", "--p", "0.5"], "mechanism xor takes no options of its own, got --p"),
        (["gaps", "all-or-nothing", "--n", "5", "--p", "2"], "p must be between 0 and 1, got 2.0"),
        (["gaps", "xor-in-pairs", "--n", "5"], "n must be even for elements in pairs, got 5"),
        (["gaps", "xor", "--n", "5", "--k", "6"], "k must be an integer between 1 and n = 5, got 6"),
        (
            ["run", "xor", "--n", "5", "--rule", "threshold:1", "--adaptive"],
            "Clopper-Pearson is then invalid",
        ),
        (["run", "xor", "--n", "0"], "n must be an integer of at least 1, got 0"),
    ],
)
def test_bad_usage(words: list[str], message: str) -> None:
    ran = canaria(*words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert message in ran.err


def test_a_game_explains_itself() -> None:
    """One run by the three gaps; an adaptive one, for which they are not computed, without."""
    words = ["run", "xor-randomized-response", "--epsilon", "2", "--n", "50", "--json"]
    once = json.loads(canaria(*words).out)
    assert [step["gap"] for step in once["ladder"]["steps"]] == [
        "interference",
        "outputs",
        "elements",
        "chance",
    ]
    assert once["ladder"]["steps"][0]["epsilon"] == 0
    adaptive = json.loads(
        canaria("run", "count-in-sets", "--size", "4", "--n", "80", "--adaptive", "--json").out
    )
    assert adaptive["ladder"] is None
    assert adaptive["histogram"] is not None
