"""Scores that grow step by step, on the device of the model."""

import math
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor

from canaria.mechanisms.dpsgd import binomial_law

_HELD: Final = 16
_FEWEST: Final = 30
_TOGETHER: Final = 4
_ROOM: Final = 80.0


class Scores:
    """The sum over steps and, for Dirac canaries, the likelihood table of what was seen.

    The table holds L(m) - L(0) for m = 1 ... s, L(m) = sum_t ln sum_j Bin(j; m, q) phi((y_t - j) / sigma). A
    few steps are held back and added in one go. sigma is the stated noise, unless the first steps' sums are
    too large or too small for it by five standard errors: then it is the noise that they show, so that a
    fault does not blunt the audit. The bits are not looked at, so bounds hold either way.
    """

    def __init__(self, count: int, most: int, rate: float, sigma: float, device: torch.device) -> None:
        wide = torch.float32 if device.type == "mps" else torch.float64
        self._law = torch.tensor(binomial_law(most, rate), dtype=torch.float32, device=device).log()
        self._sigma, self._settled = max(sigma, 1e-3), False
        self._count_square = most * rate / 2 * (1 - rate / 2) + (most * rate / 2) ** 2
        self._sums = torch.zeros(count, dtype=wide, device=device)
        self._table = torch.zeros(most, count, dtype=wide, device=device)
        self.steps = 0
        self._held = torch.zeros(_HELD, count, device=device)
        self._waiting = 0

    def add(self, seen: Tensor, real: Tensor | float, scale: float, clip: float) -> None:
        """One step's noisy sums at the places, `seen` times `scale`, less the real rows' part."""
        row = torch.mul(seen, scale / clip, out=self._held[self._waiting])
        if isinstance(real, Tensor):
            row.sub_(real, alpha=1 / clip)
        self._waiting += 1
        self.steps += 1
        if self._waiting == _HELD:
            if not self._settled:
                self._sigma, self._settled = self._noise_seen(), True
            self._sums, self._table = self.totals()
            self._waiting = 0

    def _noise_seen(self) -> float:
        """The stated noise, or what the steps held back show if that is clearly another."""
        squares = self._held[: self._waiting].square().mean(0)
        error = float(squares.std() / len(squares) ** 0.5) if len(squares) > _FEWEST else float("inf")
        seen = float(squares.mean()) - self._count_square
        if abs(seen - self._sigma**2) <= 5 * error:
            return self._sigma
        return math.sqrt(max(seen, (self._sigma / 20) ** 2))

    def totals(self) -> tuple[Tensor, Tensor]:
        """The sums and the table, with the steps that are held back."""
        seen = self._held[: self._waiting]
        if len(seen) == 0:
            return self._sums, self._table
        wide, sigma = self._sums.dtype, self._sigma if self._settled else self._noise_seen()
        table = self._table.clone()
        for m, row in enumerate(self._increments(seen, sigma), start=1):
            table[m - 1] += row.to(wide)
        return self._sums + seen.sum(0, dtype=wide), table

    def _increments(self, seen: Tensor, sigma: float) -> Iterator[Tensor]:
        """What these steps add to L(m) - L(0), for m = 1 ... s.

        The ratio of densities is a polynomial in e^(y / sigma^2) with coefficients Bin(j; m, q) e^(-j^2 /
        (2 sigma^2)). Where nothing can overflow, logarithms are taken of the product of a few steps; sums
        are cut at a height that only a fault reaches.
        """
        most = len(self._table)
        logs = self._law - torch.arange(most + 1, device=seen.device) ** 2 / (2 * sigma**2)
        largest = most * (most + 6 * sigma) / sigma**2
        smallest = -float(self._law[most, 0])
        together = min(_TOGETHER, int(_ROOM / max(largest, smallest, 1.0)))
        if together == 0:
            scaled = seen / sigma**2
            for m in range(1, most + 1):
                grown = (scaled + logs[m, 1]).logaddexp(logs[m, 0])
                for j in range(2, m + 1):
                    grown = grown.logaddexp(j * scaled + logs[m, j])
                yield grown.sum(0)
            return
        odds = [(seen * (1 / sigma**2)).clamp_(max=_ROOM / together / max(most, 1)).exp_()]
        for _ in range(1, most):
            odds.append(odds[-1] * odds[0])
        shares = logs.exp().tolist()
        for m in range(1, most + 1):
            ratio = (odds[0] * shares[m][1]).add_(shares[m][0])
            for j in range(2, m + 1):
                ratio.add_(odds[j - 1], alpha=shares[m][j])
            groups = ratio.split(-(-len(ratio) // together))
            product = groups[0].clone()
            for group in groups[1:]:
                product[: len(group)].mul_(group)
            yield product.log_().sum(0)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; steps held back stay so, to the last digit of the result."""
        held = self._held[: self._waiting]
        return {
            "sums": self._sums.cpu(),
            "table": self._table.cpu(),
            "held": held.cpu().clone(),
            "steps": self.steps,
            "sigma": self._sigma,
            "settled": self._settled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._sums.copy_(state["sums"])
        self._table.copy_(state["table"])
        self._waiting = len(state["held"])
        self._held[: self._waiting] = state["held"]
        self.steps = int(state["steps"])
        self._sigma, self._settled = float(state["sigma"]), bool(state["settled"])
