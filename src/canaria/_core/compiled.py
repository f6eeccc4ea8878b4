"""Numba, if it is installed: compiles loops that cannot be array operations, to be hundreds of times faster.

Without it, the same functions run as Python, with the same results.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile a function when it is first called, and cache the code on disk if possible."""
    try:
        from numba import njit
    except ImportError:
        return function
    try:
        found: Any = njit(cache=True)(function)
    except RuntimeError:  # no folder is writable
        found = njit(function)
    return cast("Function", found)
