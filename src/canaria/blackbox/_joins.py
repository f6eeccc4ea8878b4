"""Rows taken by position from several tables, as one table whose form does not tell where they came from."""

import operator
import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from canaria._core.arrays import Integers
from canaria._core.copies import copied
from canaria._core.errors import InputError, shown

_TABLES: Final = ("numpy", "torch", "pandas")


def take(sources: Sequence[Any], order: Integers, own: Integers) -> Any:
    """Take rows `order` of the concatenated sources, as the type of the first.

    `order` contains the coins, so only the rows may depend on it. The sources are first joined to one table,
    which has the same types, categories and layout whatever the coins show. Rows are then copied from it by
    position, into memory with no other rows. All canaries and stand-ins are read, checked and copied, used or
    not: otherwise an error, or the random numbers that a data set draws to augment a row, would reveal the
    coins.

    The rows at `own` share no memory with the sources. Otherwise training that changes its data in place
    would change included canaries before they are scored.
    """
    first = sources[0]
    _require_alike(sources)
    if isinstance(first, dict):
        return {name: take([source[name] for source in sources], order, own) for name in first}
    if isinstance(first, tuple):
        columns = [take(column, order, own) for column in zip(*sources, strict=True)]
        return tuple(columns) if type(first) is tuple else type(first)(*columns)
    try:
        if (join := _JOINS.get(_kind(first))) is not None:
            return join(sources, order)
        rows = PlantedRows(sources, order, own)
    except InputError:
        raise
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"dataset and canaries do not fit: {shown(str(error))}") from None
    return [rows[place] for place in range(len(rows))] if isinstance(first, list) else rows


def _kind(data: Any) -> str:
    """The package of an array, a tensor or a frame; the full name of any other class."""
    package = type(data).__module__.partition(".")[0]
    table = package in _TABLES and hasattr(data, "shape")
    return package if table else f"{type(data).__module__}.{type(data).__name__}"


def _require_alike(sources: Sequence[Any]) -> None:
    first = sources[0]
    if not hasattr(first, "__getitem__"):
        raise InputError(
            f"dataset of type {type(first).__name__} cannot be planted; give arrays, frames or a Dataset"
        )
    arrays = all(isinstance(source, np.ndarray) for source in sources)
    known = isinstance(first, list | tuple | dict) or _kind(first) in _TABLES
    if known and not arrays and len(set(map(type, sources))) > 1:
        kinds = ", ".join(type(source).__name__ for source in sources)
        raise InputError(f"dataset, canaries and stand_ins must be of one kind, got {kinds}")
    if isinstance(first, dict) and any(set(source) != set(first) for source in sources):
        raise InputError("dataset, canaries and stand_ins must have the same keys")
    if isinstance(first, tuple) and len({len(source) for source in sources}) > 1:
        raise InputError("dataset, canaries and stand_ins must have the same number of parts")


def _join_arrays(sources: Sequence[Any], order: Integers) -> Any:
    masked = any(isinstance(source, np.ma.MaskedArray) for source in sources)
    joined: Any = (np.ma if masked else np).concatenate(sources)
    return (copied("canaries", joined) if joined.dtype.hasobject else joined)[order]


def _join_tensors(sources: Sequence[Any], order: Integers) -> Any:
    """Detach first: the gradient function of the selected rows would keep `order`."""
    import torch

    return torch.cat([source.detach() for source in sources])[torch.as_tensor(order)]


def _join_tensor_datasets(sources: Sequence[Any], order: Integers) -> Any:
    import torch

    def columns(source: Any) -> Any:
        if hasattr(source, "tensors"):
            return source.tensors
        rows = (source[place] for place in range(len(source)))
        return [torch.stack([torch.as_tensor(cell) for cell in column]) for column in zip(*rows, strict=True)]

    joined = zip(*map(columns, sources), strict=True)
    return torch.utils.data.TensorDataset(*(_join_tensors(column, order) for column in joined))


def _join_frames(sources: Sequence[Any], order: Integers) -> Any:
    """Renumber the row labels, because they would reveal the bits."""
    import pandas as pd

    columns = [list(getattr(source, "columns", [])) for source in sources]
    if any(names != columns[0] for names in columns):
        raise ValueError(f"columns differ: {columns}")
    joined = pd.concat(_with_all_categories(sources), ignore_index=True)
    # Convert a series to a frame of one column, so that cells of both are copied in one way.
    frame: Any = joined.to_frame() if isinstance(joined, pd.Series) else joined
    for place, kind in enumerate(frame.dtypes):
        if pd.api.types.is_object_dtype(kind):
            # Keep the dtype: pandas would infer another one from the cells alone.
            cells = [copied("canaries", cell) for cell in frame.iloc[:, place]]
            frame.isetitem(place, pd.Series(cells, frame.index, dtype=object))
    taken = frame.iloc[order].reset_index(drop=True)
    return taken.iloc[:, 0].rename(joined.name) if isinstance(joined, pd.Series) else taken


def _with_all_categories(sources: Sequence[Any]) -> list[Any]:
    """Give columns of categories those of all sources, or pandas would join them to objects."""
    import pandas as pd

    tables = [pd.DataFrame(source) for source in sources]
    for place in range(tables[0].shape[1]):
        kinds = [table.dtypes.iloc[place] for table in tables]
        if not all(isinstance(kind, pd.CategoricalDtype) and not kind.ordered for kind in kinds):
            continue
        if len({kind.categories.dtype for kind in kinds}) > 1:
            continue
        named = [value for kind in kinds for value in kind.categories]
        for table in tables:
            column: Any = table.iloc[:, place]
            table.isetitem(place, column.cat.set_categories(list(dict.fromkeys(named))))
    return [
        table.iloc[:, 0] if isinstance(source, pd.Series) else table
        for source, table in zip(sources, tables, strict=True)
    ]


def _join_hugging_face(sources: Sequence[Any], order: Integers) -> Any:
    """Do not use `select`, which keeps the whole table together with `order`."""
    import datasets

    first = sources[0]
    tables = [
        source
        if isinstance(source, datasets.Dataset)
        else datasets.Dataset.from_list(list(source), features=first.features)
        for source in sources
    ]
    if any(set(table.column_names) != set(first.column_names) for table in tables):
        raise ValueError(f"columns differ: {[table.column_names for table in tables]}")
    joined = datasets.concatenate_datasets(tables)
    rows = joined.with_format("arrow")[:].take(order).combine_chunks()
    # The fingerprint names the cached results of `map`. By default it is a digest of the rows, which would
    # reveal the bits; a fixed one would find results of other coins.
    taken = datasets.Dataset(rows, joined.info, first.split, fingerprint=secrets.token_hex(8))
    shown_as = first.format
    return taken.with_format(
        shown_as["type"], shown_as["columns"], shown_as["output_all_columns"], **shown_as["format_kwargs"]
    )


_JOINS: Final[dict[str, Callable[[Sequence[Any], Integers], Any]]] = {
    "numpy": _join_arrays,
    "torch": _join_tensors,
    "torch.utils.data.dataset.TensorDataset": _join_tensor_datasets,
    "pandas": _join_frames,
    "datasets.arrow_dataset.Dataset": _join_hugging_face,
}


class PlantedRows:
    """A data set with some rows of its own, which are read once, when planted, and copied on each access.

    It does not store the origin of these rows.
    """

    def __init__(self, sources: Sequence[Any], order: Integers, own: Integers) -> None:
        first, *others = sources
        real = len(first)
        added = [copied("canaries", source[place]) for source in others for place in range(len(source))]
        kept = {place: copied("dataset", first[place]) for place in own[own < real].tolist()}
        self._rows, self._length = first, len(order)
        self._own = {
            place: added[order[place] - real] if order[place] >= real else kept[place]
            for place in own.tolist()
        }

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        place = operator.index(index)
        if not 0 <= place < len(self):
            raise IndexError(index)
        return copied("canaries", self._own[place]) if place in self._own else self._rows[place]
