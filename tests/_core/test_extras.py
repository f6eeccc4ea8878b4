"""Extras: bounds need none, and whoever lacks one reads one line that names it."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import canaria
from canaria import Counts, InputError, lower_bound
from canaria._core.extras import MissingExtraError, needed_for
from tests.cli.command import canaria as command
from tests.report.samples import scored

SOURCE = Path(canaria.__file__).parent
EXTRAS = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text())["project"]["optional-dependencies"]
DEVELOPMENT = {"docs", "fuzz", "lint", "test", "test-all"}
IMPORTED_AS = {"scikit-learn": "sklearn", "vl-convert-python": "vl_convert"}


def brought(extra: str) -> set[str]:
    """The names, as they are imported, of what an extra brings."""
    found = set()
    for requirement in EXTRAS[extra]:
        nested = re.match(r"canaria\[(.*)\]", requirement)
        if nested:
            found |= {name for one in nested[1].split(",") for name in brought(one)}
        else:
            name = re.split(r"[<>=;\[]", requirement)[0]
            found.add(IMPORTED_AS.get(name, name.replace("-", "_")))
    return found


def used_in_the_source() -> list[tuple[str, set[str]]]:
    """Every extra that the source asks for, with the packages that it imports then."""
    uses = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.With):
                continue
            (call, *_) = [item.context_expr for item in node.items]
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "needed_for":
                extra = ast.literal_eval(call.args[1])
                uses.append((extra, {name for name in imported(node) if name != "canaria"}))
    return uses


def imported(node: ast.AST) -> set[str]:
    """The packages that a piece of code imports."""
    names = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in one.names}
        elif isinstance(one, ast.ImportFrom):
            names.add((one.module or "").partition(".")[0])
        elif isinstance(one, ast.Call) and getattr(one.func, "id", "") == "import_module":
            names.add(ast.literal_eval(one.args[0]))
    return names


def test_every_extra_that_is_named_brings_what_is_imported() -> None:
    uses = used_in_the_source()
    assert {extra for extra, _ in uses} == {
        "arrow",
        "dask",
        "flower",
        "frames",
        "huggingface",
        "jax",
        "lab",
        "lightning",
        "opacus",
        "report",
    }
    for extra, packages in uses:
        assert packages <= brought(extra), extra


def test_all_is_every_extra_of_users() -> None:
    (everything,) = EXTRAS["all"]
    assert set(everything[len("canaria[") : -1].split(",")) == set(EXTRAS) - DEVELOPMENT - {"all"}


def test_examples_import_what_their_extra_brings() -> None:
    core = {"canaria", "numpy", "scipy", "rich"}
    # Those of the museum run in environments of their own.
    for path in (SOURCE.parents[1] / "examples").glob("*.py"):
        others = imported(ast.parse(path.read_text())) - core - set(sys.stdlib_module_names)
        assert others <= brought("examples"), path


@pytest.mark.parametrize(
    ("module", "lacking", "line"),
    [
        ("opacus", "torch", 'an audit of training with Opacus needs torch: pip install "canaria[opacus]"'),
        ("jax_privacy", "jax", 'an audit of training with JAX Privacy needs jax: pip install "canaria[jax]"'),
    ],
)
def test_an_integration_without_its_framework_is_an_import_error(
    module: str, lacking: str, line: str
) -> None:
    code = f"import sys; sys.modules[{lacking!r}] = None\nimport canaria.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == f"canaria._core.extras.MissingExtraError: {line}"
    assert issubclass(MissingExtraError, ImportError)


@pytest.mark.parametrize(
    ("words", "lacking", "line"),
    [
        (
            ["report", "-", "-o", "r.html"],
            "jinja2",
            'an HTML report needs jinja2: pip install "canaria[report]"',
        ),
        (["demo"], "jinja2", 'an HTML report needs jinja2: pip install "canaria[report]"'),
        (["reproduce", "--quick"], "altair", 'a chart needs altair: pip install "canaria[lab]"'),
        pytest.param(
            ["validate", "ranked"],
            "vl_convert",
            'a chart needs vl_convert: pip install "canaria[lab]"',
            marks=pytest.mark.slow,
        ),
        pytest.param(
            ["reproduce", "laplace", "--quick", "--dask", "tcp://nowhere:1", "--out", "figures"],
            "distributed",
            'a Dask cluster needs distributed: pip install "canaria[dask]"',
            marks=pytest.mark.slow,
        ),
        (
            ["scores", "s.parquet"],
            "pyarrow",
            's.parquet is a Parquet file, which needs pyarrow: pip install "canaria[arrow]"',
        ),
    ],
    ids=["report", "demo", "reproduce", "validate", "dask", "scores"],
)
def test_a_verb_without_its_extra_is_one_line_and_writes_nothing(
    words: list[str], lacking: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.parquet").write_bytes(b"PAR1" + bytes(60) + b"PAR1")
    monkeypatch.setitem(sys.modules, lacking, None)
    assert command(*words, stdin=scored().to_json()) == (2, "", f"canaria: {line}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["s.parquet"]


def test_a_data_frame_needs_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r'^a data frame needs pandas: pip install "canaria\[frames\]"$'):
        lower_bound(Counts(73, 100, 1000)).to_frame()


def test_a_package_that_is_there_and_does_not_load_speaks_for_itself() -> None:
    with pytest.raises(ImportError, match="another version is needed"), needed_for("speed", "fast"):
        raise ImportError("another version is needed")


def test_bounds_reports_and_checks_need_no_extra(tmp_path: Path) -> None:
    """With every package of every extra out of reach, in a process of its own."""
    optional = {name for extra in set(EXTRAS) - DEVELOPMENT for name in brought(extra)}
    (tmp_path / "scores.csv").write_text(
        "score,included\n" + "".join(f"{k},{k**3 % 11 % 2}\n" for k in range(60))
    )
    code = f"""
import os, sys
os.chdir({str(tmp_path)!r})
for name in {sorted(optional)}:
    sys.modules[name] = None
from canaria.cli import app
for line in sys.argv[1:]:
    assert app(line.split(), standalone_mode=False) in (None, 0), line
"""
    verbs = [
        "bound --correct 73 --guesses 100 --elements 1000 -o b.json",
        "scores scores.csv -o s.json",
        "verify b.json s.json",
        "report b.json s.json",
        "report b.json -o report.md",
        "run xor-in-pairs --n 50",
        "gaps xor-in-pairs --n 50",
    ]
    command_line = [sys.executable, "-c", code, *verbs]
    done = subprocess.run(command_line, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "holds" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"scores.csv", "b.json", "s.json", "report.md"}
