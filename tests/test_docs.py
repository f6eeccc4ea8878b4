"""The documentation is true: its code runs and prints what it shows, its links and names exist.

On a page, blocks run in order, share their names and a folder: `python` is executed, `sh` run line by line (`make` and
`pip` excepted; a comment "exit code 1" says what to expect), and `text` after either is what was printed, with
`...` for anything. A `python` block with a title is the file of that name. A `py` block is an excerpt of an
example, which has tests of its own.
"""

import contextlib
import csv
import glob
import importlib.util
import io
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
import yaml
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

import canaria
from canaria.cli import app

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
REFERENCE = ROOT / "docs" / "reference"
READ_ONLY = {"console", "toml", "yaml", "json", ""}
NOT_RUN = ("make", "pip", "#")
THREADS = len(os.sched_getaffinity(0))


class Block(NamedTuple):
    """A fenced block: its language, the file that it is (if any), its text, and the line that it starts after."""

    kind: str
    title: str | None
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    found = re.finditer(r'^```(\w*)(?: title="([\w.]+)")?\n(.*?)^```$', text, re.S | re.M)
    listed = [Block(match[1], match[2], match[3], text[: match.start(3)].count("\n")) for match in found]
    assert 2 * len(listed) == len(re.findall("^ *```", text, re.M)), f"{page.name} has fences of another form"
    return listed


RUN = [page for page in PAGES if {"python", "sh"} & {block.kind for block in blocks(page)}]


def commands(block: Block) -> list[str]:
    lines = block.text.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and line.split()[0] not in NOT_RUN]


def run_python(page: Path, block: Block, names: dict[str, object]) -> str:
    if block.title is not None:
        Path(block.title).write_text(block.text)
        return ""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile("\n" * block.line + block.text, str(page), "exec"), names)
    return printed.getvalue()


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    printed: str
    complaint: str


def run_shell(block: Block) -> str:
    printed = ""
    for command in commands(block):
        words, _, comment = command.partition(" # ")
        expected = re.search(r"exit code (\d)", comment)
        ended = run_here(words) or run_there(words)
        assert ended.code == (int(expected[1]) if expected else 0), f"{command}\n{ended.complaint}"
        printed += ended.printed
    return printed


def run_here(command: str) -> Ended | None:
    """A plain command of ours, in this process, which saves the seconds that imports take."""
    plain = re.fullmatch(r"canaria ([\w ./=*-]+?)(?: > ([\w.]+))?\s*", command)
    if plain is None:
        return None
    words = [
        name for word in plain[1].split() for name in (sorted(glob.glob(word)) if "*" in word else [word])
    ]
    ended = CliRunner().invoke(app, words, env={"COLUMNS": "100"})
    if plain[2] is None:
        return Ended(ended.exit_code, ended.stdout, ended.stderr)
    Path(plain[2]).write_text(ended.stdout)
    return Ended(ended.exit_code, "", ended.stderr)


def run_there(command: str) -> Ended:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "COLUMNS": "100"}
    environment.pop("OMP_NUM_THREADS", None)
    ended = subprocess.run(command, shell=True, capture_output=True, text=True, check=False, env=environment)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


SLOW = {"scikit-learn", "finished-model"}


def require_shown(shown: str, printed: str) -> None:
    pattern = re.escape(shown.rstrip()).replace(r"\.\.\.", ".*")
    assert re.fullmatch(pattern, printed.rstrip(), re.S), f"shown:\n{shown}\nprinted:\n{printed}"


@pytest.mark.filterwarnings(
    "ignore::UserWarning:opacus", "ignore:Full backward hook:UserWarning", "ignore:.*deprecated:FutureWarning"
)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=str(page.relative_to(ROOT)), marks=[pytest.mark.slow] * (page.stem in SLOW))
        for page in RUN
    ],
)
def test_blocks_run_and_print_what_is_shown(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS")  # of libraries that the page loads first
    with threadpool_limits(limits=THREADS):
        run_blocks(page)


def run_blocks(page: Path) -> None:
    """Run a page as its reader would: with as many threads as this machine has, not with those of tests."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = None
    for block in blocks(page):
        if block.kind == "python":
            printed = run_python(page, block, names)
        elif block.kind == "sh":
            printed = run_shell(block)
        elif block.kind == "text":
            assert printed is not None, f"{page.name} line {block.line} shows the output of nothing"
            require_shown(block.text, printed)
        else:
            assert block.kind == "py" or block.kind in READ_ONLY, (
                f"{page.name} line {block.line}: {block.kind}"
            )


def test_excerpts_are_those_of_examples() -> None:
    examples = [
        {line.strip() for line in path.read_text().splitlines()} for path in (ROOT / "examples").rglob("*.py")
    ]
    excerpts = [block for page in PAGES for block in blocks(page) if block.kind == "py"]
    assert excerpts
    for block in excerpts:
        lines = {line.strip() for line in block.text.splitlines() if not line.strip().startswith("...")}
        assert any(lines <= example for example in examples), block.text


def test_every_verb_is_run_on_some_page() -> None:
    lines = [line for page in RUN for block in blocks(page) if block.kind == "sh" for line in commands(block)]
    run = {verb for line in lines for verb in re.findall(r"\bcanaria ([\w-]+)", line)}
    assert {command.name for command in app.registered_commands} <= run


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_linked_files_and_named_tests_exist(page: Path) -> None:
    text = page.read_text()
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert (page.parent / target).exists(), target
    for path, _, section in (named.partition(":") for named in re.findall(r"--8<-- \"([^\"]+)\"", text)):
        assert (ROOT / path).exists(), path
        assert f"[start:{section}]" in (ROOT / path).read_text() or not section
    for path, name in re.findall(r"`(?:python )?((?:tests|examples)/[\w/]+\.py)(?:::(\w+))?", text):
        assert (ROOT / path).exists(), path
        assert not name or f"def {name}(" in (ROOT / path).read_text(), name


def test_the_map_of_the_paper_names_tests_that_exist() -> None:
    tests = "".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    pages = [(ROOT / "docs" / name).read_text() for name in ("paper.md", "corrections.md")]
    named = set(re.findall(r"`(test_\w+)`", "".join(pages)))
    assert len(named) > 25
    assert not {name for name in named if f"def {name}(" not in tests}


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == canaria.__version__
    assert citation["license"] == "Apache-2.0"
    assert citation["cff-version"] == "1.2.0"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_help_of_every_verb_is_filled_in(hooks: ModuleType) -> None:
    text = hooks.on_page_markdown((REFERENCE / "cli.md").read_text())
    for command in app.registered_commands:
        assert f"## canaria {command.name}\n" in text
        assert f"Usage: canaria {command.name} " in text


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("page.html", '<script src="https://cdn.example/x.js"></script>', ["https://cdn.example/x.js"]),
        ("page.html", '<link rel="stylesheet" href="//fonts.example/x.css">', ["//fonts.example/x.css"]),
        ("page.html", '<img src="http://example/x.png">', ["http://example/x.png"]),
        ("page.html", "<style>@import 'https://a.example/x.css';</style>", ["https://a.example/x.css"]),
        ("page.css", "a { background: url(https://a.example/x.woff) }", ["https://a.example/x.woff"]),
        ("page.html", '<a href="https://example">out</a><script src="own.js"></script>', []),
    ],
    ids=["script", "style sheet", "picture", "import", "font", "links are fine"],
)
@pytest.mark.slow
def test_what_a_page_loads_from_elsewhere_is_found(
    hooks: ModuleType, tmp_path: Path, name: str, text: str, found: list[str]
) -> None:
    (tmp_path / name).write_text(text)
    assert hooks.loads(tmp_path / name) == found


MADE = {
    "docs/figures.md": "benchmarks/figures_page.py",
    "docs/wild.md": "benchmarks/wild.py",
    "docs/reference/validity.md": "benchmarks/validity_page.py",
    "docs/reference/dependencies.md": "tests/test_package.py",
    "docs/training.md": "tests/test_examples.py",
}
"""Pages whose tables of numbers are written by a program, or read by a test."""
CODE = re.compile(r"`([^`]+)`")
A_NUMBER = re.compile(r"^[\d.,%±]+$")


def tables(page: Path) -> list[list[str]]:
    """The tables of a page, outside of blocks, each as its lines."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.M | re.S)
    return [found.strip().splitlines() for found in re.findall(r"(?:^\|.*\|\n)+", text, re.M)]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_tables_of_numbers_are_made_or_read_by_a_program(page: Path) -> None:
    name = str(page.relative_to(ROOT))
    numbers = [line for table in tables(page) for line in table[2:] if any(map(A_NUMBER.match, cells(line)))]
    if numbers:
        assert name in MADE, f"{name} shows numbers that nothing makes or checks: {numbers[0]}"
    if name in MADE:
        assert page.name in (ROOT / MADE[name]).read_text()


def test_the_readme_counts_the_pairs_of_the_laboratory() -> None:
    with (REFERENCE / "validity.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    ours = [row for row in rows if row["control"] == "False" and "unfair" not in row["verdict"]]
    flagged = sum(row["verdict"] == "over-claims" for row in ours)
    assert f"**{flagged} of {len(ours):,}" in (ROOT / "README.md").read_text()
    assert f"**{flagged} of {len(ours):,} pairs" in (REFERENCE / "validity.md").read_text()


def test_tables_name_what_exists() -> None:
    """Names in code are found where they are defined: in the source, its tests, the examples or the settings."""
    folders = [ROOT / folder for folder in ("src", "tests", "examples", "benchmarks")]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    text = "\n".join(path.read_text() for path in [*sources, ROOT / "Makefile", ROOT / "pyproject.toml"])
    known = set(re.findall(r"[A-Za-z_][\w-]*", text)) | {path.stem for path in sources}
    for page in PAGES:
        for line in (line for table in tables(page) for line in table):
            for code in CODE.findall(line):
                missing = [word for word in re.findall(r"[A-Za-z_]\w+", code) if word not in known]
                assert not missing, f"{page.name} names {missing} in {code}"
