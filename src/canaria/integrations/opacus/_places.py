"""Reading and writing the weights that carry canaries, and reading witnesses.

A call costs more than what it computes, on a GPU above all. So the sums of all parameters are held end to
end, in one vector: one call copies them there, and one index into it reaches all places.
"""

import math
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
    Shard,
    add_each,
    copy_each,
    first_held,
    per_sample_gradients,
    segment_sums,
)
from canaria.training.canaries.witnesses import Layout

FINE: Final = (torch.float32, torch.float64)
"""The precisions in which sums are not rounded by more than they may be."""
_BLOCK: Final = 512
"""Parameters begin at multiples of this in the vector: blocks can be summed at once."""


class Places:
    """Weights of a model, where a layout puts canaries and witnesses.

    `values` has the parameters end to end, and a last block of zeros. Of parameters that are spread over
    processes, `parameters` are the parts that are here, and places elsewhere point to the zeros. What is read
    has the canaries' coordinates first, then the witnesses, both in the order of the parameters. A coordinate
    that spans several parameters has the same share in each, or those that are given, one for each parameter.
    """

    def __init__(self, parameters: Sequence[Any], layout: Layout, shares: Sequence[float] = ()) -> None:
        self.layout, self.layers, self.roles = layout, layout.layers, layout.roles
        self.count = sum(self.layers)
        self.all = self.count + len(layout.roles.index)
        self.sharded = any(isinstance(parameter, Shard) for parameter in parameters)
        self._parameters = parameters
        device = parameters[0].device
        lengths = np.array([parameter.numel() for parameter in parameters])
        blocks = -(-lengths // _BLOCK)
        starts = _BLOCK * (np.cumsum(blocks) - blocks)
        self._held = _BLOCK * int(blocks.sum())
        wide = any(parameter.dtype == torch.float64 for parameter in parameters)
        kind = torch.float64 if wide else torch.float32
        self.values = torch.zeros(self._held + _BLOCK, dtype=kind, device=device)
        self._slices = [slice(start, start + length) for start, length in zip(starts, lengths, strict=True)]
        self._parts = self._split(self.values)
        slots = [self._slots(starts, places) for places in (layout.canaries, layout.witnesses)]
        self._index = torch.tensor(np.concatenate(slots), device=device)
        self._canaries, self._witnesses = self._index[: len(slots[0])], self._index[len(slots[0]) :]
        self._folding = self._folding_of(layout, shares)
        self.slots: Integers | None = slots[0] if self._folding is None else None
        """Where in the vector each coordinate lies; None if coordinates are not one weight each."""
        self._ends = torch.tensor(np.append(0, np.cumsum(blocks)), device=device)
        all_whole = len(layout.roles.whole) == len(parameters)
        self._whole: Any = slice(None) if all_whole else torch.tensor(layout.roles.whole, device=device)
        self._added: tuple[Tensor, float] | None = None
        self._spread: Tensor | None = None
        self._views: dict[int, tuple[Tensor, list[Tensor]]] = {}
        # The spacing of numbers near 1 in the precision of each weight with canaries; 0 where that is fine.
        spacings = [0.0 if p.dtype in FINE else torch.finfo(p.dtype).eps for p in parameters]
        self._spacings: Tensor | None = None
        if any(spacings):
            own = np.repeat(spacings, [len(some) for some in layout.canaries])
            self._spacings = torch.tensor(own, dtype=torch.float32, device=device)
        self._taken = self._shift = self.values.new_zeros(len(slots[0]))

    def _folding_of(self, layout: Layout, shares: Sequence[float]) -> tuple[Tensor, Tensor] | None:
        """Of each weight with canaries its coordinate and its share in it; None if each is one of its own.

        Folding is left out then, because it costs two calls in every step.
        """
        numbers = np.concatenate(layout.coordinates)
        if not len(shares) and np.array_equal(numbers, np.arange(self.count)):
            return None
        even = 1 / np.sqrt(layout.spans[numbers])
        own = np.repeat(shares, [len(some) for some in layout.canaries]) if len(shares) else even
        device = self.values.device
        return torch.tensor(numbers, device=device), torch.tensor(own, dtype=torch.float32, device=device)

    def _slots(self, starts: Integers, places: Sequence[Integers]) -> Integers:
        """Where in the vector these places are; those of other processes are in the block of zeros."""
        found = []
        for start, parameter, some in zip(starts, self._parameters, places, strict=True):
            local = some - first_held(parameter)
            here = (local >= 0) & (local < parameter.numel())
            found.append(np.where(here, start + local, self._held))
        return np.concatenate(found)

    def _split(self, vector: Tensor) -> list[Tensor]:
        """Its parts, one for each parameter, as views."""
        return [vector[where].view(p.shape) for where, p in zip(self._slices, self._parameters, strict=True)]

    def require_trained(self) -> None:
        """Canaries in a parameter that is frozen would stay in its sum without noise.

        The parameters are those of attaching: `params` of an optimizer of Opacus leaves frozen ones out.
        """
        if not all(parameter.requires_grad for parameter in self._parameters):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def take_sums(self) -> None:
        """Take the clipped sums as they are now.

        It is a copy: a program's own add_noise may use the very sum as the gradient, and write to it.
        """
        copy_each(self._parts, self._sums())
        self._added = None
        if self._spacings is not None:
            self._taken = self.values[self._canaries]

    def _sums(self) -> list[Tensor]:
        return [getattr(parameter, CLIPPED_SUM) for parameter in self._parameters]

    def spread(self, values: Tensor) -> Tensor:
        """A vector with these values, one for each coordinate, at the weights that carry canaries."""
        if self._spread is None:
            self._spread = torch.zeros_like(self.values)
        own = self.unfolded(values).to(self.values.dtype)
        return self._spread.index_copy_(0, self._canaries, own)

    def add(self, added: Tensor, scale: float) -> None:
        """Add `scale` times this vector to the clipped sums."""
        self._added = added, scale
        # Views of a hundred parameters take as long as the call, so they are kept, and with them the vector:
        # the id of one that is gone may belong to another.
        if id(added) not in self._views:
            self._views[id(added)] = added, self._split(added)
        _, parts = self._views[id(added)]
        add_each(self._sums(), parts, alpha=scale)
        if self._spacings is not None:
            after = torch.zeros_like(self.values)
            copy_each(self._split(after), self._sums())
            # Half precision rounds what is added: that part is not in the release, so it must not count.
            self._shift = (after - self.values).sub_(added, alpha=scale)[self._canaries]

    def forget_sums(self) -> None:
        """Go on from 0 instead."""
        self.values.zero_()

    def subtract_gradients(self, scale: float) -> None:
        """Take `scale` times the gradients that the optimizer will use from what was taken before."""
        add_each(self._parts, [getattr(p, GRADIENT) for p in self._parameters], alpha=-scale)

    def read(self, out: Tensor) -> Tensor:
        """Write what is left at all places into `out`."""
        if self._folding is None and out.dtype == self.values.dtype:
            return torch.index_select(self.values, 0, self._index, out=out)
        out[: self.count] = self.folded(self.read_weights())
        out[self.count :] = self.values[self._witnesses]
        return out

    def read_weights(self) -> Tensor:
        """What is left at each weight that carries canaries."""
        return self.values[self._canaries].float()

    def read_witnesses(self) -> Tensor:
        """What is left at the witnesses."""
        return self.values[self._witnesses].float()

    def norm(self) -> Tensor:
        """The norm of what is left, over all parameters."""
        norm: Tensor = self.values.norm().float()
        return norm

    def largest(self) -> Tensor:
        """The largest of what is left, over all weights."""
        return self.values.abs().amax().float()

    def totals(self, out: Tensor) -> None:
        """Write the sum of the noise over each parameter that is totalled into `out`.

        What is left is no longer there after that: the canaries that were added are taken out of it.
        """
        left = self.values[: self._held]
        if self._added is not None:
            added, scale = self._added
            left.add_(added[: self._held], alpha=scale)
        out.copy_(segment_sums(left.view(-1, _BLOCK).sum(1), self._ends)[self._whole])

    def rounding(self, scale: float) -> Tensor | None:
        """By how much rounding moved the clipped sums along each coordinate, and the variance it adds later.

        `scale` makes noisy sums of gradients: a noisy sum is rounded, and once more when it is divided by
        that, unless it is a power of 2. None where sums are precise enough.
        """
        if self._spacings is None:
            return None
        noisy = self._taken - self.values[self._canaries]
        variance = self._spacing(noisy).square_()
        if math.frexp(scale)[0] != 0.5:
            variance.add_(self._spacing(noisy / scale).square_(), alpha=scale**2)
        # Numbers are rounded evenly within their spacing, which has a variance of a twelfth of its square.
        raw = torch.stack([self._shift * (self._spacings > 0), variance / 12]).float()
        if self._folding is None:
            return raw
        numbers, each = self._folding
        shares = torch.stack([each, each.square()])
        return raw.new_zeros(2, self.count).index_add_(1, numbers, raw * shares)

    def _spacing(self, values: Tensor) -> Tensor:
        """Between numbers of the parameters' precision near these values; 0 is not rounded."""
        assert self._spacings is not None
        below = torch.frexp(values).exponent - 1
        return torch.exp2(below.float()) * self._spacings * (values != 0)

    def folded(self, values: Tensor) -> Tensor:
        """The values along the coordinates, from those at the weights."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values.new_zeros(self.count).index_add_(0, numbers, values * each)

    def unfolded(self, values: Tensor) -> Tensor:
        """The values at the weights, (..., weights), that lie along the coordinates, (..., count)."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values[..., numbers] * each


class SampleGradients:
    """The gradients of the rows of a batch, where they carry canaries; `places` says which weights do."""

    def __init__(self, parameters: Sequence[Any], places: Places) -> None:
        self._places, self._parameters = places, parameters
        device = parameters[0].device
        self.chosen = {
            place: torch.tensor(some, device=device)
            for place, some in enumerate(places.layout.canaries)
            if len(some)
        }

    def put(self, rows: Tensor, values: Tensor) -> None:
        """Make `values` (rows, coordinates) the gradient of these rows along the coordinates."""
        parts = torch.split(self._places.unfolded(values), [len(one) for one in self.chosen.values()], dim=1)
        for (place, some), part in zip(self.chosen.items(), parts, strict=True):
            parameter = self._parameters[place]
            sample = per_sample_gradients(parameter)
            # Not by a flat view: with channels last, gradients of convolutions cannot be viewed as flat.
            indices = torch.unravel_index(some, parameter.shape) if parameter.dim() else ()
            sample[(rows[:, None], *indices)] = part.to(sample.dtype)

    def sums(self, factors: Tensor) -> Tensor:
        """The gradients at each weight that carries canaries, summed over rows with these factors.

        `factors` are (rows), or (parameters, rows). The gradients are summed in the precision of the
        parameters, as Opacus does: under autocast they come in less.
        """
        parts = []
        for place, some in self.chosen.items():
            parameter = self._parameters[place]
            sample = per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            own = factors if factors.dim() == 1 else factors[place]
            parts.append(own.to(parameter.dtype) @ flat[:, some].to(parameter.dtype))
        return torch.cat(parts).float()

    def of(self, sums: Sequence[Tensor]) -> Tensor:
        """Of these sums, one for each parameter, what is at each weight that carries canaries."""
        return torch.cat([sums[place].reshape(-1)[some] for place, some in self.chosen.items()]).float()
