"""Data sets with other rows than the one that a program was given."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from canaria._core.errors import InputError, shown
from canaria.integrations.opacus._items import has_floats, with_nan

_FEWEST: Final = 4
"""With this many rows, one can be left out and half of the others taken."""


class Sized(Protocol):
    """A data set: rows, by number."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def require_rows(data: object) -> None:
    if not (hasattr(data, "__len__") and hasattr(data, "__getitem__")) or isinstance(
        data, Mapping | str | bytes
    ):
        raise InputError(f"data must be a data set with a length and rows, got {type(data).__name__}")
    if isinstance(data, tuple) and all(isinstance(part, Tensor | np.ndarray) for part in data):
        lengths = {len(part) if part.ndim else -1 for part in data}
        if len(lengths) == 1 and lengths != {-1}:
            raise InputError(
                f"data must be a sequence of rows, got {shown(type(data).__name__)} of {len(data)} columns "
                "of equal length; hand over TensorDataset(...) of them"
            )
    if len(data) < _FEWEST:
        raise InputError(f"data must hold at least {_FEWEST} rows, got {len(data)}")


def fresh(data: Sized) -> Sized:
    """The data set, copied if that is easy, since the program may change it."""
    copied = type(data) is TensorDataset or isinstance(data, Tensor | np.ndarray)
    return only(data, range(len(data))) if copied else data


def only(data: Sized, rows: Sequence[int], nan: int | None = None) -> Sized:
    """These rows of a data set, one of them NaN, as a data set of the same kind if possible."""
    if type(data) is TensorDataset:
        tensors: Any = [only(tensor, rows, nan) for tensor in data.tensors]
        return TensorDataset(*tensors)
    if isinstance(data, Tensor | np.ndarray):
        chosen: Tensor | npt.NDArray[Any] = data[list(rows)]
        if nan is not None and has_floats(chosen):
            chosen[nan] = math.nan
        return chosen
    if isinstance(data, list | tuple):
        return [with_nan(data[one]) if one == nan else data[one] for one in rows]
    return View(data, rows, nan)


class View(Dataset[Any]):
    """Some rows of a data set, one of them NaN; records which missing attributes were requested."""

    def __init__(self, whole: Sized, rows: Sequence[int], nan: int | None) -> None:
        self.whole, self._rows, self._nan = whole, rows, nan
        self.missing: list[str] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Any:
        row = self._rows[index]
        return with_nan(self.whole[row]) if row == self._nan else self.whole[row]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__") and hasattr(vars(self).get("whole"), name):
            self.missing.append(name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
