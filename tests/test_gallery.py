"""The gallery is made by running it: what it shows is what its code prints and draws.

Its blocks of Python are run with those of all other pages; here are its pictures and its examples.
"""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.scripts import alike, load

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "gallery.md").read_text()
PICTURES = ROOT / "docs" / "pictures" / "gallery"
SHOWN = dict(re.findall(r"^```console\n\$ python (examples/[^\n]*)\n(.*?)^```$", PAGE, re.M | re.S))
QUICK: set[str] = set()


@pytest.fixture(scope="module")
def gallery() -> ModuleType:
    return load("gallery", ROOT / "benchmarks")


def test_every_picture_is_shown_and_every_entry_has_one() -> None:
    shown = re.findall(r"\(pictures/gallery/([\w-]+\.svg)\)", PAGE)
    assert sorted(shown) == sorted(path.name for path in PICTURES.iterdir())
    entries = re.split(r"^## ", PAGE, flags=re.M)[1:]
    assert all("pictures/gallery" in entry for entry in entries if "```" in entry)


def words(svg: str) -> str:
    return "\n".join(re.sub("<[^>]*>", " ", found) for found in re.findall("<text.*?</text>", svg))


@pytest.mark.full
def test_pictures_are_those_of_the_code(gallery: ModuleType) -> None:
    """Without the examples, which run by themselves below."""
    page, _, _ = PAGE.partition("```console")
    page = page.rpartition("\n## ")[0]
    made, pictures = gallery.made(page)
    assert alike(page, made)
    assert len(pictures) == 10
    for name, svg in pictures.items():
        assert alike(words((PICTURES / f"{name}.svg").read_text()), words(svg)), name


@pytest.mark.parametrize(
    "command", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in SHOWN]
)
def test_examples_print_what_is_shown(command: str) -> None:
    script = [sys.executable, "-W", "ignore", *command.split()]
    ended = subprocess.run(script, capture_output=True, text=True, check=True, cwd=ROOT)
    shown = SHOWN[command].rstrip("\n").removesuffix("\n...")
    assert alike(shown, "\n".join(ended.stdout.splitlines()[: len(shown.splitlines())]))


@pytest.mark.full
def test_pictures_of_examples(gallery: ModuleType) -> None:
    for name, draw in gallery.OF_EXAMPLES.items():
        assert alike(words((PICTURES / f"{name}.svg").read_text()), words(draw())), name
