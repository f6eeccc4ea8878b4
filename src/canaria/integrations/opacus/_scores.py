"""Scores that grow step by step, on the device of the model."""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria.mechanisms.dpsgd import binomial_law

_HELD: Final = 16
_FEWEST: Final = 30
_TOGETHER: Final = 8
_COMPARED: Final = 4096
_ROOM: Final = 80.0


class Totals(NamedTuple):
    """What was seen: sums over steps, the likelihood table, and the differences of pairs of steps."""

    sums: Tensor
    table: Tensor
    pairs: Tensor


class Scores:
    """The sum over steps and, for Dirac canaries, the likelihood table of what was seen.

    The table holds L(m) - L(0) for m = 1 ... s, L(m) = sum_t ln sum_j Bin(j; m, q) phi((y_t - j) / sigma). A
    few steps are held back and added in one go. sigma is the stated noise, unless the first steps' sums in a
    parameter (`layers` says how many places each has) are too large or too small for it by five standard
    errors: then it is the noise that they show, so that a fault does not blunt the audit. The bits are not
    looked at, so bounds hold either way. Only the differences of pairs of steps, which serve conformance
    alone, are taken where no canary is included (`quiet`; of many, some thousands).
    """

    def __init__(self, layers: tuple[int, ...], most: int, rate: float, sigma: float, quiet: Tensor) -> None:
        device, count = quiet.device, sum(layers)
        wide = torch.float32 if device.type == "mps" else torch.float64
        with np.errstate(divide="ignore"):
            self._law: list[list[float]] = np.log(binomial_law(most, rate)).tolist()
        self._layers = list(layers)
        self._apart = -(-count // _COMPARED)
        self._quiet = quiet[:: self._apart].contiguous()
        self.quiet = int(self._quiet.sum())
        self._sigma, self._settled = [max(sigma, 1e-3)] * len(layers), False
        self._count_square = most * rate / 2 * (1 - rate / 2) + (most * rate / 2) ** 2
        self._totals = Totals(
            torch.zeros(count, dtype=wide, device=device),
            torch.zeros(most, count, dtype=wide, device=device),
            torch.zeros(0, device=device),
        )
        self.steps = 0
        self._held = torch.zeros(_HELD, count, device=device)
        self._scratch = torch.zeros(2, _HELD, count, device=device)
        self._noise = [0.0] * _HELD
        self._waiting = 0

    def next_row(self) -> Tensor:
        """Where the next step's sums are to be written before they are added."""
        return self._held[self._waiting]

    def add(self, real: Tensor | float, scale: float, clip: float, noise: float) -> None:
        """One step: the noisy sums in `next_row`, times `scale`, less the real rows' part.

        `noise` is the noise multiplier that is stated for this step.
        """
        row = self.next_row().mul_(scale / clip)
        if isinstance(real, Tensor):
            row.sub_(real, alpha=1 / clip)
        self._noise[self._waiting] = noise
        self._waiting += 1
        self.steps += 1
        if self._waiting == _HELD:
            if not self._settled:
                self._sigma, self._settled = self._noise_seen(), True
            self._totals = self.totals()
            self._waiting = 0

    def _noise_seen(self) -> list[float]:
        """In each parameter the stated noise, or what the steps held back show if that is clearly another."""
        squares = self._held[: self._waiting].square().mean(0)
        return [
            self._noise_in(part, stated)
            for part, stated in zip(torch.split(squares, self._layers), self._sigma, strict=True)
        ]

    def _noise_in(self, squares: Tensor, stated: float) -> float:
        error = float(squares.std() / len(squares) ** 0.5) if len(squares) > _FEWEST else math.inf
        seen = float(squares.mean()) - self._count_square
        if not abs(seen - stated**2) > 5 * error:
            return stated
        return math.sqrt(max(seen, (stated / 20) ** 2))

    def totals(self) -> Totals:
        """What was seen, with the steps that are held back."""
        seen, sums = self._held[: self._waiting], self._totals.sums
        if len(seen) == 0:
            return self._totals
        table = self._totals.table.clone()
        for m, row in enumerate(self._increments(seen), start=1):
            table[m - 1] += row.to(sums.dtype)
        pairs = torch.cat([self._totals.pairs, self._pairs(seen)])
        return Totals(sums + seen.sum(0), table, pairs)

    def _pairs(self, seen: Tensor) -> Tensor:
        """For steps 1 and 2, 3 and 4, ...: squared differences over quiet places, over their variance."""
        count = len(seen) // 2
        compared = seen[: 2 * count, :: self._apart]
        differences = compared[0::2] - compared[1::2]
        variances = [self._noise[2 * k] ** 2 + self._noise[2 * k + 1] ** 2 for k in range(count)]
        scales = torch.tensor(variances, device=seen.device).clamp_(min=1e-30)
        return (differences.square_() @ self._quiet) / scales

    def _increments(self, seen: Tensor) -> Iterator[Tensor]:
        """What these steps add to L(m) - L(0), for m = 1 ... s.

        The ratio of densities is a polynomial in e^(y / sigma^2) with coefficients Bin(j; m, q) e^(-j^2 / (2
        sigma^2)). Where nothing can overflow, logarithms are taken of the product of a few steps; sums are
        cut at a height that only a fault reaches.
        """
        most = len(self._totals.table)
        sigmas = self._sigma if self._settled else self._noise_seen()
        inverse = _spread([1 / sigma**2 for sigma in sigmas], self._layers, seen.device)
        logs = [[self._law[m][j] - 0.5 * j**2 * inverse for j in range(m + 1)] for m in range(most + 1)]
        least = min(sigmas)
        largest, smallest = most * (most + 6 * least) / least**2, -self._law[most][0]
        together = min(_TOGETHER, int(_ROOM / max(largest, smallest, 1.0)))
        scaled = torch.mul(seen, inverse, out=self._scratch[0, : len(seen)])
        if together == 0:
            for m in range(1, most + 1):
                grown = _logaddexp(logs[m][0], scaled + logs[m][1])
                for j in range(2, m + 1):
                    grown = _logaddexp(logs[m][j] + j * scaled, grown)
                yield grown.sum(0)
            return
        odds = scaled.clamp_(max=_ROOM / together / max(most, 1)).exp_()
        for m in range(1, most + 1):
            ratio = torch.mul(odds, _exp(logs[m][m]), out=self._scratch[1, : len(seen)])
            for j in range(m - 1, 0, -1):
                ratio.add_(_exp(logs[m][j])).mul_(odds)
            ratio.add_(_exp(logs[m][0]))
            groups = torch.split(ratio, -(-len(ratio) // together))
            for group in groups[1:]:
                groups[0][: len(group)].mul_(group)
            yield groups[0].log_().sum(0)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; steps held back stay so, to the last digit of the result."""
        return {
            **{name: total.cpu() for name, total in self._totals._asdict().items()},
            "held": self._held[: self._waiting].cpu().clone(),
            "noise": self._noise[: self._waiting],
            "steps": self.steps,
            "sigma": self._sigma,
            "settled": self._settled,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        device = self._held.device
        self._totals = Totals(*(state[name].to(device) for name in Totals._fields))
        self._waiting = len(state["held"])
        self._held[: self._waiting] = state["held"].to(device)
        self._noise[: self._waiting] = state["noise"]
        self.steps = int(state["steps"])
        self._sigma, self._settled = [float(sigma) for sigma in state["sigma"]], bool(state["settled"])


def _logaddexp(first: Tensor | float, second: Tensor) -> Tensor:
    return torch.logaddexp(second, first if isinstance(first, Tensor) else second.new_tensor(first))


def _exp(value: Tensor | float) -> Tensor | float:
    return value.exp() if isinstance(value, Tensor) else math.exp(value)


def _spread(values: list[float], sizes: list[int], device: torch.device) -> Tensor | float:
    """One value for each place of a parameter; a plain number where all are the same."""
    if min(values) == max(values):
        return values[0]
    return torch.repeat_interleave(torch.tensor(values, device=device), torch.tensor(sizes, device=device))
