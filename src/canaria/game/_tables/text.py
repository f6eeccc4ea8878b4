"""Text with a header: separated by commas, semicolons, tabs, bars or spaces, whichever the header shows.

The file is read in blocks of whole lines. A block goes to a fast parser (see `fast`); one that the parser
refuses is read cell by cell, with the same result or an error that names the row. Quotes are taken off first
where they enclose single cells; a block with any other quote is read by Python's csv module.
"""

import copy
import csv
import io
import re
from collections.abc import Iterator
from typing import BinaryIO, Final

import numpy as np

from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown
from canaria._core.membership import Membership, UnknownWordError
from canaria.game._tables import cells, fast
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import ColumnError, Columns, Wanted
from canaria.game._tables.decimals import Decimals

_BLOCK: Final = 1 << 23
"""Bytes of a block: some 400,000 rows, so that starting a parser costs nothing and memory stays small."""
_SEPARATORS: Final = (",", ";", "\t", "|", " ")


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read a table of text."""
    blocks = _blocks(stream)
    first = next(blocks, b"")
    line, _, rest = first.partition(b"\n")
    told = re.fullmatch(rb'"?sep=(.)"?', line.strip())  # Excel's way to name the separator
    if told:
        line, _, rest = rest.partition(b"\n")
    names, separator = _header(line.decode(), wanted, (told[1].decode(),) if told else _SEPARATORS)
    return _Body(wanted, names, separator).read(rest, blocks)


def _blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Whole lines that end with line feeds, without a byte order mark or blank lines before the header."""
    left, started = b"", False
    while data := stream.read(_BLOCK):
        left += data
        cut = max(left.rfind(b"\n"), left.rfind(b"\r", 0, len(left) - 1)) + 1
        block, left = _with_line_feeds(left[:cut]), left[cut:]
        if not started:
            block = block.removeprefix(b"\xef\xbb\xbf").lstrip(b"\n ")
        started = started or bool(block)
        if block:
            yield block
    block = _with_line_feeds(left)
    if block := block if started else block.removeprefix(b"\xef\xbb\xbf").lstrip(b"\n "):
        yield block


def _with_line_feeds(block: bytes) -> bytes:
    return block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block


def _header(line: str, wanted: Wanted, separators: tuple[str, ...]) -> tuple[list[str], str]:
    """The names of the columns, and the separator: the one that shows the columns that are wanted."""
    line = line.strip("\n").removeprefix("#")  # `np.savetxt` writes its header as a comment
    if not line.strip():
        raise InputError(f"{wanted.file} must hold at least one row of scores, got none")
    found: list[tuple[list[str], str]] = []
    complaint: Exception | None = None
    for separator in separators:
        try:
            names = _names(line, separator)
            found.append((names, separator))
            wanted.among(names)
        except csv.Error as error:
            complaint = complaint or InputError(f"{wanted.file} is not readable as CSV: {error}")
        except ColumnError:
            continue
        else:
            return names, separator
    if complaint is not None and not found:
        raise complaint
    names, separator = max(found, key=lambda pair: len(pair[0]))
    _require_names(names, wanted)
    wanted.among(names)
    raise AssertionError("among() accepted what it had refused")


def _names(line: str, separator: str) -> list[str]:
    spaced = " ".join(line.split()) if separator == " " else line
    rows = csv.reader([spaced], delimiter=separator, skipinitialspace=True, strict=True)
    return [name.strip() for name in next(rows)]


def _require_names(names: list[str], wanted: Wanted) -> None:
    """Refuse a first line of numbers: a file without a header."""
    try:
        float(names[0].replace(",", "."))
    except ValueError:
        return
    raise InputError(
        f"{wanted.file} must start with the names of its columns, got {shown(names)}; add a first line such "
        "as score,included"
    )


class _Body:
    """Everything below the header; remembers what the rows have agreed on so far."""

    def __init__(self, wanted: Wanted, names: list[str], separator: str) -> None:
        self._file, self._separator, self._width = wanted.file, separator, len(names)
        self._columns: Columns = wanted.among(names)
        self._shape = fast.Shape(separator, len(names), self._columns.score, self._columns.included)
        self._way, self._decimals, self._rows = Membership(), Decimals(separator), 0

    def read(self, block: bytes, others: Iterator[bytes]) -> Scores:
        """Read one block after the other."""
        parts: list[Scores] = []
        while True:
            block = self._spaced(block)
            part = self._at_once(block)
            if part is None:
                part = self._by_cells(block, others)
            self._rows += len(part.scores)
            parts.append(part)
            following = next(others, None)
            if following is None:
                break
            block = following
        self._decimals.finish(self._file, self._columns.score_name)
        scores: Floats = np.concatenate([part.scores for part in parts])
        included: Hits = np.concatenate([part.included for part in parts])
        return Scores(scores, included)

    def _spaced(self, block: bytes) -> bytes:
        """Where spaces separate: one between two cells, none at either end of a line."""
        if self._separator != " ":
            return block
        return re.sub(rb"(?m)^ | $", b"", re.sub(rb"[ \t]+", b" ", block))

    def _at_once(self, block: bytes) -> Scores | None:
        """Parse a block without a loop in Python, or None if something in it is unusual."""
        if not block.isascii():
            block.decode()
        bare = fast.unquoted(block, self._separator)
        if bare is None or b"\0" in bare:
            return None
        return self._parsed(bare)

    def _parsed(self, block: bytes) -> Scores | None:
        swaps = False if self._separator == "," else self._decimals.swaps(block)
        if swaps is None:
            return None
        points = b"." in block
        parsed = fast.parse(block.replace(b",", b".") if swaps else block, self._shape)
        if parsed is None:
            return None
        way = copy.copy(self._way)
        try:
            known = np.array([way.read(word) for word in parsed.spellings], np.bool_)
        except UnknownWordError:
            return None
        if self._separator != "," and not self._decimals.settle(parsed.scores, commas=swaps, points=points):
            return None
        self._way = way
        return Scores(parsed.scores, known[parsed.codes] if len(known) else np.empty(0, np.bool_))

    def _by_cells(self, block: bytes, others: Iterator[bytes]) -> Scores:
        """Read a block cell by cell; if it ends within quotes, so do all others."""
        try:
            rows = list(self._split(block))
        except csv.Error as error:
            rest = b"".join(others) if "unexpected end of data" in str(error) else b""
            if not rest:
                raise InputError(f"{self._file} is not readable as CSV: {error}") from None
            return self._by_cells(block + self._spaced(rest), iter(()))
        scores = [
            self._decimals.read(
                self._cell(row, self._columns.score), self._columns.score_name, self._where, i
            )
            for i, row in enumerate(rows)
        ]
        words = [self._cell(row, self._columns.included) for row in rows]
        if self._separator != ",":
            words = [word and word.replace(",", ".") for word in words]
        included = cells.bits(words, self._columns.included_name, self._where, self._way)
        return Scores(np.array(scores, np.float64), included)

    def _split(self, block: bytes) -> Iterator[list[str]]:
        lines = io.StringIO(block.decode(), newline="")
        filled = filter(
            None, csv.reader(lines, delimiter=self._separator, skipinitialspace=True, strict=True)
        )
        for place, row in enumerate(filled):
            if len(row) > self._width:
                raise InputError(f"{self._where(place)} has more cells than the header{self._hint(row)}")
            yield row

    def _hint(self, row: list[str]) -> str:
        if self._separator != "," or not all(cell.strip().lstrip("+-").isdigit() for cell in row[:2]):
            return ""
        return "; if numbers have decimal commas, write points, or separate columns by semicolons"

    def _cell(self, row: list[str], place: int) -> str | None:
        return row[place] if place < len(row) else None

    def _where(self, place: int) -> str:
        return f"{self._file} row {self._rows + place + 1}"
