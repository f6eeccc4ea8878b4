"""Rows and batches as arbitrarily nested mappings, tuples and lists."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

import numpy as np
import torch
from torch import Tensor


def leaves(item: object) -> Iterator[Any]:
    """The leaves of a nested structure."""
    if isinstance(item, Mapping):
        item = tuple(item.values())
    if isinstance(item, list | tuple):
        for part in item:
            yield from leaves(part)
    else:
        yield item


def mapped(do: Callable[[Any], Any], item: Any) -> Any:
    """Apply `do` to all leaves of a nested structure."""
    if isinstance(item, Mapping):
        values = {key: mapped(do, value) for key, value in item.items()}
        if not isinstance(item, MutableMapping):
            return values
        # A copy keeps the class: Hugging Face batches are not dicts, and cannot be made from one.
        found = copy.copy(item)
        found.update(values)
        return found
    if isinstance(item, list | tuple):
        parts = [mapped(do, part) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else type(item)(parts)
    return do(item)


def has_floats(item: object) -> bool:
    """Whether a nested structure holds floating-point numbers."""
    return any(map(_is_floating, leaves(item)))


def _is_floating(leaf: object) -> bool:
    if isinstance(leaf, Tensor):
        return leaf.is_floating_point()
    if isinstance(leaf, np.ndarray | np.generic):
        return bool(np.issubdtype(leaf.dtype, np.floating))
    return isinstance(leaf, float)


def with_nan(item: Any) -> Any:
    """Replace every floating-point number in a nested structure by NaN."""
    return mapped(_broken, item)


def _broken(leaf: Any) -> Any:
    if not _is_floating(leaf):
        return leaf
    if isinstance(leaf, Tensor):
        return torch.full_like(leaf, math.nan)
    return np.full_like(leaf, math.nan)[()] if isinstance(leaf, np.ndarray | np.generic) else math.nan
