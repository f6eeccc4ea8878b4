"""Reading and writing the weights that carry canaries, and reading witnesses."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Integers
from canaria._core.errors import InputError
from canaria.integrations.opacus._internals import per_sample_gradients, waiting_batches
from canaria.training.witnesses import Layout


class Places:
    """Weights of a model, where a layout puts canaries and witnesses.

    What is read has the canaries' coordinates first, then the witnesses, both in the order of the parameters.
    """

    def __init__(self, parameters: Sequence[Any], layout: Layout) -> None:
        self.layers, self.roles = layout.layers, layout.roles
        self.count = sum(self.layers)
        device = parameters[0].device
        self._parameters: list[tuple[Any, Tensor]] = []
        self._carrying: list[tuple[Any, Tensor]] = []
        first = 0
        carrying: list[Integers] = []
        watching: list[Integers] = []
        for parameter, canaries, witnesses in zip(parameters, layout.canaries, layout.witnesses, strict=True):
            both = np.concatenate([canaries, witnesses])
            if len(both) == 0:
                continue
            self._parameters.append((parameter, torch.tensor(both, device=device)))
            if len(canaries):
                self._carrying.append((parameter, torch.tensor(canaries, device=device)))
            positions = first + np.arange(len(both))
            carrying.append(positions[: len(canaries)])
            watching.append(positions[len(canaries) :])
            first += len(both)
        self._order = torch.tensor(np.concatenate([*carrying, *watching]), device=device)
        self._read = torch.empty(first, device=device)

    @property
    def all(self) -> int:
        """The number of coordinates with canaries, and of witnesses."""
        return len(self._read)

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise."""
        if not all(parameter.requires_grad for parameter, _ in self._parameters):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def accumulated(self) -> bool:
        """Whether per-sample gradients of several batches wait for one step."""
        return waiting_batches(self._parameters[0][0])

    def read(self, attribute: str, out: Tensor) -> Tensor:
        """Write `attribute` (such as "grad") at all places into `out`."""
        first = 0
        for parameter, chosen in self._parameters:
            part = self._read[first : first + len(chosen)]
            whole = _flat(parameter, attribute)
            if whole.dtype == part.dtype:
                torch.index_select(whole, 0, chosen, out=part)
            else:
                part.copy_(whole[chosen])
            first += len(chosen)
        return torch.index_select(self._read, 0, self._order, out=out)

    def add(self, attribute: str, values: Tensor, scale: float) -> None:
        """Add `scale` times the values, one for each coordinate with canaries, to `attribute`."""
        for (parameter, chosen), part in zip(self._carrying, self._split(values), strict=True):
            whole = _flat(parameter, attribute)
            whole.index_add_(0, chosen, part.to(whole.dtype), alpha=scale)

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the per-sample gradient of these rows at the canaries."""
        for (parameter, chosen), part in zip(self._carrying, self._split(values), strict=True):
            sample = per_sample_gradients(parameter)
            sample.view(len(sample), parameter.numel())[rows[:, None], chosen] = part.to(sample.dtype)

    def read_rows(self, weights: Tensor) -> Tensor:
        """The per-sample gradients at the canaries, summed over rows with these weights.

        They are summed in the precision of the weights, as Opacus does: under autocast they come in less.
        """
        parts = []
        for parameter, chosen in self._carrying:
            sample = per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            parts.append(weights.to(parameter.dtype) @ flat[:, chosen].to(parameter.dtype))
        return torch.cat(parts).float()

    def _split(self, values: Tensor) -> tuple[Tensor, ...]:
        return torch.split(values, list(self.layers), dim=-1)


def _flat(parameter: Tensor, attribute: str) -> Tensor:
    """All weights of a parameter in a row, as a view."""
    whole: Tensor = getattr(parameter, attribute)
    if not whole.is_contiguous():
        whole = whole.contiguous()
        setattr(parameter, attribute, whole)
    return whole.view(-1)
