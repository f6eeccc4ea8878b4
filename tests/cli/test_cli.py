"""The command line, run as its users run it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from canaria._core.membership import ALLOWED
from canaria._version import __version__
from tests.cli.command import canaria, installed

BOUND = ["bound", "--correct", "73", "--guesses", "100", "--elements", "1000"]


@pytest.fixture
def score_file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    included = rng.integers(0, 2, 500)
    rows = "".join(f"{s},{i}\n" for s, i in zip(rng.normal(2.0 * included), included, strict=True))
    path = tmp_path / "scores.csv"
    path.write_text("score,included\n" + rows)
    return path


def test_version() -> None:
    assert installed("--version") == (0, f"canaria {__version__}\n", "")


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        ([*BOUND, "--claimed", "0.5", "--delta", "0"], "", 1),
        (["scores", "-"], "score,included\n1,1\n0,0\n", 0),
        (["scores", "-"], "score,included\n1,maybe\n", 2),
    ],
    ids=["refuted", "kept", "bad input"],
)
def test_a_process_of_its_own_answers_the_same(words: list[str], stdin: str, code: int) -> None:
    ran = installed(*words, stdin=stdin)
    assert ran.code == code
    assert ran == canaria(*words, stdin=stdin)


def test_bound_in_words() -> None:
    ran = canaria(*BOUND, "--delta", "1e-5")
    assert ran.code == 0
    assert ran.out.startswith("ε ≥ 0.606 at δ = 1e-05, with 95% confidence\n")
    assert "independent fair coins" in ran.out


def test_bound_as_json() -> None:
    data = json.loads(canaria(*BOUND, "--delta", "1e-5", "--json").out)
    assert data["epsilon"] == pytest.approx(0.607, abs=1e-3)
    assert (data["correct"], data["taken"], data["elements"]) == (73, 100, 1000)
    published = json.loads(canaria(*BOUND, "--delta", "1e-5", "--method", "steinke", "--json").out)
    assert published["epsilon"] == pytest.approx(0.605, abs=1e-3)
    assert published["method"] == "steinke"


@pytest.mark.parametrize(("claimed", "code", "words"), [("0.5", 1, "is refuted"), ("2", 0, "is not refuted")])
def test_claims(claimed: str, code: int, words: str) -> None:
    ran = canaria(*BOUND, "--claimed", claimed, "--delta", "0")
    assert ran.code == code
    assert words in ran.out
    assert json.loads(canaria(*BOUND, "--claimed", claimed, "--delta", "0", "--json").out)["refuted"] is (
        code == 1
    )


def test_infinite_numbers_are_strings() -> None:
    ran = canaria(
        "bound",
        "--correct",
        "9",
        "--guesses",
        "9",
        "--elements",
        "9",
        "--claimed",
        "inf",
        "--delta",
        "0",
        "--json",
    )
    data = json.loads(ran.out)
    assert (data["estimate"], data["claimed"], data["refuted"]) == ("inf", "inf", False)


@pytest.mark.parametrize("rule", ["ranked", "tails:100", "top:50", "threshold:2.5", "soft", "online"])
def test_scores_and_verify(score_file: Path, tmp_path: Path, rule: str) -> None:
    """Every rule, from a file to a verified bound."""
    ran = canaria(
        "scores", str(score_file), "--rule", rule, "--adjacency", "replace", "--seed", "3", "--json"
    )
    data = json.loads(ran.out)
    assert (ran.code, data["adjacency"], data["seed"]) == (0, "replace", 3)
    stored = tmp_path / "result.json"
    stored.write_text(ran.out)
    checked = canaria("verify", str(stored))
    assert checked.code == 0
    assert "is confirmed" in checked.out
    stored.write_text(json.dumps({**data, "epsilon": data["epsilon"] + 0.01}))
    again = canaria("verify", str(stored), "--json")
    found = json.loads(again.out)
    assert (again.code, found["holds"], found["recomputed"]) == (1, False, data["epsilon"])
    assert "epsilon is stored as" in found["faults"][0]


def test_scores_from_standard_input_as_json_lines(score_file: Path) -> None:
    rows = [line.split(",") for line in score_file.read_text().splitlines()[1:]]
    lines = "".join(json.dumps({"score": float(s), "included": i == "1"}) + "\n" for s, i in rows)
    piped = json.loads(canaria("scores", "-", "--json", stdin=lines).out)
    direct = json.loads(canaria("scores", str(score_file), "--json").out)
    assert piped["epsilon"] == direct["epsilon"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["bond"], "No such command 'bond'. Did you mean 'bound'?"),
        (["bound", "--corect", "3"], "No such option"),
        (["bound"], "Missing option '--correct'"),
        (["scores", "x.csv", "--rule", "tails"], "rule tails needs a number, as in tails:100"),
        ([*BOUND[:-1], "10"], "--guesses must be an integer between 0 and --elements = 10, got 100"),
        ([*BOUND, "--delta", "2"], "delta must be between 0 and 1, got 2.0"),
        ([*BOUND, "--confidence", "1"], "confidence must be strictly between 0 and 1, got 1.0"),
        ([*BOUND, "--claimed", "-1", "--delta", "0"], "the claim must be at least 0, got -1.0"),
        ([*BOUND, "--method", "best"], "--method"),
        (["scores", "nowhere.csv"], "nowhere.csv cannot be read: No such file or directory"),
        (
            ["scores", "-", "--rule", "rankd"],
            "got 'rankd'; did you mean 'ranked'?",
        ),
        (["verify", "nowhere.json"], "nowhere.json cannot be read: No such file or directory"),
        (["verify", "-"], "standard input must be the JSON of one result"),
    ],
)
def test_bad_usage_is_one_line_and_code_two(words: list[str], message: str) -> None:
    ran = canaria(*words)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "standard input must hold at least one row of scores, got none"),
        ("score,included\n", "at least one row"),
        (
            "score,who\n1,1\n",
            "must have one column with who was included (such as 'included'), got ['score', 'who']; name it with "
            "--included-column",
        ),
        (
            "nll,included\n1,1\n",
            "must have one column with scores (such as 'score'), got ['nll', 'included']",
        ),
        ("loss,member\n1,1\n", "say which with --higher-means (losses are usually higher for excluded"),
        (
            "score,score,included\n1,1,1\n",
            "got ['score', 'score', 'included']; give every column its own name",
        ),
        ("score,included\nnan,1\n", "row 1: score must be a finite number, got 'nan'"),
        ("score,included\n1,1\ninf,0\n", "row 2: score must be a finite number, got 'inf'"),
        ("score,included\n1,maybe\n", f"row 1: included must be {ALLOWED}, got 'maybe'"),
        ("score,included\n1\n", f"row 1: included must be {ALLOWED}, got nothing"),
        ("score,included\n1,0,7\n", "row 1 has more cells than the header"),
        ('{"score": 1, "included": true}\nnonsense\n', "line 2 must be a JSON object"),
        ('{"score": 1e999, "included": 1}\n', "line 1: score must be a finite number, got inf"),
        ('{"score": true, "included": 1}\n', "line 1: score must be a finite number, got True"),
        ('{"score": 1}\n', "must have one column with who was included (such as 'included'), got ['score']"),
        ('{"score": 1, "included": 1}\n{"score": 1}\n', f"line 2: included must be {ALLOWED}, got nothing"),
        ("score,included\n" + "1,1\n" * 900 + "0,0\n" * 100, "bits must be independent fair coins"),
    ],
)
def test_bad_score_files(text: str, message: str) -> None:
    ran = canaria("scores", "-", stdin=text)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err
    assert ran.err.count("\n") == 1


def test_columns_and_the_direction_of_scores_may_be_named(score_file: Path, tmp_path: Path) -> None:
    """The same scores as losses, in columns of other names."""
    rows = [line.split(",") for line in score_file.read_text().splitlines()[1:]]
    losses = tmp_path / "losses.tsv"
    losses.write_text(
        "nll\twho\n" + "".join(f"{-float(s)}\t{'in' if i == '1' else 'out'}\n" for s, i in rows)
    )
    named = ["--score-column", "NLL", "--included-column", "who", "--higher-means", "excluded", "--json"]
    ours = json.loads(canaria("scores", str(losses), *named).out)
    theirs = json.loads(canaria("scores", str(score_file), "--json").out)
    assert ours["epsilon"] == theirs["epsilon"] > 1
    ran = canaria("scores", str(losses), "--score-column", "nul")
    assert ran.err.endswith("did you mean 'nll'?; name one of them with --score-column\n")


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        "{}",
        '{"epsilon": 1}',
        '{"epsilon": -1, "delta": 0, "confidence": 0.95, "adjacency": "replace", "evidence": {}}',
    ],
)
def test_bad_results(text: str) -> None:
    ran = canaria("verify", "-", stdin=text)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.count("\n") == 1


def test_warnings_are_one_line_on_standard_error() -> None:
    upside_down = "score,included\n" + "".join(f"{-k},{int(k > 100)}\n" for k in range(200))
    ran = canaria("scores", "-", "--rule", "top:50", "--json", stdin=upside_down)
    assert ran.code == 0
    assert ran.err.startswith("canaria: warning: ")
    assert ran.err.count("\n") == 1
    assert json.loads(ran.out)["epsilon"] == 0


def test_demo_tells_a_correct_mechanism_from_a_broken_one(tmp_path: Path) -> None:
    ran = canaria("demo", "--out", str(tmp_path / "demo"))
    assert ran.code == 0
    assert "The claim ε = 2 is not refuted" in ran.out
    assert "The claim ε = 2 is refuted" in ran.out
    assert str(tmp_path / "demo" / "report.html") in ran.out
    assert canaria("verify", str(tmp_path / "demo" / "broken.json")).code == 0
    told = json.loads(canaria("demo", "--out", str(tmp_path / "demo"), "--json").out)
    assert told["broken"]["refuted"]
    assert not told["correct"]["refuted"]
    assert Path(told["report"]).read_text().startswith("<!doctype html>")


def test_no_words_show_the_help_as_it_is() -> None:
    ran = canaria()
    assert ran.code == 2
    assert "canaria [OPTIONS] COMMAND" in ran.err.splitlines()[0]
    assert ran.err.count("\n") > 15


def test_a_claim_needs_its_delta(tmp_path: Path) -> None:
    """Held against a bound at delta 0, a claim at delta 0.02 would be refuted though it is true."""
    scores = tmp_path / "scores.csv"
    scores.write_text("score,included\n1,1\n0,0\n")
    for words in (BOUND, ["scores", str(scores)], ["run", "xor", "--n", "9"]):
        refused = canaria(*words, "--claimed", "2")
        assert refused.code == 2
        assert refused.err.startswith("canaria: --claimed needs --delta")
    assert canaria(*BOUND, "--claimed", "2", "--delta", "0").err == ""
    assert canaria(*BOUND).err == ""


def test_games_against_a_claim() -> None:
    words = ["run", "randomized-response", "--epsilon", "2", "--n", "500", "--delta", "0"]
    assert canaria(*words, "--claimed", "0.5").code == 1
    assert canaria(*words, "--claimed", "2").code == 0


@pytest.mark.parametrize("code", [0, 1])
def test_a_module_that_leaves_python_is_no_verdict(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / f"leaving{code}.py").write_text(f"import sys\nsys.exit({code})\n")
    monkeypatch.chdir(tmp_path)
    ran = canaria(
        "run", f"leaving{code}:f", "--score", "math:sqrt", "--n", "50", "--claimed", "1", "--delta", "0"
    )
    assert ran.code == 2
    assert f"cannot be imported: SystemExit: '{code}'" in ran.err


def test_a_reader_that_has_gone_is_no_verdict() -> None:
    """Exit code 1 would read as "refuted"."""
    command = [str(Path(sys.executable).with_name("canaria")), *BOUND, "--claimed", "5", "--delta", "0"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert running.stdout is not None
    running.stdout.close()
    assert running.wait(60) == 141


@pytest.mark.parametrize("verb", ["verify", "scores", "report"])
def test_closed_standard_input_is_one_line(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [str(Path(sys.executable).with_name("canaria")), verb, "-"]
    script = f"exec {' '.join(command)} <&-"
    done = subprocess.run(["bash", "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert done.stderr == "canaria: standard input is closed\n"


@pytest.mark.parametrize(
    "typed",
    [
        "bound --json --correct 73 --guesses 100 --elements 1000",
        "bound --json --correct 73 --guesses 100 --elements 1000 --method=steinke --adjacency replace --confidence .9",
        "scores --json -",
        "scores --json - --rule=top:5 --seed 7 --adjacency replace --claimed 1 --delta 1e-3",
        "-- bound --json --correct 73 --guesses 100 --elements 1000 --one-sided",
        "scores --json -- -",
        "run --json xor-in-pairs --n 200",
        "run --json xor-in-pairs --n 200 --adaptive --seed 3 --confidence 0.9 --rule bet",
    ],
)
def test_what_the_command_line_writes_holds(typed: str, tmp_path: Path) -> None:
    scores = "score,included\n" + "".join(f"{k / 10},{k % 3 % 2}\n" for k in range(50))
    path = tmp_path / "result.json"
    path.write_text(canaria(*typed.split(), stdin=scores).out)
    assert canaria("verify", str(path)).code == 0
