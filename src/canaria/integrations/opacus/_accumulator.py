"""The accumulator of `canaria.training.accumulator`, in torch, on the device of the model."""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from canaria._core.arrays import Floats
from canaria.mechanisms.dpsgd import binomial_law
from canaria.training import accumulator
from canaria.training.accumulator import HELD, TOO_FEW
from canaria.training.differences import Pairs

_TOGETHER: Final = 8
"""Logarithms are taken of the product of up to so many steps."""
_ROOM: Final = 80.0
"""Products stay below e^80, which single precision holds."""


class _Totals(NamedTuple):
    """The fields of `canaria.training.accumulator.Totals`, on the device."""

    sums: Tensor
    table: Tensor
    by_pair: Tensor
    by_place: Tensor
    signs: Tensor


class Accumulator:
    """What was seen so far; steps that are held back are kept as they are."""

    def __init__(self, specified: accumulator.Accumulator, device: torch.device) -> None:
        self.specified = specified
        count, most = sum(specified.layers), specified.most
        wide = torch.float32 if device.type == "mps" else torch.float64
        with np.errstate(divide="ignore"):
            self._law: list[list[float]] = np.log(binomial_law(most, specified.sample_rate)).tolist()
        self._layers = list(specified.layers)
        self._compared = torch.tensor(specified.compared, device=device)
        self._twins = torch.tensor(specified.twins, device=device)
        self._directions: Tensor | None = None
        if specified.directions is not None:
            self._directions = torch.tensor(specified.directions, dtype=torch.float32, device=device)
        self._believed: list[float] | None = None
        self._totals = _Totals(
            torch.zeros(count, dtype=wide, device=device),
            torch.zeros(most, count, dtype=wide, device=device),
            torch.zeros(0, device=device),
            torch.zeros(specified.places, device=device),
            torch.zeros(2, *2 * [len(specified.layers)], dtype=wide, device=device),
        )
        self.steps, self.noise_square, self._left = 0, 0.0, 0.5
        self.noise_changes = False
        self._held = torch.zeros(HELD, count, device=device)
        self._scratch = torch.zeros(2, HELD, count, device=device)
        self._stated = [0.0] * HELD
        self._waiting = 0

    def next_row(self) -> Tensor:
        """Where the next step's sums are to be written before they are added."""
        return self._held[self._waiting]

    def add(self, real: Tensor | float, *, scale: float, clip_norm: float, stated: float) -> None:
        """One step: the noisy sums in `next_row`, times `scale`, less the real rows' part.

        `stated` is the noise multiplier that is stated for this step.
        """
        row = self.next_row().mul_(scale / clip_norm)
        if isinstance(real, Tensor):
            row.sub_(real, alpha=1 / clip_norm)
        if not math.isclose(self.noise_square, self.steps * stated**2, rel_tol=1e-9):
            self.noise_changes = True
        self._stated[self._waiting] = stated
        self._waiting += 1
        self.steps += 1
        self.noise_square += stated**2
        if self._waiting % 2 == 0:
            before = self._stated[self._waiting - 2]
            self._left = max(self._left, accumulator.left_by_silence(before**2, stated**2))
        if self._waiting == HELD:
            self._believed = self._believed_noise()
            self._totals = self._with_held()
            self._waiting = 0

    def _believed_noise(self) -> list[float]:
        """The noise of each parameter, by the first steps, as the specification says."""
        if self._believed is not None:
            return self._believed
        squares = self._held[: self._waiting].square().mean(0)
        return [
            self.specified.believed_of(float(part.mean()), float(part.std()), len(part))
            if len(part) > TOO_FEW
            else self.specified.noise_multiplier
            for part in torch.split(squares, self._layers)
        ]

    def totals(self) -> accumulator.Totals:
        """What was seen, with the steps that are held back, on the CPU and free of torch."""
        return accumulator.Totals(*map(_plain, self._with_held()))

    def pairs(self, totals: accumulator.Totals) -> Pairs | None:
        """The differences of pairs of steps, for the conformance test."""
        if self._waiting % 2 == 0:
            return self.specified.pairs(totals, left=self._left)
        last, stated = self._held[self._waiting - 1], self._stated[self._waiting - 1]
        return self.specified.pairs(
            totals,
            accumulator.Last(_plain(last), stated, (self.noise_square - stated**2) / max(self.steps - 1, 1)),
            self._left,
        )

    def _with_held(self) -> _Totals:
        seen, sums = self._held[: self._waiting], self._totals.sums
        if len(seen) == 0:
            return self._totals
        table = self._totals.table.clone()
        for m, row in enumerate(self._increments(seen), start=1):
            table[m - 1] += row.to(sums.dtype)
        differences = self._differences(seen[: len(seen) // 2 * 2])
        signs = nn.functional.pad(differences.sign(), (0, 1))[:, self._twins].transpose(0, 1).flatten(1)
        agreed = torch.stack([values @ values.T for values in (signs.abs(), signs)])
        squares = differences.square_()
        return _Totals(
            sums + seen.sum(0),
            table,
            torch.cat([self._totals.by_pair, squares.sum(1)]),
            self._totals.by_place + squares.sum(0),
            self._totals.signs + agreed.to(self._totals.signs.dtype),
        )

    def _differences(self, seen: Tensor) -> Tensor:
        """Differences of pairs of steps over their standard deviation, (pairs, places)."""
        values = seen[:, self._compared] if self._directions is None else seen @ self._directions
        stated = self._stated[: len(seen)]
        variances = [first**2 + second**2 for first, second in zip(stated[0::2], stated[1::2], strict=True)]
        scales = torch.tensor(variances, device=seen.device).clamp_(min=1e-30)
        return (values[0::2] - values[1::2]).div_(scales.sqrt_()[:, None])

    def _increments(self, seen: Tensor) -> Iterator[Tensor]:
        """What these steps add to the table, for m = 1 ... s.

        The ratio of densities is a polynomial in e^(y / sigma^2) with coefficients Bin(j; m, q) e^(-j^2 / (2
        sigma^2)). Where nothing can overflow, logarithms are taken of the product of a few steps; sums are
        cut at a height that only a fault reaches.
        """
        most = len(self._totals.table)
        sigmas = self._believed_noise()
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
            "stated": self._stated[: self._waiting],
            "steps": self.steps,
            "noise_square": self.noise_square,
            "left": self._left,
            "noise_changes": self.noise_changes,
            "believed": self._believed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        device = self._held.device
        self._totals = _Totals(*(state[name].to(device) for name in _Totals._fields))
        self._waiting = len(state["held"])
        self._held[: self._waiting] = state["held"].to(device)
        self._stated[: self._waiting] = state["stated"]
        self.steps, self.noise_square = int(state["steps"]), float(state["noise_square"])
        self._left, self.noise_changes = float(state["left"]), bool(state["noise_changes"])
        self._believed = state["believed"]


def _plain(values: Tensor) -> Floats:
    return values.cpu().numpy().astype(np.float64)


def _logaddexp(first: Tensor | float, second: Tensor) -> Tensor:
    return torch.logaddexp(second, first if isinstance(first, Tensor) else second.new_tensor(first))


def _exp(value: Tensor | float) -> Tensor | float:
    return value.exp() if isinstance(value, Tensor) else math.exp(value)


def _spread(values: list[float], sizes: list[int], device: torch.device) -> Tensor | float:
    """One value for each place of a parameter; a plain number where all are the same."""
    if min(values) == max(values):
        return values[0]
    return torch.repeat_interleave(torch.tensor(values, device=device), torch.tensor(sizes, device=device))
