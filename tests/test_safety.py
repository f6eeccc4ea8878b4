"""What SECURITY.md promises of the source: nothing that is read is run."""

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
FORBIDDEN_MODULES = {
    "pickle",
    "marshal",
    "shelve",
    "dill",
    "cloudpickle",
    "joblib",
    "subprocess",
    "ctypes",
    "runpy",
}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "system", "popen"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def called(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            yield name, node


def offences(text: str) -> set[str]:
    tree = ast.parse(text)
    modules = {name.split(".")[0] for name in imported(tree)} & FORBIDDEN_MODULES
    bare = {
        name
        for name, call in called(tree)
        if name in FORBIDDEN_CALLS
        and (isinstance(call.func, ast.Name) or getattr(call.func.value, "id", "") in ("os", "builtins"))
    }
    return modules | bare


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_no_pickle_no_eval_no_shell(path: Path) -> None:
    allowed = {"runpy"} if path.name == "audit_program.py" else set()
    assert offences(path.read_text()) <= allowed


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from subprocess import run",
        "eval('1')",
        "os.system('ls')",
        "import joblib.numpy_pickle",
    ],
)
def test_the_check_itself_sees(text: str) -> None:
    assert offences(text)
    assert not offences("re.compile('x'); model.eval()")


def test_modules_are_imported_by_a_name_in_the_source_or_typed_by_the_user() -> None:
    """A computed name only for our own public names, and for `module:function` of the command line."""
    computed = {
        path.relative_to(ROOT / "src").as_posix()
        for path in SOURCES
        for name, call in called(ast.parse(path.read_text()))
        if name == "import_module" and not isinstance(call.args[0], ast.Constant)
    }
    assert computed == {"canaria/__init__.py", "canaria/cli/_load.py"}
    users = {path.parent.name for path in SOURCES if "load_function(" in path.read_text()}
    assert users == {"cli"}


DEVELOPMENT = {"docs", "fuzz", "lint", "test", "test-all"}


def test_every_dependency_is_on_the_page_of_licences() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [
        *project["dependencies"],
        *(one for name, needed in extras.items() if name not in DEVELOPMENT for one in needed),
    ]
    page = (ROOT / "docs" / "reference" / "dependencies.md").read_text()
    for requirement in wanted:
        if requirement.startswith("canaria["):
            continue
        name = re.split(r"[<>=!\[; ]", requirement)[0]
        assert re.search(rf"\b{re.escape(name)}\b", page), name
    assert all(f"`{name}`" in page for name in extras)
