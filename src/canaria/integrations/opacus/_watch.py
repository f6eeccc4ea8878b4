"""Witnesses on the device of the model, watched without waiting for it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from canaria.training.conformance.measured import Squares
from canaria.training.watch import Watch


class Watched:
    """Passes the squares of steps from the device to a `Watch`, several steps at once if it checks rarely.

    On a GPU, numbers are copied while training continues, and checked at the next call: waiting for them
    would slow training down.
    """

    def __init__(self, watch: Watch, device: torch.device) -> None:
        self.watch = watch
        self._waits = device.type == "cuda"
        self._held = torch.zeros(watch.every, pin_memory=self._waits)
        self._arrived: Any = torch.cuda.Event() if self._waits else None  # type: ignore[no-untyped-call]
        self._pending: tuple[int, Sequence[tuple[float, float]]] | None = None
        self._steps = 0

    def due(self) -> bool:
        """Count a step; returns whether the steps since the last check should be added."""
        self._steps += 1
        return self._steps % self.watch.every == 0

    def add(self, witnesses: Tensor, told: Sequence[tuple[float, float]]) -> None:
        """Add steps, one row each: the noise at witnesses, and the stated noise in both units."""
        self.collect()
        self._held.copy_(torch.linalg.vector_norm(witnesses, dim=1), non_blocking=True)
        self._pending = witnesses.shape[1], told
        if self._waits:
            self._arrived.record()
        else:
            self.collect()

    def collect(self) -> None:
        """Process numbers that are still being copied."""
        if self._pending is None:
            return
        if self._waits:
            self._arrived.synchronize()
        (count, told), self._pending = self._pending, None
        for norm, (stated, unit) in zip(self._held.tolist(), told, strict=True):
            if stated > 0:
                self.watch.add(Squares((norm / unit) ** 2, count), stated)
