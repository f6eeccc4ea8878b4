"""The effect of rounding on observations. If it is large, the law of the noise is not known."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria.integrations.opacus._places import FINE, Places
from canaria.training.conformance.sums import Rounding

_MOST_ADDED: Final = 0.01
"""The share of the noise variance that rounding may add. Beyond it, rounding depends on the noise."""
_MOST_SPACING: Final = 1 / 32
"""The largest spacing of numbers, in deviations of the noise, where the noise is added. Two roundings to half
of it add 2 / 12 / 32^2 = 0.02% to the variance; 10^9 values would be needed to see that."""


class Rounded:
    """The size of clipped sums relative to the noise, and the effect of half precision, over all steps.

    `most_rows` is the largest number of rows in a step.
    """

    def __init__(self, optimizer: DPOptimizer, most_rows: float) -> None:
        fine = (torch.finfo(p.dtype).eps for p in optimizer.params if p.dtype in FINE)
        self._precision, self._most_rows = max(fine, default=0.0), most_rows
        self._device = optimizer.params[0].device
        self._moved: Tensor | None = None
        self._largest = torch.zeros((), device=self._device)

    def note_size(self, places: Places, noise: float, clip_norm: float) -> None:
        """Record the size of the clipped sum, in deviations of the noise, if its rounding may matter.

        Clipped rows add at most one clip norm each, so this is rarely needed.
        """
        if noise and self._most_rows * self._precision > _MOST_SPACING * noise:
            self._largest = torch.maximum(places.largest() / (noise * clip_norm), self._largest)

    def add(self, rounding: Tensor | None, lighter: Tensor | None, clip_norm: float) -> None:
        """Add a step's rounding, and how much lighter canaries were; None if there is no effect."""
        if rounding is not None:
            units = torch.tensor([[clip_norm], [clip_norm**2]], device=rounding.device)
            self._add(rounding / units)
        if lighter is not None:
            self._add(torch.stack([lighter, torch.zeros_like(lighter)]))

    def _add(self, moved: Tensor) -> None:
        self._moved = moved if self._moved is None else self._moved + moved

    def seen(self) -> Rounding | None:
        """The total shift by rounding, and the variance it added; None if sums are precise."""
        if self._moved is None:
            return None
        return Rounding(*self._moved.cpu().numpy().astype(np.float64))

    def excuse(self, noise_square: float) -> str:
        """The reason not to test noise with this sum of squares; empty if rounding is negligible."""
        if (largest := float(self._largest)) * self._precision > _MOST_SPACING:
            return (
                f"not tested (a clipped sum was {largest:.2g} times as large as the noise that was added to "
                f"it, and numbers of that size are rounded to {largest * self._precision:.2g} of the noise)"
            )
        if self._moved is not None and float(self._moved[1].mean()) > _MOST_ADDED * noise_square:
            return (
                "not tested (weights in half precision round the sums by more than a tenth of the noise, or "
                "no noise is stated)"
            )
        return ""

    def state_dict(self) -> dict[str, Any]:
        moved = None if self._moved is None else self._moved.cpu()
        return {"moved": moved, "largest": float(self._largest)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._moved = None if state["moved"] is None else state["moved"].to(self._device)
        self._largest.fill_(state["largest"])
