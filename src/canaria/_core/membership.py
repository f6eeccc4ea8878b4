"""The ways to write which elements were included: 0/1, -1/+1, true/false, yes/no or in/out.

A column must use one of them throughout. "yes" after "1" suggests another column, or two concatenated files.
Guessing the meaning could change bits, so it is an error.
"""

import math
from typing import Final

import numpy as np

ALLOWED: Final = "0/1, -1/+1, true/false, yes/no or in/out"
_WORDS: Final = {
    "true": ("true/false", True),
    "false": ("true/false", False),
    "yes": ("yes/no", True),
    "no": ("yes/no", False),
    "in": ("in/out", True),
    "out": ("in/out", False),
}
_NUMBERS: Final = {1.0: ("", True), 0.0: ("0/1", False), -1.0: ("-1/+1", False)}
"""1 is in both ways of writing numbers. The other number decides which one it is."""


class UnknownWordError(ValueError):
    """Raised for a cell that does not say whether its element was included. The message is the reason."""


class Membership:
    """Reads cells one by one, and checks that they are all written in the same way.

    >>> way = Membership()
    >>> way.read("Yes"), way.read("no ")
    (True, False)
    """

    def __init__(self) -> None:
        self._way = ""
        self._first: object = None
        self._kind: type[str] | type[float] | None = None

    def read(self, cell: object) -> bool:
        """Whether the element was included. A refused cell does not change the state."""
        found = _meaning(cell)
        if found is None:
            raise UnknownWordError(f"must be {ALLOWED}, got {_quoted(cell)}")
        way, included = found
        kind = str if way in _WAYS_OF_WORDS else float
        if (self._kind not in (None, kind)) or (way and self._way and way != self._way):
            raise UnknownWordError(
                f"must keep to one of {ALLOWED}, got {_quoted(cell)} after {_quoted(self._first)}"
            )
        if self._kind is None or (way and not self._way):
            self._kind, self._way, self._first = kind, self._way or way, cell
        return included


_WAYS_OF_WORDS: Final = frozenset(way for way, _ in _WORDS.values())


def _meaning(cell: object) -> tuple[str, bool] | None:
    if isinstance(cell, bool | np.bool_):
        return "true/false", bool(cell)
    if isinstance(cell, bytes):
        cell = cell.decode("ascii", errors="replace")
    if isinstance(cell, str):
        word = cell.strip().lower()
        return _WORDS.get(word) or _NUMBERS.get(_number(word))
    if isinstance(cell, int | float | np.integer | np.floating):
        return _NUMBERS.get(float(cell)) if -1 <= cell <= 1 else None
    return None


def _number(word: str) -> float:
    """The value of a number written in plain ASCII; NaN for any other word."""
    try:
        return float(word) if word.isascii() and "_" not in word else math.nan
    except ValueError:
        return math.nan


def _quoted(cell: object) -> str:
    from canaria._core.errors import shown

    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return "nothing"
    return shown(cell.item() if isinstance(cell, np.generic) else cell)
