"""Neighbouring data sets: the rows that a release is most likely to be careless about.

A pair of neighbours is made from one data set of all its rows, where the rows that differ come last. So both
have the same types, categories, order and index, and differ in nothing else: a release that looks at any of
these learns no more than that the rows are there.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed, generator

TINY: Final = 5
"""Rows of a small data set: noise that hides a fault among 200 rows does not among 5."""
FAR: Final = 10.0
"""Rows far outside lie this many times the range beyond the middle of a column."""
_MOST_COLUMNS: Final = 6
"""Columns that get rows of their own; the first ones."""
_OF_A_UNIT: Final = 50
"""Rows of a unit that contributes much."""
_PURPOSE: Final = 0x6E6569
_STRANGE: Final = ("rows outside of the range", "missing and infinite values", "unseen categories")
"""The kinds of rows that a release may refuse: it was not made for them."""
UNSEEN: Final = "canaria"
"""A category that no column has."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbouring data sets.

    Attributes:
        words: How they differ.
        kind: The kind of difference, for the list of what was tried.
        first: Makes the first data set, a new copy for each run.
        second: Makes the second one.
        base: The name of the first data set: pairs with the same one share the runs that only look.
        strange: Whether the rows that differ are unlike those that were given, so that they may be refused.
        small: Whether there are few other rows, or none.

    """

    words: str
    kind: str
    first: Callable[[], Any]
    second: Callable[[], Any]
    base: str
    strange: bool = False
    small: bool = False


class Rows:
    """A data set as columns and rows: a frame, an array, or a list of numbers, texts, tuples or dicts."""

    def __init__(self, data: Any) -> None:
        self.data = data
        if hasattr(data, "iloc") and hasattr(data, "columns"):
            self._columns = {name: data[name].to_numpy() for name in data.columns}
        elif isinstance(data, np.ndarray) and data.ndim in (1, 2):
            self._columns = dict(enumerate(np.atleast_2d(data.T)))
        elif isinstance(data, list) and data:
            self._columns = _columns_of(data)
        else:
            raise InputError(
                "data must be a data frame, an array of one or two dimensions, or a list of rows, got "
                f"{shown(data)}"
            )
        if len(data) < 2:
            raise InputError(f"data must have at least 2 rows, got {len(data)}")

    @property
    def columns(self) -> dict[Any, Any]:
        """The values of each column, by its name or place."""
        return self._columns

    def taken(self, places: Sequence[int]) -> Any:
        """Rows at these places, as a data set of the same kind."""
        if hasattr(self.data, "iloc"):
            return self.data.iloc[list(places)].reset_index(drop=True)
        if isinstance(self.data, np.ndarray):
            return self.data[list(places)]
        return [self.data[place] for place in places]

    def changed(self, place: int, values: Mapping[Any, Any]) -> Any:
        """The row at this place with other values in some columns, as a data set of one row."""
        row = self.taken([place])
        if hasattr(row, "iloc"):
            row = row.astype(object)
            for name, value in values.items():
                row[name] = [value]
            return row
        if isinstance(row, np.ndarray):
            cells = row.reshape(1, -1).astype(object)
            for name, value in values.items():
                cells[0, name] = value
            return np.array(cells.tolist()).reshape(1, *self.data.shape[1:])
        return [_changed(row[0], values)]

    def joined(self, *parts: Any) -> Any:
        """Data sets end to end. Types are those that all parts can have."""
        if hasattr(self.data, "iloc"):
            import pandas as pd

            whole = pd.concat(parts, ignore_index=True)
            for name, kind in self.data.dtypes.items():
                whole[name] = _typed(whole[name], kind)
            return whole
        if isinstance(self.data, np.ndarray):
            return np.concatenate(parts)
        return [row for part in parts for row in part]

    def pair(
        self, base: Sequence[int], first: Any, second: Any
    ) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Makers of the rows `base` with the rows `first`, or with `second`; `first` may be None for no row.

        Both data sets are cut from one that has all rows, so that they have the same types.
        """
        common = len(base)
        ends = [part for part in (first, second) if part is not None]
        whole = self.joined(self.taken(base), *ends)
        size = 0 if first is None else len(first)
        keep = [list(range(common + size)), [*range(common), *range(common + size, len(whole))]]
        cut = [self._cut(whole, places) for places in keep]
        return partial(deepcopy, cut[0]), partial(deepcopy, cut[1])

    def _cut(self, whole: Any, places: Sequence[int]) -> Any:
        if hasattr(whole, "iloc"):
            return whole.iloc[places].reset_index(drop=True)
        if isinstance(whole, np.ndarray):
            return whole[places]
        return [whole[place] for place in places]


def neighbours_of(
    data: Any, *, unit: Any = None, adjacency: str = "add-remove", rng: Seed = None
) -> tuple[list[Pair], dict[str, str]]:
    """The pairs to try, and for each kind of difference the reason why there is none; empty if there is."""
    rows = Rows(data)
    if unit is not None and unit not in rows.columns:
        raise InputError(f"unit must be a column of the data, got {shown(unit)}")
    coins, pairs = generator(rng, _PURPOSE), []
    replaces = adjacency == "replace"
    usual = int(coins.integers(len(data)))
    extras = list(_extras(rows, usual, unit, coins))
    for base, places in _bases(rows, coins).items():
        for kind, words, extra in extras:
            first = rows.taken([usual] * len(extra)) if replaces else None
            said = f"{words} is {'in the place of another one' if replaces else 'added'} {base}"
            # New categories may change the types of both data sets.
            same = f"{base} {words if kind == 'unseen categories' else ''} {len(extra)}"
            first_of, second_of = rows.pair(places, first, extra)
            pairs.append(
                Pair(
                    words=said,
                    kind=kind,
                    first=first_of,
                    second=second_of,
                    base=same,
                    strange=kind in _STRANGE,
                    small=len(places) < len(data),
                )
            )
    tried = {pair.kind for pair in pairs}
    reasons = {
        "rows outside of the range": "no column of numbers",
        "missing and infinite values": "no column of decimal numbers",
        "unseen categories": "no column of texts",
        "groups of rows": "no unit was named",
    }
    found = {kind: "" if kind in tried else reason for kind, reason in reasons.items()}
    found |= {"running time": "not measured", "other data": "only neighbours of these were tried"}
    return pairs, {"usual and extreme rows": "", **found}


def _bases(rows: Rows, rng: np.random.Generator) -> dict[str, list[int]]:
    """The data sets that rows are added to: all rows, a few, none."""
    count = len(rows.data)
    few = sorted(rng.choice(count, min(TINY, count - 1), replace=False).tolist())
    return {f"to all {count} rows": list(range(count)), f"to {len(few)} rows": few, "to no row": []}


def _extras(rows: Rows, usual: int, unit: Any, rng: np.random.Generator) -> Iterator[tuple[str, str, Any]]:
    """The rows that differ: their kind, words for them, and the rows themselves."""
    kinds = {name: _kind(values) for name, values in rows.columns.items() if name != unit}
    measured = [name for name, kind in kinds.items() if kind in "iuf"][: 10 * _MOST_COLUMNS]
    low, high = ({n: _end(rows.columns[n], end) for n in measured} for end in (np.min, np.max))
    yield "usual and extreme rows", "a row like another", rows.taken([usual])
    for kind, words, values in _values(rows, kinds, measured, low, high, rng):
        yield kind, words, rows.changed(usual, values)
    if unit is not None:
        largest = rows.changed(usual, high)
        yield (
            "groups of rows",
            f"a {unit} with {_OF_A_UNIT} rows of the largest values",
            rows.joined(*[largest] * _OF_A_UNIT),
        )


def _values(
    rows: Rows,
    kinds: dict[Any, str],
    measured: list[Any],
    low: dict[Any, Any],
    high: dict[Any, Any],
    rng: Any,
) -> Iterator[tuple[str, str, dict[Any, Any]]]:
    """The values of extreme rows: the corners of the ranges, values outside, values that no row has."""
    extreme, outside = "usual and extreme rows", "rows outside of the range"
    if measured:
        yield extreme, "a row with the largest numbers", high
        yield extreme, "a row with the smallest numbers", low
        for _ in range(2 if len(measured) > 1 else 0):
            mixed = {name: (low, high)[int(rng.integers(2))][name] for name in measured}
            yield extreme, "a row in a corner of the ranges", mixed
        for sign, name in ((1, "above"), (-1, "below")):
            far = {n: _far(rows.columns[n], low[n], high[n], sign) for n in measured}
            yield outside, f"a row far {name} all ranges", far
        for name in measured[:_MOST_COLUMNS] if len(measured) > 1 else []:
            far = {name: _far(rows.columns[name], low[name], high[name], 1)}
            yield outside, f"a row with a {shown(name)} far above the range", far
    floats = [name for name in measured if kinds[name] == "f"]
    for value, words in ((np.inf, "infinite"), (np.nan, "missing")) if floats else ():
        yield "missing and infinite values", f"a row of {words} numbers", dict.fromkeys(floats, value)
    for name in [name for name, kind in kinds.items() if kind == "text"][:_MOST_COLUMNS]:
        yield "unseen categories", f"a row with a new {shown(name)}", {name: UNSEEN}


def _kind(values: Any) -> str:
    """The kind of a column: "f", "i" or "u" for numbers, "text" for categories, "" for anything else."""
    kind = np.asarray(values).dtype.kind
    if kind in "iuf":
        return str(kind)
    known = [value for value in np.asarray(values).tolist() if value is not None and not _is_nan(value)]
    return "text" if known and all(isinstance(value, str) for value in known) else ""


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _end(values: Any, end: Callable[[Any], Any]) -> Any:
    """The smallest or the largest number of a column, among those that are finite."""
    finite = values[np.isfinite(values)]
    return end(finite) if len(finite) else 0


def _far(values: Any, low: Any, high: Any, sign: int) -> Any:
    """A value far outside of the range of a column, in the type of the column."""
    reach = max(float(high) - float(low), abs(float(high)), 1.0)
    value = (float(high) + float(low)) / 2 + sign * FAR * reach
    if values.dtype.kind == "f":
        return value
    held = np.iinfo(values.dtype)
    return int(min(max(value, held.min), held.max))


def _typed(column: Any, kind: Any) -> Any:
    """A column with the type that it had, or with the least one that holds its new values as well."""
    import pandas as pd

    if isinstance(kind, pd.CategoricalDtype):
        kinds = dict.fromkeys([*kind.categories, *column.dropna()])
        return column.astype(pd.CategoricalDtype(list(kinds), kind.ordered))
    return column.astype(kind)


def _columns_of(data: list[Any]) -> dict[Any, Any]:
    """The columns of a list of rows; a list of anything else is one column."""
    first = data[0]
    if isinstance(first, dict):
        names = [name for name in first if all(name in row for row in data)]
        return {name: np.array([row[name] for row in data]) for name in names}
    if isinstance(first, tuple | list) and all(len(row) == len(first) for row in data):
        return {place: np.array([row[place] for row in data]) for place in range(len(first))}
    try:
        return {0: np.array(data)}
    except ValueError:  # rows of different lengths
        return {}


def _changed(row: Any, values: Mapping[Any, Any]) -> Any:
    """A row of a list with other values in some columns."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
    if isinstance(row, dict):
        return row | plain
    if isinstance(row, tuple | list):
        return type(row)(plain.get(place, value) for place, value in enumerate(row))
    return plain.get(0, row)
