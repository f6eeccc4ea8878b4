"""The package: public names, light imports, documented commands."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import canaria

ROOT = Path(__file__).parent.parent
FRAMEWORKS = {"torch", "opacus", "jax", "jax_privacy", "optax", "lightning", "sklearn"}


def modules_after(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("statement", ["import canaria", "import canaria.cli"])
def test_imports_stay_light(statement: str) -> None:
    """`canaria --version` needs no numerics; nothing heavy comes with `import canaria`."""
    heavy = {
        "scipy",
        "numpy",
        "dp_accounting",
        "altair",
        "jinja2",
        "pandas",
        "pyarrow",
        "matplotlib",
        *FRAMEWORKS,
    }
    assert not heavy & modules_after(statement)


def test_no_public_name_brings_a_training_framework() -> None:
    loaded = modules_after("import canaria; [getattr(canaria, name) for name in canaria.__all__]")
    assert "scipy" in loaded
    assert not FRAMEWORKS & loaded


def test_using_the_core_needs_no_command_line() -> None:
    """On a machine without typer or dp-accounting the numerics still run."""
    loaded = modules_after("import canaria; canaria.lower_bound(canaria.Counts(73, 100, 1000))")
    assert not {"typer", "dp_accounting", "rich", "pandas"} & loaded


def test_figures_of_the_readme_that_are_off_by_a_tenth_are_found() -> None:
    """`make wheel` measures; here, that it would see a difference."""
    spec = importlib.util.spec_from_file_location("wheel", ROOT / "benchmarks" / "wheel.py")
    assert spec is not None
    assert spec.loader is not None
    wheel = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(wheel)
    readme = (ROOT / "README.md").read_text()
    found = wheel.STATED.search(readme)
    packages, megabytes = int(found[1]), int(found[2])
    wheel.require_fresh(readme, wheel.Size(packages, megabytes * 1.05))
    for changed in (wheel.Size(packages, megabytes * 1.2), wheel.Size(packages + 5, megabytes)):
        with pytest.raises(SystemExit, match=f"README.md states {packages} packages, {megabytes} MB"):
            wheel.require_fresh(readme, changed)


def test_every_public_name_resolves() -> None:
    for name in canaria.__all__:
        assert getattr(canaria, name) is not None
    assert set(dir(canaria)) == set(canaria.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        canaria.nothing  # noqa: B018


def test_no_module_hides_a_public_name() -> None:
    """A submodule of the same name would replace a function as soon as it is imported."""
    modules = {path.stem for path in Path(canaria.__file__).parent.iterdir()}
    assert not modules & set(canaria.__all__)


def test_the_page_of_dependencies_lists_them_all() -> None:
    """docs/reference/dependencies.md and pyproject.toml name the same packages, by extra."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    core, extras = page.split("Only with an extra:")
    shown = {name.strip() for row in re.findall(r"^\| ([\w, -]+) \|", core, re.M) for name in row.split(",")}
    assert shown - {"package"} == set(map(_name, project["dependencies"]))
    rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+) \|", extras, re.M))
    development = {"all", "docs", "fuzz", "lint", "test", "test-all"}
    assert set(rows) == set(project["optional-dependencies"]) - development
    for extra, listed in rows.items():
        named = [_name(needed) for needed in project["optional-dependencies"][extra]]
        assert all(name in listed for name in named if name != "canaria"), extra


def _name(needed: str) -> str:
    return re.match(r"[\w-]+", needed)[0]
