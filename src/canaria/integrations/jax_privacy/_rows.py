"""Canary rows after the real ones: which canary, and which real row, an index stands for."""

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Integers
from canaria._core.errors import InputError


def rows_of(indices: npt.ArrayLike, real: int, canaries: int) -> tuple[Integers, Integers]:
    """For indices sampled from `real` rows and the canaries after them: which canary, and which real row."""
    drawn = np.asarray(indices, dtype=np.int64)
    rows = checks.integer("real", real, 1) + canaries
    if drawn.size and drawn.max() >= rows:
        raise InputError(
            f"indices must be below {rows}, {real} real rows and {canaries} canaries, got {drawn.max()}"
        )
    canary = drawn >= real
    return np.where(canary, drawn - real, -1), np.where(canary, drawn % real, drawn)
