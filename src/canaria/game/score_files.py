"""Reading scores from files: CSV with a header, or JSON lines, with the columns `score` and `included`."""

import csv
import io
import json
import math
import re
import sys
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import numpy as np

from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown

_NUMBER: Final = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WORDS: Final = {"0": 0, "1": 1, "false": 0, "true": 1}


class Scores(NamedTuple):
    """Scores, and which elements were included.

    Attributes:
        scores: One score per element.
        included: Whether the element was included.

    """

    scores: Floats
    included: Hits


def read_scores(source: str | Path) -> Scores:
    r"""Read a file of scores.

    The file is CSV with a header, or JSON lines. It has a column `score` with finite numbers and a column
    `included` with 0, 1, true or false.

    Args:
        source: The path of the file; `-` is standard input.

    Returns:
        The scores, and which elements were included.

    Raises:
        InputError: If the file cannot be read, has no rows, or holds anything that is not allowed.

    Example:
        >>> import tempfile, pathlib
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "scores.csv"
        >>> _ = path.write_text("score,included\n1.5,1\n-0.5,false\n")
        >>> read_scores(path)
        Scores(scores=array([ 1.5, -0.5]), included=array([ True, False]))

    """
    scores, included = array("d"), bytearray()
    name = "standard input" if str(source) == "-" else str(source)
    with _opened(source, name) as stream:
        for where, row in _rows(stream, name):
            scores.append(_score(row.get("score"), where))
            included.append(_included(row.get("included"), where))
    if not scores:
        raise InputError(f"{name} must hold at least one row of scores, got none")
    return Scores(np.frombuffer(scores, dtype=np.float64), np.frombuffer(included, dtype=np.bool_))


@contextmanager
def _opened(source: str | Path, name: str) -> Iterator[TextIO]:
    try:
        if str(source) == "-":
            if sys.stdin is None:
                raise InputError("standard input is closed")
            yield io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline="")
        else:
            with Path(source).open(encoding="utf-8-sig", newline="") as stream:
                yield stream
    except OSError as error:
        raise InputError(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{name} must be UTF-8 text, got bytes that are not") from None
    except csv.Error as error:
        raise InputError(f"{name} is not readable as CSV: {error}") from None
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{shown(name)} cannot be opened: {error}") from None


def _rows(stream: TextIO, source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    first = stream.readline()
    while first and not first.strip():
        first = stream.readline()
    lines = _chained(first, stream)
    if first.lstrip().startswith("{"):
        yield from _json_rows(lines, source)
    elif first:
        yield from _csv_rows(lines, source)


def _chained(first: str, stream: TextIO) -> Iterator[str]:
    yield first
    yield from stream


def _csv_rows(lines: Iterator[str], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    reader = csv.DictReader(lines, skipinitialspace=True, strict=True)
    names = [name.strip() for name in reader.fieldnames or ()]
    for wanted in ("score", "included"):
        if names.count(wanted) != 1:
            raise InputError(
                f"{source} must have one column named {wanted!r} in its header, got {shown(names)}"
            )
    reader.fieldnames = names
    for number, row in enumerate(reader, start=1):
        if None in row:
            raise InputError(f"{source} row {number} has more cells than the header")
        yield f"{source} row {number}", row


def _json_rows(lines: Iterator[str], source: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{source} line {number}"
        try:
            row = json.loads(line, object_pairs_hook=partial(_once, where))
        except InputError:
            raise
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise InputError(f"{where} must be a JSON object, got {shown(line)}")
        yield where, row


def _once(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name occurs twice, as no column of a CSV file may."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where} must name everything once, got {shown(twice)} twice")
    return row


def _score(value: str | float | None, where: str) -> float:
    number = math.nan
    written = isinstance(value, str) and _NUMBER.fullmatch(value.strip())
    if written or (isinstance(value, int | float) and not isinstance(value, bool)):
        try:
            number = float(value or 0)
        except OverflowError:
            number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{where}: score must be a finite number, got {shown(value)}")
    return number


def _included(value: object, where: str) -> int:
    word = str(value).strip().lower()
    if isinstance(value, str | bool | int) and word in _WORDS:
        return _WORDS[word]
    raise InputError(f"{where}: included must be 0, 1, true or false, got {shown(value)}")
