"""Copies of what others hold, too, so that what is done to one of them does not show in the other."""

import copy
from typing import Any

from canaria._core.errors import InputError, shown


def copied(name: str, value: Any) -> Any:
    """A copy that shares nothing with the value; one line if there can be none."""
    try:
        return copy.deepcopy(value)
    except Exception as error:  # an element may be of any type, and its copying may raise anything
        raise InputError(
            f"{name} must hold what can be copied, because a run that changed it would tell the bits; "
            f"{type(value).__name__}: {shown(str(error))}"
        ) from None
