"""From cells to scores and bits; the first cell that is neither is named with its row."""

import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown
from canaria._core.membership import Membership, UnknownWordError
from canaria.game._tables.columns import Columns

Cells = Sequence[object] | npt.NDArray[Any]
Where = Callable[[int], str]
"""The words for a row: "scores.csv row 3" for the place 2."""
_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WITH_COMMAS: Final = re.compile(r"[+-]?[\d.,' ]*\d[.,' ][\d.,' ]*([eE][+-]?\d+)?", re.ASCII)


class Scores(NamedTuple):
    """Scores, and which elements were included.

    Attributes:
        scores: One score per element.
        included: Whether the element was included.

    Example:
        >>> import numpy as np
        >>> from canaria.game.score_files import Scores
        >>> read = Scores(scores=np.array([1.5, -0.5]), included=np.array([True, False]))
        >>> read.scores[read.included].tolist()
        [1.5]

    """

    scores: Floats
    included: Hits


def table(scores: Cells, included: Cells, columns: Columns, where: Where) -> Scores:
    """Read both columns."""
    if len(scores) != len(included):
        raise InputError(
            f"{where(0).rsplit(' ', 2)[0]}: {columns.score_name} and {columns.included_name} must be equally "
            f"long, got {len(scores)} and {len(included)}"
        )
    return Scores(numbers(scores, columns.score_name, where), bits(included, columns.included_name, where))


def numbers(cells: Cells, name: str, where: Where) -> Floats:
    """Read a column of finite numbers."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iuf":
        with np.errstate(over="ignore"):
            values = cells.astype(np.float64)
        bad = ~np.isfinite(values)
        if bad.any():
            place = int(np.argmax(bad))
            raise _no_number(cells[place].item(), name, where(place))
        return values
    return np.fromiter(
        (number(cell, name, where, place) for place, cell in enumerate(cells)), np.float64, len(cells)
    )


def number(cell: object, name: str, where: Where, place: int) -> float:
    """Read one cell: a finite number, written with a decimal point."""
    value = math.nan
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", errors="replace")
    if isinstance(cell, np.generic):
        cell = cell.item()
    written = isinstance(cell, str) and _NUMBER.fullmatch(cell.strip())
    if written or (isinstance(cell, int | float | Decimal) and not isinstance(cell, bool)):
        try:
            value = float(cell)  # type: ignore[arg-type]
        except (OverflowError, ValueError):
            value = math.inf
    if not math.isfinite(value):
        raise _no_number(cell, name, where(place))
    return value


def _no_number(cell: object, name: str, where: str) -> InputError:
    hint, given = "", shown(cell)
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        given = "nothing"
    elif isinstance(cell, str) and _WITH_COMMAS.fullmatch(cell.strip()):
        hint = "; write numbers with a decimal point and without thousands separators"
    return InputError(f"{where}: {name} must be a finite number, got {given}{hint}")


def bits(cells: Cells, name: str, where: Where, way: Membership | None = None) -> Hits:
    """Read a column that says who was included, in one of the usual ways of writing."""
    way = way or Membership()
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "biuf":
        distinct, first, codes = np.unique(cells, return_index=True, return_inverse=True)
        known = np.zeros(len(distinct), np.bool_)
        for place in np.argsort(first):
            known[place] = _bit(distinct[place], name, where, int(first[place]), way)
        return known[codes]
    read = (_bit(cell, name, where, place, way) for place, cell in enumerate(cells))
    return np.fromiter(read, np.bool_, len(cells))


def _bit(cell: object, name: str, where: Where, place: int, way: Membership) -> bool:
    try:
        return way.read(cell)
    except UnknownWordError as error:
        raise InputError(f"{where(place)}: {name} {error}") from None
