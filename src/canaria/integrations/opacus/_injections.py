"""The three ways in which canaries enter the sums, behind one interface."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria._core.arrays import Bits
from canaria._core.errors import InputError
from canaria.integrations.opacus import _internals
from canaria.integrations.opacus._places import FINE, Places, SampleGradients
from canaria.integrations.opacus._poisson import Poisson
from canaria.integrations.opacus._rows import Draws
from canaria.integrations.opacus._samplers import rate_of
from canaria.training.canaries.designs import DRAWS, PLACES, Dense, Design, Dirac, derived, raw_norm
from canaria.training.canaries.witnesses import layout
from canaria.training.conformance.clipping import too_heavy, unclipped

_ROUNDINGS: Final = 16
"""Rounding errors of the sums by which a canary may seem heavier than it is."""
_COMPARED: Final = 64
"""The sum is compared with what its rows can add in this many steps. The first gradients are the largest."""
_SURELY_CLIPPED: Final = 2.0
"""The smallest safe norm of a canary before clipping, in clip norms, given rounding and changing norms."""


class Injection(ABC):
    """The way in which canaries enter the sums.

    `share` is the norm of a canary in clip norms. It is below 1 if layers are clipped separately and some are
    too small to have a weight for every canary. `heaviest` is the largest observed ratio of a clipped value
    to its limit, initially 0. `lighter` is the weight of canaries in this step less the weight they have if
    they are clipped to the clip norm, in units of it; None if they must have that weight.
    """

    places: Places
    heaviest: Tensor
    share: float = 1.0
    lighter: Tensor | None = None

    def before_clipping(self) -> None:  # noqa: B027, most have nothing to do
        """Read the gradients of the rows of a batch, and replace those of canary rows, if any."""

    @abstractmethod
    def before_noise(self, clip_norm: float) -> Tensor | None:
        """Read the clipped sums, and add the canaries if they enter here; otherwise return their part."""

    def contradictions(self) -> tuple[str, ...]:
        """Contradictions between the sums and the stated clipping."""
        return ()

    def clipping(self) -> str:
        """The reason why clipping was not tested, besides the injection itself; empty if there is none."""
        return ""

    def excuse(self) -> str:
        """A reason why canaries may not be clipped that is no fault of training; empty if they are."""
        return ""

    def release(self) -> None:  # noqa: B027, most have nothing to do
        """Undo all changes."""

    def draws_state(self) -> Any:  # noqa: B027, most have nothing to do
        """The checkpoint state of the auditor's draws or of canaries; None if there is none."""

    def restore_draws(self, state: Any) -> None:  # noqa: B027, most have nothing to do
        """Continue from such a state."""


class _Vectors:
    """The unit gradients of the canaries at their places."""

    def __init__(self, design: Design, device: torch.device) -> None:
        self._width, self._dense = design.coordinates, None
        if isinstance(design, Dense):
            self._dense = torch.tensor(design.gradients(), dtype=torch.float32, device=device)

    def total(self, weights: Tensor) -> Tensor:
        """The sum of the dense canaries with these weights."""
        assert self._dense is not None
        return weights @ self._dense

    def of(self, which: Tensor) -> Tensor:
        """The gradients of these canaries, one row for each."""
        if self._dense is not None:
            return self._dense[which]
        rows = torch.zeros(len(which), self._width, device=which.device)
        return rows.scatter_(1, which[:, None] % self._width, 1.0)


class _Sum(Injection):
    """Canaries join the clipped sum, drawn by the auditor with Poisson sampling.

    The clipper is not exercised. But clipped rows add at most one clip norm each, so in the first steps the
    norm of the sum is compared with the largest possible sum of its rows.
    """

    def __init__(self, optimizer: DPOptimizer, draws: Draws, design: Design, bits: Bits, seed: int) -> None:
        self._optimizer = optimizer
        self.places, self.share = _spread(optimizer, design, seed)
        device = optimizer.params[0].device
        self._dense = _Vectors(design, device) if isinstance(design, Dense) else None
        width = design.count if self._dense else design.coordinates
        included = np.flatnonzero(bits > 0) % width
        # If each canary has one weight, count draws there: copying the counts would cost a call.
        self._slots = None if self._dense else self.places.slots
        if self._slots is not None:
            included, width = self._slots[included], len(self.places.values)
        self._poisson = Poisson(included, width, rate_of(draws.loader), derived(seed, DRAWS), device)
        # Processes add their gradients up, so canaries join the sum of one of them.
        self._adds = not _internals.is_distributed(optimizer) or torch.distributed.get_rank() == 0
        self._compares, self._compared, self._rows = not _internals.is_sharded(optimizer), 0, 0
        self.heaviest = torch.zeros((), device=device)

    def before_clipping(self) -> None:
        if self._compares and self._compared < _COMPARED:
            self._rows += _internals.rows_waiting(self._optimizer)

    def before_noise(self, clip_norm: float) -> Tensor | None:
        self.places.take_sums()
        if self._rows:
            self._compare(clip_norm)
        self._rows = 0
        counts = self._poisson.counts()
        if self._adds:
            added = self._dense.total(counts) if self._dense else counts
            vector = added if self._slots is not None else self.places.spread(added)
            self.places.add(vector, clip_norm * self.share)
        return None

    def _compare(self, clip_norm: float) -> None:
        """Record the clip norms per row in this step; at most one if rows are clipped."""
        self._compared += 1
        heaviest = self.places.norm() / (self._rows * clip_norm)
        self.heaviest = torch.maximum(self.heaviest, heaviest)

    def contradictions(self) -> tuple[str, ...]:
        return unclipped(float(self.heaviest))

    def clipping(self) -> str:
        if not self._compares:
            return "a process sees only its own shard of the sums"
        return "" if self._compared else "the number of rows in the sums was not seen"

    def draws_state(self) -> Any:
        return self._poisson.state()

    def restore_draws(self, state: Any) -> None:
        self._poisson.restore(state)


class _ByRows(Injection):
    """Canaries are rows that the optimizer clips. None may weigh more than the clip norm in the sum."""

    def __init__(self, optimizer: DPOptimizer, design: Design) -> None:
        self._optimizer, self._design = optimizer, design
        self._apart = bool(_internals.layer_norms(optimizer))
        self._device = optimizer.params[0].device
        self._rounding = _ROUNDINGS * max(torch.finfo(p.dtype).eps for p in optimizer.params)
        self.heaviest = torch.zeros((), device=self._device)

    def _part(self, real: Tensor | float, clip_norm: float, taking: Tensor, expected: Tensor) -> Tensor:
        """The canaries' part of the clipped sums: reads the sums and subtracts the real rows.

        `taking` is the number of participating included canaries on each coordinate, and `expected` their sum
        if they are clipped to norm 1. If layers are clipped separately, `real` is per weight: in each layer,
        no canary may weigh more than the clip norm of the layer.
        """
        places = self.places
        places.take_sums()
        most = clip_norm * taking.clamp(min=1)
        if self._apart:
            seen = places.read_weights()
            own = seen - real
            heaviest = (own.abs() - self._rounding * seen.abs().amax()) / places.unfolded(most)
            own = places.folded(own)
        else:
            seen = places.read(torch.empty(places.all, device=self._device))[: places.count]
            own = seen - real
            heaviest = (own.abs() - self._rounding * seen.abs().amax()) / most
        self.heaviest = torch.maximum(self.heaviest, heaviest.amax())
        self.lighter = None
        if not _internals.clips_as_opacus(self._optimizer):
            # The program's own clipper may clip further than to the clip norm, for example each parameter to
            # a part of it. That is no fault, so conformance must not count it as one.
            less = own / clip_norm - expected
            self.lighter = less * (own.abs() < clip_norm * expected.abs())
        return own

    def clipping(self) -> str:
        if isinstance(self._design, Dense):
            return "dense canaries overlap, so the weight of one of them cannot be measured"
        return ""

    def contradictions(self) -> tuple[str, ...]:
        return too_heavy(float(self.heaviest), self._design, apart=self._apart)


class _Rows(_ByRows):
    """The gradient of every canary row is replaced before the optimizer clips it."""

    def __init__(self, optimizer: DPOptimizer, draws: Draws, design: Design, bits: Bits, seed: int) -> None:
        super().__init__(optimizer, design)
        spanning = design.spanning if isinstance(design, Dirac) else 0
        self.places, self.share = _spread(optimizer, design, seed, spanning=spanning)
        self.samples = SampleGradients(optimizer.params, self.places)
        self._draws = draws
        self._first, self._at = draws.loader.dataset.real, draws.loader.dataset.rows
        device = optimizer.params[0].device
        self._included = torch.tensor(bits > 0, dtype=torch.float32, device=device)
        self._vectors = _Vectors(design, device)
        self._sum: Tensor | float = 0.0
        self._taking = torch.zeros(self.places.count, device=device)
        self._expected = torch.zeros(self.places.count, device=device)

    @torch.no_grad()
    def before_clipping(self) -> None:
        self.places.require_trained()
        parameters = self._optimizer.params
        if any(map(_internals.waiting_batches, parameters)):
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        taken = self._draws.take(len(_internals.per_sample_gradients(parameters[0])))
        if not taken:
            return
        drawn = torch.tensor(self._at[taken], dtype=torch.long, device=parameters[0].device)
        rows = torch.nonzero(drawn >= self._first).ravel()
        which = drawn[rows] - self._first
        for parameter in parameters:
            # A canary row repeats a real row, whose gradient must not count a second time.
            _internals.per_sample_gradients(parameter)[rows] = 0
        self._taking.index_add_(0, which % len(self._taking), self._included[which])
        added = self._included[which][:, None] * self._vectors.of(which)
        # Opacus' own clipper multiplies rows by factors that are cheap to compute. Any other clipper is run
        # on the real rows, whose gradients are alone here until those of canaries are inserted.
        real = None
        if not _internals.clips_as_opacus(self._optimizer):
            gradients = [_internals.per_sample_gradients(parameter).clone() for parameter in parameters]
            real, _ = _internals.clipped_alone(self._optimizer, gradients)
        self.samples.put(rows, raw_norm(_internals.clip_norm_of(self._optimizer)) * added)
        if real is None:
            factors = _internals.clipping_factors(self._optimizer) * (drawn < self._first)
            at_weights = self.samples.sums(factors)
        else:
            at_weights = self.samples.of(real)
            self._expected += added.sum(0)
        self._sum = self._sum + (at_weights if self._apart else self.places.folded(at_weights))

    def before_noise(self, clip_norm: float) -> Tensor | None:
        self._draws.finish()
        real, self._sum = self._sum, 0.0
        taking, self._taking = self._taking, torch.zeros_like(self._taking)
        expected, self._expected = self._expected, torch.zeros_like(self._expected)
        return self._part(real, clip_norm * self.share, taking, expected)


class _Head(_ByRows):
    """Canaries have gradients in a canary embedding, which no real row has."""

    def __init__(self, optimizer: DPOptimizer, _: Draws, design: Design, bits: Bits, seed: int) -> None:
        super().__init__(optimizer, design)
        home = [place for place, p in enumerate(optimizer.params) if hasattr(p, "canary_head")]
        self.places, self.share = _spread(optimizer, design, seed, home)
        self._head = optimizer.params[home[0]].canary_head
        self._head.included.copy_(torch.tensor(bits > 0))
        self._head.scale.averaged = _internals.averages_losses(optimizer)
        self._head.scale.twice = _internals.clips_by_ghost(optimizer)
        self._head.scale.strength = raw_norm(float(optimizer.max_grad_norm))

    def before_noise(self, clip_norm: float) -> Tensor | None:
        self._head.scale.end_step(clip_norm)
        taking = self._head.taken()
        return self._part(0.0, clip_norm, taking, taking)

    def excuse(self) -> str:
        weakest = self._head.scale.weakest
        if weakest >= _SURELY_CLIPPED:
            return ""
        return (
            f"not tested (a canary row had a gradient of {weakest:.2g} clip norms, and {_SURELY_CLIPPED:g} "
            "are needed for it to be surely clipped: losses of rows, or clip norms of steps, differ too "
            "much; use 'rows' or 'sum')"
        )

    def draws_state(self) -> Any:
        return self._head.scale.state()

    def restore_draws(self, state: Any) -> None:
        self._head.scale.restore(state)

    def release(self) -> None:
        self._head.included.zero_()


def layers_with_room(optimizer: DPOptimizer, design: Design) -> list[int]:
    """If layers are clipped separately, those with a weight for every coordinate with canaries."""
    return [
        place
        for place, norm in enumerate(_internals.layer_norms(optimizer))
        if norm > 0 and optimizer.params[place].numel() >= design.coordinates
    ]


MAKERS: Final[dict[str, Callable[..., Injection]]] = {"sum": _Sum, "rows": _Rows, "head": _Head}


def _spread(
    optimizer: DPOptimizer, design: Design, seed: int, home: Sequence[int] = (), *, spanning: int = 0
) -> tuple[Places, float]:
    """The places of canaries, and the norm of a canary in clip norms."""
    norms, across = _internals.layer_norms(optimizer), layers_with_room(optimizer, design)
    used = [norm if place in across else 0.0 for place, norm in enumerate(norms)]
    laid = layout(
        [tuple(p.shape) for p in optimizer.params],
        design.coordinates,
        np.random.default_rng(derived(seed, PLACES)),
        home=home,
        across=across,
        coarse=[place for place, p in enumerate(optimizer.params) if p.dtype not in FINE],
        spanning=spanning,
        totalled=not _internals.is_distributed(optimizer),
    )
    whole = math.hypot(*used)
    places = Places(_internals.parts_held(optimizer), laid, [norm / whole for norm in used])
    return places, whole / math.hypot(*norms) if norms else 1.0
