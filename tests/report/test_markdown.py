"""The report as Markdown: what it says, and that text of results stays text."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from canaria import InputError
from canaria.report.markdown import code, escaped, markdown
from canaria.report.section import explain
from tests.report.samples import of_every_verdict, scored

EVIL = "a|b `c` ``d`` <script>alert(1)</script>\n# title\n| x | y |\n![i](http://e.org) @team #1 www.e.org *b* &lt;"


def test_markdown_says_what_a_pull_request_needs() -> None:
    (result,) = of_every_verdict()["refuted with an assumption"]
    conforming = replace(
        result, conformance=of_every_verdict()["as stated"][0].conformance, command="make audit"
    )
    text = markdown([explain(conforming, "sha256:abc")])
    for words in (
        "| audit | claim | bound | verdict |",
        "| scores | ε = 4 | ε ≥ ",
        "not refuted; refuted with an assumption |",
        "**Verdict.** The claim ε = 4 is not refuted",
        "measured noise 1.11, stated 1.12: training matches",
        "| shown | under which assumption |",
        "**Conformance.**",
        "`make audit`",
        "`sha256:abc`",
    ):
        assert words in text, words


def test_several_audits_have_a_table_and_a_part_each() -> None:
    text = markdown([explain(scored(), name="one"), explain(scored(2.0), name="two")])
    assert text.startswith("## 2 audits\n\n| audit |")
    assert text.count("\n### ") == 2
    assert "at once with at least 90%" in text


def test_text_of_results_cannot_become_markdown_or_html() -> None:
    nasty = replace(scored(), name=EVIL, command=EVIL, contradictions=(EVIL,))
    text = markdown([explain(nasty), explain(nasty)], title=EVIL)
    outside = re.sub(r"(`+) .*? \1(?!`)", "", text)
    assert "<" not in outside
    assert not re.search(r"(?<!\\)[`!\[\]]", re.sub(r"`sha256:\w+`", "", outside))
    assert not re.search(r"@\w|://\w|www\.|(?<![#\\])#\w", outside)
    rows = [line for line in outside.splitlines() if line.startswith("|")]
    assert all(len(re.findall(r"(?<!\\)\|", row)) == 5 for row in rows)
    assert len(rows) == 4
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        f"{level} {escaped(EVIL)}" for level in ("##", "###", "###")
    ]


def test_code_outlives_its_backticks() -> None:
    assert code("plain") == "`plain`"
    assert code("a ``b`` `c`\nd") == "``` a ``b`` `c` d ```"


@pytest.mark.parametrize("name", ["report.pdf", "report", "report.docx"])
def test_other_endings_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="print the HTML page from a browser") as caught:
        scored().report(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / name).exists()


def test_the_ending_says_which_format_is_written(tmp_path: Path) -> None:
    starts = {"r.html": "<!doctype html>", "r.HTM": "<!doctype html>", "r.md": "## Mine", "r.txt": "Mine\n"}
    for name, start in starts.items():
        assert scored().report(tmp_path / name, title="Mine").read_text().lstrip().startswith(start)
