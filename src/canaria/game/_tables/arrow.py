"""Parquet, Feather and Arrow files, which pyarrow reads."""

from typing import Any, BinaryIO

from canaria._core.errors import InputError
from canaria._core.extras import needed_for
from canaria.game._tables import cells
from canaria.game._tables.cells import Cells, Scores
from canaria.game._tables.columns import Wanted


def read_parquet(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read two columns of a Parquet file."""
    return _read(stream, wanted, "a Parquet file")


def read_feather(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read two columns of a Feather file, or of an Arrow file, which is the same."""
    return _read(stream, wanted, "an Arrow file")


def read_stream(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read two columns of an Arrow stream, which has no magic bytes but a mark before every message."""
    return _read(stream, wanted, "an Arrow stream")


def _read(stream: BinaryIO, wanted: Wanted, kind: str) -> Scores:
    with needed_for(f"{wanted.file} is {kind}, which", "arrow"):
        import pyarrow
    try:
        table = _opened(stream.read(), kind)
        columns = wanted.among(table.column_names)
        chosen = [_cells(table.column(place)) for place in (columns.score, columns.included)]
    except (pyarrow.ArrowException, OSError):
        raise InputError(f"{wanted.file} is damaged or cut off: it starts like {kind}") from None
    return cells.table(chosen[0], chosen[1], columns, lambda place: f"{wanted.file} row {place + 1}")


def _opened(data: bytes, kind: str) -> Any:
    import pyarrow

    source = pyarrow.BufferReader(data)
    if kind == "a Parquet file":
        from pyarrow import parquet

        return parquet.read_table(source)
    if kind == "an Arrow stream":
        return pyarrow.ipc.open_stream(source).read_all()
    from pyarrow import feather

    return feather.read_table(source)


def _cells(column: Any) -> Cells:
    import pyarrow

    if pyarrow.types.is_decimal(column.type):
        column = column.cast(pyarrow.float64())
    plain = pyarrow.types.is_floating(column.type) or pyarrow.types.is_integer(column.type)
    if (plain or pyarrow.types.is_boolean(column.type)) and not column.null_count:
        array: Cells = column.to_numpy()
        return array
    listed: list[object] = column.to_pylist()
    return listed
