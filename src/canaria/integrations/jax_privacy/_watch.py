"""Watches the witnesses in the state of an audited privatizer, outside of JAX."""

import numpy as np

from canaria._core.arrays import Floats
from canaria.integrations.jax_privacy._accumulator import Accumulated
from canaria.training.conformance.measured import Squares
from canaria.training.likelihood.accumulator import HELD
from canaria.training.watch import Watch


class Watched:
    """Hands the squares of new steps to a `Watch`.

    The state holds the latest steps only. If there were more since the last look, the earlier ones are not
    watched. Neither are steps that are repeated after returning to an earlier state.
    """

    def __init__(self, watch: Watch, witnesses: slice, unit: float, stated: float) -> None:
        self.watch = watch
        self._witnesses, self._unit, self._stated = witnesses, unit, stated
        self._looked = 0

    def look(self, accumulated: Accumulated) -> None:
        """Watch the steps that were made since the last call."""
        steps = int(accumulated.steps)
        new = range(max(self._looked, steps - HELD), steps)
        self._looked = max(self._looked, steps)
        held: Floats = np.asarray(accumulated.held, np.float64)[:, self._witnesses] / self._unit
        for step in new:
            row = held[step % HELD]
            self.watch.add(Squares(float(row @ row), len(row)), self._stated)
