"""Observations at witnesses and whole parameters, added up on the CPU.

There are about a thousand witnesses, however large the model is. So their values are copied unchanged, many
steps at once, and added up by NumPy.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch

from canaria._core.arrays import Floats
from canaria.integrations._witnesses import joined
from canaria.training.canaries.witnesses import Roles, Seen
from canaria.training.conformance.coincidences import FIRST


class Witnessed:
    """The observations so far, and `values` of all witnesses in the first steps."""

    def __init__(self, roles: Roles) -> None:
        self._roles, self._count = roles, len(roles.index)
        self.values: Floats = np.zeros((0, self._count))
        self.seen = Seen.of(self.values, np.zeros((0, len(roles.sizes))), roles)

    def with_steps(self, steps: Floats, totalled: Sequence[int]) -> "Witnessed":
        """A copy with further steps, in units of the stated noise.

        A row has a value for each witness, followed by one for each parameter in `Roles.whole`. The latter
        are filled in only in the rows `totalled`.
        """
        found = copy(self)
        values, totals = steps[:, : self._count], steps[list(totalled), self._count :]
        if len(self.values) < FIRST:
            found.values = np.concatenate([self.values, values])[:FIRST]
        found.seen = joined(self.seen, Seen.of(values, totals, self._roles))
        return found

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint, without NumPy arrays, which torch refuses to load."""
        parts = {name: torch.tensor(part) for name, part in self.seen._asdict().items()}
        return {"seen": parts, "values": torch.tensor(self.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        parts: dict[str, Any] = {name: part.numpy().copy() for name, part in state["seen"].items()}
        self.seen = Seen(**parts)._replace(steps=int(parts["steps"]))
        self.values = state["values"].numpy().copy()
