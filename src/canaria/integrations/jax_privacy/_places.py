"""Reads and writes the weights that carry canaries, and reads witnesses."""

import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Integers
from canaria.training.canaries.witnesses import Layout


class Places:
    """The weights at which a layout places canaries and witnesses."""

    def __init__(self, layout: Layout) -> None:
        self.layers, self.roles = layout.layers, layout.roles
        self._canaries = _used(layout.canaries)
        self._witnesses = _used(layout.witnesses)
        self._numbers, self._spans = np.concatenate(layout.coordinates), layout.spans

    def chosen(self, leaves: list[Array]) -> list[Array]:
        """The arrays that carry canaries or have witnesses."""
        return [leaves[which] for which in sorted({*self._canaries, *self._witnesses})]

    def read(self, leaves: list[Array]) -> Array:
        """The values along the canaries' coordinates, in single precision or better."""
        values = _read(leaves, self._canaries)
        if len(values) == len(self._spans):
            return values
        each = np.sqrt(1 / self._spans[self._numbers]).astype(values.dtype)
        return jnp.zeros(len(self._spans), values.dtype).at[self._numbers].add(values * each)

    def read_witnesses(self, leaves: list[Array]) -> Array:
        return _read(leaves, self._witnesses) if self._witnesses else jnp.zeros(0)

    def totals(self, noisy: list[Array], clean: list[Array]) -> Array:
        """The sum of the noise over each parameter in `Roles.whole`."""
        whole = self.roles.whole.tolist()
        found = [(noisy[which] - clean[which]).sum() for which in whole]
        return jnp.stack(found) if found else jnp.zeros(0)

    def put(self, leaves: list[Array], real: Array, added: Array) -> list[Array]:
        """The arrays with the real part and the canaries at the places, in their own precision.

        Rounding is toward the real part, so that canaries never weigh more than they should.
        """
        ends = np.cumsum(self.layers)[:-1]
        put = list(leaves)
        parts = zip(self._canaries.items(), jnp.split(real, ends), jnp.split(added, ends), strict=True)
        for (which, some), beside, more in parts:
            put[which] = _with(leaves[which], some, beside, more)
        return put


def _used(places: tuple[Integers, ...]) -> dict[int, Integers]:
    return {which: some for which, some in enumerate(places) if len(some)}


def _read(leaves: list[Array], places: dict[int, Integers]) -> Array:
    parts = [
        leaves[which].reshape(-1)[some].astype(jnp.promote_types(leaves[which].dtype, jnp.float32))
        for which, some in places.items()
    ]
    return jnp.concatenate(parts)


def _with(leaf: Array, some: Integers, real: Array, added: Array) -> Array:
    """Write real + added to an array, rounded toward real so that it never adds more than `added`."""
    near = (real + added).astype(leaf.dtype)
    over = abs(near.astype(real.dtype) - real) > abs(added)
    values = jnp.where(over, jnp.nextafter(near, real.astype(leaf.dtype)), near)
    return leaf.reshape(-1).at[some].set(values).reshape(leaf.shape)
