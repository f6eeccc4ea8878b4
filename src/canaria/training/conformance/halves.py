"""Noise that was added in half precision, though sums come in single: it shows what it was added to.

The noise z and the sum y are rounded to p bits, and so is y + z. Where y + z is much smaller than y and z,
nothing is rounded away, so it lies on their coarse grid. Where y is small, z is small too, and the grid is
fine. A noisy sum that was rounded afterwards, which needs no privacy, is as fine as its own size permits,
whatever y is. The same holds for discrete noise, where all numbers are on a grid, and for sums of rounded
parts of which each has its noise, as of several workers. So small noisy sums must be on the grid as often
where y is large as where it is small. Where sums are several times the noise, small numbers are too few.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from scipy import stats

from canaria._core.arrays import Floats, Integers

_MOST_BITS: Final = 11
"""The bits of a number in float16; one in bfloat16 has 8."""
_SMALL: Final = 2.0**-5
"""Noisy sums below this many deviations are small."""
_QUIET: Final = 1 / 8
"""Clean sums below this many deviations are small. A grid of 2^-(p + 1) holds all noise above a quarter."""
_CHANCE: Final = 1e-7


class Halves:
    """Counts how many small noisy sums of a parameter are on the grid of the noise, if in half precision."""

    def __init__(self) -> None:
        self._all, self._on_grid = np.zeros(2, np.int64), np.zeros(2, np.int64)

    def add(self, noisy: Floats, clean: Floats, deviation: float) -> None:
        """Add the sums of a step with noise, before any scaling, and without it; noise has this deviation."""
        added = noisy != 0
        values, sums = np.abs(noisy[added]), np.abs(clean[added])
        if len(values) == 0 or not (deviation > 0 and np.isfinite(values).all()):
            return
        lowest, exponents = _lowest_bits(values)
        bits, finest = -lowest.min(), (exponents + lowest).min()
        if bits > _MOST_BITS:
            return
        unit = np.floor(np.log2(deviation))
        # Rounded afterwards, small sums have finer steps than the grid, unless float16 has none below 2^-24.
        if finest > unit - bits - 5:
            return
        small, quiet = values < _SMALL * deviation, sums < _QUIET * 2.0**unit
        on_grid = values % 2.0 ** (unit - bits - 1) == 0
        for place, where in enumerate((small & ~quiet, small & quiet)):
            self._all[place] += where.sum()
            self._on_grid[place] += on_grid[where].sum()

    def clear(self) -> bool:
        """Whether it is clear that noise was added in half precision."""
        # If those on the grid are chosen at random among all, this many are not near large sums.
        chance = stats.hypergeom.sf(self._on_grid[0] - 1, self._all.sum(), self._on_grid.sum(), self._all[0])
        return bool(chance < _CHANCE)


def steps_of(values: Floats) -> tuple[float, float]:
    """The steps in which these numbers are written, relative and absolute; 1 and inf for zeros.

    >>> steps_of(np.array([0.0, 0.75, -4.0]))
    (0.5, 0.25)
    """
    some = np.abs(values[(values != 0) & np.isfinite(values)])
    lowest, exponents = _lowest_bits(some)
    relative, absolute = lowest.min(initial=-1.0) + 1, (exponents + lowest).min(initial=np.inf)
    return float(2.0**relative), float(2.0**absolute)


def _lowest_bits(values: Floats) -> tuple[Floats, Integers]:
    """Where the last bit of each fraction is, as a logarithm, and the exponent of each number."""
    fractions, exponents = np.frexp(values)
    whole = (fractions * 2.0**53).astype(np.int64)
    return np.log2(whole & -whole) - 53, exponents  # the lowest bit of a whole number n is n & -n


def contradictions(parameters: Iterable[Halves]) -> tuple[str, ...]:
    """The fault, if it is clear in one of the parameters."""
    told = (
        "noise was added in half precision, so the last digits of a noisy sum show what it was added to, "
        "which leaks without limit: draw and add noise in single precision, and round afterwards"
    )
    return (told,) * any(one.clear() for one in parameters)
