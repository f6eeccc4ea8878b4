"""The house: few names, few layers, rooms that say what they are for; tests that stand by themselves."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import canaria

SOURCE = Path(canaria.__file__).parent
ROOT = SOURCE.parents[1]
ROOMS = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


def test_the_top_holds_fifteen_names_and_no_loose_module() -> None:
    assert len(canaria.__all__) <= 15
    files = {path.name for path in SOURCE.iterdir() if path.is_file()}
    assert files == {"__init__.py", "__main__.py", "_version.py", "py.typed"}


def test_imports_have_nine_layers_and_one_listed_exception() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    (layers,) = [contract for contract in settings["contracts"] if contract["type"] == "layers"]
    assert len(layers["layers"]) <= 9
    assert set(" | ".join(layers["layers"]).split(" | ")) == set(ROOMS)
    assert layers["ignore_imports"] == ["canaria.bounds.result -> canaria.report"]


THE_EXCEPTION = ("canaria.bounds.result", "canaria.report")
"""A result opens its report when it is asked to."""


def test_no_import_runs_in_a_circle() -> None:
    """Imports inside functions count; those for types alone do not, and neither does the listed exception."""
    files = {module_of(path): path for path in SOURCE.rglob("*.py")}
    below = {name: set(imported(path, set(files))) - {name} for name, path in files.items()}
    below[THE_EXCEPTION[0]] -= {THE_EXCEPTION[1]}
    # Files that import nothing that is left, or that nothing that is left imports, are in no circle.
    while free := {name for name in below if not below[name]} | below.keys() - set().union(*below.values()):
        below = {name: needed - free for name, needed in below.items() if name not in free}
    assert not below, "\n".join(f"{name} imports {sorted(needed)}" for name, needed in below.items())


def module_of(path: Path) -> str:
    parts = ("canaria", *path.relative_to(SOURCE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, names: set[str]) -> Iterator[str]:
    """The modules that a file imports anywhere but under `if TYPE_CHECKING`."""
    nodes = [ast.parse(path.read_text()) if path.exists() else ast.Module([], [])]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
        elif isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module in names:
            found = [f"{node.module}.{one.name}" for one in node.names]
            yield from (name if name in names else node.module for name in found)
        else:
            nodes += ast.iter_child_nodes(node)


def test_files_have_400_lines_and_functions_40() -> None:
    """At most. A command of the command line has an argument for each option, so it is not counted."""
    long = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        long += [path.name] if text.count("\n") > 400 else []
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and path.parent.name != "cli":
                first = node.body[1:2] if ast.get_docstring(node) else node.body[:1]
                lines = (node.end_lineno or 0) - first[0].lineno + 1 if first else 0
                long += [f"{path.name}: {node.name}"] if lines > 40 else []
    assert not long


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_says_what_it_is_for(room: str) -> None:
    text = ast.get_docstring(ast.parse((SOURCE / room / "__init__.py").read_text())) or ""
    assert 2 <= len(text.splitlines()) <= 20, f"{room}: {text}"


def modules() -> Iterator[ModuleType]:
    for found in pkgutil.walk_packages(canaria.__path__, "canaria."):
        yield importlib.import_module(found.name)


def test_records_of_more_than_four_fields_take_keywords() -> None:
    crowded = []
    for module in modules():
        for name, kind in vars(module).items():
            if (
                inspect.isclass(kind)
                and kind.__module__ == module.__name__
                and dataclasses.is_dataclass(kind)
            ):
                made: Any = kind
                placed = [
                    field.name for field in dataclasses.fields(made) if field.init and not field.kw_only
                ]
                if made.__dataclass_params__.init and len(placed) > 4:
                    crowded.append(f"{module.__name__}.{name}: {placed}")
    assert not crowded


def test_tests_mirror_the_rooms_and_stand_by_themselves() -> None:
    tests = ROOT / "tests"
    folders = {path.name for path in tests.iterdir() if (path / "__init__.py").exists()}
    assert folders - {"golden", "programs"} <= set(ROOMS)
    for path in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("tests."):
                assert not (node.module or "").split(".")[-1].startswith("test_"), f"{path}: {node.module}"


def test_nobody_outside_evidence_and_rules_asks_which_kind_it_is() -> None:
    """A kind that nobody knows must never fall through to a formula that was proved for another."""
    from canaria.evidence import Evidence

    kinds = {name for name, kind in Evidence.kinds().items() if kind.__module__.startswith("canaria.")}
    asked = []
    for path in SOURCE.rglob("*.py"):
        room = path.relative_to(SOURCE).parts[0]
        if room in ("evidence", "rules"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "isinstance":
                named = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                asked += [f"{path.name}: {named & kinds}"] if named & kinds else []
    assert not asked


INTEGRATIONS = SOURCE / "integrations"
UNDOCUMENTED = {
    "opacus": {
        *("grad_sample", "summed_grad", "add_noise", "clip_and_accumulate", "step_hook", "loss_reduction"),
        *("expected_batch_size", "original_optimizer", "history", "__class__", "__closure__", "num_samples"),
    },
    "jax_privacy": {"l2_norm_bound", "wrap_key_data"},
    "flower": {"num_sampled_clients", "clipping_norm", "weighted_by_key", "train_metrics_aggr_fn"},
}
INTERNALS = ("_internals.py", "_accountants.py", "_versions.py", "_hooks.py", "_samplers.py")
"""The files that touch what is not documented: optimizers, and of Opacus also their steps and their loaders."""
PACKAGES = {"flower": "flwr"}
"""Of frameworks whose package has another name."""
ON_A_RECORDER = {"flower": {"__init__.py", "_audit.py", "_checks.py", "_internals.py"}}
"""What adds up by a `Recorder` what it sees needs fewer files."""


@pytest.mark.parametrize("framework", UNDOCUMENTED)
def test_what_a_framework_does_not_document_is_touched_in_few_files(framework: str) -> None:
    """Which names the versions that it was checked against: those that are installed here."""
    folder, package = INTEGRATIONS / framework, PACKAGES.get(framework, framework)
    for path in folder.glob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        touched = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        deep = [node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module]
        if path.name not in INTERNALS:
            assert not touched & UNDOCUMENTED[framework], path
            assert not [name for name in deep if name.startswith(f"{package}.") and name.count(".") > 1], path
    internals = importlib.import_module(f"canaria.integrations.{framework}._internals")
    for package, checked in internals.CHECKED.items():
        assert metadata.version(package).partition("+")[0] in checked


def test_integrations_have_the_same_files() -> None:
    """But for ranks, weights, and programs that are caught or replayed: JAX Privacy leaves these to its user.

    There is nothing of its own to catch. Opacus has no plans, and no correlated noise; its optimizers have
    hooks and many settings. And but for what saves calls: JAX compiles a step into one.
    """
    alone = {
        "_auditing.py",
        "_program_audit.py",
        "_neighbours.py",
        "_programs.py",
        "_ranks.py",
        "_plan.py",
        "_sampling.py",
    }
    alone |= {"_weights.py", "_whitening.py"}
    alone |= {
        "_replays.py",
        "_variants.py",
        "_versions.py",
        "_accountants.py",
        "_items.py",
        "_hooks.py",
        "_samplers.py",
        "_steps.py",
        "_settings.py",
        "_rounding.py",
        "_probes.py",
        "_ghost.py",
        "_reads.py",
    }
    saving = {"_poisson.py", "_witnessing.py"}
    folders = {
        folder.name: {path.name for path in folder.glob("*.py")} - alone - saving
        for folder in INTEGRATIONS.iterdir()
        if (folder / "__init__.py").exists()
    }
    assert set(folders) == set(UNDOCUMENTED)
    assert all(
        files == ON_A_RECORDER.get(framework, folders["opacus"]) for framework, files in folders.items()
    )
