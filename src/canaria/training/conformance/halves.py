"""Noise that was added in half precision, though sums come in single: it shows what it was added to.

The noise z and the sum y are rounded to p bits, and so is y + z. Where y + z is much smaller than z, nothing
is rounded away, so y + z lies on the coarse grid of z. A noisy sum that was rounded afterwards, which needs
no privacy, is as fine there as its own size permits. On a grid of equal steps, as of discrete noise, all
numbers lie: that is no fault either. Where sums are several times the noise, small numbers are too few
to tell.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from scipy import stats

from canaria._core.arrays import Floats

_MOST_BITS: Final = 11
"""The bits of a number in float16; one in bfloat16 has 8."""
_SMALL: Final = 2.0**-5
"""Noisy sums below this many deviations are small. Rounded afterwards, they have steps of 2^-(p + 5)."""
_BY_CHANCE: Final = 1 / 16
"""So this share of them, at most, is on a grid of 2^-(p + 1), which holds noise above a quarter deviation."""
_ALL: Final = 0.98
"""A larger share means that the noise has no finer numbers, as discrete noise has none."""
_CHANCE: Final = 1e-9


class Halves:
    """Counts how many small noisy sums of a parameter are on the grid of the noise, if in half precision."""

    def __init__(self) -> None:
        self._small = self._on_grid = 0
        # The finest step of all numbers over that of small ones that were rounded afterwards, as a logarithm.
        self._coarse = np.inf

    def add(self, noisy: Floats, deviation: float) -> None:
        """Add the noisy sums of a step, before any scaling; their noise has this deviation."""
        values = np.abs(noisy[noisy != 0])
        if len(values) == 0 or not (deviation > 0 and np.isfinite(values).all()):
            return
        fractions, exponents = np.frexp(values)
        if (fractions * 2.0**_MOST_BITS % 1).any():
            return  # single precision
        # The lowest bit of a whole number n is n & -n.
        whole = (fractions * 2.0**_MOST_BITS).astype(np.int64)
        lowest = np.log2(whole & -whole) - _MOST_BITS
        bits, finest = -lowest.min(), (exponents + lowest).min()
        unit = np.floor(np.log2(deviation))
        self._coarse = min(self._coarse, finest - (unit - bits - 5))
        small = values[values < _SMALL * 2.0**unit]
        self._small += len(small)
        self._on_grid += int((small % 2.0 ** (unit - bits - 1) == 0).sum())

    def clear(self) -> bool:
        """Whether it is clear that noise was added in half precision."""
        chance = float(stats.binom.sf(self._on_grid - 1, self._small, _BY_CHANCE))
        # With larger steps only, as those of float16 below 2^-14, nothing is known.
        return self._coarse <= 0 and chance < _CHANCE and self._on_grid <= _ALL * self._small


def contradictions(parameters: Iterable[Halves]) -> tuple[str, ...]:
    """The fault, if it is clear in one of the parameters."""
    told = (
        "noise was added in half precision, so the last digits of a noisy sum show what it was added to, "
        "which leaks without limit: draw and add noise in single precision, and round afterwards"
    )
    return (told,) * any(one.clear() for one in parameters)
