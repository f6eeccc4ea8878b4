"""Parsing a block of plain text without a loop in Python: pyarrow where it is installed, NumPy otherwise.

Both refuse whatever is unusual, and both give the same numbers: correctly rounded doubles. A block that is
refused is read cell by cell, which is slow and says exactly what is wrong with which row.
"""

from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats, Integers

_WIDEST: Final = 32
"""Bytes of a cell that says who was included; `np.savetxt` writes a 1 in 24."""
_MOST_SPELLINGS: Final = 8
"""A column of 0/1 or of words has two, or a few more if people typed it; any other column has many."""


class Shape(NamedTuple):
    """How the text is laid out: its separator, how many columns it has, and the places of the two we want."""

    separator: str
    width: int
    score: int
    included: int


class Parsed(NamedTuple):
    """Scores, the different spellings of who was included, and for every row the place of its spelling."""

    scores: Floats
    spellings: list[str]
    codes: Integers


@cache
def _pyarrow() -> Any:
    """The package, or None if it is not installed."""
    try:
        import pyarrow.csv
    except ImportError:
        return None
    return pyarrow


def unquoted(block: bytes, separator: str) -> bytes | None:
    """Take quotes off that enclose whole cells and nothing special; None if there are others.

    Quotes are paired in their order. If each pair has the edges of a cell around it, and no edge inside, then
    any reader of CSV pairs them in the same way.
    """
    if b'"' not in block:
        return block
    letters = np.frombuffer(b"\n" + block + b"\n", np.uint8)
    edges = (letters == ord("\n")) | (letters == ord(separator))
    quotes = np.flatnonzero(letters == ord('"'))
    if len(quotes) % 2:
        return None
    before = np.cumsum(edges, dtype=np.int32)
    opening, closing = quotes[::2], quotes[1::2]
    sound = edges[opening - 1] & edges[closing + 1] & (before[opening] == before[closing])
    return letters[letters != ord('"')][1:-1].tobytes() if sound.all() else None


def parse(block: bytes, shape: Shape) -> Parsed | None:
    """Parse complete lines without quotes, or None if anything is unusual."""
    if not block.strip(b"\n"):
        return Parsed(np.empty(0), [], np.empty(0, np.int64))
    pyarrow = _pyarrow()
    parsed = _by_numpy(block, shape) if pyarrow is None else _by_pyarrow(pyarrow, block, shape)
    return parsed if parsed is not None and np.isfinite(parsed.scores).all() else None


def _by_pyarrow(pyarrow: Any, block: bytes, shape: Shape) -> Parsed | None:
    csv = pyarrow.csv
    score, included = f"c{shape.score}", f"c{shape.included}"
    word = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    try:
        table = csv.read_csv(
            pyarrow.BufferReader(block),
            csv.ReadOptions(column_names=[f"c{place}" for place in range(shape.width)]),
            csv.ParseOptions(delimiter=shape.separator, quote_char=False),
            csv.ConvertOptions(
                column_types={score: pyarrow.float64(), included: word},
                include_columns=[score, included],
                null_values=[],
                auto_dict_max_cardinality=_MOST_SPELLINGS,
            ),
        )
    except pyarrow.ArrowException:
        return None
    words = table[included].unify_dictionaries()
    spellings = words.chunk(0).dictionary.to_pylist() if words.num_chunks else []
    if len(spellings) > _MOST_SPELLINGS or words.null_count or table[score].null_count:
        return None
    codes = [chunk.indices.to_numpy() for chunk in words.chunks]
    return Parsed(table[score].to_numpy(), spellings, np.concatenate([np.empty(0, np.int32), *codes]))


def _by_numpy(block: bytes, shape: Shape) -> Parsed | None:
    kinds = {shape.score: "f8", shape.included: f"S{_WIDEST}"}
    # Columns that nobody asked for are cut to one letter, but they are counted: a row that is longer than the
    # header is an error, as it is for pyarrow.
    dtype = np.dtype([(f"c{place}", kinds.get(place, "U1")) for place in range(shape.width)])
    try:
        rows = np.loadtxt(
            block.decode().split("\n"), dtype, delimiter=shape.separator, comments=None, ndmin=1
        )
    except (ValueError, OverflowError):
        return None
    return _with_codes(rows[f"c{shape.score}"].copy(), rows[f"c{shape.included}"].copy())


def _with_codes(scores: Floats, words: Any) -> Parsed | None:
    """Number the spellings by comparing with one after the other, faster than sorting for so few.

    Cells are compared as four integers of eight bytes, which is ten times as fast as comparing strings.
    """
    spellings: list[str] = []
    codes = np.full(len(words), -1, np.int64)
    parts = words.view(np.uint64).reshape(-1, _WIDEST // 8).T.copy()
    place = 0
    while codes[place] < 0 and len(spellings) < _MOST_SPELLINGS:
        if len(words[place]) == _WIDEST:  # it may have been cut
            return None
        codes[np.logical_and.reduce([part == part[place] for part in parts])] = len(spellings)
        spellings.append(words[place].decode("latin-1"))
        place = int(np.argmin(codes))
    return Parsed(scores, spellings, codes) if codes[place] >= 0 else None
