"""How canaries get into the sums: two ways, one interface."""

import math
from typing import Final

import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Bits
from canaria._core.errors import InputError
from canaria.integrations.jax_privacy._checks import require_precise
from canaria.integrations.jax_privacy._internals import words_from
from canaria.integrations.jax_privacy._places import Places
from canaria.mechanisms.participation import Participation
from canaria.training.canaries.designs import Dense, Design

INJECTIONS: Final = ("sum", "head")
_LEAST_RATE: Final = 2.0**-32


class Sum:
    """Canaries join the clipped sum by a Poisson draw of the auditor's own."""

    def __init__(
        self,
        shapes: list[tuple[int, ...]],
        places: Places,
        design: Design,
        bits: Bits,
        *,
        clip_norm: float,
        sample_rate: float,
    ) -> None:
        self.shapes, self._design, self._bits, self._clip_norm = shapes, design, bits, clip_norm
        self.places = places
        self._dense = jnp.asarray(design.gradients()) if isinstance(design, Dense) else None
        if sample_rate < _LEAST_RATE:
            raise InputError(f"injection='sum' needs a sample_rate of at least 2^-32, got {sample_rate}")
        self._least = np.uint32(math.ceil((1 - sample_rate) / _LEAST_RATE))  # never above the rate

    def add(self, leaves: list[Array], key: Array, step: Array) -> tuple[list[Array], Array, Array]:
        """The sums with the canaries in them, the real rows' part at the places, and the next key."""
        require_precise(self.places.chosen(leaves))
        key, drawn = self._draw(key, step)
        real = self.places.read(leaves)
        return self.places.put(leaves, real, self._clip_norm * drawn.astype(real.dtype)), real, key

    def _draw(self, key: Array, step: Array) -> tuple[Array, Array]:
        """The next key, and the sum of the canaries that take part."""
        count, width = self._design.count, self._design.coordinates
        key, words = words_from(key, count)
        drawn = ((words >= self._least) & (self._bits > 0)).astype(jnp.float32)
        if self._dense is not None:
            return key, jnp.matmul(drawn, self._dense, precision="highest")
        to_a_coordinate = -(-count // width)
        padded = jnp.pad(drawn, (0, to_a_coordinate * width - count))
        return key, padded.reshape(to_a_coordinate, width).sum(axis=0)


class Turns(Sum):
    """Canaries join the clipped sum by a law of whole trainings, drawn beforehand."""

    def __init__(
        self,
        shapes: list[tuple[int, ...]],
        places: Places,
        design: Design,
        bits: Bits,
        *,
        clip_norm: float,
        law: Participation,
        steps: int,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(shapes, places, design, bits, clip_norm=clip_norm, sample_rate=law.share)
        taking = law.draw(steps, design.count, rng) & (bits > 0)
        self._taking = np.packbits(taking, axis=1, bitorder="little")

    def _draw(self, key: Array, step: Array) -> tuple[Array, Array]:
        """The same key, and the canaries that take part; none after the last step."""
        row = jnp.asarray(self._taking).at[step].get(mode="fill", fill_value=0)
        return key, jnp.unpackbits(row, count=self._design.count, bitorder="little").astype(jnp.float32)


class Head:
    """The canary head's own gradient; no real row touches it."""

    def __init__(self, shapes: list[tuple[int, ...]], places: Places) -> None:
        self.shapes, self.places = shapes, places

    def add(self, leaves: list[Array], key: Array, step: Array) -> tuple[list[Array], Array, Array]:
        """The sums as they are: canaries are in them."""
        return leaves, jnp.zeros(()), key
