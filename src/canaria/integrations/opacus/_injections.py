"""How canaries get into the sums: three ways, one interface."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria._core.arrays import Bits, Integers
from canaria._core.errors import InputError
from canaria.integrations.opacus._internals import (
    CLIPPED_SUM,
    averages_losses,
    clipping_factors,
    clips_by_ghost,
    is_distributed,
    per_sample_gradients,
    waiting_batches,
)
from canaria.integrations.opacus._places import Places
from canaria.integrations.opacus._rows import Draws
from canaria.training.canaries import DRAWS, PLACES, Dense, Design, derived, raw_norm
from canaria.training.witnesses import layout

FINE: Final = (torch.float32, torch.float64)
"""The precisions in which sums are not rounded by more than they may be."""
_SURELY_CLIPPED: Final = 2.0
"""The least norm of a canary before clipping, in clip norms; rounding and changing clip norms are below."""


class Injection:
    """How canaries get into the sums."""

    places: Places
    replaces_gradients: ClassVar[bool] = False

    def put_canaries(self) -> None:
        """Replace the gradients of canary rows, before they are clipped."""

    def real_part(self) -> Tensor:
        """Add the canaries, if that is to be done now, and tell the real rows' part of the sums.

        At witnesses that is the whole clipped sum.
        """
        raise NotImplementedError

    def excuse(self) -> str:
        """Why canaries may not be clipped, through no fault of training; empty if they surely are."""
        return ""

    def release(self) -> None:
        """Undo what was changed."""

    def draws_state(self) -> Any:
        """What a checkpoint needs of draws of the auditor's own, or of canaries; None if there is nothing."""

    def restore_draws(self, state: Any) -> None:
        """Go on from such a state."""


class _Vectors:
    """The unit gradients of the canaries at their places."""

    def __init__(self, design: Design, device: torch.device) -> None:
        self._width, self._dense = design.coordinates, None
        if isinstance(design, Dense):
            self._dense = torch.tensor(design.gradients(), dtype=torch.float32, device=device)

    def total(self, weights: Tensor) -> Tensor:
        """The sum of the dense canaries, with these weights."""
        assert self._dense is not None
        return weights @ self._dense

    def of(self, which: Tensor) -> Tensor:
        """One row for each of these canaries."""
        if self._dense is not None:
            return self._dense[which]
        rows = torch.zeros(len(which), self._width, device=which.device)
        return rows.scatter_(1, which[:, None] % self._width, 1.0)


class _Poisson:
    """Draws each of some things with one probability, and counts those drawn in each slot.

    `slots` says where each thing counts. What is drawn is found by the gaps in between, which are geometric
    (exponentials, rounded), so only the few that are drawn cost a random number. Enough gaps are taken that
    they end before the last thing with a probability below 1e-15. On a CPU numpy draws, several times at
    once: little work done often costs more than much work done rarely.
    """

    def __init__(self, slots: Integers, width: int, rate: float, seed: int, device: torch.device) -> None:
        self._on_cpu = device.type == "cpu"
        self._times = 16 if self._on_cpu else 1
        self._things, self._width = len(slots), width
        expected = self._times * self._things * rate
        self._gaps = math.ceil(expected + 8 * math.sqrt(expected) + 40)
        self._scale = 0.0 if rate == 1 else -1 / math.log1p(-rate)
        everywhere = (np.arange(self._times)[:, None] * width + slots).ravel()
        self._slots: Any = np.append(everywhere, self._times * width)
        self._generator: Any = np.random.default_rng(seed)
        if not self._on_cpu:
            self._slots = torch.tensor(self._slots, dtype=torch.int64, device=device)
            self._ones = torch.ones(self._gaps, device=device)
            self._generator = torch.Generator(device).manual_seed(seed)
        else:
            self._counted = np.zeros(self._times * width + 1, dtype=np.float32)
            self._shared = len(np.unique(slots)) < len(slots)
        self._begun, self._used = self._generator_state(), self._times
        self._drawn = torch.zeros(self._times, width, device=device)

    def counts(self) -> Tensor:
        """How many were drawn in each slot."""
        if self._used == self._times:
            self._begun, self._used = self._generator_state(), 0
            self._drawn = (self._drawn_on_cpu() if self._on_cpu else self._drawn_on_device())[:-1]
            self._drawn = self._drawn.view(self._times, self._width)
        self._used += 1
        return self._drawn[self._used - 1]

    def _drawn_on_cpu(self) -> Tensor:
        gaps = self._generator.standard_exponential(self._gaps)
        gaps *= self._scale
        np.floor(gaps, out=gaps)
        gaps += 1
        drawn = self._slots[np.minimum(gaps.cumsum(), len(self._slots)).astype(np.int64) - 1]
        if self._shared:
            self._counted[:] = np.bincount(drawn, minlength=len(self._counted))
        else:
            self._counted.fill(0)
            self._counted[drawn] = 1
        return torch.from_numpy(self._counted)

    def _drawn_on_device(self) -> Tensor:
        gaps = torch.empty(self._gaps, dtype=torch.float64, device=self._slots.device)
        gaps.exponential_(generator=self._generator).mul_(self._scale).floor_().add_(1)
        places = gaps.cumsum(0).clamp_(max=len(self._slots)).sub_(1).long()
        empty = torch.zeros(self._width + 1, device=self._slots.device)
        return empty.index_add_(0, self._slots[places], self._ones)

    def _generator_state(self) -> Any:
        return self._generator.bit_generator.state if self._on_cpu else self._generator.get_state()

    def state(self) -> Any:
        """What a checkpoint needs."""
        begun = self._generator_state() if self._used == self._times else self._begun
        return {"begun": begun, "used": self._used}

    def restore(self, state: Any) -> None:
        """Go on from a checkpoint, made on the same kind of device."""
        begun = state["begun"]
        if isinstance(begun, dict) != self._on_cpu:
            raise InputError("the audit's draws were made on another kind of device; resume on that kind")
        if self._on_cpu:
            self._generator.bit_generator.state = begun
        else:
            self._generator.set_state(begun.cpu())
        self._used = self._times
        if state["used"] < self._times:
            self.counts()
            self._used = int(state["used"])


class _Sum(Injection):
    """Canaries join the clipped sum by a Poisson draw of the auditor's own."""

    def __init__(self, optimizer: DPOptimizer, draws: Draws, design: Design, bits: Bits, seed: int) -> None:
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed)
        device = optimizer.params[0].device
        self._dense = _Vectors(design, device) if isinstance(design, Dense) else None
        width = design.count if self._dense else design.coordinates
        rate = float(draws.loader.batch_sampler.sample_rate)
        self._poisson = _Poisson(np.flatnonzero(bits > 0) % width, width, rate, derived(seed, DRAWS), device)
        self._real = torch.empty(self.places.all, device=device)
        self._adds = not is_distributed(optimizer) or torch.distributed.get_rank() == 0

    def real_part(self) -> Tensor:
        self.places.read(CLIPPED_SUM, self._real)
        if self._adds:
            counts = self._poisson.counts()
            added = self._dense.total(counts) if self._dense else counts
            self.places.add(CLIPPED_SUM, added, float(self._optimizer.max_grad_norm))
        return self._real

    def draws_state(self) -> Any:
        return self._poisson.state()

    def restore_draws(self, state: Any) -> None:
        self._poisson.restore(state)


class _Rows(Injection):
    """The gradient of every canary row is replaced before the optimizer clips it."""

    replaces_gradients = True

    def __init__(self, optimizer: DPOptimizer, draws: Draws, design: Design, bits: Bits, seed: int) -> None:
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed)
        self._real = torch.empty(self.places.all, device=optimizer.params[0].device)
        self._draws = draws
        self._first = draws.loader.dataset.real
        device = optimizer.params[0].device
        self._included = torch.tensor(bits > 0, dtype=torch.float32, device=device)
        self._vectors = _Vectors(design, device)
        self._sum: Tensor | float = 0.0

    @torch.no_grad()
    def put_canaries(self) -> None:
        parameters = self._optimizer.params
        if any(map(waiting_batches, parameters)):
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        taken = self._draws.take(len(per_sample_gradients(parameters[0])))
        if not taken:
            return
        drawn = torch.tensor(taken, dtype=torch.long, device=parameters[0].device)
        rows = torch.nonzero(drawn >= self._first).ravel()
        which = drawn[rows] - self._first
        for parameter in parameters:
            per_sample_gradients(parameter)[rows] = 0
        sizes = raw_norm(self._optimizer.max_grad_norm) * self._included[which]
        self.places.put_rows(rows, sizes[:, None] * self._vectors.of(which))
        real = drawn < self._first
        self._sum = self._sum + self.places.read_rows(clipping_factors(self._optimizer) * real)

    def real_part(self) -> Tensor:
        self._draws.finish()
        self.places.read(CLIPPED_SUM, self._real)
        self._real[: self.places.count] = self._sum
        self._sum = 0.0
        return self._real


class _Head(Injection):
    """The canary embedding's own gradient; no real row touches it."""

    def __init__(self, optimizer: DPOptimizer, _: Draws, design: Design, bits: Bits, seed: int) -> None:
        home = next(place for place, p in enumerate(optimizer.params) if hasattr(p, "canary_head"))
        weight = optimizer.params[home]
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed, home)
        self._real = torch.empty(self.places.all, device=weight.device)
        self._head = weight.canary_head
        self._head.included.copy_(torch.tensor(bits > 0))
        self._head.scale.averaged = averages_losses(optimizer)
        self._head.scale.twice = clips_by_ghost(optimizer)
        self._head.scale.strength = raw_norm(float(optimizer.max_grad_norm))

    def real_part(self) -> Tensor:
        self._head.scale.strength = raw_norm(float(self._optimizer.max_grad_norm))
        self.places.read(CLIPPED_SUM, self._real)
        self._real[: self.places.count] = 0
        return self._real

    def excuse(self) -> str:
        least = self._head.scale.least(float(self._optimizer.max_grad_norm))
        if least >= _SURELY_CLIPPED:
            return ""
        return (
            f"not tested (a canary row had a gradient of {least:.2g} clip norms, and {_SURELY_CLIPPED:g} are "
            "needed for it to be surely clipped: losses of rows differ too much; use 'rows' or 'sum')"
        )

    def draws_state(self) -> Any:
        return self._head.scale.state()

    def restore_draws(self, state: Any) -> None:
        self._head.scale.restore(state)

    def release(self) -> None:
        self._head.included.zero_()


MAKERS: Final[dict[str, Callable[..., Injection]]] = {"sum": _Sum, "rows": _Rows, "head": _Head}


def _spread(optimizer: DPOptimizer, design: Design, seed: int, home: int | None = None) -> Places:
    coarse = [place for place, p in enumerate(optimizer.params) if p.dtype not in FINE]
    rng = np.random.default_rng(derived(seed, PLACES))
    shapes = [tuple(p.shape) for p in optimizer.params]
    return Places(optimizer.params, layout(shapes, design.coordinates, rng, home=home, coarse=coarse))
