"""Loads `module:function` as named on the command line, never as named in a file."""

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from canaria._core.errors import InputError, shown


def load_function(text: str) -> Callable[..., Any]:
    """Import a function that the user named. Modules in the current folder are found too."""
    module, _, name = text.partition(":")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name, None)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may raise anything, including SystemExit
        message = f"{type(error).__name__}: {shown(str(error))}"
        raise InputError(f"module {shown(module)} cannot be imported: {message}") from None
    if not callable(found):
        raise InputError(f"module:function must name a function that exists, got {shown(text)}")
    return found  # type: ignore[no-any-return]
