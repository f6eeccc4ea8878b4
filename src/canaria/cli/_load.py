"""Loads what the command line names: functions, never as named in a file, and tables."""

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


def read_table(name: str, file: Path) -> Any:
    """The data in a file, as a frame or an array; `name` is that of the option."""
    from canaria._core.extras import needed_for

    try:
        if file.suffix == ".npy":
            import numpy as np

            return np.load(file, allow_pickle=False)
        with needed_for("a table", "frames"):
            import pandas as pd
        return pd.read_parquet(file) if file.suffix == ".parquet" else pd.read_csv(file)
    except (OSError, ValueError) as error:
        raise InputError(f"{name} cannot be read: {shown(str(error))}") from None
