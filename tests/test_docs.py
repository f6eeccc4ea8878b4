"""The documentation is true: its Python runs, its commands exist, its files are there."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
CODE = [
    (page, block) for page in PAGES for block in re.findall(r"```python\n(.*?)```", page.read_text(), re.S)
]


@pytest.mark.parametrize(
    ("page", "block"), CODE, ids=lambda value: value.name if isinstance(value, Path) else ""
)
def test_python_blocks_run(page: Path, block: str) -> None:
    exec(compile(block, str(page), "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_linked_files_and_named_tests_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (page.parent / target).exists(), target
    for path, name in re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text):
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(), name


def test_the_map_of_the_paper_names_tests_that_exist() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "paper.md").read_text()))
    assert len(named) > 25
    assert not {name for name in named if f"def {name}(" not in tests}


def test_every_verb_is_in_the_readme() -> None:
    from canaria.cli import app

    text = (ROOT / "README.md").read_text()
    for command in app.registered_commands:
        assert f"canaria {command.name}" in text or f"make {command.name}" in text
