"""Noise that was added in half precision, though sums come in single: it shows what it was added to.

The noise z and the sum y are rounded to p bits, and so is y + z. Where y + z is much smaller than z, nothing
is rounded away, so y + z lies on the coarse grid of z. A noisy sum that was rounded afterwards, which needs
no privacy, is as fine there as its own size permits. On a grid of equal steps, as of discrete noise, all
numbers lie: that is no fault either.
"""

from typing import Final

import numpy as np
from scipy import stats

from canaria._core.arrays import Floats

_BITS: Final = (8, 11)
"""The bits of a number in bfloat16 and float16."""
_SMALL: Final = 2.0**-5
"""Noisy sums below this many deviations are small. Rounded afterwards, they have steps of 2^-(p + 5)."""
_BY_CHANCE: Final = 1 / 16
"""So this share of them, at most, is on a grid of 2^-(p + 1), which holds noise above a quarter deviation."""
_ALL: Final = 0.98
"""A larger share means that the noise has no finer numbers, as discrete noise has none."""
_CHANCE: Final = 1e-9


class Halves:
    """Counts, over the first steps, how many small noisy sums lie on the grid of the noise."""

    def __init__(self) -> None:
        self._small = self._on_grid = 0
        self.open = True
        """Whether all numbers so far were of half precision, so that more may show something."""

    def add(self, noisy: Floats, deviation: float) -> None:
        """Add the noisy sums of a step, before any scaling; their noise has this deviation."""
        values = noisy[noisy != 0]
        self.open = len(values) > 0 and deviation > 0 and bool(np.isfinite(values).all())
        if not self.open:
            return
        fractions = np.frexp(values)[0]
        bits = next((bits for bits in _BITS if not (fractions * 2.0**bits % 1).any()), 0)
        self.open = bits > 0
        if self.open:
            unit = 2.0 ** np.floor(np.log2(deviation))
            small = values[np.abs(values) < _SMALL * unit]
            self._small += len(small)
            self._on_grid += int((small % (unit * 2.0 ** -(bits + 1)) == 0).sum())

    def contradictions(self) -> tuple[str, ...]:
        """The fault, if it is clear."""
        chance = float(stats.binom.sf(self._on_grid - 1, self._small, _BY_CHANCE))
        if not self.open or chance >= _CHANCE or self._on_grid > _ALL * self._small:
            return ()
        return (
            "noise was added in half precision, so the last digits of a noisy sum show what it was added to, "
            "which leaks without limit: draw and add noise in single precision, and round afterwards",
        )
