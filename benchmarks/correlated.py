"""What an audit of correlated noise costs in JAX, and what it proves. Run by `make bench-correlated`.

An MLP of two million weights, trained with banded matrix factorisation: 8 bands, 2,000 steps, cyclic Poisson
sampling. 100,000 canaries ride along in the clipped sum; their readings of all steps are kept. Two trainings,
with and without the audit, alternate in blocks of steps in one process; the ratio of their times is what
counts. It is meant for a GPU. `--write` puts it into RESULTS.md.
"""

import argparse
import itertools
import statistics
import time
from datetime import UTC, datetime
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax_privacy.clipping import clipped_grad
from jax_privacy.matrix_factorization import toeplitz
from jax_privacy.noise_addition import matrix_factorization_privatizer
from scipy import special
from sections import write

from canaria.integrations.jax_privacy import attach
from canaria.mechanisms import Correlated, CyclicPoisson, Strategy
from canaria.rules import Ranked, Soft

MARK = "<!-- correlated -->"
STEPS, BANDS, RATE, NOISE, DELTA = 2000, 8, 0.25, 1.0, 1e-5
CANARIES, BATCH, BLOCK = 100_000, 512, 40
WIDTHS = (784, 1024, 1024, 10)


def loss(params: Any, batch: Any) -> Any:
    values, labels = batch
    for weights, biases in params[:-1]:
        values = jax.nn.relu(values @ weights + biases)
    weights, biases = params[-1]
    return -jnp.mean(jax.nn.log_softmax(values @ weights + biases) * jax.nn.one_hot(labels, WIDTHS[-1]))


class Training:
    """Steps on one batch, with a privatizer; its state is donated, as whoever trains at this size does."""

    def __init__(self, privatizer: Any, params: Any, gradient: Any, batch: Any) -> None:
        def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any]:
            noisy, state = privatizer.update(gradient(params, batch), state)
            moved = jax.tree.map(lambda one, more: one - 1e-4 * more, params, noisy)
            return moved, state

        self.step, self.batch, self.made = jax.jit(step, donate_argnums=(0, 1)), batch, 0
        self.params = jax.tree.map(jnp.copy, params)
        self.state = privatizer.init(params)

    def timed(self, count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            self.params, self.state = self.step(self.params, self.state, self.batch)
        jax.block_until_ready((self.params, self.state))
        self.made += count
        return (time.perf_counter() - start) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--steps", type=int, default=STEPS)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    batch = (
        jnp.asarray(rng.normal(size=(BATCH, WIDTHS[0])), jnp.float32),
        jnp.asarray(rng.integers(0, WIDTHS[-1], BATCH)),
    )
    shapes = list(itertools.pairwise(WIDTHS))
    params = [(jnp.asarray(rng.normal(0, 0.03, shape), jnp.float32), jnp.zeros(shape[1])) for shape in shapes]
    weights = sum(leaf.size for leaf in jax.tree.leaves(params))
    order = np.arange(BANDS)
    column = special.binom(2 * order, order) / 4.0**order
    strategy, sampling = Strategy.toeplitz(column, options.steps), CyclicPoisson(BANDS, RATE)
    mechanism = Correlated(strategy, sampling, NOISE)
    gradient = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=1)

    def privatizer() -> Any:
        noising = toeplitz.inverse_as_streaming_matrix(column)
        return matrix_factorization_privatizer(noising, stddev=mechanism.deviation, prng_key=0)

    audit = attach(
        privatizer(),
        params,
        canaries=CANARIES,
        clip_norm=1.0,
        noise_multiplier=NOISE,
        strategy=strategy,
        sampling=sampling,
        rng=0,
    )
    bare, audited = (Training(one, params, gradient, batch) for one in (privatizer(), audit.privatizer))
    for training in (bare, audited):
        training.timed(BLOCK)
    plain, ratios = [], []
    while audited.made < options.steps:
        with_audit, without = audited.timed(BLOCK), bare.timed(BLOCK)
        plain.append(without)
        ratios.append(with_audit / without)
    spread = sorted(ratios)[len(ratios) // 4 : -len(ratios) // 4]
    error = 1.5 * (spread[-1] - spread[0]) / len(ratios) ** 0.5
    start = time.perf_counter()
    bounds = {rule: audit.bound(audited.state, DELTA, rule=rule).epsilon for rule in (Ranked(), Soft())}
    found = audit.conformance(audited.state)
    asked = time.perf_counter() - start
    lines = [
        "",
        f"## {CANARIES:,} canaries under correlated noise (`make bench-correlated`)",
        "",
        f"MLP with {weights:,} weights, {options.steps:,} steps of {1e3 * statistics.median(plain):.2f} ms, "
        f"{BANDS} bands, groups take part at rate {RATE}, noise multiplier {NOISE:g}. Conformance: "
        f"p = {found.p_value:.2g}. The audit adds {100 * (statistics.median(ratios) - 1):+.1f}% "
        f"± {100 * error:.1f} to a step; bounds and conformance take {asked:.0f} s when training is done. "
        f"{jax.devices()[0].device_kind}, jax {jax.__version__}, {datetime.now(tz=UTC):%Y-%m-%d}.",
        "",
        f"| rule | ε at least, δ = {DELTA:g} |",
        "| --- | --- |",
        *(f"| `{rule!r}` | {bound} |" for rule, bound in bounds.items()),
        "",
    ]
    print("\n".join(lines))
    if options.write:
        write(MARK, lines)


if __name__ == "__main__":
    main()
