"""Reading and writing the weights that carry canaries, and reading witnesses.

A call costs more than what it computes, on a GPU above all. So the sums of all parameters of one precision
are held end to end, in one vector, and all places are reached by one index into it.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Integers
from canaria._core.errors import InputError
from canaria.integrations.opacus._internals import (
    CLIPPED_SUM,
    GRADIENT,
    add_each,
    copy_each,
    per_sample_gradients,
    segment_sums,
    waiting_batches,
)
from canaria.training.witnesses import Layout

_BLOCK: Final = 512
"""Parameters begin at multiples of this in a vector: blocks can be summed at once."""


class _Vector:
    """Parameters of one precision, end to end, and the places among them.

    `canaries` and `witnesses` are indices into the vector; `at_canaries` and `at_witnesses` say which of all
    the weights with canaries, and of all witnesses, these are.
    """

    def __init__(self, parameters: Sequence[Any], members: list[int], layout: Layout) -> None:
        self.parameters = [parameters[place] for place in members]
        lengths = np.array([parameter.numel() for parameter in self.parameters])
        blocks = -(-lengths // _BLOCK)
        starts = _BLOCK * (np.cumsum(blocks) - blocks)
        self.whole = bool(np.isin(members, layout.roles.whole).all())
        self.at_totals = torch.tensor(np.searchsorted(layout.roles.whole, members))
        like = self.parameters[0]
        kind = like.dtype if like.dtype == torch.float64 else torch.float32
        self._ends = torch.tensor(np.append(0, np.cumsum(blocks)), device=like.device)
        self._slices = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        self.values = torch.zeros(_BLOCK * int(blocks.sum()), dtype=kind, device=like.device)
        self.parts = self._split(self.values)
        self._added: Tensor | None = None
        self._added_parts: list[Tensor] = []
        self._scale = 0.0
        self.canaries, self.at_canaries = _found(starts, members, layout.canaries, like.device)
        self.witnesses, self.at_witnesses = _found(starts, members, layout.witnesses, like.device)

    def add(self, added: Tensor, scale: float) -> None:
        """Add `scale` times this to the clipped sums of the parameters."""
        if added is not self._added:
            self._added, self._added_parts = added, self._split(added)
        self._scale = scale
        add_each([getattr(p, CLIPPED_SUM) for p in self.parameters], self._added_parts, scale)

    def totals(self) -> Tensor:
        """The sums of what is left over each parameter, without the canaries that were added."""
        if self._added is not None:
            self.values.add_(self._added, alpha=self._scale)
        return segment_sums(self.values.view(-1, _BLOCK).sum(1), self._ends)

    def _split(self, vector: Tensor) -> list[Tensor]:
        """Its parts, one for each parameter, as views."""
        return [vector[where].view_as(p) for where, p in zip(self._slices, self.parameters, strict=True)]


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
            (
                parameter,
                torch.tensor(canaries, device=device),
                [torch.tensor(along, device=device) for along in _unravelled(canaries, parameter)],
            )
            for parameter, canaries in zip(parameters, layout.canaries, strict=True)
            if len(canaries)
        ]
        numbers = np.concatenate(layout.coordinates)
        self._weights, self._folding = len(numbers), None
        if not np.array_equal(numbers, np.arange(self.count)):
            each = torch.tensor(1 / np.sqrt(layout.spans[numbers]), dtype=torch.float32, device=device)
            self._folding = torch.tensor(numbers, device=device), each
        filled = [place for place, parameter in enumerate(parameters) if parameter.numel()]
        kinds = dict.fromkeys(parameters[place].dtype for place in filled)
        members = [[place for place in filled if parameters[place].dtype == kind] for kind in kinds]
        self._vectors = [_Vector(parameters, some, layout) for some in members]
        self._index = torch.cat([self._vectors[0].canaries, self._vectors[0].witnesses])
        if self.size < 2**31:
            self._index = self._index.int()

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise."""
        if not all(parameter.requires_grad for vector in self._vectors for parameter in vector.parameters):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def accumulated(self) -> bool:
        """Whether per-sample gradients of several batches wait for one step."""
        return waiting_batches(self._vectors[0].parameters[0])

    def take_sums(self) -> None:
        """Take the clipped sums as they are now; what others write to them later does not matter."""
        for vector in self._vectors:
            copy_each(vector.parts, [getattr(p, CLIPPED_SUM) for p in vector.parameters])

    def norm(self) -> Tensor:
        """The norm of what was taken, over all parameters."""
        norms = torch.stack([vector.values.norm().float() for vector in self._vectors])
        norm: Tensor = torch.linalg.vector_norm(norms)
        return norm

    def forget_sums(self) -> None:
        """Go on from 0 instead."""
        for vector in self._vectors:
            vector.values.zero_()

    def subtract_gradients(self, scale: float) -> None:
        """Take `scale` times the gradients that the optimizer will use from what was taken before."""
        for vector in self._vectors:
            add_each(vector.parts, [getattr(p, GRADIENT) for p in vector.parameters], -scale)

    def read(self, out: Tensor) -> Tensor:
        """Write what is left at all places into `out`."""
        if len(self._vectors) == 1 and self._folding is None and out.dtype == self._vectors[0].values.dtype:
            return torch.index_select(self._vectors[0].values, 0, self._index, out=out)
        raw = out.new_empty(self._weights)
        for vector in self._vectors:
            raw[vector.at_canaries] = vector.values[vector.canaries].to(out.dtype)
            out[self.count :][vector.at_witnesses] = vector.values[vector.witnesses].to(out.dtype)
        out[: self.count] = self._folded(raw)
        return out

    def totals(self, out: Tensor) -> None:
        """Write the sums of what is left, over each parameter that is totalled, into `out`."""
        whole = [vector for vector in self._vectors if vector.whole]
        if len(whole) == 1:
            out.copy_(whole[0].totals())
            return
        for vector in whole:
            out[vector.at_totals] = vector.totals().to(out.dtype)

    @property
    def slots(self) -> Integers | None:
        """Where in the only vector each coordinate lies; None if there are several, or some span several."""
        if len(self._vectors) > 1 or self._folding is not None:
            return None
        return self._vectors[0].canaries.cpu().numpy()

    @property
    def size(self) -> int:
        """The length of all vectors."""
        return sum(len(vector.values) for vector in self._vectors)

    def add(self, values: Tensor, scale: float) -> None:
        """Add `scale` times the values, one for each coordinate with canaries, to the clipped sums."""
        for vector in self._vectors:
            own = values[vector.at_canaries].to(vector.values.dtype)
            vector.add(torch.zeros_like(vector.values).index_copy_(0, vector.canaries, own), scale)

    def add_in_slots(self, values: Tensor, scale: float) -> None:
        """Add `scale` times the values, which lie as `slots` says, to the clipped sums."""
        self._vectors[0].add(values, scale)

    def _folded(self, values: Tensor) -> Tensor:
        """The values along the coordinates, from those at the weights."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values.new_zeros(self.count).index_add_(0, numbers, values * each)

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the per-sample gradient of these rows along the coordinates."""
        if self._folding is not None:
            numbers, each = self._folding
            values = values[:, numbers] * each
        parts = torch.split(values, [len(chosen) for _, chosen, _ in self._carrying], dim=1)
        for (parameter, _, indices), part in zip(self._carrying, parts, strict=True):
            sample = per_sample_gradients(parameter)
            sample[(rows[:, None], *indices)] = part.to(sample.dtype)

    def read_rows(self, weights: Tensor) -> Tensor:
        """The per-sample gradients along the coordinates, summed over rows with these weights.

        They are summed in the precision of the weights, as Opacus does: under autocast they come in less.
        """
        parts = []
        for parameter, chosen, _ in self._carrying:
            sample = per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            parts.append(weights.to(parameter.dtype) @ flat[:, chosen].to(parameter.dtype))
        return self._folded(torch.cat(parts).float())


def _unravelled(canaries: Integers, parameter: Any) -> tuple[Integers, ...]:
    """Flat indices as one index for every dimension."""
    return np.unravel_index(canaries, tuple(parameter.shape)) if parameter.dim() else ()


def _found(
    starts: Integers, members: list[int], places: tuple[Integers, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Indices into a vector of the places of its members, and their numbers among all places."""
    ends = np.cumsum([len(some) for some in places])
    indices = np.concatenate([start + places[place] for start, place in zip(starts, members, strict=True)])
    numbers = np.concatenate([np.arange(ends[place] - len(places[place]), ends[place]) for place in members])
    return torch.tensor(indices, device=device), torch.tensor(numbers, device=device)
