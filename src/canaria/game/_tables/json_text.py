"""JSON: a row per line, a list of rows, or an object with a list for every column."""

import io
import json
from functools import partial
from typing import Any, BinaryIO

from canaria._core.errors import InputError, shown
from canaria.game._tables import cells
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import Wanted
from canaria.game._tables.streams import whole

_SHAPES = 'rows such as {"score": 0.5, "included": 1}, one per line or in a list, or {"score": [...], ...}'


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read JSON of any of the three shapes."""
    text = whole(stream, wanted.file).decode("utf-8-sig")
    try:
        found = _parsed(text, wanted.file)
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":  # a first value that ends before the text does: JSON lines
            return _lines(text, wanted)
        found = None
    if isinstance(found, list):
        return _rows(found, [f"{wanted.file} row {number}" for number in range(1, len(found) + 1)], wanted)
    if isinstance(found, dict):
        return _columns(found, wanted) if _has_lists(found) else _lines(text, wanted)
    raise InputError(f"{wanted.file} is not readable as JSON; write {_SHAPES}")


def _lines(text: str, wanted: Wanted) -> Scores:
    rows, places = [], []
    # `splitlines` would also split at characters that JSON allows within a string.
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        if line.strip():
            places.append(f"{wanted.file} line {number}")
            try:
                rows.append(_parsed(line, places[-1]))
            except json.JSONDecodeError:
                rows.append(line)
    return _rows(rows, places, wanted)


def _rows(rows: list[Any], places: list[str], wanted: Wanted) -> Scores:
    for row, place in zip(rows, places, strict=True):
        if not isinstance(row, dict):
            raise InputError(f"{place} must be a JSON object, got {shown(row)}")
    if not rows:
        raise InputError(f"{wanted.file} must hold at least one row of scores, got none")
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = wanted.among(names)
    scores, included = ([row.get(names[at]) for row in rows] for at in (columns.score, columns.included))
    return cells.table(scores, included, columns, wanted.file, places.__getitem__)


def _columns(found: dict[str, Any], wanted: Wanted) -> Scores:
    if {"format", "evidence", "checksum"} <= set(found):
        raise InputError(f"{wanted.file} is a result file, not scores: use canaria verify, report or compare")
    columns = wanted.among(list(found))
    scores, included = (list(found.values())[place] for place in (columns.score, columns.included))
    if not isinstance(scores, list) or not isinstance(included, list):
        raise InputError(f"{wanted.file} must hold a list for each column; write {_SHAPES}")
    return cells.table(scores, included, columns, wanted.file)


def _has_lists(found: dict[str, Any]) -> bool:
    return any(isinstance(value, list | dict) for value in found.values())


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text, object_pairs_hook=partial(_once, where))
    except (InputError, json.JSONDecodeError):
        raise
    except (RecursionError, ValueError):  # ValueError: an integer of thousands of digits
        raise InputError(f"{where} is nested too deeply or has too long numbers; write {_SHAPES}") from None


def _once(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name occurs twice: Python would silently take the last of them."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where} must name everything once, got {shown(twice)} twice")
    return row
