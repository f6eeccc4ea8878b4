"""Readings of training with correlated noise: canaries are stored unchanged, witnesses are whitened.

With strategy C, w_t = sum_k C[t, t - k] z_(t - k), over k = 0, 1, ... up to the number of bands, is
independent between steps if z is the noise of training. One step fewer than there are bands is stored.
"""

from typing import NamedTuple

import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Floats
from canaria.mechanisms import Strategy
from canaria.training.canaries.witnesses import Roles


class Readings(NamedTuple):
    """The readings so far: their number, canaries and squared noise of all steps, noise of the last ones."""

    steps: Array
    canaries: Array
    squares: Array
    before: Array


class Whitening:
    """Stores readings, and whitens those that are pure noise: of witnesses and of whole parameters."""

    def __init__(self, strategy: Strategy, coordinates: int, roles: Roles) -> None:
        self.steps, self._bands = strategy.steps, strategy.bands
        self._coordinates, self._plain = coordinates, np.flatnonzero(~roles.shaped)
        self._others = len(roles.index) + len(roles.whole)
        self._back = strategy.back()

    def begin(self) -> Readings:
        """The readings before the first step."""
        return Readings(
            steps=jnp.zeros((), jnp.int32),
            canaries=jnp.zeros((self.steps, self._coordinates)),
            squares=jnp.zeros(self.steps),
            before=jnp.zeros((self._bands - 1, self._others)),
        )

    def add(self, readings: Readings, seen: Array, noise: Array) -> tuple[Readings, Array]:
        """Add a step: returns the new readings and the whitened noise of the step."""
        now, kind = readings.steps, readings.canaries.dtype
        last = jnp.concatenate([noise.astype(kind)[None], readings.before])
        row = jnp.asarray(self._back, kind).at[now].get(mode="clip")
        added = Readings(
            now + 1,
            readings.canaries.at[now].set(seen.astype(kind), mode="drop"),
            readings.squares.at[now].set(jnp.square(last[0, self._plain]).sum(), mode="drop"),
            last[: self._bands - 1],
        )
        return added, jnp.matmul(row, last, precision="highest")

    def seen(self, readings: Readings) -> Floats:
        """The values at canaries, (steps, coordinates), as a NumPy array."""
        return np.asarray(readings.canaries, np.float64)[: int(readings.steps)]

    def squares(self, readings: Readings) -> Floats:
        """The sum of squares over witnesses for each step as released."""
        return np.asarray(readings.squares, np.float64)[: int(readings.steps)]
