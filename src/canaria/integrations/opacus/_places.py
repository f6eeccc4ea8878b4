"""Reading and writing the coordinates that carry canaries."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from canaria._core.errors import InputError
from canaria.integrations.opacus._internals import per_sample_gradients, waiting_batches
from canaria.training.accumulator import places


class Places:
    """`count` weights of a model, where `canaria.training.accumulator.places` puts them.

    `layers` says how many each parameter carries, in order.
    """

    def __init__(self, parameters: Sequence[Any], count: int) -> None:
        chosen = places([p.numel() for p in parameters], count)
        self._slices = [
            (parameter, some)
            for parameter, some in zip(parameters, chosen, strict=True)
            if some.stop > some.start
        ]
        self.layers = tuple(some.stop - some.start for _, some in self._slices)

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise."""
        if not all(parameter.requires_grad for parameter, _ in self._slices):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def accumulated(self) -> bool:
        """Whether per-sample gradients of several batches wait for one step."""
        return waiting_batches(self._slices[0][0])

    def read(self, attribute: str, out: Tensor) -> list[Tensor]:
        """Write `attribute` (such as "grad") at the places into `out`, and return it in pieces to change."""
        pieces = [_piece(parameter, attribute, chosen) for parameter, chosen in self._slices]
        torch.cat(pieces, out=out)
        return pieces

    def add(self, pieces: list[Tensor], values: Tensor, scale: float) -> None:
        """Add `scale` times the values to what was read."""
        for piece, part in zip(pieces, self._split(values), strict=True):
            piece.add_(part, alpha=scale)

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the per-sample gradient of these rows at the places."""
        for (parameter, chosen), part in zip(self._slices, self._split(values), strict=True):
            sample = per_sample_gradients(parameter)
            sample.view(len(sample), parameter.numel())[:, chosen][rows] = part.to(sample.dtype)

    def read_rows(self, weights: Tensor) -> Tensor:
        """The per-sample gradients at the places, summed over rows with these weights.

        They are summed in the precision of the weights, as Opacus does: under autocast they come in less.
        """
        parts = []
        for parameter, chosen in self._slices:
            sample = per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            parts.append(weights.to(parameter.dtype) @ flat[:, chosen].to(parameter.dtype))
        return torch.cat(parts).float()

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        return torch.split(values, list(self.layers), dim=-1)


def _piece(parameter: Tensor, attribute: str, chosen: slice) -> Tensor:
    """A view of these weights, in one call: small tensor calls are most of what an audit costs on a CPU."""
    whole: Tensor = getattr(parameter, attribute)
    if not whole.is_contiguous():
        whole = whole.contiguous()
        setattr(parameter, attribute, whole)
    size = chosen.stop - chosen.start
    return torch.as_strided(whole, (size,), (1,), whole.storage_offset() + chosen.start)
