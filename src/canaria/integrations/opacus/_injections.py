"""How canaries get into the sums: three ways, one interface."""

import math
from collections.abc import Callable, Sequence
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
from canaria.training.canaries import DRAWS, PLACES, Dense, Design, Dirac, derived, raw_norm, too_heavy
from canaria.training.witnesses import layout

_ROUNDINGS: Final = 16
"""Of the sums, by which a canary may seem to weigh more than it does."""
_AT_ONCE: Final = 16
"""Draws are made for so many steps at once."""
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

    def before_noise(self) -> tuple[list[Tensor], Tensor]:
        """The clipped sums with the canaries in them, end to end, and the canaries' part of them."""
        raise NotImplementedError

    def contradictions(self) -> tuple[str, ...]:
        """What cannot be if gradients are clipped as stated."""
        return ()

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
    they end before the last thing with a probability below 1e-15. Draws are made for several steps at once:
    little work done often costs more than much work done rarely. On a CPU numpy draws.
    """

    def __init__(self, slots: Integers, width: int, rate: float, seed: int, device: torch.device) -> None:
        self._on_cpu = device.type == "cpu"
        self._things, self._width = len(slots), width
        expected = _AT_ONCE * self._things * rate
        self._gaps = math.ceil(expected + 8 * math.sqrt(expected) + 40)
        self._scale = 0.0 if rate == 1 else -1 / math.log1p(-rate)
        self._slots: Any = np.append(slots, 0)
        self._generator: Any = np.random.default_rng(seed)
        if not self._on_cpu:
            self._slots = torch.tensor(self._slots, dtype=torch.int64, device=device)
            self._generator = torch.Generator(device).manual_seed(seed)
        self._drawn = torch.zeros(_AT_ONCE * width + 1, device=device)
        self._begun, self._used = self._generator_state(), _AT_ONCE

    def counts(self) -> Tensor:
        """How many were drawn in each slot."""
        if self._used == _AT_ONCE:
            self._begun, self._used = self._generator_state(), 0
            if self._on_cpu:
                self._draw_on_cpu()
            else:
                self._draw_on_device()
        first = self._used * self._width
        self._used += 1
        return self._drawn[first : first + self._width]

    def _draw_on_cpu(self) -> None:
        gaps = self._generator.standard_exponential(self._gaps)
        gaps *= self._scale
        np.floor(gaps, out=gaps)
        gaps += 1
        things = np.minimum(gaps.cumsum() - 1, _AT_ONCE * self._things).astype(np.int64)
        step, thing = np.divmod(things[things < _AT_ONCE * self._things], max(self._things, 1))
        counted = np.bincount(step * self._width + self._slots[thing], minlength=len(self._drawn))
        self._drawn.copy_(torch.from_numpy(counted))

    def _draw_on_device(self) -> None:
        gaps = torch.empty(self._gaps, dtype=torch.float64, device=self._slots.device)
        gaps.exponential_(generator=self._generator).mul_(self._scale).floor_().add_(1)
        things = gaps.cumsum(0).sub_(1).clamp_(max=_AT_ONCE * self._things).long()
        step = things // max(self._things, 1)
        slots = self._slots[things - step * self._things].add_(step, alpha=self._width)
        slots.masked_fill_(things >= _AT_ONCE * self._things, len(self._drawn) - 1)
        self._drawn.zero_().index_add_(0, slots, self._drawn.new_ones(1).expand(len(slots)))

    def _generator_state(self) -> Any:
        return self._generator.bit_generator.state if self._on_cpu else self._generator.get_state()

    def state(self) -> Any:
        """What a checkpoint needs."""
        begun = self._generator_state() if self._used == _AT_ONCE else self._begun
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
        self._used = _AT_ONCE
        if state["used"] < _AT_ONCE:
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
        self._adds = not is_distributed(optimizer) or torch.distributed.get_rank() == 0

    def before_noise(self) -> tuple[list[Tensor], Tensor]:
        sums, counts = self.places.vectors(CLIPPED_SUM), self._poisson.counts()
        added = self._dense.total(counts) if self._dense else counts
        if not self._adds:
            return sums, torch.zeros_like(added)
        grown = self.places.add(sums, added, float(self._optimizer.max_grad_norm))
        self.places.put(CLIPPED_SUM, sums)
        return sums, grown

    def draws_state(self) -> Any:
        return self._poisson.state()

    def restore_draws(self, state: Any) -> None:
        self._poisson.restore(state)


class _Clipped(Injection):
    """Canaries are rows that the optimizer clips: none may weigh more than the clip norm in the sum."""

    def __init__(self, design: Design) -> None:
        self._design = design
        self._heaviest: Tensor | None = None

    def _part(self, sums: list[Tensor], real: Tensor | float, clip_norm: float) -> Tensor:
        """The canaries' part of such sums, less that of the real rows."""
        places = self.places
        seen = places.read(sums, torch.empty(places.all, device=sums[0].device))[: places.count]
        own = seen - real
        rounding = _ROUNDINGS * max(torch.finfo(vector.dtype).eps for vector in sums)
        heaviest = (own.abs().amax() - rounding * seen.abs().amax()) / clip_norm
        self._heaviest = heaviest if self._heaviest is None else torch.maximum(self._heaviest, heaviest)
        return own

    def contradictions(self) -> tuple[str, ...]:
        return () if self._heaviest is None else too_heavy(float(self._heaviest), self._design)


class _Rows(_Clipped):
    """The gradient of every canary row is replaced before the optimizer clips it."""

    replaces_gradients = True

    def __init__(self, optimizer: DPOptimizer, draws: Draws, design: Design, bits: Bits, seed: int) -> None:
        super().__init__(design)
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed, spanning=isinstance(design, Dirac))
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

    def before_noise(self) -> tuple[list[Tensor], Tensor]:
        self._draws.finish()
        sums, real = self.places.vectors(CLIPPED_SUM), self._sum
        self._sum = 0.0
        return sums, self._part(sums, real, float(self._optimizer.max_grad_norm))


class _Head(_Clipped):
    """The canary embedding's own gradient; no real row touches it."""

    def __init__(self, optimizer: DPOptimizer, _: Draws, design: Design, bits: Bits, seed: int) -> None:
        super().__init__(design)
        home = [place for place, p in enumerate(optimizer.params) if hasattr(p, "canary_head")]
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed, home)
        self._head = optimizer.params[home[0]].canary_head
        self._head.included.copy_(torch.tensor(bits > 0))
        self._head.scale.averaged = averages_losses(optimizer)
        self._head.scale.twice = clips_by_ghost(optimizer)
        self._head.scale.strength = raw_norm(float(optimizer.max_grad_norm))

    def before_noise(self) -> tuple[list[Tensor], Tensor]:
        clip_norm = float(self._optimizer.max_grad_norm)
        self._head.scale.strength = raw_norm(clip_norm)
        sums = self.places.vectors(CLIPPED_SUM)
        return sums, self._part(sums, 0.0, clip_norm)

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


def _spread(
    optimizer: DPOptimizer, design: Design, seed: int, home: Sequence[int] = (), *, spanning: bool = False
) -> Places:
    laid = layout(
        [tuple(p.shape) for p in optimizer.params],
        design.coordinates,
        np.random.default_rng(derived(seed, PLACES)),
        home=home,
        coarse=[place for place, p in enumerate(optimizer.params) if p.dtype not in FINE],
        spanning=spanning,
        totalled=not is_distributed(optimizer),
    )
    return Places(optimizer.params, laid)
