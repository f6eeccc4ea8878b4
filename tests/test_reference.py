"""The API reference: every public name has an example, and every parameter is documented."""

import ast
import doctest
import enum
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import canaria

PAGES = sorted((Path(__file__).parent.parent / "docs" / "reference" / "api").glob("*.md"))
MADE_BY_FUNCTIONS = {
    "canaria.integrations.flower._audit.Audit",
    "canaria.integrations.jax_privacy._audit.Audit",
    "canaria.integrations.opacus._audit.Audit",
    "canaria.integrations.opacus._program_audit.ProgramAudit",
}
"""Classes whose users call `attach`, `audited` or `auditing`, which document the parameters."""


def exported() -> Iterator[Any]:
    for module in (canaria, *(importlib.import_module(name) for name in public_modules())):
        yield from (getattr(module, name) for name in getattr(module, "__all__", ()))


def public_modules() -> list[str]:
    names = [found.name for found in pkgutil.walk_packages(canaria.__path__, "canaria.")]
    return [name for name in names if "._" not in name]


def shown() -> Iterator[Any]:
    """What the pages of the reference show; of a module without a list of members, all that it exports."""
    for page in PAGES:
        for target, options in re.findall(r"^::: ([\w.]+)\n((?: +.*\n)*)", page.read_text(), re.M):
            thing = pkgutil.resolve_name(target)
            yield from members(thing, options) if isinstance(thing, ModuleType) else [thing]


def members(module: ModuleType, options: str) -> list[Any]:
    listed = re.findall(r"members: \[(.*)\]|^ +- (\w+)$", options, re.M)
    names = re.findall(r"\w+", " ".join(" ".join(found) for found in listed)) or getattr(
        module, "__all__", None
    )
    if names is not None:
        return [getattr(module, name) for name in names]
    everything = [thing for name, thing in vars(module).items() if not name.startswith("_")]
    return [thing for thing in everything if getattr(thing, "__module__", "") == module.__name__]


def public_objects() -> dict[str, Any]:
    """Classes and functions, each under the name of the place where it is defined."""
    things = [
        thing for thing in (*exported(), *shown()) if inspect.isclass(thing) or inspect.isroutine(thing)
    ]
    return dict(sorted((f"{thing.__module__}.{thing.__qualname__}", thing) for thing in things))


PUBLIC = public_objects()


def test_the_reference_shows_every_public_name() -> None:
    there = {id(thing) for thing in shown()}
    assert not [name for name, thing in PUBLIC.items() if id(thing) not in there]


def section(text: str, title: str) -> str:
    """What stands under a title of a docstring."""
    found = re.search(rf"^{title}:\n((?:    .*\n|\n)+)", text + "\n", re.M)
    return textwrap.dedent(found[1]) if found else ""


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example(name: str) -> None:
    """Doctests run with all others; a block of code, for what needs a training, must be Python."""
    example = section(inspect.getdoc(PUBLIC[name]) or "", "Example")
    blocks = re.findall(r"^```python\n(.*?)^```$", example, re.M | re.S)
    assert ">>> " in example or blocks
    for block in blocks:
        ast.parse(block)


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if thing.__module__ == "canaria"])
def test_examples_of_names_that_live_at_the_top(name: str) -> None:
    """They are loaded when they are used first, so pytest does not find their doctests."""
    (found,) = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, module=False, globs={})
    assert found.examples
    assert doctest.DocTestRunner().run(found).failed == 0


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - MADE_BY_FUNCTIONS))
def test_every_parameter_is_documented(name: str) -> None:
    """A class may leave the attributes that it inherits to the class that has them."""
    thing = PUBLIC[name]
    texts = [
        inspect.getdoc(one) or "" for one in (inspect.getmro(thing) if inspect.isclass(thing) else [thing])
    ]
    described = "".join(section(text, "Args") + section(text, "Attributes") for text in texts)
    documented = set(re.findall(r"^\*{0,2}(\w+): ", described, re.M))
    assert set(parameters(thing)) <= documented


def parameters(thing: Any) -> list[str]:
    """Of a function, or of a class that is made by calling it with arguments of its own."""
    abstract = inspect.isclass(thing) and (
        getattr(thing, "_is_protocol", False) or issubclass(thing, enum.Enum)
    )
    inherited = inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing)
    return [] if abstract or inherited else list(inspect.signature(thing).parameters)
