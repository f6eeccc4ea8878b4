"""Witnesses on the device of the model, watched without waiting for it."""

from typing import Any

import torch
from torch import Tensor

from canaria.training.measured import Squares
from canaria.training.watch import Watch


class Watched:
    """Brings the squares of every step from the device to a `Watch`.

    On a GPU a number is copied while training goes on, and looked at in the next step: waiting for it would
    hold training up.
    """

    def __init__(self, watch: Watch, device: torch.device) -> None:
        self.watch = watch
        self._waits = device.type == "cuda"
        self._held = torch.zeros((), pin_memory=self._waits)
        self._arrived: Any = torch.cuda.Event() if self._waits else None  # type: ignore[no-untyped-call]
        self._pending: tuple[int, float, float] | None = None

    def add(self, witnesses: Tensor, unit: float, stated: float) -> None:
        """One step: the noise at its witnesses, of which `unit` is one clip norm's worth of stated noise."""
        self.collect()
        self._held.copy_(torch.linalg.vector_norm(witnesses), non_blocking=True)
        self._pending = len(witnesses), unit, stated
        if self._waits:
            self._arrived.record()
        else:
            self.collect()

    def collect(self) -> None:
        """Hand the last step over, if it is still on its way."""
        if self._pending is None:
            return
        if self._waits:
            self._arrived.synchronize()
        (count, unit, stated), self._pending = self._pending, None
        self.watch.add(Squares((float(self._held) / unit) ** 2, count), stated)
