"""Help, `canaria report` and `canaria schema`."""

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from canaria import InputError
from canaria.cli import app
from tests.cli.command import canaria
from tests.report.samples import NASTY, of_every_kind, scored

VERBS = sorted(str(command.name) for command in app.registered_commands)


def run(*words: str) -> str:
    done = CliRunner().invoke(app, list(words), env={"COLUMNS": "80"}, catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def refused(*words: str) -> str:
    with pytest.raises(InputError) as caught:
        CliRunner().invoke(app, list(words), catch_exceptions=False)
    return str(caught.value)


@pytest.mark.parametrize("verb", VERBS)
def test_help_fits_a_screen_shows_an_example_and_offers_json(verb: str) -> None:
    shown = run(verb, "--help")
    assert f"Example: canaria {verb}" in shown
    assert " --json " in shown or verb == "split"  # which prints no result
    assert shown.count("\n") <= 26


def test_help_of_all_fits_a_screen() -> None:
    shown = run("--help")
    assert "Example: canaria" in shown
    assert shown.count("\n") <= 29
    assert "..." not in shown.partition("Commands:")[2]
    assert all(verb in shown for verb in VERBS)


def test_every_verb_but_these_prints_json(tmp_path: Path) -> None:
    stored = str(scored().save(tmp_path / "result.json"))
    for words in (
        ["verify", stored],
        ["report", stored],
        ["schema"],
        ["gaps", "--list"],
        ["reproduce", "--list"],
    ):
        assert json.loads(run(*words, "--json"))


def test_report_in_the_terminal_shows_what_the_page_shows(tmp_path: Path) -> None:
    for result in of_every_kind():
        shown = run("report", str(result.save(tmp_path / "result.json")))
        assert result.verdict.split(":")[0] in " ".join(shown.replace("│", " ").split())
        for words in ("By confidence", "What must be true", "Repeat it", "fair coins", "How to read this"):
            assert words in shown
        assert ("By number of guesses" in shown) == (result.bound.tally.taken > 0)
        assert ("Where the rest is lost" in shown) == (result.ladder is not None or bool(result.refuted))
        assert ("Conformance" in shown) == (result.conformance is not None)


def test_report_as_json_and_as_a_page(tmp_path: Path) -> None:
    stored, page = str(scored().save(tmp_path / "result.json")), tmp_path / "report.html"
    told = json.loads(run("report", stored, "-o", str(page), "--title", "Mine", "--json"))
    assert told["page"] == str(page)
    assert "<title>Mine</title>" in page.read_text()
    (section,) = told["sections"]
    at = {row["confidence"]: row["epsilon"] for row in section["by_confidence"]}
    assert at[0.95] == section["result"]["epsilon"]
    assert at[0.5] >= at[0.95] >= at[0.9999]
    assert "report written to" in run("report", stored, stored, "-o", str(page))


def test_results_of_the_same_name_are_named_after_their_files(tmp_path: Path) -> None:
    files = [
        str(scored(claimed).save(tmp_path / f"{name}.json")) for name, claimed in (("a", 4.0), ("b", 2.0))
    ]
    told = json.loads(run("report", *files, "--json"))
    assert [section["name"] for section in told["sections"]] == ["a", "b"]
    assert {section["result"]["name"] for section in told["sections"]} == {"scores"}
    run("report", *files, "-o", str(tmp_path / "report.md"))
    assert "| b | ε = 2 |" in (tmp_path / "report.md").read_text()
    assert "print the HTML page" in refused("report", *files, "-o", str(tmp_path / "report.pdf"))


def test_several_results_say_when_they_hold_at_once(tmp_path: Path) -> None:
    stored = str(scored().save(tmp_path / "result.json"))
    assert "at once with at least 90%" in " ".join(run("report", stored, stored).split())


def test_errors_take_no_orders_either(tmp_path: Path) -> None:
    record = of_every_kind()[3].to_dict()
    record["conformance"]["parts"] = {"\x1b]0;title\x07": "bad"}
    path = tmp_path / "a\x1b[2Jb.json"
    path.write_text(json.dumps(record))
    for name in (str(path), str(path) + "\x1b[2J"):
        ran = canaria("report", name)
        assert ran.code == 2
        assert "\x1b" not in ran.err
        assert ran.err.count("\n") == 1


def test_terminal_takes_no_orders_from_a_file(tmp_path: Path) -> None:
    stored = scored(name=NASTY + "\x1b[2J", facts={"[red]note": "\x1b]0;title\x07[/red]"})
    shown = run("report", str(stored.save(tmp_path / "result.json")))
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "\u202e" not in shown
    assert "[red]note" in shown


def test_report_refuses_what_does_not_hold(tmp_path: Path) -> None:
    path = scored().save(tmp_path / "result.json")
    path.write_text(path.read_text().replace('"claimed": 4.0', '"claimed": 5.0'))
    assert "does not hold: ladder starts at 4, not at the claim" in refused("report", str(path))
    path.write_text(scored().to_json().replace('"name": "', '"name": "another '))
    assert f"the bound of {path} holds, but the file was changed" in refused("report", str(path))
    assert "--out must not be one of the files that are read" in refused("report", str(path), "-o", str(path))
    assert "--out must be in a folder that exists" in refused(
        "report", str(scored().save(path)), "-o", str(tmp_path / "absent" / "report.html")
    )


def test_schema_describes_every_result() -> None:
    schema: dict[str, Any] = json.loads(run("schema"))
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for result in of_every_kind():
        record = json.loads(result.to_json())
        validator.validate(record)
        assert not validator.is_valid({**record, "format": 2})
        assert not validator.is_valid({**record, "more": 1})
        assert not validator.is_valid({k: v for k, v in record.items() if k != "evidence"})
