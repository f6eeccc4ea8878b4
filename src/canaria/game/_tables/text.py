"""Text with a header, its cells separated by commas, semicolons or tabs."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import BinaryIO, Final

import numpy as np

from canaria._core.errors import InputError, shown
from canaria._core.membership import Membership
from canaria.game._tables import cells, fast
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import Columns, Wanted

_SEPARATORS: Final = (",", ";", "\t")
_BLOCK: Final = 1 << 23
"""Characters of a block, some 400,000 rows: starting pyarrow costs nothing, and memory stays small."""
_ROWS_AT_ONCE: Final = 500
"""Rows of the csv module. Python looks for garbage after 700 new lists; with 50,000 it takes 1.6 times as
long."""
_LONGEST_LINE: Final = 1 << 20
"""Characters. A compressed file without line ends would be read into memory as one line."""


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read a table of text, block by block."""
    with io.TextIOWrapper(stream, "utf-8-sig") as text:
        try:
            header = next((line for line in _lines(text, wanted.file) if line.strip()), "")
            names, separator = _header(header, wanted.file)
            body = _Body(file=wanted.file, separator=separator, columns=wanted.among(names), width=len(names))
            parts = list(body.parts(text))
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


@dataclass(kw_only=True)
class _Body:
    """Everything below the header; the rows read so far count in errors and fix how membership is written."""

    file: str
    separator: str
    columns: Columns
    width: int
    done: int = 0
    way: Membership = field(default_factory=Membership)

    def parts(self, text: io.TextIOWrapper) -> Iterator[Scores]:
        """Read block by block; from the first that is not plain, by the csv module to the end."""
        lines = _lines(text, self.file)
        while block := text.read(_BLOCK):
            block += next(lines, "")
            part = fast.parse(block, self.separator, self.columns, self.width, self.way)
            if part is None:
                # An open quote at the end of the block goes on in the next.
                yield from self._by_rows(chain(io.StringIO(block), lines))
                return
            self.done += len(part.scores)
            yield part

    def _by_rows(self, lines: Iterator[str]) -> Iterator[Scores]:
        rows = filter(None, csv.reader(lines, delimiter=self.separator, skipinitialspace=True, strict=True))
        while block := list(islice(rows, _ROWS_AT_ONCE)):
            if set(map(len, block)) != {self.width}:
                self._fill(block)
            scores, included = (
                [row[at] for row in block] for at in (self.columns.score, self.columns.included)
            )
            yield Scores(
                cells.numbers(scores, self.columns.score_name, self._where),
                cells.bits(included, self.columns.included_name, self._where, self.way),
            )
            self.done += len(block)

    def _fill(self, rows: list[list[str]]) -> None:
        """Add empty cells to rows that end early; refuse longer ones, whose cells may have moved."""
        for place, row in enumerate(rows):
            if len(row) > self.width:
                raise InputError(
                    f"{self._where(place)} has more cells than the header, {len(row)} instead of "
                    f"{self.width}; write decimal points, and put quotes around text with separators"
                )
            row.extend([""] * (self.width - len(row)))

    def _where(self, place: int) -> str:
        return f"{self.file} row {self.done + place + 1}"
