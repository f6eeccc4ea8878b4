"""Text with a header, its cells separated by commas, semicolons or tabs."""

import csv
import io
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import BinaryIO, Final

import numpy as np

from canaria._core.errors import InputError, shown
from canaria._core.membership import Membership
from canaria.game._tables import cells
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import Columns, Wanted

_SEPARATORS: Final = (",", ";", "\t")
_ROWS_AT_ONCE: Final = 500
"""Rows of the csv module. Python looks for garbage after 700 new lists; with 50,000 it takes 1.6 times as
long."""
_LONGEST_LINE: Final = 1 << 20
"""Characters. A compressed file without line ends would be read into memory as one line."""


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read a table of text."""
    with io.TextIOWrapper(stream, "utf-8-sig") as text:
        lines = _lines(text, wanted.file)
        try:
            names, separator = _header(next(filter(str.strip, lines), ""), wanted.file)
            rows = csv.reader(lines, delimiter=separator, skipinitialspace=True, strict=True)
            parts = list(_parts(filter(None, rows), wanted.among(names), len(names), wanted.file))
        except csv.Error as error:
            raise InputError(f"{wanted.file} is not readable as CSV: {error}") from None
    if not parts:
        raise InputError(f"{wanted.file} must hold at least one row of scores, got none")
    return Scores(*map(np.concatenate, zip(*parts, strict=True)))


def _lines(text: io.TextIOWrapper, file: str) -> Iterator[str]:
    while line := text.readline(_LONGEST_LINE):
        if len(line) == _LONGEST_LINE:
            raise InputError(
                f"{file} must have lines of less than {_LONGEST_LINE:,} characters, got a longer one"
            )
        yield line


def _header(line: str, file: str) -> tuple[list[str], str]:
    """The names of the columns, and the separator: the one that gives the most columns."""
    line = line.strip("\n").removeprefix("#")  # `np.savetxt` writes its header as a comment
    if not line.strip():
        raise InputError(f"{file} must hold at least one row of scores, got none")
    found = {separator: _names(line, separator) for separator in _SEPARATORS}
    separator = max(_SEPARATORS, key=lambda separator: len(found[separator]))
    names = found[separator]
    if len(names) < 2:
        next(csv.reader([line], strict=True))  # raises if quotes are to blame
        raise InputError(
            f"{file} must have columns separated by commas, semicolons or tabs, got the first line "
            f"{shown(line)}"
        )
    _require_names(names, file)
    return names, separator


def _names(line: str, separator: str) -> list[str]:
    """The cells of the header, or none if its quotes do not fit this separator."""
    try:
        row = next(csv.reader([line], delimiter=separator, skipinitialspace=True, strict=True))
    except csv.Error:
        return []
    return [name.strip() for name in row]


def _require_names(names: list[str], file: str) -> None:
    try:
        float(names[0].replace(",", "."))
    except ValueError:
        return
    raise InputError(
        f"{file} must start with the names of its columns, got {shown(names)}; add a first line such as "
        "score,included"
    )


def _parts(rows: Iterator[list[str]], columns: Columns, width: int, file: str) -> Iterator[Scores]:
    """Everything below the header, some rows at a time; all of it keeps to one way of writing membership."""
    way, done = Membership(), 0
    while block := list(islice(rows, _ROWS_AT_ONCE)):
        where = partial(_row, file, done)
        for place, row in enumerate(block):
            if len(row) > width:  # its cells may have moved
                raise InputError(
                    f"{where(place)} has more cells than the header, {len(row)} instead of {width}; write "
                    "decimal points, and put quotes around text with separators"
                )
            row.extend([""] * (width - len(row)))
        yield Scores(
            cells.numbers([row[columns.score] for row in block], columns.score_name, where),
            cells.bits([row[columns.included] for row in block], columns.included_name, where, way),
        )
        done += len(block)


def _row(file: str, done: int, place: int) -> str:
    return f"{file} row {done + place + 1}"
