"""How canaries get into the sums: three ways, one interface."""

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np
import torch
from opacus.optimizers import DistributedDPOptimizer
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import DistributedDPOptimizerFastGradientClipping
from torch import Tensor

from canaria._validate import InputError
from canaria.integrations.opacus._places import Places
from canaria.integrations.opacus._rows import DrawnRows
from canaria.training import Dense, Design

DISTRIBUTED: Final = (DistributedDPOptimizer, DistributedDPOptimizerFastGradientClipping)
RAW_NORM: Final = 10.0
"""The norm of a canary before clipping, in units of the clip norm, so that clipping is exercised."""
_DRAWS: Final = 0x64726177


class Way(Protocol):
    """How canaries get into the sums."""

    places: Places

    def real_part(self) -> Tensor | float:
        """Add the canaries, if that is to be done now, and tell the real rows' part of the sums."""

    def release(self) -> None:
        """Undo what was changed."""


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
    """Draws each of `count` things with one probability, by the gaps between those drawn.

    Gaps are geometric, so only the few that are drawn cost a random number. Enough gaps are taken that they
    end before the last thing with a probability below 1e-15.
    """

    def __init__(self, count: int, rate: float, seed: int, device: torch.device) -> None:
        self._count, self._rate = count, rate
        expected = count * rate
        self.most = math.ceil(expected + 8 * math.sqrt(expected) + 40)
        self.generator = torch.Generator(device).manual_seed(seed)
        self._all = torch.arange(count, device=device)

    def draw(self) -> Tensor:
        """The places of those drawn; `count` stands for none."""
        if self._rate == 1:
            return self._all
        gaps = torch.empty(self.most, dtype=torch.int64, device=self._all.device)
        gaps.geometric_(self._rate, generator=self.generator)
        return gaps.cumsum(0).sub_(1).clamp_(max=self._count)


class _Sum:
    """Canaries join the clipped sum by a Poisson draw of the auditor's own."""

    def __init__(self, optimizer: Any, loader: Any, design: Design, bits: Any, seed: int) -> None:
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed)
        device = optimizer.params[0].device
        included = np.flatnonzero(bits > 0)
        self._poisson = _Poisson(
            len(included), float(loader.batch_sampler.sample_rate), _derived(seed, 1), device
        )
        self.draws = self._poisson.generator
        self._dense = None
        if isinstance(design, Dense):
            self._dense = _Vectors(design, device)
        self._slots = design.count if self._dense else design.coordinates
        slots = np.append(included % self._slots, self._slots)
        self._slot_of = torch.tensor(slots, dtype=torch.int64, device=device)
        self._ones = torch.ones(self._poisson.most, device=device)
        self._adds = not isinstance(optimizer, DISTRIBUTED) or torch.distributed.get_rank() == 0

    def real_part(self) -> Tensor:
        real = self.places.read("summed_grad")
        drawn = self._slot_of[self._poisson.draw()]
        if self._adds:
            counts = torch.zeros(self._slots + 1, device=real.device)
            counts.index_add_(0, drawn, self._ones[: len(drawn)], alpha=self._optimizer.max_grad_norm)
            added = counts[:-1]
            self.places.add("summed_grad", self._dense.total(added) if self._dense else added)
        return real

    def release(self) -> None:
        """Nothing was changed."""


class _Rows:
    """The gradient of every canary row is replaced before the optimizer clips it."""

    def __init__(self, optimizer: Any, loader: Any, design: Design, bits: Any, seed: int) -> None:
        self._optimizer = optimizer
        self.places = _spread(optimizer, design, seed)
        self._drawn = DrawnRows(loader.batch_sampler)
        self._first = loader.dataset.real
        device = optimizer.params[0].device
        self._included = torch.tensor(bits > 0, dtype=torch.float32, device=device)
        self._vectors = _Vectors(design, device)
        self._clip: Callable[[], None] = optimizer.clip_and_accumulate
        optimizer.clip_and_accumulate = self._clip_with_canaries
        self._sum: Tensor | float = 0.0

    @torch.no_grad()
    def _clip_with_canaries(self) -> None:
        parameters = self._optimizer.params
        if any(isinstance(p.grad_sample, list) for p in parameters):
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        device = parameters[0].device
        drawn = torch.tensor(
            self._drawn.take(len(parameters[0].grad_sample)), dtype=torch.long, device=device
        )
        rows = torch.nonzero(drawn >= self._first).ravel()
        which = drawn[rows] - self._first
        for parameter in parameters:
            parameter.grad_sample[rows] = 0
        sizes = RAW_NORM * self._optimizer.max_grad_norm * self._included[which]
        self.places.put_rows(rows, sizes[:, None] * self._vectors.of(which))
        self._sum = self._sum + self.places.read_rows(self._factors(parameters, drawn < self._first))
        self._clip()

    def _factors(self, parameters: list[Any], real: Tensor) -> Tensor:
        """By how much the real rows are to be clipped; 0 for canaries."""
        if len(real) == 0:
            return torch.zeros(0, device=real.device)
        norms = torch.stack([p.grad_sample.flatten(1).float().norm(dim=1) for p in parameters])
        factors: Tensor = (self._optimizer.max_grad_norm / (norms.norm(dim=0) + 1e-6)).clamp(max=1.0)
        return factors * real

    def real_part(self) -> Tensor | float:
        self._drawn.finish()
        real, self._sum = self._sum, 0.0
        return real

    def release(self) -> None:
        self._optimizer.clip_and_accumulate = self._clip
        self._drawn.release()


class _Head:
    """The canary embedding's own gradient; no real row touches it."""

    def __init__(self, optimizer: Any, _: Any, design: Design, bits: Any, __: int) -> None:
        weight = next(p for p in optimizer.params if hasattr(p, "canary_head"))
        self._optimizer = optimizer
        self.places = Places([weight], design.coordinates, 0)
        self._head = weight.canary_head
        self._head.included.copy_(torch.tensor(bits > 0))
        self._head.strength = RAW_NORM * float(optimizer.max_grad_norm)

    def real_part(self) -> float:
        self._head.strength = RAW_NORM * float(self._optimizer.max_grad_norm)
        return 0.0

    def release(self) -> None:
        self._head.included.zero_()


MAKERS: Final[dict[str, Callable[..., Way]]] = {"sum": _Sum, "rows": _Rows, "head": _Head}


def _derived(seed: int, purpose: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=(_DRAWS, purpose)).generate_state(1, np.uint64)[0] >> 1)


def _spread(optimizer: Any, design: Design, seed: int) -> Places:
    return Places(optimizer.params, design.coordinates, _derived(seed, 2))
