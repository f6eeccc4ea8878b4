"""Parameters of any framework: an array of NumPy, torch or JAX, or a list, tuple or dict of arrays."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.training.conformance.names import numbered

_PRECISE: Final = 4
"""Sums with fewer bytes per number than this would round canaries away."""


class Leaves:
    """The structure of the parameters: their names or numbers, and their shapes."""

    def __init__(self, parameters: object) -> None:
        self._names, leaves = _leaves("parameters", parameters)
        self.shapes = [tuple(np.shape(leaf)) for leaf in leaves]
        self.sizes = [math.prod(shape) for shape in self.shapes]

    def read(self, name: str, values: object) -> list[Floats]:
        """Read arrays of this structure in double precision; `name` is for error messages."""
        names, leaves = _leaves(name, self._in_own_order(values))
        shapes = [tuple(np.shape(leaf)) for leaf in leaves]
        if names != self._names or shapes != self.shapes:
            raise InputError(f"{name} must be shaped as parameters are, {self.shapes}, got {shown(shapes)}")
        return [_numbers(leaf) for leaf in leaves]

    def like(self, template: Any, arrays: list[Floats]) -> Any:
        """Convert arrays to the structure, framework and precision of a template."""
        names, leaves = _leaves("clipped_sum", self._in_own_order(template))
        made = [_made(leaf, array) for leaf, array in zip(leaves, arrays, strict=True)]
        if names is None:
            return made[0]
        if not isinstance(template, Mapping):
            return template._make(made) if hasattr(template, "_make") else type(template)(made)
        by_name = dict(zip(names, made, strict=True))
        return {name: by_name[name] for name in template}

    def precisions(self, values: object) -> list[type[np.floating[Any]]]:
        """The precision of each array of a clipped sum, as a NumPy type; an error for half precision."""
        return [_precision(leaf) for leaf in _leaves("clipped_sum", self._in_own_order(values))[1]]

    def _in_own_order(self, values: object) -> object:
        """The values, a dict in the order of the parameters: `jit` and `grad` of JAX sort its keys."""
        if isinstance(values, Mapping) and self._names is not None and set(values) == set(self._names):
            return {name: values[name] for name in self._names}
        return values

    def shaped(self, arrays: list[Floats]) -> Any:
        """Arrange NumPy arrays in this structure."""
        if self._names is None:
            return arrays[0]
        if all(isinstance(name, int) for name in self._names):
            return arrays
        return dict(zip(self._names, arrays, strict=True))

    @property
    def in_reports(self) -> tuple[str, ...]:
        """The names of the parameters; those of a list are numbered."""
        names = tuple(one for one in self._names or () if isinstance(one, str))
        return names or numbered(self.shapes)

    @property
    def in_messages(self) -> list[str]:
        """The names of the parameters as they appear within a sentence."""
        if self._names is None:
            return ["the parameter"]
        return [f"parameter {one + 1 if isinstance(one, int) else repr(one)}" for one in self._names]


def spacing(values: object) -> float:
    """The relative spacing of numbers in the coarsest precision among the arrays."""
    names = [str(leaf.dtype).removeprefix("torch.") for leaf in _leaves("noisy_sum", values)[1]]
    return max(2.0**-7 if name == "bfloat16" else float(np.finfo(name).eps) for name in names)


def at(arrays: list[Floats], places: tuple[Integers, ...]) -> Floats:
    """The values at these places of each array, one after the other."""
    parts = [array.reshape(-1)[some] for array, some in zip(arrays, places, strict=True)]
    return np.concatenate(parts)


def _leaves(name: str, values: object) -> tuple[list[Any] | None, list[Any]]:
    """The names and arrays of a dict or list; the names are None for a single array."""
    if isinstance(values, Mapping):
        names, leaves = list(values), list(values.values())
    elif isinstance(values, Sequence) and not hasattr(values, "shape"):
        names, leaves = list(range(len(values))), list(values)
    else:
        return None, [values]
    if not leaves or not all(hasattr(leaf, "shape") for leaf in leaves):
        raise InputError(f"{name} must be an array, or a list or dict of arrays, got {shown(values)}")
    return names, leaves


def _precision(leaf: Any) -> type[np.floating[Any]]:
    size = leaf.dtype.itemsize
    if "float" not in str(leaf.dtype) or size < _PRECISE:
        raise InputError(
            f"clipped_sum must be in single or double precision, got {leaf.dtype}: cast it first"
        )
    return np.float32 if size == _PRECISE else np.float64


def _made(leaf: Any, array: Floats) -> Any:
    """Convert to an array with the framework, device and precision of another one."""
    values = array.astype(_precision(leaf))
    if hasattr(leaf, "new_tensor"):  # torch
        return leaf.new_tensor(values)
    if hasattr(leaf, "__array_namespace__"):  # JAX, and NumPy from version 2 on
        return leaf.__array_namespace__().asarray(values)
    return values


def _numbers(leaf: Any) -> Floats:
    """Convert a NumPy, JAX or torch array, which may be on another device or have a gradient."""
    if hasattr(leaf, "detach"):
        leaf = leaf.detach().cpu().double()
    return np.asarray(leaf, dtype=np.float64)
