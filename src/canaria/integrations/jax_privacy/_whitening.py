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


class Readings(NamedTuple):
    """What the steps showed so far: their number, canaries in all of them, and the noise of the last ones."""

    steps: Array
    canaries: Array
    before: Array


class Whitening:
    """Keeps readings, and whitens those that are noise alone."""

    def __init__(self, strategy: Strategy, coordinates: int, others: int) -> None:
        self.steps, self._bands = strategy.steps, strategy.bands
        self._coordinates, self._others = coordinates, others
        self._back = strategy.back()

    def begin(self) -> Readings:
        """Before the first step."""
        return Readings(
            steps=jnp.zeros((), jnp.int32),
            canaries=jnp.zeros((self.steps, self._coordinates)),
            before=jnp.zeros((self._bands - 1, self._others)),
        )

    def add(self, readings: Readings, seen: Array, noise: Array) -> tuple[Readings, Array]:
        """A step: the new readings, and its whitened noise."""
        now, kind = readings.steps, readings.canaries.dtype
        last = jnp.concatenate([noise.astype(kind)[None], readings.before])
        row = jnp.asarray(self._back, kind).at[now].get(mode="clip")
        added = Readings(
            now + 1, readings.canaries.at[now].set(seen.astype(kind), mode="drop"), last[: self._bands - 1]
        )
        return added, jnp.matmul(row, last, precision="highest")

    def seen(self, readings: Readings) -> Floats:
        """What canaries showed, (steps, coordinates), free of JAX."""
        return np.asarray(readings.canaries, np.float64)[: int(readings.steps)]
