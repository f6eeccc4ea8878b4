"""`-o`: the result file of a bound, written beside what is printed."""

import json
from pathlib import Path

import pytest

from tests.cli.command import Ran, canaria

BOUND = "bound --correct 73 --guesses 100 --elements 1000"
SCORES = "score,included\n" + "".join(f"{k},{k**3 % 11 % 2}\n" for k in range(60))


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("scores.csv").write_text(SCORES)


def typed(words: str) -> Ran:
    return canaria(*words.split(), stdin=SCORES)


@pytest.mark.parametrize("words", [BOUND, "scores scores.csv", "scores -", "run xor-in-pairs --n 50"])
def test_what_is_written_is_what_is_printed_and_holds(words: str) -> None:
    printed = typed(words)
    assert typed(f"{words} -o result.json") == printed
    assert typed("verify result.json").code == 0
    both = typed(f"{words} --json --out result.json")
    assert both.out == Path("result.json").read_text()
    assert json.loads(both.out)["command"] == f"canaria {words} --json --out result.json"


def test_a_refuted_claim_is_written_and_keeps_its_exit_code() -> None:
    assert typed(f"{BOUND} --delta 0 --claimed 0.1 -o result.json").code == 1
    assert json.loads(Path("result.json").read_text())["refuted"]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            "scores scores.csv -o scores.csv",
            "--out must not be one of the files that are read, got 'scores.csv'",
        ),
        (
            "scores scores.csv -o ./link.csv",
            "--out must not be one of the files that are read, got 'link.csv'",
        ),
        (
            "report result.json -o result.json",
            "--out must not be one of the files that are read, got 'result.json'",
        ),
        (
            f"{BOUND} -o nowhere/result.json",
            "--out must be in a folder that exists, got 'nowhere/result.json'",
        ),
        (
            f"{BOUND} -o -",
            "--out must name a file, got '-'; without --out, the output goes to standard output",
        ),
        (f"{BOUND} -o .", ". cannot be written: it must name a file"),
        (
            "run xor --n 9 --trials 2 -o r.json",
            "--out writes the result of a single game; leave out --trials",
        ),
    ],
)
def test_no_input_is_replaced_and_nothing_is_computed_in_vain(words: str, line: str) -> None:
    Path("link.csv").symlink_to("scores.csv")
    typed(f"{BOUND} -o result.json")
    before = {path.name: path.read_text() for path in Path().iterdir()}
    assert typed(words) == (2, "", f"canaria: {line}\n")
    assert {path.name: path.read_text() for path in Path().iterdir()} == before
