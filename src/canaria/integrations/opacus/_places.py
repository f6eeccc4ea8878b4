"""The coordinates of a model that carry canaries, spread over all its parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from canaria._core.errors import InputError


class Places:
    """`count` weights, in every parameter in proportion to its size, small ones not left out.

    Within a parameter they lie side by side, from a random weight on, so that reading and adding is a slice,
    not a gather. `layers` says how many each parameter carries, in order.
    """

    def __init__(self, parameters: Sequence[Any], count: int, seed: int) -> None:
        self.count = count
        sizes = [p.numel() for p in parameters]
        self._slices: list[tuple[Any, slice, int]] = []
        for parameter, share in zip(parameters, shares(sizes, count), strict=True):
            if share:
                first = seed % (parameter.numel() - share + 1)
                self._slices.append((parameter, slice(first, first + share), share))
        self.layers = tuple(share for _, _, share in self._slices)

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise."""
        if not all(parameter.requires_grad for parameter, _, _ in self._slices):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def accumulated(self) -> bool:
        """Whether per-sample gradients of several batches wait for one step."""
        return isinstance(getattr(self._slices[0][0], "grad_sample", None), list)

    def read(self, attribute: str, out: Tensor) -> list[Tensor]:
        """Write `attribute` (such as "grad") at the places into `out`, and return it in pieces to change."""
        pieces = [_piece(parameter, attribute, chosen) for parameter, chosen, _ in self._slices]
        torch.cat(pieces, out=out)
        return pieces

    def add(self, pieces: list[Tensor], values: Tensor, scale: float) -> None:
        """Add `scale` times the values to what was read."""
        for piece, part in zip(pieces, self._split(values), strict=True):
            piece.add_(part, alpha=scale)

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the per-sample gradient of these rows at the places."""
        for (parameter, chosen, _), part in zip(self._slices, self._split(values), strict=True):
            sample = parameter.grad_sample
            sample.view(len(sample), parameter.numel())[:, chosen][rows] = part.to(sample.dtype)

    def read_rows(self, weights: Tensor) -> Tensor:
        """The per-sample gradients at the places, summed over rows with these weights.

        They are summed in the precision of the weights, as Opacus does: under autocast they come in less.
        """
        parts = []
        for parameter, chosen, _ in self._slices:
            sample = parameter.grad_sample
            flat = sample.reshape(len(sample), parameter.numel())
            parts.append(weights.to(parameter.dtype) @ flat[:, chosen].to(parameter.dtype))
        return torch.cat(parts).float()

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        return torch.split(values, list(self.layers), dim=-1)


def _piece(parameter: Any, attribute: str, chosen: slice) -> Tensor:
    """A view of these weights, in one call: small tensor calls are most of what an audit costs on a CPU."""
    whole: Tensor = getattr(parameter, attribute)
    if not whole.is_contiguous():
        whole = whole.contiguous()
        setattr(parameter, attribute, whole)
    size = chosen.stop - chosen.start
    return torch.as_strided(whole, (size,), (1,), whole.storage_offset() + chosen.start)


def shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many of `count` places each of these sizes gets: a floor for the small, then in proportion.

    >>> shares([900, 90, 10], 100)
    [78, 14, 8]
    >>> shares([3, 5], 8)
    [3, 5]
    """
    wholes = np.array(sizes, dtype=np.int64)
    given = np.minimum(wholes, count // (4 * len(wholes)))
    while given.sum() < count:
        room = wholes - given
        more = np.minimum(room, np.floor(room * ((count - given.sum()) / room.sum())).astype(np.int64))
        if more.sum() == 0:
            largest = np.argsort(-room, kind="stable")[: count - int(given.sum())]
            more[largest[room[largest] > 0]] = 1
        given = given + more
    return [int(share) for share in given]
