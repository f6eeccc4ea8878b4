"""Reading and writing the weights that carry canaries, and reading witnesses.

On a GPU a call costs more than what it computes. So parameters are laid end to end, in as few vectors as may
be, and all places are reached by one index into each.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria._core.errors import InputError
from canaria.integrations.opacus._internals import (
    flattened,
    per_sample_gradients,
    segment_sums,
    unflattened,
    waiting_batches,
)
from canaria.training.witnesses import Layout

_MOST_TOGETHER: Final = 2**26
"""So many weights are laid end to end at most, for the memory that a copy of them takes."""


class _Group(NamedTuple):
    """Parameters that are laid end to end in one vector, and the places in it.

    `reading` has indices into the vector and the slice of what is read that they fill, `carrying` those with
    canaries. `lengths` are the parameters' sizes if they are totalled.
    """

    parameters: list[Any]
    reading: list[tuple[Tensor, slice]]
    carrying: tuple[Tensor, slice]
    lengths: Tensor | None


class Places:
    """Weights of a model, where a layout puts canaries and witnesses.

    What is read has the canaries' coordinates first, then the witnesses, both in the order of the parameters.
    """

    def __init__(self, parameters: Sequence[Any], layout: Layout) -> None:
        self.layers, self.roles = layout.layers, layout.roles
        self.count = sum(self.layers)
        self.all = self.count + len(layout.roles.index)
        device = parameters[0].device
        self._carrying = [
            (parameter, torch.tensor(canaries, device=device))
            for parameter, canaries in zip(parameters, layout.canaries, strict=True)
            if len(canaries)
        ]
        numbers = np.concatenate(layout.coordinates)
        self._weights, self._folding = len(numbers), None
        if self._weights > self.count:
            each = 1 / np.sqrt(layout.spans[numbers])
            self._folding = (
                torch.tensor(numbers, device=device),
                torch.tensor(each, dtype=torch.float32, device=device),
            )
        self._groups = _grouped(parameters, layout, device)

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise."""
        if not all(parameter.requires_grad for group in self._groups for parameter in group.parameters):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def accumulated(self) -> bool:
        """Whether per-sample gradients of several batches wait for one step."""
        return waiting_batches(self._groups[0].parameters[0])

    def vectors(self, attribute: str) -> list[Tensor]:
        """A copy of what the parameters hold as `attribute` (such as "grad"), end to end."""
        return [flattened([getattr(p, attribute) for p in group.parameters]) for group in self._groups]

    def put(self, attribute: str, vectors: list[Tensor]) -> None:
        """Let the parameters hold a copy of such vectors as `attribute`, which others may write to."""
        for group, vector in zip(self._groups, vectors, strict=True):
            parts = unflattened(vector.clone(), group.parameters)
            for parameter, part in zip(group.parameters, parts, strict=True):
                setattr(parameter, attribute, part)

    def read(self, vectors: list[Tensor], out: Tensor) -> Tensor:
        """Write what such vectors have at all places into `out`."""
        if self._folding is None:
            return self._read(vectors, out)
        raw = self._read(vectors, out.new_empty(self._weights + self.all - self.count))
        out[: self.count] = self._folded(raw[: self._weights])
        out[self.count :] = raw[self._weights :]
        return out

    def _read(self, vectors: list[Tensor], out: Tensor) -> Tensor:
        for group, vector in zip(self._groups, vectors, strict=True):
            for index, where in group.reading:
                if vector.dtype == out.dtype:
                    torch.index_select(vector, 0, index, out=out[where])
                else:
                    out[where] = vector[index].to(out.dtype)
        return out

    def _folded(self, values: Tensor) -> Tensor:
        """The values along the coordinates, from those at the weights."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values.new_zeros(self.count).index_add_(0, numbers, values * each)

    def _unfolded(self, values: Tensor) -> Tensor:
        """The values at the weights, from those along the coordinates."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values[..., numbers] * each

    def totals(self, vectors: list[Tensor], out: Tensor) -> None:
        """Write the sums of such vectors over each parameter that is totalled into `out`."""
        parts = [
            segment_sums(vector, group.lengths)
            for group, vector in zip(self._groups, vectors, strict=True)
            if group.lengths is not None
        ]
        if parts:
            torch.cat(parts, out=out)

    def add(self, vectors: list[Tensor], values: Tensor, scale: float) -> Tensor:
        """Add `scale` times the values, one for each weight with canaries, to such vectors.

        What the weights have grown by is returned: rounding may have swallowed some.
        """
        grown = []
        for group, vector in zip(self._groups, vectors, strict=True):
            index, where = group.carrying
            before = vector[index]
            after = torch.add(before, values[where].to(vector.dtype), alpha=scale)
            vector.index_copy_(0, index, after)
            grown.append(after.sub_(before))
        return grown[0] if len(grown) == 1 else torch.cat([part.float() for part in grown])

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the per-sample gradient of these rows along the coordinates."""
        parts = torch.split(self._unfolded(values), [len(chosen) for _, chosen in self._carrying], dim=-1)
        for (parameter, chosen), part in zip(self._carrying, parts, strict=True):
            sample = per_sample_gradients(parameter)
            sample.view(len(sample), parameter.numel())[rows[:, None], chosen] = part.to(sample.dtype)

    def read_rows(self, weights: Tensor) -> Tensor:
        """The per-sample gradients along the coordinates, summed over rows with these weights.

        They are summed in the precision of the weights, as Opacus does: under autocast they come in less.
        """
        parts = []
        for parameter, chosen in self._carrying:
            sample = per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            parts.append(weights.to(parameter.dtype) @ flat[:, chosen].to(parameter.dtype))
        return self._folded(torch.cat(parts).float())


def _grouped(parameters: Sequence[Any], layout: Layout, device: torch.device) -> list[_Group]:
    """The parameters that have places, those of one precision together, and the places in each vector."""
    members: list[list[int]] = []
    size = 0
    for place, parameter in enumerate(parameters):
        read = len(layout.canaries[place]) + len(layout.witnesses[place])
        if read == 0 and place not in layout.roles.whole:
            continue
        size += parameter.numel()
        if not members or parameter.dtype != parameters[members[-1][-1]].dtype or size > _MOST_TOGETHER:
            members.append([])
            size = parameter.numel()
        members[-1].append(place)
    groups, filled = [], [0, sum(map(len, layout.canaries))]
    for some in members:
        starts = np.cumsum([0, *(parameters[place].numel() for place in some)])
        reading = []
        for kind, places in enumerate((layout.canaries, layout.witnesses)):
            found = np.concatenate(
                [start + places[place] for start, place in zip(starts, some, strict=False)]
            )
            where = slice(filled[kind], filled[kind] + len(found))
            reading.append((torch.tensor(found, device=device), where))
            filled[kind] = where.stop
        whole = np.isin(some, layout.roles.whole).all()
        lengths = torch.tensor(np.diff(starts), device=device) if whole else None
        carrying = reading[0]
        if len(members) == 1:
            reading = [(torch.cat([index for index, _ in reading]), slice(0, filled[1]))]
        groups.append(_Group([parameters[place] for place in some], reading, carrying, lengths))
    return groups
