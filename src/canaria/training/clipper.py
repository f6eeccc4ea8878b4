"""A user's clipping function: it sums the audit's rows, and large gradients test whether it clips."""

import contextlib
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.training.canaries.designs import raw_norm
from canaria.training.conformance.clipping import PROBES, amplified
from canaria.training.leaves import Leaves

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
        shapes = self._leaves.shapes
        total = [np.zeros(shape) for shape in shapes]
        at_once = max(1, _MOST_NUMBERS // sum(self._leaves.sizes))
        for start in range(0, len(rows), at_once):
            some = rows[start : start + at_once]
            gradients = [np.zeros((len(some), *shape)) for shape in shapes]
            for number, row in enumerate(some):
                gradients[row.parameter].reshape(len(some), -1)[number, row.place] = row.gradient
            total = [one + more for one, more in zip(total, self._clipped(gradients), strict=True)]
        return total

    def tried(self) -> tuple[Floats, float]:
        """Measure the weight of large gradients after clipping: in each parameter, and in all together.

        Canaries alone are not enough: each lies in one parameter, so they cannot show that parameters are
        clipped separately, and those of a small parameter may all be excluded.
        """
        sizes = np.array(self._leaves.sizes)
        each = [raw_norm(self._norm) / math.sqrt(max(size, 1)) for size in sizes.tolist()]
        rows = [Row(number, slice(None), each[number]) for number in np.flatnonzero(sizes).tolist()]
        weights = _norms(self.sum_of(rows)) / self._norm
        # Large in every parameter, so that each would be clipped by itself. The mean of one row is a sum.
        whole = self._weight([raw_norm(self._norm) * math.sqrt(len(rows))] * 2) / 2
        if not (least := min(whole, *weights[sizes > 0])) >= _LIGHT:
            raise InputError(
                "clip must return the sum of gradients, each clipped to clip_norm as a whole; one weighed "
                f"only {least:.3g} of it. Return no mean and check clip_norm, or leave clip out"
            )
        return weights, whole

    def faults(self) -> tuple[str, ...]:
        """A gradient over all parameters that weighs more than the clip norm; empty if there is none."""
        weights = {}
        for size in PROBES:
            # A clipper may drop or refuse gradients of a size that it did not expect. Between the two probes
            # is a row of the usual size, which weighs one clip norm at most, so that no batch is empty then.
            with contextlib.suppress(Exception):
                probe = size * self._norm
                weights[size] = (self._weight([probe, raw_norm(self._norm), probe]) - 1) / 2
        known = {size: weight for size, weight in weights.items() if math.isfinite(weight)}
        return amplified(*max(known.items(), key=lambda one: one[1])) if known else ()

    def _weight(self, norms: Sequence[float]) -> float:
        """The norm of the clipped sum, in clip norms, of rows with these norms, alike in all parameters."""
        sizes, shapes = self._leaves.sizes, self._leaves.shapes
        each = [1 / math.sqrt(max(size, 1) * np.count_nonzero(sizes)) for size in sizes]
        rows = [
            np.multiply.outer(norms, np.full(shape, one)) for shape, one in zip(shapes, each, strict=True)
        ]
        return float(np.linalg.norm(_norms(self._clipped(rows)))) / self._norm

    def _clipped(self, gradients: list[Floats]) -> list[Floats]:
        return self._leaves.read(
            "what clip returns", self._clip(self._leaves.like(self._template, gradients))
        )


def _norms(arrays: list[Floats]) -> Floats:
    return np.array([float(np.linalg.norm(one)) for one in arrays])
