"""Noise with too few distinct values: rounded to a grid, or generated from few seeds.

Two weights never get the same normal number, not even up to sign. If they do, the noise has fewer values than
it should, and anyone who knows these values can tell which rows were included: a sum that is not on the grid
of the noise contains a row. There are two tests (Theorem 36).

    near ties      The number of pairs of sizes |z| of single values that are closer than eta. For n
                   independent normal values its mean is n (n - 1) eta / sqrt(pi), and it is nearly
                   Poisson. Noise in half precision has far more such pairs.
    coincidences   Whether two noise tensors begin with the same three sizes, as they do if their generators
                   had the same seed. By chance, three sizes agree within 2e-5 with probability 1e-14.

Sums are rounded too, which puts z on a grid of its own. Its spacing is known: values with a wide spacing are
left out, the others get a random shift within it, and eta is several times the widest spacing that remains.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from scipy import stats

from canaria._core.arrays import Floats
from canaria.bounds.conformance import OPEN
from canaria.training.canaries.witnesses import Roles

FIRST: Final = 64
"""Single values are kept for this many steps, the first ones."""
_ETA: Final = 1e-5
"""The smallest distance that counts as a near tie. Generators make normal numbers from 2^23 uniform ones, so
even correct sizes are 3e-7 apart, which must be small compared to eta."""
_SPACINGS: Final = 8.0
"""Eta is at least this many spacings of the sums. Rounding then changes the mean by less than 0.2%."""
_WIDEST: Final = 1e-5
"""The widest spacing of sums, in units of the noise, for which values are used."""
_MOST: Final = 4096
_CROWDED: Final = 0.05
"""Upper limit for n eta. Above it, the number of near ties varies more than a Poisson number."""
_FEWEST: Final = 200
"""With fewer values, half precision would not show."""
_SAME: Final = 2e-5
"""Sizes that differ by less count as equal. The rounding of sums is smaller."""
_CHANCE: Final = 1e-5
"""Coincidences are reported if their probability by chance is below this."""


class Ties(NamedTuple):
    """The near ties: the number of pairs, its expectation, and the p-value."""

    pairs: int
    expected: float
    p_value: float


def usable(
    values: Floats, sums: Floats, rounding: tuple[float, float], roles: Roles, rng: np.random.Generator
) -> Floats:
    """The witness values that are fine enough for the test of near ties, as (value, spacing) rows.

    `values` are the noise at witnesses in the first steps, and `sums` what it was added to, in units of the
    stated noise. `rounding` is the spacing of numbers in the precision of the sums: relative to a number, and
    the least, in units of the stated noise.
    """
    values, sums = (part[:, roles.shaped].ravel() for part in (values, sums))
    # A noisy sum is rounded twice: when noise is added, and when it is divided by the batch size.
    spacing = np.maximum(2 * rounding[0] * (np.abs(sums) + np.abs(values)), rounding[1])
    best = np.argsort(spacing, kind="stable")[:_MOST]
    best = best[spacing[best] <= _WIDEST]
    shifted = values[best] + spacing[best] * (rng.random(len(best)) - 0.5)
    return np.column_stack([shifted, spacing[best]])


def near_ties(fine: Floats) -> Ties | None:
    """Test the result of `usable` for near ties; None if there are too few values.

    >>> rng = np.random.default_rng(0)
    >>> exact = rng.normal(size=4000)
    >>> rows = [np.column_stack([z, np.zeros(4000)]) for z in (exact, exact.astype(np.float16))]
    >>> [bool(near_ties(row).p_value < 1e-9) for row in rows]
    [False, True]
    """
    values, spacing = fine.T if fine.size else np.zeros((2, 0))
    eta = max(_ETA, _SPACINGS * float(spacing.max(initial=0.0)))
    sizes = np.abs(values[: int(_CROWDED / eta)])
    deviation = math.sqrt(float(np.mean(sizes**2))) if len(sizes) else 0.0
    if len(sizes) < _FEWEST or deviation == 0:
        return None
    # The law is that of the noise at its observed size. Other parts test whether the size is as stated.
    count = _pairs(sizes / deviation, eta)
    expected = len(sizes) * (len(sizes) - 1) * eta / math.sqrt(math.pi)
    return Ties(count, expected, float(stats.poisson.sf(count - 1, expected)))


def coincidences(firsts: Floats) -> int:
    """The number of pairs of noise tensors that begin alike, if above chance; else 0.

    So are the sums of noise over whole parameters, one row for each step, which no order of values changes.
    """
    sizes = np.abs(firsts)
    if sizes.shape[1] < 2:
        return 0  # one number is alike by chance
    sizes = sizes[(sizes > _SAME).all(axis=1)]  # values of missing noise would all agree
    pairs = len(sizes) * (len(sizes) - 1) / 2
    if pairs == 0:
        return 0
    # How often single sizes agree is counted, not computed: rounding of coarse sums raises it.
    alike = [_pairs(column, _SAME) / pairs for column in sizes.T]
    expected = pairs * math.prod(max(share, 2 * _SAME / math.sqrt(math.pi)) for share in alike)
    count = _all_alike(sizes) if expected < 1 else 0
    return count if stats.poisson.sf(count - 1, expected) < _CHANCE else 0


def _pairs(sizes: Floats, distance: float) -> int:
    """The number of pairs that are closer than a distance."""
    ordered = np.sort(sizes)
    beyond = np.searchsorted(ordered, ordered + distance, side="right")
    return int((beyond - np.arange(len(ordered)) - 1).sum())


def _all_alike(sizes: Floats) -> int:
    """The number of pairs of rows that agree in all three sizes, found by sorting on the first size."""
    ordered, found, apart = sizes[np.argsort(sizes[:, 0])], 0, 1
    while (near := np.flatnonzero(ordered[apart:, 0] - ordered[:-apart, 0] < _SAME)).size:
        found += int((np.abs(ordered[near + apart, 1:] - ordered[near, 1:]) < _SAME).all(axis=1).sum())
        apart += 1
    return found


def tie_cause(ties: Ties) -> tuple[str, str]:
    """The cause to report if the test of near ties fails, and its effect."""
    return (
        f"{ties.pairs} pairs of noise values nearly coincide where {ties.expected:.0f} are expected: noise "
        "is rounded, or drawn from few values",
        OPEN,
    )
