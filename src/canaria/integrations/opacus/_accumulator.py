"""The accumulator of `canaria.training.accumulator`, in torch, on the device of the model."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Floats
from canaria.mechanisms.dpsgd import binomial_law
from canaria.training import accumulator
from canaria.training.accumulator import HELD, LEAST_NOISE, TOO_FEW
from canaria.training.witnesses import EDGES, MOST_STEPS, Seen

_TOGETHER: Final = 8
"""Logarithms are taken of the product of up to so many steps."""
_ROOM: Final = 80.0
"""Products stay below e^80, which single precision holds."""


class _Totals(NamedTuple):
    """Sums and table of `canaria.training.accumulator.Totals` on the device, and what witnesses showed.

    `beyond` counts the values of shaped witnesses beyond each edge, `signs` holds bytes of eight signs, and
    `open` is ln sum_t e^((y_t - 1/2) / sigma^2) over the steps of an open pass of shuffled batches.
    """

    sums: Tensor
    table: Tensor
    by_step: Tensor
    by_place: Tensor
    beyond: Tensor
    signs: Tensor
    totals: Tensor
    open: Tensor

    def copied(self) -> "_Totals":
        return _Totals(*(total.clone() for total in self))


class Accumulator:
    """What was seen so far; steps that are held back are kept as they are."""

    def __init__(self, specified: accumulator.Accumulator, device: torch.device) -> None:
        self.specified = specified
        self._count, most, roles = sum(specified.layers), specified.most, specified.roles
        self._all = self._count + len(roles.index)
        wide = torch.float32 if device.type == "mps" else torch.float64
        with np.errstate(divide="ignore"):
            self._law: list[list[float]] = np.log(
                binomial_law(specified.draws, specified.sample_rate)
            ).tolist()
        self._each = specified.sampling.accumulated
        self._pass, self._once = 0, 1.0
        if most and specified.sampling.kind == "shuffled":
            self._pass, self._once = specified.pass_of_shuffled
        self._layers = list(specified.layers)
        plain, shaped, signed = np.flatnonzero(~roles.shaped), np.flatnonzero(roles.shaped), roles.signed
        self._parts = [len(plain), len(shaped), -(-len(signed) // 8) * 8]
        padding = np.zeros(self._parts[2] - len(signed), dtype=np.int64)
        self._picked = torch.tensor(np.concatenate([plain, shaped, signed, padding]), device=device)
        bits = np.append(2 ** (np.arange(len(signed)) % 8), padding).reshape(-1, 8)
        self._bits = torch.tensor(bits, dtype=torch.uint8, device=device)
        self._edges = torch.tensor(EDGES, device=device)[:, None, None]
        self._roots = torch.tensor(np.sqrt(roles.sizes), dtype=torch.float32, device=device)
        self._factors: list[float] | None = None
        self._totals = _Totals(
            torch.zeros(self._count, dtype=wide, device=device),
            torch.zeros(most, self._count, dtype=wide, device=device),
            torch.zeros(MOST_STEPS, dtype=wide, device=device),
            torch.zeros(len(plain), dtype=wide, device=device),
            torch.zeros(len(EDGES), dtype=torch.int64, device=device),
            torch.zeros(0, len(bits), dtype=torch.uint8, device=device),
            torch.zeros(0, len(roles.sizes), device=device),
            torch.full((self._count if self._pass else 0,), -torch.inf, dtype=wide, device=device),
        )
        self.steps, self.noise_square, self.noise_changes = 0, 0.0, False
        self._held = torch.zeros(HELD, self._all + len(roles.sizes), device=device)
        self._rows = [(row[: self._all], row[self._all :], row[: self._count]) for row in self._held]
        self._scratch = torch.zeros(2, HELD, self._count, device=device)
        self._stated, self._scales = [0.0] * HELD, [0.0] * HELD
        self._totalled: list[int] = []
        self._waiting = 0

    def next_row(self) -> tuple[Tensor, Tensor]:
        """Where a step's noise is to be written before it is added: at all places, and its totals."""
        return self._rows[self._waiting][:2]

    def add(self, own: Tensor | None, *, clip_norm: float, stated: float, totalled: bool) -> None:
        """One step: what is in `next_row`, with its sign changed, and the canaries' own part, if it lacks.

        `stated` is the noise multiplier that is stated for this step; `totalled` says that there are totals.
        """
        if own is not None:
            self._rows[self._waiting][2].sub_(own)
        self._scales[self._waiting] = -1 / clip_norm
        if not math.isclose(self.noise_square, self.steps * stated**2, rel_tol=1e-9):
            self.noise_changes = True
        self._stated[self._waiting] = stated
        if totalled:
            self._totalled.append(self._waiting)
        self._waiting += 1
        self.steps += 1
        self.noise_square += stated**2
        if self._waiting == HELD:
            self._factors = self._believed_factors()
            self._totals = self._with_held(self._totals)
            self._waiting, self._totalled = 0, []

    def witnesses(self, steps: int) -> tuple[Tensor, list[tuple[float, float]]]:
        """The noise at witnesses in the last steps, and of each the stated noise, as it is and there."""
        rows = [(self._waiting - ago) % HELD for ago in range(steps, 0, -1)]
        first, last = rows[0], rows[-1] + 1
        values = self._held[first:last] if first < last else self._held[rows]
        told = [(self._stated[row], -self._stated[row] / self._scales[row]) for row in rows]
        return values[:, self._count : self._all], told

    def _believed_factors(self) -> list[float]:
        """How many times the stated noise each parameter has, as the specification says."""
        if self._factors is not None:
            return self._factors
        seen = self._held[: self._waiting, : self._count] * self._column(self._scales[: self._waiting])
        squares = seen.square_().mean(0)
        stated = sum(noise**2 for noise in self._stated[: self._waiting]) / self._waiting
        return [
            self.specified.believed_factor(float(part.mean()), float(part.std()), len(part), stated)
            if len(part) > TOO_FEW
            else 1.0
            for part in torch.split(squares, self._layers)
        ]

    def totals(self) -> accumulator.Totals:
        """What was seen, with the steps that are held back, on the CPU and free of torch."""
        found = self._with_held(self._totals.copied())
        if self._pass and (some := self.steps % self._pass):
            self._close(found, some)
        beyond = found.beyond.cpu().numpy()
        values = self._parts[1] * self.steps
        cells = -np.diff(np.concatenate([[values], beyond, [0]]))
        signs = found.signs.cpu().numpy()
        by_step = _plain(found.by_step)[: min(self.steps, MOST_STEPS)]
        witnessed = Seen(self.steps, by_step, _plain(found.by_place), cells, signs, _plain(found.totals))
        return accumulator.Totals(_plain(found.sums), _plain(found.table), witnessed)

    def _with_held(self, before: _Totals) -> _Totals:
        """These totals, which are changed, with the steps that are held back."""
        steps = self._waiting
        if steps == 0:
            return before
        seen, rest = self._held[:steps, : self._count], self._held[:steps, self._count :]
        scale = self._column(self._scales[:steps])
        before.sums.add_((seen * scale).sum(0) if isinstance(scale, Tensor) else seen.sum(0).mul_(scale))
        if self._pass:
            self._add_to_passes(before, seen)
        else:
            for row, added in zip(before.table, self._increments(seen), strict=True):
                row.add_(added)
        values = rest[:, self._picked].mul_(self._units(range(steps)))
        plain, shaped, signed = torch.split(values, self._parts, dim=1)
        squares = plain.square()
        first = (self.steps - steps) % MOST_STEPS
        before.by_step[first : first + steps].add_(squares.sum(1))
        before.by_place.add_(squares.sum(0))
        before.beyond.add_((shaped.abs() > self._edges).sum((1, 2)))
        if len(before.signs) == MOST_STEPS:
            return before
        bits = (signed > 0).view(steps, *self._bits.shape) * self._bits
        found = before._replace(
            signs=torch.cat([before.signs, bits.sum(2, dtype=torch.uint8)])[:MOST_STEPS],
        )
        if not self._totalled:
            return found
        whole = torch.stack([self._rows[row][1] for row in self._totalled])
        whole.mul_(self._units(self._totalled)).div_(self._roots)
        return found._replace(totals=torch.cat([before.totals, whole])[:MOST_STEPS])

    def _add_to_passes(self, before: _Totals, seen: Tensor) -> None:
        """Steps of shuffled batches; a pass that is over goes into the table."""
        stated = [max(noise, LEAST_NOISE) for noise in self._stated[: len(seen)]]
        inverse = _inverse_squares(stated, self._believed_factors(), self._layers, seen.device)
        ratios = (seen * self._column(self._scales[: len(seen)]) - 0.5) * inverse
        for step, ratio in enumerate(ratios, start=self.steps - len(seen) + 1):
            torch.logaddexp(before.open, ratio.to(before.open.dtype), out=before.open)
            if step % self._pass == 0:
                self._close(before, self._pass)
                before.open.fill_(-torch.inf)

    def _close(self, totals: _Totals, steps: int) -> None:
        """Put a pass of so many steps into the table."""
        absent = totals.open.new_tensor(self.specified.absent(steps))
        taking = totals.open + math.log(self._once / self._pass)
        totals.table[0].add_(torch.logaddexp(taking, absent))

    def _units(self, rows: Iterable[int]) -> Tensor | float:
        """What makes multiples of the stated noise of these rows."""
        return self._column([self._scales[row] / max(self._stated[row], 1e-30) for row in rows])

    def _column(self, values: list[float]) -> Tensor | float:
        """One number for each row; a plain number where all are the same."""
        if min(values) == max(values):
            return values[0]
        return torch.tensor(values, device=self._held.device)[:, None]

    def _increments(self, seen: Tensor) -> Iterator[Tensor]:
        """What these steps add to the table, for m = 1 ... s.

        The ratio of densities is a polynomial in e^(y / sigma^2) with coefficients Bin(j; m, q) e^(-j^2 / (2
        sigma^2)). Where nothing can overflow, logarithms are taken of the product of a few steps; they are
        cut at a height that only a fault reaches.
        """
        most = len(self._law) - 1
        stated = [max(noise, LEAST_NOISE) for noise in self._stated[: len(seen)]]
        factors = self._believed_factors()
        inverse = _inverse_squares(stated, factors, self._layers, seen.device)
        logs = [[self._law[m][j] - 0.5 * j**2 * inverse for j in range(m + 1)] for m in range(most + 1)]
        least = min(stated) * min(factors)
        largest, smallest = most * (most + 6 * least) / least**2, -self._law[most][0]
        together = min(_TOGETHER, int(_ROOM / max(largest, smallest, 1.0)))
        scale = self._column(self._scales[: len(seen)])
        scaled = torch.mul(seen, inverse * scale, out=self._scratch[0, : len(seen)])
        if together == 0:
            for m in range(self._each, most + 1, self._each):
                grown = _logaddexp(logs[m][0], scaled + logs[m][1])
                for j in range(2, m + 1):
                    grown = _logaddexp(logs[m][j] + j * scaled, grown)
                yield grown.sum(0)
            return
        odds = scaled.exp_()
        for m in range(self._each, most + 1, self._each):
            ratio = self._scratch[1, : len(seen)]
            first, second = _exp(logs[m][m]), _exp(logs[m][m - 1])
            if isinstance(first, Tensor) or isinstance(second, Tensor):
                torch.mul(odds, first, out=ratio).add_(second)
            else:
                torch.add(torch.tensor(second), odds, alpha=first, out=ratio)
            for j in range(m - 2, -1, -1):
                ratio.mul_(odds).add_(_exp(logs[m][j]))
            whole = len(ratio) // together * together
            product = ratio[:whole].view(-1, together, self._count).prod(1)
            if whole < len(ratio):
                product = torch.cat([product, ratio[whole:].prod(0, keepdim=True)])
            yield product.log_().clamp_(max=_ROOM).sum(0)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; steps held back stay so, to the last digit of the result."""
        return {
            **{name: total.cpu() for name, total in self._totals.copied()._asdict().items()},
            "held": self._held[: self._waiting].cpu().clone(),
            "stated": self._stated[: self._waiting],
            "scales": self._scales[: self._waiting],
            "totalled": list(self._totalled),
            "steps": self.steps,
            "noise_square": self.noise_square,
            "noise_changes": self.noise_changes,
            "factors": self._factors,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        device = self._held.device
        self._totals = _Totals(*(state[name].to(device) for name in _Totals._fields)).copied()
        self._waiting = len(state["held"])
        self._held[: self._waiting] = state["held"].to(device)
        self._stated[: self._waiting] = state["stated"]
        self._scales[: self._waiting] = state["scales"]
        self._totalled = list(state["totalled"])
        self.steps, self.noise_square = int(state["steps"]), float(state["noise_square"])
        self.noise_changes = bool(state["noise_changes"])
        self._factors = state["factors"]


def _plain(values: Tensor) -> Floats:
    return values.cpu().numpy().astype(np.float64)


def _logaddexp(first: Tensor | float, second: Tensor) -> Tensor:
    return torch.logaddexp(second, first if isinstance(first, Tensor) else second.new_tensor(first))


def _exp(value: Tensor | float) -> Tensor | float:
    return value.exp() if isinstance(value, Tensor) else math.exp(value)


def _inverse_squares(
    stated: list[float], factors: list[float], layers: list[int], device: torch.device
) -> Tensor | float:
    """One over the squared noise of each step and place; a plain number where all are the same."""
    steps: Tensor | float = 1 / stated[0] ** 2
    if min(stated) != max(stated):
        steps = torch.tensor([1 / noise**2 for noise in stated], device=device)[:, None]
    if min(factors) == max(factors):
        return steps / factors[0] ** 2
    values = torch.tensor([1 / factor**2 for factor in factors], device=device)
    return torch.repeat_interleave(values, torch.tensor(layers, device=device)) * steps
