"""The accumulator of `canaria.training.likelihood.accumulator`, in torch, on the device of the model."""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria._core.arrays import Floats, Hits
from canaria.integrations.opacus._witnessing import Witnessed
from canaria.mechanisms.dpsgd import binomial_law
from canaria.training.canaries.designs import TOTALS, derived
from canaria.training.canaries.witnesses import MOST_STEPS
from canaria.training.likelihood import accumulator
from canaria.training.likelihood.accumulator import HELD, LEAST_NOISE, TOO_FEW

_LONGER: Final = 4
"""Steps are buffered this many times longer than specified, since adding them takes a call per sum."""
_MOST_HELD: Final = 2**26
"""Upper limit for the numbers in that longer buffer."""
_FIRST, _ONE_OF = 64, 32
"""Parameter noise is summed in all of this many steps, then in one of every `_ONE_OF` steps at random."""


class _Totals(NamedTuple):
    """Sums and table of `canaria.training.likelihood.accumulator.Totals` on the device.

    `open` is ln sum_t e^((y_t - 1/2) / sigma^2) over the steps of an open pass of shuffled batches.
    """

    sums: Tensor
    table: Tensor
    open: Tensor

    def copied(self) -> "_Totals":
        return _Totals(*(total.clone() for total in self))


class Accumulator:
    """The totals so far; the last steps, up to `HELD` or a few times as many, are buffered."""

    def __init__(self, specified: accumulator.Accumulator, device: torch.device) -> None:
        self.specified = specified
        self._count, most, roles = sum(specified.layers), specified.most, specified.roles
        self._all = self._count + len(roles.index)
        held = HELD if HELD * _LONGER * self._all > _MOST_HELD else HELD * _LONGER
        # Apple's GPUs have no double precision.
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
        self._factors: list[float] | None = None
        self._totals = _Totals(
            torch.zeros(self._count, dtype=wide, device=device),
            torch.zeros(most, self._count, dtype=wide, device=device),
            torch.full((self._count if self._pass else 0,), -torch.inf, dtype=wide, device=device),
        )
        self._witnessed = Witnessed(roles)
        self.steps, self.noise_square, self.noise_changes = 0, 0.0, False
        self._held = torch.zeros(held, self._all + len(roles.sizes), device=device)
        # Making views in each step takes as long as reading into them.
        self._rows = [(row[: self._all], row[self._all :]) for row in self._held]
        self._stated, self._scales = [0.0] * held, [0.0] * held
        self._totalled: list[int] = []
        self._waiting = 0

    def next_row(self) -> tuple[Tensor, Tensor]:
        """The buffers for the noise of the next step before it is added: at all places, and totals."""
        return self._rows[self._waiting]

    def add(self, own: Tensor | None, *, clip_norm: float, stated: float, totalled: bool) -> None:
        """Add a step: the negated `next_row`, and the canaries' own part if that is missing from it.

        `stated` is the stated noise multiplier of this step; `totalled` says whether there are totals.
        """
        if own is not None:
            self._held[self._waiting, : self._count].sub_(own)
        self._scales[self._waiting] = -1 / clip_norm
        # If all earlier steps had this noise, their squares add up to this.
        if not math.isclose(self.noise_square, self.steps * stated**2, rel_tol=1e-9):
            self.noise_changes = True
        self._stated[self._waiting] = stated
        if totalled:
            self._totalled.append(self._waiting)
        self._waiting += 1
        self.steps += 1
        self.noise_square += stated**2
        if self._waiting == len(self._held):
            self._factors = self._believed_factors()
            self._totals = self._with_held(self._totals)
            self._witnessed = self._with_held_noise()
            self._waiting, self._totalled = 0, []

    def witnesses(self, steps: int) -> tuple[Tensor, list[tuple[float, float]]]:
        """The noise at witnesses in the last steps; for each step, the stated noise in both units."""
        # The buffer is a ring: after it was added up, the last steps are at its end.
        rows = [(self._waiting - ago) % len(self._held) for ago in range(steps, 0, -1)]
        first, last = rows[0], rows[-1] + 1
        values = self._held[first:last] if first < last else self._held[rows]
        told = [(self._stated[row], -self._stated[row] / self._scales[row]) for row in rows]
        return values[:, self._count : self._all], told

    def _believed_factors(self) -> list[float]:
        """The noise of each parameter over the stated noise, as specified."""
        if self._factors is not None:
            return self._factors
        first = min(self._waiting, HELD)
        seen = self._held[:first, : self._count] * self._column(self._scales[:first])
        squares = seen.square_().mean(0)
        stated = sum(noise**2 for noise in self._stated[:first]) / first
        return [
            self.specified.believed_factor(float(part.mean()), float(part.std()), len(part), stated)
            if len(part) > TOO_FEW
            else 1.0
            for part in torch.split(squares, self._layers)
        ]

    def totals(self) -> accumulator.Totals:
        """The totals including buffered steps, as NumPy arrays."""
        found = self._with_held(self._totals.copied())
        if self._pass and (some := self.steps % self._pass):
            self._close(found, some)
        return accumulator.Totals(_plain(found.sums), _plain(found.table), self._with_held_noise().seen)

    @property
    def first_values(self) -> Floats:
        """The noise at all witnesses in the first steps, in units of the stated noise."""
        return self._with_held_noise().values

    def _with_held_noise(self) -> Witnessed:
        """The observations at witnesses, including buffered steps."""
        steps = range(self._waiting)
        units = np.array([self._scales[step] / max(self._stated[step], 1e-30) for step in steps])
        noise = _plain(self._held[: self._waiting, self._count :]) * units[:, None]
        return self._witnessed.with_steps(noise, self._totalled)

    def _with_held(self, before: _Totals) -> _Totals:
        """Add the buffered steps to these totals, in place."""
        steps = self._waiting
        if steps == 0:
            return before
        # The buffer holds negated values in units of the gradient; scales convert them to clip norms.
        seen = self._held[:steps, : self._count] * self._column(self._scales[:steps])
        before.sums.add_(seen.sum(0))
        if self._pass:
            self._add_to_passes(before, seen)
        else:
            for row, added in zip(before.table, self._increments(seen), strict=True):
                row.add_(added)
        return before

    def _add_to_passes(self, before: _Totals, seen: Tensor) -> None:
        """Add steps of shuffled batches; a finished pass is added to the table."""
        ratios = (seen - 0.5) * self._inverse_squares(len(seen))
        for step, ratio in enumerate(ratios, start=self.steps - len(seen) + 1):
            torch.logaddexp(before.open, ratio.to(before.open.dtype), out=before.open)
            if step % self._pass == 0:
                self._close(before, self._pass)
                before.open.fill_(-torch.inf)

    def _close(self, totals: _Totals, steps: int) -> None:
        """Add a pass of this many steps to the table."""
        absent = totals.open.new_tensor(self.specified.absent(steps))
        taking = totals.open + math.log(self._once / self._pass)
        totals.table[0].add_(torch.logaddexp(taking, absent))

    def _column(self, values: list[float]) -> Tensor:
        """One number per row, as a column."""
        return torch.tensor(values, device=self._held.device)[:, None]

    def _inverse_squares(self, steps: int) -> Tensor:
        """One over the squared noise of each step and coordinate; one column if all parameters are alike."""
        stated = self._column([max(noise, LEAST_NOISE) for noise in self._stated[:steps]])
        factors, layers = self._believed_factors(), self._layers
        if len(set(factors)) == 1:  # mostly; a column saves a matrix as large as that of the buffered steps
            factors, layers = factors[:1], [1]
        counts = torch.tensor(layers, device=stated.device)
        each = torch.tensor(factors, device=stated.device).repeat_interleave(counts)
        return 1 / (stated * each) ** 2

    def _increments(self, seen: Tensor) -> Iterator[Tensor]:
        """The contributions of these steps to the table, for s = 1, 2, ... canaries on a coordinate.

        With y the noisy count of canaries and m coins for them (`accumulated` for each), a step adds

            ln sum_j Bin(j; m, q) phi((y - j) / sigma) / phi(y / sigma)
                = ln sum_j Bin(j; m, q) e^((j y - j^2 / 2) / sigma^2).
        """
        most, inverse = len(self._law) - 1, self._inverse_squares(len(seen))
        scaled = seen * inverse
        for m in range(self._each, most + 1, self._each):
            grown = scaled.new_full((), self._law[m][0])
            for j in range(1, m + 1):
                # Add logarithms instead of multiplying: products overflow if the noise is small.
                term = torch.add(self._law[m][j] - 0.5 * j**2 * inverse, scaled, alpha=j)
                grown = torch.logaddexp(grown, term)
            yield grown.sum(0)

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint. Buffered steps stay buffered, so that results are the same."""
        return {
            **{name: total.cpu() for name, total in self._totals.copied()._asdict().items()},
            "witnessed": self._witnessed.state_dict(),
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
        device = self._held.device
        self._totals = _Totals(*(state[name].to(device) for name in _Totals._fields)).copied()
        self._witnessed.load_state_dict(state["witnessed"])
        self._waiting = len(state["held"])
        self._held[: self._waiting] = state["held"].to(device)
        self._stated[: self._waiting] = state["stated"]
        self._scales[: self._waiting] = state["scales"]
        self._totalled = list(state["totalled"])
        self.steps, self.noise_square = int(state["steps"]), float(state["noise_square"])
        self.noise_changes = bool(state["noise_changes"])
        self._factors = state["factors"]


def totalled_steps(seed: int) -> Hits:
    """A mask of the first steps in which the noise of whole parameters is summed."""
    rng = np.random.default_rng(derived(seed, TOTALS))
    groups = np.arange(0, MOST_STEPS, _ONE_OF)
    chosen: Hits = np.arange(MOST_STEPS) < _FIRST
    chosen[groups + rng.integers(_ONE_OF, size=len(groups))] = True
    return chosen


def _plain(values: Tensor) -> Floats:
    return values.cpu().numpy().astype(np.float64)
