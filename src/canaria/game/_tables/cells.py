"""From cells to scores and bits; the first cell that is neither is named with its row."""

import math
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown
from canaria._core.membership import Membership, UnknownWordError
from canaria.game._tables.columns import Columns

Cells = Sequence[object] | npt.NDArray[Any]
Where = Callable[[int], str]
"""The words for a row: "scores.csv row 3" for the place 2."""


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


def table(scores: Cells, included: Cells, columns: Columns, file: str, where: Where | None = None) -> Scores:
    """Read both columns of a file; rows are counted from 1 if `where` does not name them."""
    if len(scores) != len(included):
        raise InputError(
            f"{file}: {columns.score_name} and {columns.included_name} must be equally long, "
            f"got {len(scores)} and {len(included)}"
        )
    where = where or (lambda place: f"{file} row {place + 1}")
    return Scores(
        numbers(scores, columns.score_name, where), bits(included, columns.included_name, where, Membership())
    )


def numbers(cells: Cells, name: str, where: Where) -> Floats:
    """Read a column of finite numbers."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "iuf":
        with np.errstate(over="ignore"):  # a long double may be infinite as a double, and is refused below
            values = cells.astype(np.float64)
    else:
        cells = _listed(cells)
        values = np.fromiter(map(_number, cells), np.float64, len(cells))
    bad = np.flatnonzero(~np.isfinite(values))
    if len(bad):
        raise _no_number(cells[bad[0]], name, where(int(bad[0])))
    return values


def bits(cells: Cells, name: str, where: Where, way: Membership) -> Hits:
    """Read a column that says who was included."""
    # A column has two or three different cells, and each is read once. They are told apart by their
    # representation: True equals 1, but a column that holds both is refused; and a list cannot be a key.
    cells = _listed(cells)
    keys = list(map(repr, cells))
    known: dict[str, bool] = {}
    for key in dict.fromkeys(keys):
        place = keys.index(key)
        try:
            known[key] = way.read(cells[place])
        except UnknownWordError as error:
            raise InputError(f"{where(place)}: {name} {error}") from None
    return np.fromiter(map(known.__getitem__, keys), np.bool_, len(keys))


def _listed(cells: Cells) -> Sequence[object]:
    """Plain Python values. `tolist` would make numbers of dates, so it is used only where it cannot."""
    if isinstance(cells, np.ndarray):
        plain: Sequence[object] = cells.tolist() if cells.dtype.kind in "biufOSU" else list(cells)
        return plain
    return cells


def _number(cell: object) -> float:
    """The number that a cell holds, NaN if it holds none."""
    if isinstance(cell, bytes):
        cell = cell.decode("utf-8", errors="replace")
    # Python also reads "1_0" and the digits of every script; a file that holds them is not what it seems.
    plain = cell.isascii() and "_" not in cell if isinstance(cell, str) else _is_numeric(cell)
    try:
        return float(cell) if plain else math.nan  # type: ignore[arg-type]
    except (OverflowError, ValueError):
        return math.nan


def _is_numeric(cell: object) -> bool:
    return isinstance(cell, int | float | Decimal) and not isinstance(cell, bool)


def _no_number(cell: object, name: str, where: str) -> InputError:
    nothing = cell is None or (isinstance(cell, str) and not cell.strip())
    hint = ""
    if isinstance(cell, str) and "," in cell:
        hint = "; write numbers with a decimal point and without thousands separators"
    given = "nothing" if nothing else shown(cell.item() if isinstance(cell, np.generic) else cell)
    return InputError(f"{where}: {name} must be a finite number, got {given}{hint}")
