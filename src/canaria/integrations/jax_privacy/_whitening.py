"""Readings of training with correlated noise: canaries are kept as they are, witnesses are whitened.

With C the strategy, w_t = sum_k C[t, t - k] z_(t - k), over k = 0, 1, ... as far as C has bands, is
independent from step to step if z is the noise of training. One step less than there are bands is kept.
"""

from typing import NamedTuple

import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Floats
from canaria.mechanisms import Strategy
from canaria.training.canaries.witnesses import Roles


class Readings(NamedTuple):
    """What steps showed so far: their number, canaries and squared noise of all, the noise of the last."""

    steps: Array
    canaries: Array
    squares: Array
    before: Array


class Whitening:
    """Keeps readings, and whitens those that are noise alone: of witnesses, and of whole parameters."""

    def __init__(self, strategy: Strategy, coordinates: int, roles: Roles) -> None:
        self.steps, self._bands = strategy.steps, strategy.bands
        self._coordinates, self._plain = coordinates, np.flatnonzero(~roles.shaped)
        self._others = len(roles.index) + len(roles.whole)
        self._back = strategy.back()

    def begin(self) -> Readings:
        """Before the first step."""
        return Readings(
            steps=jnp.zeros((), jnp.int32),
            canaries=jnp.zeros((self.steps, self._coordinates)),
            squares=jnp.zeros(self.steps),
            before=jnp.zeros((self._bands - 1, self._others)),
        )

    def add(self, readings: Readings, seen: Array, noise: Array) -> tuple[Readings, Array]:
        """A step: the new readings, and its whitened noise."""
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
        """What canaries showed, (steps, coordinates), free of JAX."""
        return np.asarray(readings.canaries, np.float64)[: int(readings.steps)]

    def squares(self, readings: Readings) -> Floats:
        """The sum of squares of each step over witnesses, as it was released."""
        return np.asarray(readings.squares, np.float64)[: int(readings.steps)]
