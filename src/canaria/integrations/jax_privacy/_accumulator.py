"""The accumulator of `canaria.training.accumulator`, in JAX, as a pure function of its state."""

import math
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Floats
from canaria.mechanisms.dpsgd import binomial_law
from canaria.training import accumulator
from canaria.training.accumulator import CLEAR, HELD, TOO_FEW
from canaria.training.differences import Pairs, Twins


class Accumulated(NamedTuple):
    """What was seen so far, in plain arrays.

    `held` has the steps that wait to be added, `believed` the noise of each parameter once there were
    `HELD` steps. Of the squared differences of pairs of steps, the smallest and the largest are kept, which
    pairs they are of, and for each place the sum over all pairs; of their signs, for every two parameters,
    how often there was one at twins, and how much more often it was the same.
    """

    steps: Array
    held: Array
    believed: Array
    sums: Array
    table: Array
    extremes: Array
    pairs: Array
    by_place: Array
    signs: Array


class Accumulator:
    """Adds steps to a state, and reads it out."""

    def __init__(self, specified: accumulator.Accumulator) -> None:
        self.specified = specified
        with np.errstate(divide="ignore"):
            law = np.log(binomial_law(specified.most, specified.sample_rate))
        self._law = jnp.asarray(law[1:, :, None])
        self._ends = np.cumsum(specified.layers)[:-1]
        self._added = jax.jit(self._add)  # or each step of a training that is not jitted compiles it anew

    def begin(self) -> Accumulated:
        """The state before the first step."""
        count, most = sum(self.specified.layers), self.specified.most
        return Accumulated(
            steps=jnp.zeros((), jnp.int32),
            held=jnp.zeros((HELD, count)),
            believed=jnp.full(len(self.specified.layers), float(self.specified.noise_multiplier)),
            sums=jnp.zeros(count),
            table=jnp.zeros((most, count)),
            extremes=jnp.array([jnp.inf, -jnp.inf]),
            pairs=jnp.zeros(2, jnp.int32),
            by_place=jnp.zeros(self.specified.places),
            signs=jnp.zeros((2, *2 * [len(self.specified.layers)]), jnp.int32),
        )

    def add(self, state: Accumulated, seen: Array) -> Accumulated:
        """One step, in units of the clip norm."""
        added: Accumulated = self._added(state, seen)
        return added

    def _add(self, state: Accumulated, seen: Array) -> Accumulated:
        held = state.held.at[state.steps % HELD].set(seen.astype(state.held.dtype))
        waiting = state._replace(steps=state.steps + 1, held=held)
        full = waiting.steps % HELD == 0
        added: Accumulated = jax.lax.cond(full, self._flushed, lambda same: same, waiting)
        return added

    def _flushed(self, state: Accumulated) -> Accumulated:
        """The state with the steps that waited added up."""
        believed = jnp.where(state.steps == HELD, self._believed_noise(state.held), state.believed)
        sigma = jnp.repeat(believed, np.array(self.specified.layers), total_repeat_length=state.held.shape[1])
        block = jax.lax.scan(
            lambda table, row: (table + self._likelihoods(row, sigma).astype(table.dtype), None),
            jnp.zeros_like(state.table),
            state.held,
        )[0]
        differences = self._differences(state.held)
        padded = jnp.pad(jnp.sign(differences), ((0, 0), (0, 1)))[:, self.specified.twins]
        signs = padded.transpose(1, 0, 2).reshape(len(self.specified.layers), -1).astype(jnp.int32)
        agreed = jnp.stack([values @ values.T for values in (abs(signs), signs)])
        squares = differences**2
        found = squares.sum(axis=1)
        which = jnp.array([jnp.argmin(found), jnp.argmax(found)])
        further = jnp.array([-1, 1]) * found[which] > jnp.array([-1, 1]) * state.extremes
        numbers = (state.steps - HELD) // 2 + which
        return state._replace(
            believed=believed,
            sums=state.sums + state.held.sum(axis=0),
            table=state.table + block,
            extremes=jnp.where(further, found[which], state.extremes),
            pairs=jnp.where(further, numbers, state.pairs).astype(state.pairs.dtype),
            by_place=state.by_place + squares.sum(axis=0),
            signs=state.signs + agreed.astype(state.signs.dtype),
        )

    def _differences(self, seen: Array) -> Array:
        """Differences of pairs of steps over their standard deviation, (pairs, places)."""
        if self.specified.directions is None:
            values = seen[:, self.specified.compared]
        else:
            values = jnp.matmul(seen, jnp.asarray(self.specified.directions, seen.dtype), precision="highest")
        return (values[0::2] - values[1::2]) / (math.sqrt(2) * self.specified.noise_multiplier)

    def _believed_noise(self, seen: Array) -> Array:
        """The noise of each parameter, by the first steps, as the specification says."""
        stated = self.specified.noise_multiplier
        found = []
        for part in jnp.split((seen**2).mean(axis=0), self._ends):
            if len(part) <= TOO_FEW:
                found.append(jnp.asarray(stated, part.dtype))
                continue
            shown = part.mean() - self.specified.count_square
            clear = abs(shown - stated**2) > CLEAR * part.std(ddof=1) / len(part) ** 0.5
            found.append(jnp.where(clear, jnp.sqrt(jnp.maximum(shown, (stated / 20) ** 2)), stated))
        return jnp.stack(found)

    def _likelihoods(self, seen: Array, sigma: Array) -> Array:
        """What one step adds to the table."""
        counts = np.arange(self.specified.most + 1)[:, None]
        exponents = (seen - counts / 2) * (counts / sigma**2)
        return jax.nn.logsumexp(self._law + exponents, axis=1)

    def totals(self, state: Accumulated) -> tuple[Floats, Floats, Pairs | None]:
        """The sums, the table and the pairs of steps, with the steps that are held back, free of JAX."""
        kept = Accumulated(*(np.asarray(values, np.float64) for values in state))  # type: ignore[arg-type]
        steps = int(state.steps)
        held: Floats = np.asarray(kept.held)[: steps % HELD]
        sums, table = np.asarray(kept.sums) + held.sum(axis=0), np.asarray(kept.table)
        if len(held):
            believed = kept.believed if steps >= HELD else self.specified.believed_noise(held)
            table = table + self.specified.likelihoods(held, np.asarray(believed).tolist())
        return sums, table, self._pairs(kept, held, sums, steps)

    def _pairs(self, kept: Any, held: Floats, sums: Floats, steps: int) -> Pairs | None:
        """The pairs among the steps that were added, those among the held, and a last step."""
        stated, done = self.specified.noise_multiplier, (steps - len(held)) // 2
        differences = self.specified.differences(held, np.full(len(held), stated))
        waiting = differences**2
        if steps % 2 and steps > 1:
            off = self.specified.off(accumulator.Last(held[-1], stated, stated**2), sums, steps - 1)
            waiting = np.concatenate([waiting, off[None]])
        if done + len(waiting) == 0:
            return None
        found, numbers = waiting.sum(axis=1), done + np.arange(len(waiting))
        least = min(zip([kept.extremes[0], *found], [kept.pairs[0], *numbers], strict=True))
        most = max(zip([kept.extremes[1], *found], [kept.pairs[1], *numbers], strict=True))
        by_place = kept.by_place + waiting.sum(axis=0)
        if len(by_place) == 0:
            return None
        return Pairs(
            extremes=(float(least[0]), float(most[0])),
            pairs=(int(least[1]), int(most[1])),
            count=done + len(waiting),
            places=len(by_place),
            by_parameter=self.specified.by_parameter(by_place),
            odd=steps % 2 == 1,
            twins=Twins.of(kept.signs + self.specified.signs(differences)),
        )
