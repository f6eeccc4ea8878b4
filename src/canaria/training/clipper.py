"""A user's clipping function: it sums the audit's rows, and large gradients test whether it clips."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.training.canaries.designs import raw_norm
from canaria.training.leaves import Leaves, like

_LARGER: Final = (1e2, 1e4)
"""Multiples of 10 clip norms: sizes of test gradients that a clipper's author may not have expected."""
_MOST_NUMBERS: Final = 2**24
"""Rows are clipped in chunks of this many numbers (128 MB). Each row is as large as the model's gradient."""
_LIGHT: Final = 0.95
"""After clipping, a gradient far above the clip norm must weigh at least this share of it."""


class Row(NamedTuple):
    """A row whose gradient is constant in some weights of one parameter and 0 elsewhere."""

    parameter: int
    place: int | slice
    gradient: float


class Clipper:
    """A function that clips the gradients of rows, given along the first axis, and sums them.

    Args:
        clip: The function.
        leaves: The form of the parameters.
        clip_norm: The norm that it clips to.
        template: A sum of gradients in the framework and precision that the function expects.

    """

    def __init__(self, clip: Callable[[Any], Any], leaves: Leaves, clip_norm: float, template: Any) -> None:
        self._clip, self._leaves, self._norm, self._template = clip, leaves, clip_norm, template

    def sum_of(self, rows: Sequence[Row]) -> list[Floats]:
        """The clipped sum of these rows."""
        shapes = self._leaves.shapes
        total = [np.zeros(shape) for shape in shapes]
        at_once = max(1, _MOST_NUMBERS // sum(self._leaves.sizes))
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            gradients = [np.zeros((len(some), *shape)) for shape in shapes]
            for number, row in enumerate(some):
                gradients[row.parameter][number].reshape(-1)[row.place] = row.gradient
            total = [one + more for one, more in zip(total, self._clipped(gradients), strict=True)]
        return total

    def tried(self) -> tuple[Floats, float]:
        """Measure the weight of large gradients after clipping: in each parameter, and in all together.

        Canaries alone are not enough: each lies in one parameter, so they cannot show that parameters are
        clipped separately, and those of a small parameter may all be excluded. One size is not enough either:
        a clipper may let gradients pass that are larger than its author expected.
        """
        sizes = np.array(self._leaves.sizes)
        each = [raw_norm(self._norm) / math.sqrt(max(size, 1)) for size in sizes.tolist()]
        rows = [Row(number, slice(None), each[number]) for number in np.flatnonzero(sizes).tolist()]
        weights = _norms(self.sum_of(rows)) / self._norm
        whole = self._weight_at(each, 1.0)
        if not (least := min(whole, *weights[sizes > 0])) >= _LIGHT:
            raise InputError(
                "clip must return the sum of gradients, each clipped to clip_norm as a whole; one weighed "
                f"only {least:.3g} of it. Return no mean and check clip_norm, or leave clip out"
            )
        for times in _LARGER:
            # These gradients only show whether they pass unclipped. A clipper may drop or refuse them.
            with contextlib.suppress(Exception):
                weight = self._weight_at(each, times)
                whole = max(whole, weight if math.isfinite(weight) else 0.0)
        return weights, whole

    def _weight_at(self, each: Sequence[float], times: float) -> float:
        """The mean weight of two gradients over all parameters, one `times` as large as the other.

        There are two because the mean of a single gradient would equal its sum.
        """
        rows = [
            np.multiply.outer((1.0, times), np.full(shape, one))
            for shape, one in zip(self._leaves.shapes, each, strict=True)
        ]
        return float(np.linalg.norm(_norms(self._clipped(rows)))) / (2 * self._norm)

    def _clipped(self, gradients: list[Floats]) -> list[Floats]:
        return self._leaves.read("what clip returns", self._clip(like(self._template, gradients)))


def _norms(arrays: list[Floats]) -> Floats:
    return np.array([float(np.linalg.norm(one)) for one in arrays])
