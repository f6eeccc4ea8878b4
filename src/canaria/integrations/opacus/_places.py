"""Reads and writes the weights that carry canaries, and reads witnesses.

A call costs more than the computation itself, especially on a GPU. So the sums of all parameters are stored
end to end in one vector: one call copies them there, and one index reads all places.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Integers
from canaria._core.errors import InputError
from canaria.integrations.opacus import _internals
from canaria.training.canaries.witnesses import Layout

FINE: Final = (torch.float32, torch.float64)
"""The precisions in which rounding of sums is negligible."""
_BLOCK: Final = 512
"""Parameters begin at multiples of this in the vector, so that blocks can be summed at once."""


class Places:
    """The weights of a model at which a layout places canaries and witnesses.

    `values` has the parameters end to end, and a last block of zeros. For sharded parameters, `parameters`
    are this process's parts, and places elsewhere point to the zeros. Values are read in the order of the
    parameters: first the canaries' coordinates, then the witnesses. A coordinate that spans several
    parameters has equal shares in each, or the given `shares`, one for each parameter.
    """

    def __init__(self, parameters: Sequence[Any], layout: Layout, shares: Sequence[float] = ()) -> None:
        self.layout, self.layers, self.roles = layout, layout.layers, layout.roles
        self.count = sum(self.layers)
        self.all = self.count + len(layout.roles.index)
        self.sharded = any(isinstance(parameter, _internals.Shard) for parameter in parameters)
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
        """The index of each coordinate in the vector; None if coordinates are not single weights."""
        self._ends = torch.tensor(np.append(0, np.cumsum(blocks)), device=device)
        all_whole = len(layout.roles.whole) == len(parameters)
        self._whole: Any = slice(None) if all_whole else torch.tensor(layout.roles.whole, device=device)
        self._added: tuple[Tensor, float] | None = None
        self._spread: Tensor | None = None
        self._views: dict[int, tuple[Tensor, list[Tensor]]] = {}
        # The spacing of numbers near 1 in the precision of each weight with canaries; 0 if negligible.
        spacings = [0.0 if p.dtype in FINE else torch.finfo(p.dtype).eps for p in parameters]
        self._spacings: Tensor | None = None
        if any(spacings):
            own = np.repeat(spacings, [len(some) for some in layout.canaries])
            self._spacings = torch.tensor(own, dtype=torch.float32, device=device)
        self._taken = self._shift = self.values.new_zeros(len(slots[0]))

    def _folding_of(self, layout: Layout, shares: Sequence[float]) -> tuple[Tensor, Tensor] | None:
        """The coordinate and share of each weight with canaries; None if each is a coordinate of its own.

        Folding is skipped then, because it costs two calls per step.
        """
        numbers = np.concatenate(layout.coordinates)
        if not len(shares) and np.array_equal(numbers, np.arange(self.count)):
            return None
        even = 1 / np.sqrt(layout.spans[numbers])
        own = np.repeat(shares, [len(some) for some in layout.canaries]) if len(shares) else even
        device = self.values.device
        return torch.tensor(numbers, device=device), torch.tensor(own, dtype=torch.float32, device=device)

    def _slots(self, starts: Integers, places: Sequence[Integers]) -> Integers:
        """The indices of these places in the vector. Places in other processes map to the block of zeros."""
        found = []
        for start, parameter, some in zip(starts, self._parameters, places, strict=True):
            local = some - _internals.first_held(parameter)
            here = (local >= 0) & (local < parameter.numel())
            found.append(np.where(here, start + local, self._held))
        return np.concatenate(found)

    def _split(self, vector: Tensor) -> list[Tensor]:
        """The parts of a vector, one view for each parameter."""
        return [vector[where].view(p.shape) for where, p in zip(self._slices, self._parameters, strict=True)]

    def require_trained(self) -> None:
        """Check that no parameter with canaries is frozen: canaries would stay in its sum without noise.

        These are the parameters at the time of attaching; Opacus' `params` leaves frozen ones out.
        """
        if not all(parameter.requires_grad for parameter in self._parameters):
            raise InputError(
                "a parameter that carries canaries was frozen; freeze before attaching, and detach before "
                "changing what is trained"
            )

    def take_sums(self) -> None:
        """Copy the current clipped sums.

        A copy is needed: a program's own add_noise may use the very sum as the gradient, and write to it.
        """
        _internals.copy_each(self._parts, self._sums())
        self._added = None
        if self._spacings is not None:
            self._taken = self.values[self._canaries]

    def _sums(self) -> list[Tensor]:
        return [getattr(parameter, _internals.CLIPPED_SUM) for parameter in self._parameters]

    def spread(self, values: Tensor) -> Tensor:
        """A vector with these values, one for each coordinate, at the weights that carry canaries."""
        if self._spread is None:
            self._spread = torch.zeros_like(self.values)
        own = self.unfolded(values).to(self.values.dtype)
        return self._spread.index_copy_(0, self._canaries, own)

    def add(self, added: Tensor, scale: float) -> None:
        """Add `scale` times this vector to the clipped sums."""
        self._added = added, scale
        # Making views of a hundred parameters takes as long as the call, so they are cached, together with
        # the vector: the id of a deleted vector may be reused.
        if id(added) not in self._views:
            self._views[id(added)] = added, self._split(added)
        _, parts = self._views[id(added)]
        _internals.add_each(self._sums(), parts, alpha=scale)
        if self._spacings is not None:
            after = torch.zeros_like(self.values)
            _internals.copy_each(self._split(after), self._sums())
            # Half precision rounds the added values. The lost part is not released, so it must not count.
            self._shift = (after - self.values).sub_(added, alpha=scale)[self._canaries]

    def forget_sums(self) -> None:
        """Replace the copied sums by 0."""
        self.values.zero_()

    def subtract_gradients(self, scale: float) -> None:
        """Subtract `scale` times the gradients that the optimizer will use from the copied sums."""
        _internals.add_each(
            self._parts, [getattr(p, _internals.GRADIENT) for p in self._parameters], alpha=-scale
        )

    def read(self, out: Tensor) -> Tensor:
        """Write the remainders at all places into `out`."""
        if self._folding is None and out.dtype == self.values.dtype:
            return torch.index_select(self.values, 0, self._index, out=out)
        out[: self.count] = self.folded(self.read_weights())
        out[self.count :] = self.values[self._witnesses]
        return out

    def read_weights(self) -> Tensor:
        """The remainder at each weight that carries canaries."""
        return self.values[self._canaries].float()

    def read_witnesses(self) -> Tensor:
        return self.values[self._witnesses].float()

    def norm(self) -> Tensor:
        """The norm of the remainder over all parameters."""
        norm: Tensor = self.values.norm().float()
        return norm

    def largest(self) -> Tensor:
        """The largest absolute remainder over all weights."""
        return self.values.abs().amax().float()

    def totals(self, out: Tensor) -> None:
        """Write the sum of the noise over each parameter in `Roles.whole` into `out`.

        This changes the remainders: the added canaries are subtracted from them.
        """
        left = self.values[: self._held]
        if self._added is not None:
            # What is left is minus the noise, and minus the canaries that were added.
            added, scale = self._added
            left.add_(added[: self._held], alpha=scale)
        out.copy_(_segment_sums(left.view(-1, _BLOCK).sum(1), self._ends)[self._whole])

    def rounding(self, scale: float) -> Tensor | None:
        """The shift of the clipped sums by rounding, along each coordinate, and the variance it adds later.

        `scale` converts gradients to noisy sums. A noisy sum is rounded, and rounded again when it is divided
        by `scale`, unless that is a power of 2. None if sums are precise enough.
        """
        if self._spacings is None:
            return None
        noisy = self._taken - self.values[self._canaries]
        variance = self._spacing(noisy).square_()
        if math.frexp(scale)[0] != 0.5:
            variance.add_(self._spacing(noisy / scale).square_(), alpha=scale**2)
        # Rounding errors are uniform within a spacing, so their variance is a twelfth of its square.
        raw = torch.stack([self._shift * (self._spacings > 0), variance / 12]).float()
        if self._folding is None:
            return raw
        numbers, each = self._folding
        shares = torch.stack([each, each.square()])
        return raw.new_zeros(2, self.count).index_add_(1, numbers, raw * shares)

    def _spacing(self, values: Tensor) -> Tensor:
        """The spacing of numbers near these values in the parameters' precision; 0 is not rounded."""
        assert self._spacings is not None
        below = torch.frexp(values).exponent - 1
        return torch.exp2(below.float()) * self._spacings * (values != 0)

    def folded(self, values: Tensor) -> Tensor:
        """Project values at the weights onto the coordinates."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values.new_zeros(self.count).index_add_(0, numbers, values * each)

    def unfolded(self, values: Tensor) -> Tensor:
        """Distribute values along the coordinates, (..., count), over the weights, (..., weights)."""
        if self._folding is None:
            return values
        numbers, each = self._folding
        return values[..., numbers] * each


class SampleGradients:
    """The gradients of the rows of a batch at the weights that carry canaries, which `places` gives."""

    def __init__(self, parameters: Sequence[Any], places: Places) -> None:
        self._places, self._parameters = places, parameters
        device = parameters[0].device
        self.chosen = {
            place: torch.tensor(some, device=device)
            for place, some in enumerate(places.layout.canaries)
            if len(some)
        }

    def put(self, rows: Tensor, values: Tensor) -> None:
        """Set the gradients of these rows along the coordinates to `values`, (rows, coordinates)."""
        parts = torch.split(self._places.unfolded(values), [len(one) for one in self.chosen.values()], dim=1)
        for (place, some), part in zip(self.chosen.items(), parts, strict=True):
            parameter = self._parameters[place]
            sample = _internals.per_sample_gradients(parameter)
            # A flat view would fail: with channels last, gradients of convolutions cannot be viewed as flat.
            indices = torch.unravel_index(some, parameter.shape) if parameter.dim() else ()
            sample[(rows[:, None], *indices)] = part.to(sample.dtype)

    def sums(self, factors: Tensor) -> Tensor:
        """The gradients at each weight that carries canaries, summed over rows with these factors.

        `factors` are (rows), or (parameters, rows). The sum is in the precision of the parameters, like
        Opacus': under autocast, the gradients have less.
        """
        parts = []
        for place, some in self.chosen.items():
            parameter = self._parameters[place]
            sample = _internals.per_sample_gradients(parameter)
            flat = sample.reshape(len(sample), parameter.numel())
            own = factors if factors.dim() == 1 else factors[place]
            parts.append(own.to(parameter.dtype) @ flat[:, some].to(parameter.dtype))
        return torch.cat(parts).float()

    def of(self, sums: Sequence[Tensor]) -> Tensor:
        """The values of these sums, one for each parameter, at each weight that carries canaries."""
        return torch.cat([sums[place].reshape(-1)[some] for place, some in self.chosen.items()]).float()


def _segment_sums(vector: Tensor, ends: Tensor) -> Tensor:
    """The sums of the parts of a vector between these indices, in one call; 0 for empty parts."""
    return torch.segment_reduce(vector, "sum", offsets=ends, unsafe=True)
