"""JSON: a row per line, an array of rows, or an object with a list for every column."""

import json
from collections.abc import Iterable
from functools import partial
from itertools import count
from typing import Any, BinaryIO

from canaria._core.errors import InputError, shown
from canaria.game._tables import cells
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import Wanted

_SHAPES = 'rows such as {"score": 0.5, "included": 1}, one per line or in an array, or {"score": [...], ...}'


def read(stream: BinaryIO, wanted: Wanted) -> Scores:
    """Read JSON of any of the three shapes."""
    text = stream.read().decode("utf-8-sig")
    lines = text.splitlines() if "\r" in text else text.split("\n")
    head = next((line for line in lines if line.strip()), "")
    if head.lstrip().startswith("{"):
        whole = _parsed(head, wanted.file, "")
        if isinstance(whole, dict) and not any(isinstance(value, list | dict) for value in whole.values()):
            return _lines(lines, wanted)
    whole = _parsed(text, wanted.file, "")
    if isinstance(whole, list):
        return _rows(whole, [f"{wanted.file} row {number}" for number in range(1, len(whole) + 1)], wanted)
    if isinstance(whole, dict):
        return _columns(whole, wanted)
    if head.lstrip().startswith("{"):
        return _lines(lines, wanted)
    raise InputError(f"{wanted.file} is not readable as JSON; write {_SHAPES}")


def _lines(lines: Iterable[str], wanted: Wanted) -> Scores:
    rows, places = [], []
    for number, line in zip(count(1), lines, strict=False):
        if line.strip():
            places.append(f"{wanted.file} line {number}")
            row = _parsed(line, wanted.file, f" line {number}")
            rows.append(row if isinstance(row, dict) else line)
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
    return cells.table(scores, included, columns, places.__getitem__)


def _columns(whole: dict[str, Any], wanted: Wanted) -> Scores:
    """An object of lists, or of objects with a value for every row, as pandas writes it."""
    if {"format", "evidence", "checksum"} <= set(whole):
        raise InputError(f"{wanted.file} is a result file, not scores: use canaria verify, report or compare")
    columns = wanted.among(list(whole))
    scores, included = (list(whole.values())[place] for place in (columns.score, columns.included))
    if isinstance(scores, dict) and isinstance(included, dict):
        if list(scores) != list(included):
            raise InputError(
                f"{wanted.file} must have the same rows in both columns, got other names of rows"
            )
        scores, included = list(scores.values()), list(included.values())
    elif not isinstance(scores, list) and not isinstance(included, list):
        scores, included = [scores], [included]
    if not isinstance(scores, list) or not isinstance(included, list):
        raise InputError(
            f"{wanted.file} must hold columns that are lists of the same length; write {_SHAPES}"
        )
    return cells.table(scores, included, columns, lambda place: f"{wanted.file} row {place + 1}")


def _parsed(text: str, file: str, where: str) -> Any:
    """The value that a text is, or None if it is none."""
    try:
        return json.loads(text, object_pairs_hook=partial(_once, file + where))
    except InputError:
        raise
    except (ValueError, RecursionError):
        return None


def _once(where: str, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object in which no name occurs twice, as no column of a CSV file may."""
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{where} must name everything once, got {shown(twice)} twice")
    return row
