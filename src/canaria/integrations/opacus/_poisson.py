"""Poisson draws of canaries, on the device of the model."""

import math
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Integers
from canaria._core.errors import InputError

_AT_ONCE: Final = 64
"""Draws are made for this many steps at once: the same calls, 64 times as rarely."""
_MOST_GAPS: Final = 2**23
"""Unless they take more random numbers than this."""
_ROWS: Final = 8
"""Draws of this many steps are counted by one call."""
_MOST_BYTES: Final = 2**28
"""The most memory for the counts, which have the length of the model; those of one step are always kept."""
_CERTAIN: Final = 8
"""A number of draws exceeds its mean by this many deviations (and 40) with a probability below 1e-15."""


class Poisson:
    """Draws each of some things with one probability, and counts those drawn in each slot, step by step.

    `slots` says where each thing counts. What is drawn is found by the gaps in between, which are geometric
    (exponentials, rounded), so only the few that are drawn cost a random number.
    """

    def __init__(self, slots: Integers, width: int, rate: float, seed: int, device: torch.device) -> None:
        things = len(slots)
        expected = things * rate
        gaps = math.ceil(expected + _CERTAIN * math.sqrt(expected) + 40)
        rows = max(1, min(_ROWS, _MOST_BYTES // (4 * width)))
        self._at_once = rows * (max(1, _AT_ONCE // rows) if _AT_ONCE * gaps <= _MOST_GAPS else 1)
        self._rows = rows
        # An exponential of mean -1 / ln(1 - rate) is geometric once it is rounded down.
        self._scale = 0.0 if rate == 1 else 1 / math.log1p(-rate)
        # The counts of `rows` steps lie end to end. Behind them is a slot for draws beyond the last thing.
        nowhere = rows * width
        table = np.append(slots + width * np.arange(rows)[:, None], np.full((rows, 1), nowhere), axis=1)
        self._slots = torch.tensor(table, dtype=torch.int64, device=device)
        starts = torch.arange(self._at_once, dtype=torch.float64, device=device)[:, None] % rows
        self._before_first, self._beyond_last = starts * (things + 1) - 1, starts * (things + 1) + things
        self._generator = torch.Generator(device).manual_seed(seed)
        self._gaps = torch.empty(self._at_once, gaps, dtype=torch.float64, device=device)
        self._drawn = torch.full((rows + self._at_once, gaps), nowhere, device=device)
        # One call takes away the counts of the steps before and adds those of the next ones.
        self._changes = [
            self._drawn[first : first + 2 * rows].view(-1) for first in range(0, self._at_once, rows)
        ]
        self._signs = torch.ones(2 * rows * gaps, device=device)
        self._signs[: rows * gaps] = -1
        self._all_counted = torch.zeros(nowhere + 1, device=device)
        self._counted: list[Tensor] = list(self._all_counted[:-1].view(rows, width))
        self._begun, self._used = self._generator.get_state(), 0

    def counts(self) -> Tensor:
        """How many were drawn in each slot, anew for each step; the next steps write to the same tensors."""
        if self._used % self._at_once == 0:
            self._draw()
        group, row = divmod(self._used, self._rows)
        if row == 0:
            self._all_counted.index_add_(0, self._changes[group], self._signs)
        self._used += 1
        return self._counted[row]

    def _draw(self) -> None:
        """Draw for the next steps; the first rows stay what was drawn last, which is still counted."""
        self._begun, self._used = self._generator.get_state(), 0
        gaps = self._gaps.uniform_(generator=self._generator).neg_().log1p_()
        gaps.mul_(self._scale).floor_().add_(1)
        things = gaps.cumsum(1).add_(self._before_first).clamp_(max=self._beyond_last).long()
        self._drawn[: self._rows] = self._drawn[-self._rows :]
        torch.take(self._slots, things, out=self._drawn[self._rows :])

    def state(self) -> Any:
        """What a checkpoint needs: with it, rows that are still to be used are counted again."""
        return {"begun": self._begun, "used": self._used}

    def restore(self, state: Any) -> None:
        """Go on from a checkpoint, made on the same kind of device."""
        begun = state["begun"].cpu()
        if begun.shape != self._begun.shape:
            raise InputError("the audit's draws were made on another kind of device; resume on that kind")
        self._generator.set_state(begun)
        self._begun, self._used = begun, 0
        self._all_counted.zero_()
        self._drawn.fill_(len(self._all_counted) - 1)
        for _ in range(state["used"]):
            self.counts()
