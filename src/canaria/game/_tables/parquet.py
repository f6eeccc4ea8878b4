"""Parquet files, which pyarrow reads."""

from typing import Any, BinaryIO

from canaria._core.errors import InputError
from canaria._core.extras import needed_for
from canaria.game._tables import cells
from canaria.game._tables.cells import Cells, Scores
from canaria.game._tables.columns import Wanted
from canaria.game._tables.streams import whole


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read two columns of a Parquet file."""
    with needed_for(f"{wanted.file} is a Parquet file, which", "arrow"):
        import pyarrow
        from pyarrow import parquet
    try:
        table = parquet.read_table(pyarrow.BufferReader(whole(stream, wanted.file)))
        columns = wanted.among(table.column_names)
        scores, included = (_cells(table.column(place)) for place in (columns.score, columns.included))
    except (pyarrow.ArrowException, OSError):
        raise InputError(f"{wanted.file} is damaged or cut off: it starts like a Parquet file") from None
    return cells.table(scores, included, columns, wanted.file)


def _cells(column: Any) -> Cells:
    from pyarrow import types

    # Only whole columns of numbers: for a missing word `to_numpy` gives the word before it (pyarrow 26).
    numeric = types.is_integer(column.type) or types.is_floating(column.type)
    found: Cells = column.to_numpy() if numeric and not column.null_count else column.to_pylist()
    return found
