"""What witnesses and whole parameters showed, in torch, on the device of the model."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria.training.canaries.witnesses import EDGES, MOST_STEPS, Roles, Seen
from canaria.training.conformance.coincidences import FIRST

_TOGETHER: Final = 128
"""So many steps are added together: they are short, and a call costs more than what it computes."""


class _Sums(NamedTuple):
    """The sums of `canaria.training.canaries.witnesses.Seen` on the device.

    `beyond` counts the values of shaped witnesses beyond each edge, and `signs` holds bytes of eight signs.
    `values` are those of all witnesses in the first steps.
    """

    by_step: Tensor
    by_place: Tensor
    beyond: Tensor
    signs: Tensor
    totals: Tensor
    firsts: Tensor
    values: Tensor

    def copied(self) -> "_Sums":
        return _Sums(*(part.clone() for part in self))


class Witnessed:
    """Adds up steps, which have a value for each witness and then one for each parameter that is totalled."""

    def __init__(self, roles: Roles, device: torch.device, wide: torch.dtype) -> None:
        plain, shaped, signed = np.flatnonzero(~roles.shaped), np.flatnonzero(roles.shaped), roles.signed
        self._parts = [len(plain), len(shaped), -(-len(signed) // 8) * 8]
        padding = np.zeros(self._parts[2] - len(signed), dtype=np.int64)
        self._picked = torch.tensor(np.concatenate([plain, shaped, signed, padding]), device=device)
        bits = np.append(2 ** (np.arange(len(signed)) % 8), padding).reshape(-1, 8)
        self._bits = torch.tensor(bits, dtype=torch.uint8, device=device)
        self._edges = torch.tensor(EDGES, device=device)[:, None, None]
        self._roots = torch.tensor(np.sqrt(roles.sizes), dtype=torch.float32, device=device)
        self._sums = _Sums(
            torch.zeros(MOST_STEPS, dtype=wide, device=device),
            torch.zeros(len(plain), dtype=wide, device=device),
            torch.zeros(len(EDGES), dtype=torch.int64, device=device),
            torch.zeros(0, len(bits), dtype=torch.uint8, device=device),
            torch.zeros(0, len(roles.sizes), device=device),
            torch.zeros(0, roles.firsts.size, device=device),
            torch.zeros(0, len(roles.index), device=device),
        )
        self.values = np.zeros((0, len(roles.index)))
        self._firsts = torch.tensor(roles.firsts.ravel(), device=device)
        self._count = len(roles.index)
        self._kept = torch.zeros(_TOGETHER, self._count + len(roles.sizes), device=device)
        self._added, self._waiting = 0, 0
        self._totalled: list[int] = []

    def add(self, steps: Tensor, units: Tensor | float, totalled: Sequence[int]) -> None:
        """Steps, a row each, which `units` makes multiples of the stated noise.

        As many at a time as divide 128; `totalled` are those with values for parameters.
        """
        torch.mul(steps, units, out=self._kept[self._waiting : self._waiting + len(steps)])
        self._totalled += [self._waiting + row for row in totalled]
        self._waiting += len(steps)
        if self._waiting == _TOGETHER:
            self._sums = self._with(self._sums, self._kept, self._totalled)
            self._added += _TOGETHER
            self._waiting, self._totalled = 0, []

    def seen(self, steps: Tensor, units: Tensor | float, totalled: Sequence[int]) -> Seen:
        """What was seen, and in these steps, fewer than are added at a time, as if they were added."""
        kept = torch.cat([self._kept[: self._waiting], steps * units])
        found = self._with(
            self._sums.copied(), kept, [*self._totalled, *(self._waiting + row for row in totalled)]
        )
        count = self._added + len(kept)
        beyond = found.beyond.cpu().numpy()
        cells = -np.diff(np.concatenate([[self._parts[1] * count], beyond, [0]]))
        by_step, by_place, totals = (
            part.cpu().numpy().astype(np.float64) for part in (found.by_step, found.by_place, found.totals)
        )
        signs = found.signs.cpu().numpy()
        firsts, values = (part.cpu().numpy().astype(np.float64) for part in (found.firsts, found.values))
        self.values = values  # of the first steps, for `canaria.training.conformance.coincidences`
        return Seen(
            count,
            by_step[: min(count, MOST_STEPS)],
            by_place,
            cells,
            signs,
            totals,
            firsts=firsts.reshape(-1, 3),
        )

    def _with(self, before: _Sums, steps: Tensor, totalled: Sequence[int]) -> _Sums:
        """These sums, which are changed, with steps in multiples of the stated noise."""
        plain, shaped, signed = torch.split(steps[:, self._picked], self._parts, dim=1)
        squares = plain.square()
        first = self._added % MOST_STEPS
        before.by_step[first : first + len(steps)].add_(squares.sum(1))
        before.by_place.add_(squares.sum(0))
        before.beyond.add_((shaped.abs() > self._edges).sum((1, 2)))
        if len(before.signs) == MOST_STEPS:
            return before
        bits = (signed > 0).view(len(steps), *self._bits.shape) * self._bits
        signs = torch.cat([before.signs, bits.sum(2, dtype=torch.uint8)])
        whole = steps[list(totalled), self._count :].div_(self._roots)
        return before._replace(
            signs=signs[:MOST_STEPS],
            totals=torch.cat([before.totals, whole])[:MOST_STEPS],
            firsts=torch.cat([before.firsts, steps[:, self._firsts]])[:MOST_STEPS],
            values=torch.cat([before.values, steps[:, : self._count]])[:FIRST]
            if len(before.values) < FIRST
            else before.values,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs; steps that wait stay so."""
        return {
            **{name: part.cpu() for name, part in self._sums.copied()._asdict().items()},
            "kept": self._kept[: self._waiting].cpu().clone(),
            "kept_totalled": list(self._totalled),
            "added": self._added,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        device = self._kept.device
        self._sums = _Sums(*(state[name].to(device) for name in _Sums._fields)).copied()
        self._waiting, self._added = len(state["kept"]), int(state["added"])
        self._kept[: self._waiting] = state["kept"].to(device)
        self._totalled = list(state["kept_totalled"])
