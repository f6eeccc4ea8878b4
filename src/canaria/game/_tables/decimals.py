"""Decimal commas, as many European programs write them where the separator is not a comma.

`0,5` is a half, and `1,234.5` holds a thousands separator. `1,234` alone may be either: a column in which
every comma looks like that is refused, and so is a column that mixes commas and points.
"""

import re
from typing import Final

import numpy as np

from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria.game._tables.cells import Where, number

_LIKE_THOUSANDS: Final = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.ASCII)
_HOW_TO_WRITE: Final = "write numbers with a decimal point and without thousands separators"


class Decimals:
    """Remembers which decimal mark the scores of a file have used so far."""

    def __init__(self, separator: str) -> None:
        self._mark = "." if separator == "," else ""
        self._proved = False

    def swaps(self, block: bytes) -> bool | None:
        """Whether commas of a block may be read as points; None if only a look at every cell can tell."""
        if b"," not in block:
            return False
        return None if b"." in block or self._mark == "." else True

    def settle(self, scores: Floats, *, commas: bool, points: bool) -> bool:
        """Whether numbers that were parsed at once leave no doubt about the marks that were in their text."""
        if commas and not self._proved:
            thousands = np.abs(scores) * 1000
            off = np.abs(thousands - np.rint(thousands)) > 1e-6 * np.maximum(1, thousands)
            if not (off | ((scores != 0) & (np.abs(scores) < 1))).any():
                return False
            self._mark, self._proved = ",", True
        elif points and not commas:
            if self._mark == "," or (not self._mark and (scores == np.rint(scores)).all()):
                return False
            self._mark = "."
        return True

    def read(self, cell: str | None, name: str, where: Where, place: int) -> float:
        """Read one score."""
        text = cell or ""
        if "." in text and self._mark == ",":
            raise InputError(
                f"{where(place)}: {name} must keep to one decimal mark, got {shown(cell)} after commas; "
                f"{_HOW_TO_WRITE}"
            )
        if text.count(",") == 1 and "." not in text and self._mark != ".":
            value = number(text.replace(",", "."), name, where, place)
            self._mark = ","
            self._proved = self._proved or not _LIKE_THOUSANDS.fullmatch(text.strip())
            return value
        if "." in text:
            self._mark = "."
        return number(cell, name, where, place)

    def finish(self, file: str, name: str) -> None:
        """Refuse a column in which every comma may separate thousands."""
        if self._mark == "," and not self._proved:
            raise InputError(
                f"{file}: {name} has commas as in '1,234', which is 1234 or 1.234; {_HOW_TO_WRITE}"
            )
