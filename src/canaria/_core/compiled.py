"""Numba where it is installed: loops that cannot be written as array operations, hundreds of times as fast.

Without it the same functions run as Python, with the same results.
"""

from collections.abc import Callable
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """The function, compiled when it is first called and kept on disk where that is possible."""
    try:
        from numba import njit
    except ImportError:
        return function
    try:
        found: Any = njit(cache=True)(function)
    except RuntimeError:  # no folder can be written to
        found = njit(function)
    return cast("Function", found)
