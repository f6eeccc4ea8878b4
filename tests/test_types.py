"""Types: how often anything is allowed. `make lint` checks what users see, in `typing/public.py`."""

import ast
from pathlib import Path
from typing import Final

import canaria

SOURCE = Path(canaria.__file__).parent
MOST: Final = 172
"""How many parameters may be `Any`. Frames of pandas, which is optional, and batches of any framework are."""


def test_few_parameters_take_anything() -> None:
    """Every one has a type, and few are `Any`: objects of a framework, or results of a user's function."""
    anything = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                every += [one for one in (node.args.vararg, node.args.kwarg) if one is not None]
                named = [one for one in every if one.arg not in ("self", "cls")]
                anything += [
                    f"{path.name}: {node.name}({one.arg})"
                    for one in named
                    if one.annotation is None or ast.unparse(one.annotation) == "Any"
                ]
    assert len(anything) <= MOST, anything
