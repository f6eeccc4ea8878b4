"""Indices of canary rows, which follow the real ones."""

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Integers
from canaria._core.errors import InputError


def rows_of(indices: npt.ArrayLike, real: int, canaries: int, groups: int) -> tuple[Integers, Integers]:
    """Split indices sampled from `real` rows followed by the canaries into canaries and real rows.

    The sampler divides all rows into this many `groups` of equal size.
    """
    drawn = np.asarray(indices, dtype=np.int64)
    rows = checks.integer("real", real, 1) + canaries
    if rows % groups:
        raise InputError(
            f"rows and canaries together must be a multiple of the {groups} groups, got {rows}: the sampler "
            f"splits them evenly, and {rows % groups} would never take part; or use PartitionType.INDEPENDENT"
        )
    if drawn.size and drawn.max() >= rows:
        raise InputError(
            f"indices must be below {rows}, {real} real rows and {canaries} canaries, got {drawn.max()}"
        )
    canary = drawn >= real
    return np.where(canary, drawn - real, -1), np.where(canary, drawn % real, drawn)
