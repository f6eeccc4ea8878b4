"""The coordinates of a model that carry canaries, spread evenly over all its weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor


class Places:
    """`count` weights at equal distances in the parameters laid end to end, from `offset` on.

    Equal distances reach every large parameter and make reading and adding a strided slice, not a gather.
    """

    def __init__(self, parameters: Sequence[Any], count: int, offset: int) -> None:
        self.count = count
        self._slices: list[tuple[Any, slice, int]] = []
        stride, begin, placed = max(1, sum(p.numel() for p in parameters) // count), 0, 0
        for parameter in parameters:
            first = offset + placed * stride - begin
            size = min(count - placed, max(0, -(-(parameter.numel() - first) // stride)))
            if size > 0:
                chosen = slice(first, first + (size - 1) * stride + 1, stride)
                self._slices.append((parameter, chosen, size))
                placed += size
            begin += parameter.numel()

    def read(self, attribute: str) -> Tensor:
        """The values of `attribute` (such as "grad") of the parameters at the places."""
        parts = [getattr(p, attribute).reshape(-1)[chosen] for p, chosen, _ in self._slices]
        return torch.cat(parts).float()

    def add(self, attribute: str, values: Tensor) -> None:
        """Add to `attribute` of the parameters at the places."""
        for (parameter, chosen, _), part in zip(self._slices, self._split(values), strict=True):
            whole = getattr(parameter, attribute)
            if not whole.is_contiguous():
                whole = whole.contiguous()
                setattr(parameter, attribute, whole)
            whole.view(-1)[chosen].add_(part)

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the whole per-sample gradient of these rows."""
        for (parameter, chosen, _), part in zip(self._slices, self._split(values), strict=True):
            sample = parameter.grad_sample
            sample.view(len(sample), -1)[:, chosen][rows] = part.to(sample.dtype)

    def read_rows(self, weights: Tensor) -> Tensor:
        """The per-sample gradients at the places, summed over rows with these weights."""
        parts = []
        for parameter, chosen, _ in self._slices:
            sample = parameter.grad_sample
            parts.append(weights.to(sample.dtype) @ sample.reshape(len(sample), -1)[:, chosen])
        return torch.cat(parts).float()

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        return torch.split(values, [size for _, _, size in self._slices], dim=-1)
