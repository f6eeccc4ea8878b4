"""The accumulator of `canaria.training.likelihood.accumulator`, in JAX, as a pure function of its state."""

from typing import NamedTuple

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Floats
from canaria.integrations._witnesses import joined
from canaria.mechanisms.dpsgd import binomial_law
from canaria.training.canaries.witnesses import EDGES, MOST_STEPS, Seen
from canaria.training.likelihood import accumulator
from canaria.training.likelihood.accumulator import CLEAR, HELD, LEAST_NOISE, TOO_FEW


class Accumulated(NamedTuple):
    """The totals so far, in plain arrays.

    `held` buffers recent steps, canaries first. `factors` is the noise of each parameter over the stated
    noise, once there were `HELD` steps. The rest is for witnesses: squares by step and by place, counts of
    values beyond each edge, signs packed eight to a byte, and sums over whole parameters.
    """

    steps: Array
    held: Array
    factors: Array
    sums: Array
    table: Array
    by_step: Array
    by_place: Array
    beyond: Array
    signs: Array
    totals: Array


class Accumulator:
    """Adds steps to a state, and computes totals from it."""

    def __init__(self, specified: accumulator.Accumulator, noise_multiplier: float) -> None:
        self.specified = specified
        self._stated = max(noise_multiplier, LEAST_NOISE)
        with np.errstate(divide="ignore"):
            law = np.log(binomial_law(specified.most, specified.sample_rate))
        self._law = jnp.asarray(law[1:, :, None])
        self._count = sum(specified.layers)
        self._all = self._count + len(specified.roles.index)
        self._ends = np.cumsum(specified.layers)[:-1]
        self._added = jax.jit(self._add)  # otherwise each step would compile again if training is not jitted

    def begin(self) -> Accumulated:
        """The state before the first step."""
        roles, most = self.specified.roles, self.specified.most
        return Accumulated(
            steps=jnp.zeros((), jnp.int32),
            held=jnp.zeros((HELD, self._all + len(roles.sizes))),
            factors=jnp.ones(len(self.specified.layers)),
            sums=jnp.zeros(self._count),
            table=jnp.zeros((most, self._count)),
            by_step=jnp.zeros(MOST_STEPS),
            by_place=jnp.zeros(int(np.sum(~roles.shaped))),
            beyond=jnp.zeros(len(EDGES), jnp.int32),
            signs=jnp.zeros((MOST_STEPS, -(-len(roles.index) // 8)), jnp.uint8),
            totals=jnp.zeros((MOST_STEPS, len(roles.sizes))),
        )

    def add(self, state: Accumulated, seen: Array, noise: Array, whole: Array) -> Accumulated:
        """Add a step: values at canaries, at witnesses and in whole parameters, in units of the clip norm."""
        added: Accumulated = self._added(state, seen, noise, whole)
        return added

    def _add(self, state: Accumulated, *parts: Array) -> Accumulated:
        row = jnp.concatenate([part.astype(state.held.dtype) for part in parts])
        steps, held = state.steps + 1, state.held.at[state.steps % HELD].set(row)
        waiting = state._replace(steps=steps, held=held)
        added: Accumulated = jax.lax.cond(steps % HELD == 0, self._flushed, lambda same: same, waiting)
        return added

    def _flushed(self, state: Accumulated) -> Accumulated:
        """Add the buffered steps to the totals."""
        seen, noise = state.held[:, : self._count], state.held[:, self._count : self._all] / self._stated
        roles = self.specified.roles
        factors, table = self._scored(state, seen) if self.specified.most else (state.factors, state.table)
        squares = noise[:, ~roles.shaped] ** 2
        sizes = abs(noise[:, roles.shaped])
        signs = jnp.packbits(noise > 0, axis=1, bitorder="little")
        whole = state.held[:, self._all :] / (self._stated * np.sqrt(roles.sizes))
        # Squares of later steps are added to those of the first ones. Signs and totals are of these alone.
        steps = state.steps - HELD + jnp.arange(HELD)
        number, first = steps % MOST_STEPS, (steps < MOST_STEPS)[:, None]
        return Accumulated(
            steps=state.steps,
            held=state.held,
            factors=factors,
            sums=state.sums + seen.sum(axis=0),
            table=table,
            by_step=state.by_step.at[number].add(squares.sum(axis=1)),
            by_place=state.by_place + squares.sum(axis=0),
            beyond=state.beyond + (sizes[..., None] > jnp.array(EDGES)).sum(axis=(0, 1), dtype=jnp.int32),
            signs=state.signs.at[number].set(jnp.where(first, signs, state.signs[number])),
            totals=state.totals.at[number].set(jnp.where(first, whole, state.totals[number])),
        )

    def _scored(self, state: Accumulated, seen: Array) -> tuple[Array, Array]:
        """The noise of each parameter over the stated noise, and the table with these steps."""
        factors = jnp.where(state.steps == HELD, self._believed_factors(seen), state.factors)
        sigma = self._stated * jnp.repeat(
            factors, np.array(self.specified.layers), total_repeat_length=self._count
        )
        # Step by step, as the likelihoods of all buffered steps at once take many times the memory.
        block = jax.lax.scan(
            lambda table, row: (table + self._likelihoods(row, sigma).astype(table.dtype), None),
            jnp.zeros_like(state.table),
            seen,
        )[0]
        return factors, state.table + block

    def _believed_factors(self, seen: Array) -> Array:
        """The noise of each parameter over the stated noise, as specified."""
        found = []
        for part in jnp.split((seen**2).mean(axis=0), self._ends):
            if len(part) <= TOO_FEW:
                found.append(jnp.ones((), part.dtype))
                continue
            shown = part.mean() - self.specified.count_square
            clear = abs(shown - self._stated**2) > CLEAR * part.std(ddof=1) / len(part) ** 0.5
            factor = jnp.sqrt(jnp.maximum(shown / self._stated**2, 1 / 400))
            found.append(jnp.where(clear, factor, 1.0))
        return jnp.stack(found)

    def _likelihoods(self, seen: Array, sigma: Array) -> Array:
        """The contribution of one step to the table."""
        counts = np.arange(self.specified.most + 1)[:, None]
        exponents = (seen - counts / 2) * (counts / sigma**2)
        return jax.nn.logsumexp(self._law + exponents, axis=1)

    def totals(self, state: Accumulated) -> accumulator.Totals:
        """The totals including buffered steps, as NumPy arrays."""
        kept = Accumulated(*(np.asarray(values) for values in state))  # type: ignore[arg-type]
        steps = int(state.steps)
        held: Floats = np.asarray(kept.held, np.float64)[: steps % HELD]
        seen, rest = held[:, : self._count], held[:, self._count :] / self._stated
        stated = np.full(len(held), self._stated)
        sums = np.asarray(kept.sums, np.float64) + seen.sum(axis=0)
        table = np.asarray(kept.table, np.float64)
        if len(held) and self.specified.most:
            factors = np.asarray(kept.factors, np.float64).tolist()
            if steps < HELD:
                factors = self.specified.believed_factors(seen, stated)
            table = table + self.specified.likelihoods(seen, stated, factors)
        return accumulator.Totals(sums, table, self._witnessed(kept, rest, steps))

    def _witnessed(self, kept: Accumulated, rest: Floats, steps: int) -> Seen:
        """The observations at witnesses, including the buffered steps."""
        roles, done = self.specified.roles, steps - len(rest)
        witnesses = self._all - self._count
        last = Seen.of(rest[:, :witnesses], rest[:, witnesses:], roles)
        beyond = np.asarray(kept.beyond, np.int64)
        before = Seen(
            done,
            np.asarray(kept.by_step, np.float64)[:done],
            np.asarray(kept.by_place, np.float64),
            # From the numbers beyond each edge to those in each cell.
            -np.diff(np.concatenate([[int(roles.shaped.sum()) * done], beyond, [0]])),
            np.asarray(kept.signs)[:done],
            np.asarray(kept.totals, np.float64)[:done],
        )
        # The state has no single values of the first steps, so leave those of the last steps out too.
        return joined(before, last._replace(firsts=before.firsts))
