"""Scores that grow step by step, on the device of the model."""

from typing import Any, Final

import torch
from torch import Tensor

from canaria.mechanisms.dpsgd import binomial_law

_HELD: Final = 16


class Scores:
    """The sum over steps and, for Dirac canaries, the likelihood table of what was seen.

    The table holds L(m) - L(0) for m = 1 ... s, L(m) = sum_t ln sum_j Bin(j; m, q) phi((y_t - j) / sigma). A
    few steps are held back and added in one go.
    """

    def __init__(self, count: int, most: int, rate: float, sigma: float, device: torch.device) -> None:
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._law = torch.tensor(binomial_law(most, rate), dtype=torch.float32, device=device).log()
        self._precision = 1 / max(sigma, 1e-3) ** 2
        self.sums = torch.zeros(count, dtype=wide, device=device)
        self.table = torch.zeros(most, count, dtype=wide, device=device)
        self.steps = 0
        self._held = torch.zeros(_HELD, count, device=device)
        self._waiting = 0

    def add(self, seen: Tensor) -> None:
        """One step's noisy sums at the places, in units of the clip norm."""
        self._held[self._waiting] = seen
        self._waiting += 1
        self.steps += 1
        if self._waiting == _HELD:
            self.flush()

    def flush(self) -> None:
        """Add the steps that are held back."""
        seen = self._held[: self._waiting]
        self._waiting = 0
        self.sums += seen.sum(0)
        most = len(self.table)
        exponents = [(seen - j / 2) * (j * self._precision) for j in range(1, most + 1)]
        for m in range(1, most + 1):
            grown = (exponents[0] + self._law[m, 1]).logaddexp(self._law[m, 0])
            for j in range(2, m + 1):
                grown = grown.logaddexp(exponents[j - 1] + self._law[m, j])
            self.table[m - 1] += grown.sum(0)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        self.flush()
        return {"sums": self.sums.cpu(), "table": self.table.cpu(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.sums.copy_(state["sums"])
        self.table.copy_(state["table"])
        self.steps, self._waiting = int(state["steps"]), 0
