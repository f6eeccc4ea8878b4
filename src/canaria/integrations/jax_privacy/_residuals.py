"""What each of the first steps adds to the clipped sum, as rows of `beside_the_noise`.

A row ends with the first numbers of each parameter, with noise and without it, which show noise that was
added in half precision.
"""

from collections.abc import Sequence
from typing import Final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from canaria.training.conformance.coincidences import FIRST
from canaria.training.conformance.halves import Halves, contradictions
from canaria.training.conformance.residuals import EDGES, FACTS, beside_the_noise
from canaria.training.findings import Findings

_FEW: Final = 256
"""The noisy numbers of a parameter and step. 1 in 40 is so small that it shows; see `Halves`."""


class Residuals:
    """Adds rows to an array of the state. There is none for correlated noise.

    A part of correlated noise is known from earlier steps, on which the sum depends too.
    """

    def __init__(
        self,
        shapes: Sequence[tuple[int, ...]],
        names: Sequence[str],
        deviation: float,
        *,
        known: bool,
    ) -> None:
        self._sizes = np.array([np.prod(shape, dtype=np.float64) for shape in shapes])
        self._names, self._deviation = names, max(deviation, 1e-30)
        self._steps = FIRST if known else 0
        self._added = jax.jit(self._add)  # otherwise each step would compile again if training is not jitted

    def begin(self) -> Array:
        """The array before the first step."""
        return jnp.zeros((self._steps, FACTS + len(self._sizes) * (1 + 2 * _FEW)))

    def add(self, seen: Array, place: Array, noisy: list[Array], clean: list[Array]) -> Array:
        """Add the row of the step at this place."""
        added: Array = self._added(seen, place, noisy, clean) if len(seen) else seen
        return added

    def _add(self, seen: Array, place: Array, noisy: list[Array], clean: list[Array]) -> Array:
        added: Array = jax.lax.cond(
            place < len(seen),
            lambda: seen.at[place].set(self._row(noisy, clean)),
            lambda: seen,
        )
        return added

    def findings(self, seen: Array, made: int) -> Findings:
        """What is wrong with the noise of the steps that were made."""
        facts, first = np.split(np.asarray(seen, np.float64)[:made], [FACTS + len(self._sizes)], axis=1)
        halves = [Halves() for _ in self._names]
        for step in first.reshape(len(first), 2, len(halves), _FEW):
            for one, noisy, clean in zip(halves, *step, strict=True):
                one.add(noisy, clean, self._deviation)
        found = beside_the_noise(facts, self._sizes, self._names) + contradictions(halves)
        return Findings(contradictions=found)

    def _row(self, noisy: list[Array], clean: list[Array]) -> Array:
        first = jnp.concatenate([_first(one) for one in (*noisy, *clean)])
        spacings = [jnp.float32(jnp.finfo(one.dtype).eps) for one in clean]  # type: ignore[no-untyped-call]
        # Squares of many numbers in half precision would add up to a few values only.
        noisy, clean = ([one.astype(jnp.float32) for one in some] for some in (noisy, clean))
        noise = [(one - other) / self._deviation for one, other in zip(noisy, clean, strict=True)]
        tops = jnp.stack([abs(one).max(initial=0) for one in clean])
        # The squares of a small sum would all be 0, and its norm, too.
        scaled = [one / jnp.maximum(tops.max(), 1e-37) for one in clean]
        whole = jnp.sqrt(sum(jnp.square(one).sum() for one in scaled))
        along = sum(jnp.vdot(one, other) for one, other in zip(noise, scaled, strict=True))
        largest = (jnp.stack(spacings) * tops).max()
        lengths = [jnp.square(one).sum() for one in noise]
        beyond = [
            sum((abs(one) > edge).sum() + (abs(one) >= edge).sum() for one in noise) / 2 for edge in EDGES
        ]
        row = [along / jnp.maximum(whole, 1e-37), largest / self._deviation, *beyond, *lengths]
        return jnp.concatenate([jnp.stack(row).astype(jnp.float32), first])


def _first(values: Array) -> Array:
    """The first numbers of an array, then zeros; only zeros if it comes in half precision itself."""
    few = values.reshape(-1)[:_FEW] * (values.dtype in (jnp.float32, jnp.float64))
    return jnp.pad(few.astype(jnp.float32), (0, _FEW - len(few)))
