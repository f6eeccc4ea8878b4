"""Doctests in docstrings become code blocks; as plain Markdown they would be quotations."""

import re
from typing import Any

from griffe import Extension, Object

_DOCTEST = re.compile(r"^( *)>>> .*(?:\n(?! *\n).*)*", re.M)


def _fenced(found: re.Match[str]) -> str:
    indent = found[1]
    return f"{indent}```pycon\n{found[0]}\n{indent}```"


class Doctests(Extension):
    """Fence every doctest of every object."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of an object that was just read."""
        if obj.docstring is not None:
            obj.docstring.value = _DOCTEST.sub(_fenced, obj.docstring.value)
