"""The museum's page shows the code that `make wild` runs. Running it needs packages that tests do not have."""

from pathlib import Path

from tests.scripts import load

ROOT = Path(__file__).parent.parent
WILD = ROOT / "examples" / "wild"


def test_the_page_shows_every_exhibit_as_it_is() -> None:
    page = (ROOT / "docs" / "wild.md").read_text()
    exhibits = load("wild", ROOT / "benchmarks").EXHIBITS
    assert {exhibit.example for exhibit in exhibits} == {file.stem for file in WILD.glob("*.py")}
    for exhibit in exhibits:
        shown = (WILD / f"{exhibit.example}.py").read_text().split('"""\n', 1)[1].strip()
        assert f"## {exhibit.title}\n" in page
        assert f"```py\n{shown}\n```" in page, exhibit.example
        assert all(place.split()[1].isdecimal() for place in exhibit.public)
