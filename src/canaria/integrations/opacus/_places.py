"""Reading and writing the weights that carry canaries, and reading witnesses.

A call costs more than what it computes, on a GPU above all. So the sums of all parameters of one precision
are held end to end, in one vector, and all places are reached by one index into it. On a GPU the vectors of a
few steps are kept, to be read by one call.
"""

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Integers
from canaria._core.errors import InputError
from canaria.integrations.opacus._internals import (
    CLIPPED_SUM,
    GRADIENT,
    Shard,
    add_each,
    copy_each,
    first_held,
    per_sample_gradients,
    segment_sums,
    waiting_batches,
)
from canaria.training.canaries.witnesses import Layout

FINE: Final = (torch.float32, torch.float64)
"""The precisions in which sums are not rounded by more than they may be."""
_BLOCK: Final = 512
"""Parameters begin at multiples of this in a vector: blocks can be summed at once."""
DEFERRING = ("cuda",)
"""The kinds of devices on which several steps are kept."""
_TOGETHER: Final = 8
"""So many steps are kept there."""
_MOST_BYTES: Final = 2**30
"""What the sums of these steps, and the canaries that are added to them, may take."""


class _Added(NamedTuple):
    """What was added to the clipped sums of a step, as a vector and by parameter, and times what."""

    values: Tensor
    parts: list[Tensor]
    scale: float


class _Vector:
    """Parameters of one precision, end to end, and the places among them.

    `kept` has a row for each of a few steps; `values` is that of this step. `canaries` and `witnesses` are
    indices into it; `at_canaries` and `at_witnesses` say which of all the weights with canaries, and of all
    witnesses, these are.
    """

    def __init__(
        self, parameters: Sequence[Any], members: list[int], layout: Layout, *, together: int
    ) -> None:
        self.parameters = [parameters[place] for place in members]
        lengths = np.array([parameter.numel() for parameter in self.parameters])
        blocks = -(-lengths // _BLOCK)
        starts = _BLOCK * (np.cumsum(blocks) - blocks)
        self.whole = bool(np.isin(members, layout.roles.whole).all())
        self.at_totals = torch.tensor(np.searchsorted(layout.roles.whole, members))
        like = self.parameters[0]
        kind = like.dtype if like.dtype == torch.float64 else torch.float32
        self.coarse = like.dtype not in FINE
        all_blocks = np.tile(blocks, together)
        self._ends = torch.tensor(np.append(0, np.cumsum(all_blocks)), device=like.device)
        self._slices = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        self.kept = torch.zeros(together, _BLOCK * int(blocks.sum()), dtype=kind, device=like.device)
        self._rows: list[tuple[Tensor, list[Tensor]]] = [(row, self._split(row)) for row in self.kept]
        self._added: list[_Added | None] = [None] * together
        self.turn_to(0)
        self._taken = self.values
        self.canaries, self.at_canaries = self._found(starts, members, layout.canaries)
        self.witnesses, self.at_witnesses = self._found(starts, members, layout.witnesses)
        self._shift = self.values.new_zeros(len(self.canaries))

    def turn_to(self, row: int) -> None:
        """Go on with this row."""
        self._row = row
        self.values, self.parts = self._rows[row]

    def add(self, added: Tensor, scale: float) -> None:
        """Add `scale` times this to the clipped sums of the parameters."""
        before = self._added[self._row]
        parts = before.parts if before and before.values is added else self._split(added)
        self._added[self._row] = _Added(added, parts, scale)
        add_each([getattr(p, CLIPPED_SUM) for p in self.parameters], parts, alpha=scale)
        if self.coarse:
            after = torch.zeros_like(self.values)
            copy_each(self._split(after), [getattr(p, CLIPPED_SUM) for p in self.parameters])
            self._shift = (after - self.values).sub_(added, alpha=scale)[self.canaries]

    def totals(self, rows: range) -> Tensor:
        """The sums of what is left over each parameter, without the canaries that were added; a row each."""
        by_scale: dict[float, list[tuple[Tensor, Tensor]]] = {}
        for row in rows:
            if (added := self._added[row]) is not None:
                by_scale.setdefault(added.scale, []).append((self._rows[row][0], added.values))
        for scale, pairs in by_scale.items():
            add_each([left for left, _ in pairs], [added for _, added in pairs], alpha=scale)
        blocks = self.kept[rows.start : rows.stop].view(-1, _BLOCK).sum(1)
        ends = self._ends[: len(rows) * len(self.parameters) + 1]
        totals: Tensor = segment_sums(blocks, ends).view(len(rows), -1)
        return totals

    def take(self) -> None:
        """Take the clipped sums as they are now."""
        copy_each(self.parts, [getattr(p, CLIPPED_SUM) for p in self.parameters])
        if self.coarse:
            self._taken = self.values[self.canaries]

    def rounding(self, scale: float) -> Tensor:
        """What rounding did to the clipped sum at canaries, and the variance that it adds after that.

        The noisy sum is rounded, and once more when it is divided by `scale`, unless that is a power of 2.
        """
        if not self.coarse:
            return self.values.new_zeros(2, len(self.canaries))
        noisy = self._taken - self.values[self.canaries]
        variance = self._spacing(noisy).square_()
        if math.frexp(scale)[0] != 0.5:
            variance.add_(self._spacing(noisy / scale).square_(), alpha=scale**2)
        return torch.stack([self._shift, variance / 12])

    def _spacing(self, values: Tensor) -> Tensor:
        """Between numbers of the parameters' precision near these values; 0 is not rounded."""
        below = torch.frexp(values).exponent - 1
        return torch.exp2(below.float()) * torch.finfo(self.parameters[0].dtype).eps * (values != 0)

    def _found(
        self, starts: Integers, members: list[int], places: tuple[Integers, ...]
    ) -> tuple[Tensor, Tensor]:
        """Indices into the vector of the places of its members that are here, and their numbers among all."""
        ends = np.cumsum([len(some) for some in places])
        indices, numbers = [], []
        for start, place, parameter in zip(starts, members, self.parameters, strict=True):
            local = places[place] - first_held(parameter)
            here = (local >= 0) & (local < parameter.numel())
            indices.append(start + local[here])
            numbers.append(np.arange(ends[place] - len(local), ends[place])[here])
        index, number = np.concatenate(indices), np.concatenate(numbers)
        device = self.values.device
        return torch.tensor(index, device=device), torch.tensor(number, device=device)

    def _split(self, vector: Tensor) -> list[Tensor]:
        """Its parts, one for each parameter, as views."""
        return [vector[where].view(p.shape) for where, p in zip(self._slices, self.parameters, strict=True)]


class Places:
    """Weights of a model, where a layout puts canaries and witnesses.

    What is read has the canaries' coordinates first, then the witnesses, both in the order of the parameters.
    A coordinate that spans several parameters has the same share in each, or those that are given, one for
    each parameter. Of parameters that are spread over processes, `parameters` are the parts that are here;
    what is elsewhere is read as 0. `deferred` says that steps may be read later than they are made: then
    `together` of them are kept where that saves time, in rows.
    """

    def __init__(
        self,
        parameters: Sequence[Any],
        layout: Layout,
        shares: Sequence[float] = (),
        *,
        deferred: bool = False,
    ) -> None:
        self.layers, self.roles = layout.layers, layout.roles
        self.count = sum(self.layers)
        self.all = self.count + len(layout.roles.index)
        device = parameters[0].device
        self.sharded = any(isinstance(parameter, Shard) for parameter in parameters)
        carrying = [] if self.sharded else [place for place, own in enumerate(layout.canaries) if len(own)]
        self._carrying = [
            (
                place,
                parameters[place],
                torch.tensor(layout.canaries[place], device=device),
                [
                    torch.tensor(along, device=device)
                    for along in _unravelled(layout.canaries[place], parameters[place])
                ],
            )
            for place in carrying
        ]
        numbers = np.concatenate(layout.coordinates)
        self._weights, self._folding = len(numbers), None
        if len(shares) or not np.array_equal(numbers, np.arange(self.count)):
            even = 1 / np.sqrt(layout.spans[numbers])
            own = np.repeat(shares, [len(some) for some in layout.canaries]) if len(shares) else even
            each = torch.tensor(own, dtype=torch.float32, device=device)
            self._folding = torch.tensor(numbers, device=device), each
        filled = [place for place, parameter in enumerate(parameters) if parameter.numel()]
        kinds = dict.fromkeys(parameters[place].dtype for place in filled)
        members = [[place for place in filled if parameters[place].dtype == kind] for kind in kinds]
        self._direct = len(members) == 1 and self._folding is None and not self.sharded
        bytes_of_a_step = 2 * 4 * sum(parameter.numel() for parameter in parameters)
        deferred = deferred and self._direct and device.type in DEFERRING and list(kinds) == [torch.float32]
        self.together = _TOGETHER if deferred and _TOGETHER * bytes_of_a_step <= _MOST_BYTES else 1
        self._vectors = [_Vector(parameters, some, layout, together=self.together) for some in members]
        self._trained = [parameter for vector in self._vectors for parameter in vector.parameters]
        self._coarse = any(vector.coarse for vector in self._vectors)
        self.row = 0
        self._index = torch.cat([self._vectors[0].canaries, self._vectors[0].witnesses])
        if self.size < 2**31:
            self._index = self._index.int()

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise."""
        if not all(parameter.requires_grad for parameter in self._trained):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def accumulated(self) -> bool:
        """Whether per-sample gradients of several batches wait for one step."""
        return waiting_batches(self._trained[0])

    def turn_to(self, row: int) -> None:
        """Go on with this row of those that are kept."""
        self.row = row
        for vector in self._vectors:
            vector.turn_to(row)

    def take_sums(self) -> None:
        """Take the clipped sums as they are now; what others write to them later does not matter."""
        for vector in self._vectors:
            vector.take()

    def read_witnesses(self) -> Tensor:
        """What was taken at the witnesses."""
        out = torch.zeros(self.all - self.count, device=self._vectors[0].values.device)
        for vector in self._vectors:
            out[vector.at_witnesses] = vector.values[vector.witnesses].to(out.dtype)
        return out

    def norm(self) -> Tensor:
        """The norm of what was taken, over all parameters."""
        norms = torch.stack([vector.values.norm().float() for vector in self._vectors])
        norm: Tensor = torch.linalg.vector_norm(norms)
        return norm

    def largest(self) -> Tensor:
        """The largest of what was taken, over all weights."""
        return torch.stack([vector.values.abs().amax().float() for vector in self._vectors]).amax()

    def forget_sums(self) -> None:
        """Go on from 0 instead."""
        for vector in self._vectors:
            vector.values.zero_()

    def subtract_gradients(self, scale: float) -> None:
        """Take `scale` times the gradients that the optimizer will use from what was taken before."""
        for vector in self._vectors:
            add_each(vector.parts, [getattr(p, GRADIENT) for p in vector.parameters], alpha=-scale)

    def read(self, out: Tensor) -> Tensor:
        """Write what is left of this step at all places into `out`."""
        if self._direct and out.dtype == self._vectors[0].values.dtype:
            return torch.index_select(self._vectors[0].values, 0, self._index, out=out)
        if self.sharded:
            out.zero_()
        for vector in self._vectors:
            out[self.count :][vector.at_witnesses] = vector.values[vector.witnesses].to(out.dtype)
        out[: self.count] = self.folded(self.read_weights(out))
        return out

    def read_kept(self, rows: range, out: Tensor) -> None:
        """Write what is left in these rows at all places into `out`."""
        if self.together == 1:
            self.read(out[0])
        else:
            kept = self._vectors[0].kept[rows.start : rows.stop]
            torch.index_select(kept, 1, self._index, out=out)

    def read_weights(self, like: Tensor) -> Tensor:
        """What is left at each weight that carries canaries."""
        raw = like.new_zeros(self._weights)
        for vector in self._vectors:
            raw[vector.at_canaries] = vector.values[vector.canaries].to(raw.dtype)
        return raw

    def rounding(self, scale: float) -> Tensor | None:
        """By how much rounding moved the clipped sums along each coordinate, and the variance it adds later.

        `scale` makes noisy sums of gradients. None where sums are precise enough.
        """
        if not self._coarse:
            return None
        raw = torch.zeros(2, self._weights, device=self._vectors[0].values.device)
        for vector in self._vectors:
            raw[:, vector.at_canaries] = vector.rounding(scale).to(raw.dtype)
        if self._folding is None:
            return raw
        numbers, each = self._folding
        shares = torch.stack([each, each.square()])
        return raw.new_zeros(2, self.count).index_add_(1, numbers, raw * shares)

    def totals(self, rows: range, out: Tensor) -> None:
        """Write the sums of what is left in these rows, over each parameter that is totalled, into `out`.

        What is left is no longer there after that.
        """
        whole = [vector for vector in self._vectors if vector.whole]
        if len(whole) == 1 and not self.sharded:
            out.copy_(whole[0].totals(rows))
            return
        out.zero_()
        for vector in whole:
            out[:, vector.at_totals] = vector.totals(rows).to(out.dtype)

    @property
    def slots(self) -> Integers | None:
        """Where in the only vector each coordinate lies; None if it is not in one place of one vector."""
        if not self._direct:
            return None
        return self._vectors[0].canaries.cpu().numpy()

    @property
    def size(self) -> int:
        """The length of all vectors."""
        return sum(len(vector.values) for vector in self._vectors)

    def add(self, values: Tensor, scale: float) -> None:
        """Add `scale` times the values, one for each coordinate with canaries, to the clipped sums."""
        values = self._unfolded(values)
        for vector in self._vectors:
            own = values[vector.at_canaries].to(vector.values.dtype)
            vector.add(torch.zeros_like(vector.values).index_copy_(0, vector.canaries, own), scale)

    def add_in_slots(self, values: Tensor, scale: float) -> None:
        """Add `scale` times the values, which lie as `slots` says, to the clipped sums."""
        self._vectors[0].add(values, scale)

    def folded(self, values: Tensor) -> Tensor:
        """The values along the coordinates, from those at the weights."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values.new_zeros(self.count).index_add_(0, numbers, values * each)

    def _unfolded(self, values: Tensor) -> Tensor:
        """The values at the weights, (..., weights), that lie along the coordinates, (..., count)."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values[..., numbers] * each

    def heaviest(self, own: Tensor, most: Tensor) -> Tensor:
        """By how much a weight exceeds its share, at most, of what its coordinate may have at most."""
        return (own / self._unfolded(most)).amax()

    def put_rows(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, count) the per-sample gradient of these rows along the coordinates."""
        values = self._unfolded(values)
        parts = torch.split(values, [len(chosen) for _, _, chosen, _ in self._carrying], dim=1)
        for (_, parameter, _, indices), part in zip(self._carrying, parts, strict=True):
            sample = per_sample_gradients(parameter)
            sample[(rows[:, None], *indices)] = part.to(sample.dtype)

    def read_rows_at_weights(self, weights: Tensor) -> Tensor:
        """The per-sample gradients at each weight that carries canaries, summed over rows with these weights.

        `weights` are (rows), or (parameters, rows). The gradients are summed in the precision of the
        parameters, as Opacus does: under autocast they come in less.
        """
        parts = []
        for place, parameter, chosen, _ in self._carrying:
            sample = per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            own = weights if weights.dim() == 1 else weights[place]
            parts.append(own.to(parameter.dtype) @ flat[:, chosen].to(parameter.dtype))
        return torch.cat(parts).float()

    def read_sums_at_weights(self, sums: Sequence[Tensor]) -> Tensor:
        """Of these sums, one for each parameter, what is at each weight that carries canaries."""
        return torch.cat([sums[place].reshape(-1)[chosen] for place, _, chosen, _ in self._carrying]).float()


def _unravelled(canaries: Integers, parameter: Any) -> tuple[Integers, ...]:
    """Flat indices as one index for every dimension."""
    return np.unravel_index(canaries, tuple(parameter.shape)) if parameter.dim() else ()
