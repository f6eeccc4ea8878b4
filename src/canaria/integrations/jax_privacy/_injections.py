"""The two ways in which canaries enter the sums, behind one interface."""

import math
from typing import Final, TypeAlias

import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Bits
from canaria._core.errors import InputError
from canaria.integrations.jax_privacy._checks import require_precise
from canaria.integrations.jax_privacy._internals import words_from
from canaria.integrations.jax_privacy._places import Places
from canaria.training.canaries.designs import Dense, Design
from canaria.training.likelihood.correlated import Correlation

INJECTIONS: Final = ("sum", "head")
_LEAST_RATE: Final = 2.0**-32


class Coins:
    """Draws each included canary by an independent coin in each step."""

    def __init__(self, design: Design, bits: Bits, sample_rate: float) -> None:
        self._design, self._bits = design, bits
        self._dense = jnp.asarray(design.gradients()) if isinstance(design, Dense) else None
        if sample_rate < _LEAST_RATE:
            raise InputError(f"injection='sum' needs a sample_rate of at least 2^-32, got {sample_rate}")
        self._least = np.uint32(math.ceil((1 - sample_rate) / _LEAST_RATE))  # never exceeds the rate

    def __call__(self, key: Array, step: Array) -> tuple[Array, Array]:
        """The next key, and the sum of the canaries that take part."""
        count, width = self._design.count, self._design.coordinates
        key, words = words_from(key, count)
        drawn = ((words >= self._least) & (self._bits > 0)).astype(jnp.float32)
        if self._dense is not None:
            return key, jnp.matmul(drawn, self._dense, precision="highest")
        to_a_coordinate = -(-count // width)
        # Canary i is on coordinate i modulo their number.
        padded = jnp.pad(drawn, (0, to_a_coordinate * width - count))
        return key, padded.reshape(to_a_coordinate, width).sum(axis=0)


class Turns:
    """Draws the participation of included canaries in all steps beforehand, by a law of whole trainings."""

    def __init__(self, correlation: Correlation, bits: Bits, rng: np.random.Generator) -> None:
        law = correlation.mechanism.participation
        taking = law.draw(correlation.steps, len(bits), rng) & (bits > 0)
        self._count, self._taking = len(bits), np.packbits(taking, axis=1, bitorder="little")

    def __call__(self, key: Array, step: Array) -> tuple[Array, Array]:
        """The same key, and the canaries that take part; none after the last step."""
        row = jnp.asarray(self._taking).at[step].get(mode="fill", fill_value=0)
        return key, jnp.unpackbits(row, count=self._count, bitorder="little").astype(jnp.float32)


Draw: TypeAlias = Coins | Turns


class Sum:
    """Canaries join the clipped sum, drawn by the auditor."""

    def __init__(self, shapes: list[tuple[int, ...]], places: Places, clip_norm: float, draw: Draw) -> None:
        self.shapes, self.places, self._clip_norm, self._draw = shapes, places, clip_norm, draw

    def add(self, leaves: list[Array], key: Array, step: Array) -> tuple[list[Array], Array, Array]:
        """The sums with canaries, the real rows' part at their places, and the next key."""
        require_precise(self.places.chosen(leaves))
        key, drawn = self._draw(key, step)
        real = self.places.read(leaves)
        return self.places.put(leaves, real, self._clip_norm * drawn.astype(real.dtype)), real, key


class Head:
    """Canaries have gradients in a canary head, which no real row has."""

    def __init__(self, shapes: list[tuple[int, ...]], places: Places) -> None:
        self.shapes, self.places = shapes, places

    def add(self, leaves: list[Array], key: Array, step: Array) -> tuple[list[Array], Array, Array]:
        """The sums unchanged: they already contain the canaries."""
        return leaves, jnp.zeros(()), key
