"""Witnesses on the device of the model, watched without waiting for it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from canaria.training.conformance.measured import Squares
from canaria.training.watch import Watch


class Watched:
    """Brings the squares of steps from the device to a `Watch`, of several steps at once if it looks rarely.

    On a GPU numbers are copied while training goes on, and looked at one look later: waiting for them would
    hold training up.
    """

    def __init__(self, watch: Watch, device: torch.device) -> None:
        self.watch = watch
        self._waits = device.type == "cuda"
        self._held = torch.zeros(watch.every, pin_memory=self._waits)
        self._arrived: Any = torch.cuda.Event() if self._waits else None  # type: ignore[no-untyped-call]
        self._pending: tuple[int, Sequence[tuple[float, float]]] | None = None
        self._steps = 0

    def due(self) -> bool:
        """Count a step; whether those since the last look are to be added."""
        self._steps += 1
        return self._steps % self.watch.every == 0

    def add(self, witnesses: Tensor, told: Sequence[tuple[float, float]]) -> None:
        """Steps, a row each: the noise at witnesses; of each step the stated noise, as it is and there."""
        self.collect()
        self._held.copy_(torch.linalg.vector_norm(witnesses, dim=1), non_blocking=True)
        self._pending = witnesses.shape[1], told
        if self._waits:
            self._arrived.record()
        else:
            self.collect()

    def collect(self) -> None:
        """Hand over what is still on its way."""
        if self._pending is None:
            return
        if self._waits:
            self._arrived.synchronize()
        (count, told), self._pending = self._pending, None
        for norm, (stated, unit) in zip(self._held.tolist(), told, strict=True):
            if stated > 0:
                self.watch.add(Squares((norm / unit) ** 2, count), stated)
