"""The notebooks run from top to bottom in a fresh kernel, and show what they print."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import alike, load

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def shown(notebook: Any) -> list[str]:
    """What each cell shows, as a reader sees it."""
    return [re.sub("\n+", "\n", "\n".join(map(text, cell.get("outputs", [])))) for cell in notebook.cells]


def text(output: Any) -> str:
    assert output.output_type in ("stream", "execute_result"), output
    assert output.get("name") != "stderr", output.text
    return (
        output.text if output.output_type == "stream" else re.sub("<[^>]*>", "\n", output.data["text/html"])
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=[pytest.mark.full] * (path.stem == "plan"), id=path.stem)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_prints_what_it_shows(path: Path) -> None:
    import nbformat

    stored = nbformat.read(path, as_version=4)
    run = load("notebooks", ROOT / "benchmarks").executed(path)
    for cell, here, now in zip(stored.cells, shown(stored), shown(run), strict=True):
        assert alike(here, now), f"{cell.source}\nshown:\n{here}\nprinted:\n{now}"


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_opens_as_it_is(path: Path) -> None:
    """It says what to install, has its outputs, and no trace of the machine that made it."""
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert "pip install" in notebook.cells[0].source
    assert any(shown(notebook))
    assert all(cell.metadata == {} for cell in notebook.cells)
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert not re.search(r"/(?:home|root|tmp|Users|work)/|site-packages|index-url", path.read_text())


def test_every_notebook_is_named_where_people_look() -> None:
    for page in ("README.md", "docs/gallery.md"):
        named = re.findall(r"notebooks/\w+\.ipynb", (ROOT / page).read_text())
        assert sorted(named) == [f"notebooks/{path.name}" for path in NOTEBOOKS]
