"""Reading and writing the coordinates that carry canaries."""

import math

import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria.training.accumulator import places


class Places:
    """`count` weights of arrays with these shapes, where `canaria.training.accumulator.places` puts them.

    `layers` says how many each array carries, in order.
    """

    def __init__(self, shapes: list[tuple[int, ...]], count: int) -> None:
        chosen = places([math.prod(shape) for shape in shapes], count)
        self._slices = {which: some for which, some in enumerate(chosen) if some.stop > some.start}
        self.layers = tuple(some.stop - some.start for some in self._slices.values())

    def chosen(self, leaves: list[Array]) -> list[Array]:
        """The arrays that carry canaries."""
        return [leaves[which] for which in self._slices]

    def read(self, leaves: list[Array]) -> Array:
        """The values at the places, in single precision or better."""
        parts = [
            leaves[which].reshape(-1)[some].astype(jnp.promote_types(leaves[which].dtype, jnp.float32))
            for which, some in self._slices.items()
        ]
        return jnp.concatenate(parts)

    def put(self, leaves: list[Array], real: Array, added: Array) -> list[Array]:
        """The arrays with the real part and the canaries at the places, in their own precision.

        Rounding is toward the real part, so that canaries never weigh more than they should.
        """
        ends = np.cumsum(self.layers)[:-1]
        put = list(leaves)
        parts = zip(self._slices.items(), jnp.split(real, ends), jnp.split(added, ends), strict=True)
        for (which, some), beside, more in parts:
            put[which] = _with(leaves[which], some, beside, more)
        return put


def _with(leaf: Array, some: slice, real: Array, added: Array) -> Array:
    """An array that holds real + added there, or the next number toward real where that is more."""
    near = (real + added).astype(leaf.dtype)
    over = abs(near.astype(real.dtype) - real) > abs(added)
    values = jnp.where(over, jnp.nextafter(near, real.astype(leaf.dtype)), near)
    return leaf.reshape(-1).at[some].set(values).reshape(leaf.shape)
