"""The page of proofs, the tests that check its statements, and the docstrings that cite it belong together."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "proofs.md").read_text()
SECTIONS = {
    match[1]: match[2]
    for match in re.finditer(r"^## ([^\n]+?) \{#[\w-]+\}\n(.*?)(?=^## |\Z)", PAGE, re.S | re.M)
}
STATEMENTS = [title for title in SECTIONS if re.match(r"(Theorem|Lemma|Rounding) \d+:", title)]
NUMBERED = {title.partition(":")[0] for title in STATEMENTS}
PROVED = re.compile(r"\bproved\b", re.I)
CITED = re.compile(r"\b(Theorem|Lemma) (\d+)")


def oracles_of(title: str) -> list[str]:
    """The tests that the paragraph which begins with "Oracle" names."""
    found = re.search(r"^\*Oracle:\*(.*?)(?:\n\n|\Z)", SECTIONS[title], re.S | re.M)
    return re.findall(r"`(test_\w+)`", found[1]) if found else []


@cache
def known_tests() -> set[str]:
    """Every test function of every test module."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def docstrings() -> list[tuple[str, str]]:
    """Every text that stands alone in the sources, with the place where it begins."""
    return [
        (f"{path.relative_to(ROOT)}:{node.lineno}", node.value.value)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    ]


@pytest.mark.parametrize("title", STATEMENTS)
def test_every_statement_names_tests_that_exist(title: str) -> None:
    named = oracles_of(title)
    assert named, f"{title} has no oracle"
    assert set(named) <= known_tests(), f"{title}: {sorted(set(named) - known_tests())} do not exist"


def test_every_test_on_the_page_exists_and_none_is_missing() -> None:
    assert set(re.findall(r"`(test_\w+)`", PAGE)) <= known_tests()
    assert not re.search("none yet", PAGE, re.I)


def test_statements_are_numbered_without_gaps() -> None:
    for kind, count in (("Theorem", 38), ("Lemma", 6), ("Rounding", 13)):
        expected = {f"{kind} {number}" for number in range(1, count + 1)}
        assert {title for title in NUMBERED if title.startswith(kind)} == expected


def test_what_docstrings_call_proved_is_on_the_page() -> None:
    proved = [(place, text) for place, text in docstrings() if PROVED.search(text)]
    assert len(proved) >= 9
    assert not [place for place, text in proved if not CITED.search(text)]


def test_what_docstrings_cite_exists() -> None:
    cited = {
        (place, f"{kind} {number}") for place, text in docstrings() for kind, number in CITED.findall(text)
    }
    assert not {(place, name) for place, name in cited if name not in NUMBERED}


def test_links_within_the_page_lead_somewhere() -> None:
    anchors = re.findall(r"\{#([\w-]+)\}", PAGE)
    assert len(anchors) == len(set(anchors))
    assert set(re.findall(r"\]\(#([\w-]+)\)", PAGE)) <= set(anchors)


def test_links_from_other_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    used = {anchor for page in pages for anchor in re.findall(r"proofs\.md#([\w-]+)", page.read_text())}
    assert used <= set(re.findall(r"\{#([\w-]+)\}", PAGE))


def test_anchors_are_the_titles_of_statements() -> None:
    for title in NUMBERED:
        assert re.search(rf"^## {title}: .* \{{#{title.lower().replace(' ', '-')}\}}$", PAGE, re.M), title
