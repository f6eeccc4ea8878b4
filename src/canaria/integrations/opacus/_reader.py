"""Reading the noisy sums of steps, of several at once where that is faster."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from canaria.integrations.opacus._accumulator import Accumulator
from canaria.integrations.opacus._places import Places
from canaria.training.canaries.designs import TOTALS, derived
from canaria.training.canaries.witnesses import MOST_STEPS

_FIRST, _ONE_OF = 64, 4
"""The noise of parameters is totalled in so many steps, and then in one of so many, or of their groups."""


class Step(NamedTuple):
    """A step that was made.

    `everybody` is the clipped sum of all processes, if there are several, `own` the canaries' part of it, if
    it is in it, and `stated` the noise multiplier that is stated, in units of `clip_norm`.
    """

    everybody: Tensor | None
    own: Tensor | None
    clip_norm: float
    stated: float


class Reader:
    """Reads steps into an accumulator when a group of them is complete, or when somebody asks.

    A group is the steps that `places` keeps; where it keeps one, every step is read at once. What is read
    late is what the optimizer used: only the reading waits.
    """

    def __init__(self, places: Places, accumulator: Accumulator, seed: int, *, totals: bool) -> None:
        self._places, self._accumulator, self._totals = places, accumulator, totals
        rng = np.random.default_rng(derived(seed, TOTALS))
        self._looks = rng.integers(_ONE_OF, size=MOST_STEPS // (_ONE_OF * places.together))
        self._unread: list[Step] = []

    @property
    def steps(self) -> int:
        """How many steps were made."""
        return self._accumulator.steps + len(self._unread)

    def begin(self) -> None:
        """Get ready for the next step; one that was begun and not made is forgotten."""
        self._places.turn_to(self.steps % self._places.together)

    def add(self, step: Step) -> None:
        """A step was made."""
        self._unread.append(step)
        if self.steps % self._places.together == 0:
            self.accumulated()

    def accumulated(self) -> Accumulator:
        """The accumulator, with all steps that were made."""
        if self._unread:
            self._read(self._accumulator.steps)
            steps, self._unread = self._unread, []
            totalled = self._totalled(self._accumulator.steps)
            for step in steps:
                self._accumulator.add(
                    step.own, clip_norm=step.clip_norm, stated=step.stated, totalled=totalled
                )
        return self._accumulator

    def _read(self, first: int) -> None:
        """Read the steps that wait, of which this is the first; they belong to one group."""
        row = first % self._places.together
        rows = range(row, row + len(self._unread))
        values, totals = self._accumulator.next_rows(len(rows))
        self._places.read_kept(rows, values)
        if (everybody := self._unread[0].everybody) is not None:
            values.add_(everybody)
        totalled = self._totalled(first)
        if totalled:
            self._places.totals(rows, totals)
        if self._places.sharded:
            for part in (values, totals) if totalled else (values,):
                torch.distributed.all_reduce(part)

    def _totalled(self, step: int) -> bool:
        """Whether noise is totalled: in the first steps, then in one group of four, at random."""
        if not self._totals or step < _FIRST:
            return self._totals
        four, place = divmod(step // self._places.together, _ONE_OF)
        return four < len(self._looks) and int(self._looks[four]) == place
