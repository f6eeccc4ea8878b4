"""Copies of objects that others hold too, so that changes of one do not affect the other."""

import copy
from typing import Any

from canaria._core.errors import InputError, shown


def copied(name: str, value: Any) -> Any:
    """A copy that shares nothing with the value; an InputError if it cannot be copied."""
    try:
        return _copy(value)
    except Exception as error:  # an element may be of any type, and copying it may raise anything
        raise InputError(
            f"{name} must hold elements that can be copied, because a run that changed them would reveal the "
            f"bits; {type(value).__name__}: {shown(str(error))}"
        ) from None


def _copy(value: Any) -> Any:
    """A deep copy in which a tensor brings only its own numbers.

    The row of a data set is often a view of one tensor of all rows, and `copy.deepcopy` copies all of it.
    """
    if type(value) in (list, tuple):
        return type(value)(map(_copy, value))
    if type(value) is dict:
        return {key: _copy(part) for key, part in value.items()}
    if hasattr(value, "untyped_storage"):
        return value.detach().clone().requires_grad_(value.requires_grad)
    return copy.deepcopy(value)
