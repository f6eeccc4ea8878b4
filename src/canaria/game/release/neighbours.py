"""Neighbouring data sets: the rows that a release is most likely to be careless about.

A pair of neighbours is cut from one data set of all its rows, where the rows that differ come last. So both
have the same types, categories, order and index, and differ in nothing else: a release that looks at any of
these learns no more than that the rows are there.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed, generator

DataSet: TypeAlias = Any
"""A data frame, an array, or a list of rows."""
TINY: Final = 5
"""Rows of a small data set: noise that hides a fault among 200 rows does not among 5."""
FAR: Final = 10.0
"""Rows far outside lie this many times the range beyond the middle of a column."""
_MOST_COLUMNS: Final = 6
"""Columns that get rows of their own; the first ones."""
_OF_A_UNIT: Final = 50
"""Rows of a unit that contributes much."""
_PURPOSE: Final = 0x6E6569
UNSEEN: Final = "canaria"
"""A category that no column has."""
_USUAL, _OUTSIDE, _MISSING, _NEW, _GROUPS = (
    "usual and extreme rows",
    "rows outside of the range",
    "missing and infinite values",
    "unseen categories",
    "groups of rows",
)
_WHY_NOT: Final = {
    _OUTSIDE: "no column of numbers",
    _MISSING: "no column of decimal numbers",
    _NEW: "no column of texts",
    _GROUPS: "no unit was named",
    "running time": "not measured",
    "other data": "only neighbours of these were tried",
}
"""Why a kind of neighbours is not tried, if none could be made."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two neighbouring data sets.

    Attributes:
        words: How they differ.
        kind: The kind of difference, for the list of what was tried.
        first: Makes the first data set, a new copy for each run.
        second: Makes the second one.
        base: The name of the first data set: pairs with the same one share the runs that only look.
        usual: Whether all rows are of the kind that was given, and as many as were given.

    Example:
        >>> pair = neighbours_of([2.0, 5.0, 3.0], rng=0)[0][1]
        >>> pair.first(), pair.second()
        ([2.0, 5.0, 3.0], [2.0, 5.0, 3.0, 5.0])

    """

    words: str
    kind: str
    first: Callable[[], Any]
    second: Callable[[], Any]
    base: str
    usual: bool = True


class Rows:
    """A data set as columns and rows: a frame, an array, or a list of numbers, texts, tuples or dicts.

    Attributes:
        data: The data set.
        columns: The values of each column, by its name or place; of a frame, those that are not missing.

    """

    def __init__(self, data: DataSet) -> None:
        self.data = data
        self.columns: dict[Any, Any]
        if hasattr(data, "iloc") and hasattr(data, "columns"):
            self.columns = {name: _known(data[name]) for name in data.columns}
        elif isinstance(data, np.ndarray) and data.ndim in (1, 2) and data.dtype.names is None:
            self.columns = dict(enumerate(np.atleast_2d(data.T)))
        elif isinstance(data, list):
            self.columns = _columns_of(data)
        else:
            raise InputError(
                "data must be a data frame (pd.DataFrame(data) makes one of a structured array), an array of "
                "one or two dimensions, or a list of rows, got "
                f"{shown(data)}"
            )
        self._counted = type(getattr(data, "index", None)).__name__ == "RangeIndex"
        if len(data) < 2:
            raise InputError(f"data must have at least 2 rows, got {len(data)}")

    def taken(self, places: Sequence[int], whole: DataSet = None) -> DataSet:
        """Rows at these places, of these data or of others of their kind; none is an object of theirs."""
        whole = self.data if whole is None else whole
        if hasattr(whole, "iloc"):
            return whole.iloc[list(places)]
        if isinstance(whole, np.ndarray):
            return whole[list(places)]
        return [deepcopy(whole[place]) for place in places]

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
            made = np.array(cells.tolist()) if row.dtype.kind in "SU" else cells.astype(row.dtype)
            return made.reshape(1, *self.data.shape[1:])
        return [_changed(row[0], values)]

    def joined(self, *parts: DataSet) -> DataSet:
        """Data sets end to end. Types are those that all parts can have."""
        if hasattr(self.data, "iloc"):
            import pandas as pd

            whole: DataSet = pd.concat(parts, ignore_index=self._counted)
            for name, kind in self.data.dtypes.items():
                whole[name] = _typed(whole[name], kind)
            return whole
        if isinstance(self.data, np.ndarray):
            return np.concatenate(parts)
        return [deepcopy(row) for part in parts for row in part]

    def pair(
        self, base: Sequence[int], first: DataSet, second: DataSet
    ) -> tuple[Callable[[], Any], Callable[[], Any]]:
        """Makers of the rows `base` with the rows `first`, or with `second`; `first` may be None for no row.

        Both data sets are cut from one that has all rows, so that they have the same types.
        """
        common, size = len(base), 0 if first is None else len(first)
        whole: DataSet = self.joined(
            self.taken(base), *(part for part in (first, second) if part is not None)
        )
        keep = [range(common + size), [*range(common), *range(common + size, len(whole))]]
        one, other = (self.taken(list(places), whole) for places in keep)
        if self._counted:  # the second would skip the number of the row that the first has in its place
            one, other = one.reset_index(drop=True), other.reset_index(drop=True)
        return partial(copied, one), partial(copied, other)


def copied(data: DataSet) -> DataSet:
    """A copy that shares nothing with the data, whose rows share nothing with each other."""
    if isinstance(data, list):
        return [deepcopy(row) for row in data]
    if not hasattr(data, "iloc"):
        return deepcopy(data)
    import pandas as pd

    copy = data.copy()
    for place, kind in enumerate(data.dtypes):
        # A copy of a frame shares its objects, and a column in the format of Arrow shows where it was joined.
        if pd.api.types.is_extension_array_dtype(kind) and not isinstance(kind, pd.CategoricalDtype):
            column = pd.Series(list(data.iloc[:, place]), index=data.index, dtype=kind)
            copy.isetitem(place, column)
        elif kind.kind == "O" and not isinstance(kind, pd.CategoricalDtype):  # whose kind is "O", too
            cells = pd.Series(
                [deepcopy(cell) for cell in data.iloc[:, place]], index=data.index, dtype=object
            )
            copy.isetitem(place, cells)
    return copy


def neighbours_of(
    data: DataSet, *, unit: Hashable = None, adjacency: str = "add-remove", rng: Seed = None
) -> tuple[list[Pair], dict[str, str]]:
    """Make the neighbouring data sets that a check tries.

    Args:
        data: A data frame, an array, or a list of rows.
        unit: The column that names the user, client or group, if all rows of one are protected together.
        adjacency: "add-remove" or "replace".
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Returns:
        The pairs, and for each kind of difference the reason why there is none; empty if there is.

    Raises:
        InputError: If an argument is not usable.

    Example:
        >>> pairs, _ = neighbours_of([2.0, 5.0, 3.0], rng=0)
        >>> pairs[1].words, pairs[1].second()[-1]
        ('a row with the largest numbers is added to all 3 rows', 5.0)

    """
    rows = Rows(data)
    if unit is not None and unit not in rows.columns:
        raise InputError(f"unit must be a column of the data, got {shown(unit)}")
    coins, pairs = generator(rng, _PURPOSE), []
    usual = int(coins.integers(len(data)))
    whose = {} if unit is None else {unit: _new_unit(rows.columns[unit])}
    extras = list(_extras(rows, usual, whose, coins))
    for base, places in _bases(rows, coins).items():
        for kind, words, extra in extras:
            first = None
            said = f"{words} is added to {base}"
            if adjacency == "replace":
                if words == _LIKE_ANOTHER:
                    continue
                first = rows.joined(*[rows.changed(usual, whose)] * len(extra))
                said = f"{words} takes the place of another one, beside {base}"
            first_of, second_of = rows.pair(places, first, extra)
            # New categories may change the types of both data sets.
            same = f"{base} {words if kind == _NEW else ''} {len(extra)}"
            normal = kind in (_USUAL, _GROUPS) and len(places) == len(data)
            pairs.append(
                Pair(words=said, kind=kind, first=first_of, second=second_of, base=same, usual=normal)
            )
    tried = {pair.kind for pair in pairs}
    return pairs, {_USUAL: ""} | {kind: "" if kind in tried else why for kind, why in _WHY_NOT.items()}


_LIKE_ANOTHER: Final = "a row like another"


def _bases(rows: Rows, rng: np.random.Generator) -> dict[str, list[int]]:
    """The data sets that rows are added to: all rows, a few, none."""
    count = len(rows.data)
    few = sorted(rng.choice(count, min(TINY, count - 1), replace=False).tolist())
    return {f"all {count} rows": list(range(count)), f"{len(few)} rows": few, "no row": []}


def _extras(
    rows: Rows, usual: int, whose: dict[Any, Any], rng: np.random.Generator
) -> Iterator[tuple[str, str, Any]]:
    """The rows that differ: their kind, words for them, and the rows themselves, all of a new unit."""
    kinds = {name: _kind(values) for name, values in rows.columns.items() if name not in whose}
    measured = [name for name, kind in kinds.items() if kind in _NUMBERS][: 10 * _MOST_COLUMNS]
    low, high = ({n: _end(rows.columns[n], end) for n in measured} for end in (np.min, np.max))
    yield _USUAL, _LIKE_ANOTHER, rows.changed(usual, whose)
    for kind, words, values in _values(rows, kinds, low, high, rng):
        yield kind, words, rows.changed(usual, {**values, **whose})
    for unit in whose:
        largest = [rows.changed(usual, {**high, **whose}) for _ in range(_OF_A_UNIT)]
        yield _GROUPS, f"a {unit} with {_OF_A_UNIT} rows of the largest values", rows.joined(*largest)


def _values(
    rows: Rows, kinds: dict[Any, str], low: dict[Any, Any], high: dict[Any, Any], rng: np.random.Generator
) -> Iterator[tuple[str, str, dict[Any, Any]]]:
    """The values of extreme rows: the corners of the ranges, values outside, values that no row has."""
    measured = list(low)
    if measured:
        yield _USUAL, "a row with the largest numbers", high
        yield _USUAL, "a row with the smallest numbers", low
        for _ in range(2 if len(measured) > 1 else 0):
            mixed = {name: (low, high)[int(rng.integers(2))][name] for name in measured}
            yield _USUAL, "a row in a corner of the ranges", mixed
        for sign, name in ((1, "above"), (-1, "below")):
            far = {n: _far(rows.columns[n], low[n], high[n], sign) for n in measured}
            yield _OUTSIDE, f"a row far {name} all ranges", far
        for name in measured[:_MOST_COLUMNS] if len(measured) > 1 else []:
            far = {name: _far(rows.columns[name], low[name], high[name], 1)}
            yield _OUTSIDE, f"a row with a {shown(name)} far above the range", far
    floats = [name for name in measured if kinds[name] == "f"]
    for value, words in ((np.inf, "infinite"), (np.nan, "missing")) if floats else ():
        yield _MISSING, f"a row of {words} numbers", dict.fromkeys(floats, value)
    for name in [name for name, kind in kinds.items() if kind == "text"][:_MOST_COLUMNS]:
        yield _NEW, f"a row with a new {shown(name)}", {name: UNSEEN}


_NUMBERS: Final = ("i", "u", "f")


def _kind(values: npt.NDArray[Any]) -> str:
    """The kind of a column: "f", "i" or "u" for numbers, "text" for categories, "" for anything else."""
    if np.ndim(values) != 1:
        return ""
    if values.dtype.kind in _NUMBERS:
        return str(values.dtype.kind)
    known = [value for value in values.tolist() if value is not None and not _is_nan(value)]
    return "text" if known and all(isinstance(value, str) for value in known) else ""


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _new_unit(values: npt.NDArray[Any]) -> Any:
    """A name that no unit has, in the type of the others."""
    kind = _kind(values)
    if kind in _NUMBERS:
        return _end(values, np.max) + 1
    if kind != "text":
        raise InputError("the units must be named by numbers or by texts")
    return UNSEEN


def _end(values: npt.NDArray[Any], end: Callable[[Any], Any]) -> Any:
    """The smallest or the largest number of a column, among those that are finite."""
    finite = values[np.isfinite(values)]
    return end(finite) if len(finite) else 0


def _far(values: npt.NDArray[Any], low: float, high: float, sign: int) -> Any:
    """A value far outside of the range of a column, in the type of the column."""
    reach = max(float(high) - float(low), abs(float(high)), 1.0)
    value = (float(high) + float(low)) / 2 + sign * FAR * reach
    if values.dtype.kind == "f":
        return value
    held = np.iinfo(values.dtype)
    return int(min(max(value, held.min), held.max))


def _typed(column: Any, kind: Any) -> Any:
    """A column with the type that it had; categories are joined by the new ones."""
    import pandas as pd

    if isinstance(kind, pd.CategoricalDtype):
        kinds = dict.fromkeys([*kind.categories, *column.dropna()])
        return column.astype(pd.CategoricalDtype(list(kinds), kind.ordered))
    return column.astype(kind)


def _columns_of(data: list[Any]) -> dict[Any, Any]:
    """The columns of a list of rows; numbers and texts are one column."""
    first = data[0] if data else None
    if isinstance(first, dict):
        names = [name for name in first if all(isinstance(row, dict) and name in row for row in data)]
        return {name: _column([row[name] for row in data]) for name in names}
    if isinstance(first, tuple | list):
        alike = all(isinstance(row, type(first)) and len(row) == len(first) for row in data)
        return {place: _column([row[place] for row in data]) for place in range(len(first) if alike else 0)}
    return {0: _column(data)}


def _known(column: Any) -> Any:
    """The values of a column of a frame that are not missing, in the type that they have in NumPy."""
    known = column.dropna()
    return known.to_numpy(getattr(column.dtype, "numpy_dtype", None))


def _column(values: list[Any]) -> Any:
    """The values as an array of one dimension, of objects if they are not all numbers or texts."""
    if all(isinstance(value, int | float | np.number) and not isinstance(value, bool) for value in values):
        return np.array(values)
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def _changed(row: Any, values: Mapping[Any, Any]) -> Any:
    """A row of a list with other values in some columns."""
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in values.items()}
    if isinstance(row, dict):
        return row | plain
    if isinstance(row, tuple | list):
        changed = [plain.get(place, value) for place, value in enumerate(row)]
        return row._make(changed) if hasattr(row, "_make") else type(row)(changed)
    return plain.get(0, row)
