"""Beyond the paper: correlated noise, audited with its own likelihood, over the number of bands."""

from functools import lru_cache
from typing import Final

import numpy as np
from scipy import special

from canaria import lower_bound
from canaria._core.arrays import Floats
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.lab.figures._experiment import Experiment, Row
from canaria.lab.figures.dpsgd import DELTA
from canaria.mechanisms import Correlated, CyclicPoisson, Strategy
from canaria.rules import Ranked, Soft
from canaria.rules.door import guess_once

STEPS, CANARIES, EPSILON = 64, 600, 8.0
RATE: Final = 1 / 16
"""The share of all rows in a step, which is the same for every number of bands."""


@lru_cache(maxsize=8)
def mechanism(bands: int) -> Correlated:
    """Training with this many bands of the square root of all ones, and noise for epsilon = 8."""
    order = np.arange(bands)
    column = special.binom(2 * order, order) / 4.0**order
    noise = dpsgd_noise_multiplier(EPSILON, DELTA, STEPS // bands, min(1.0, bands * RATE), "pld")
    sampling = CyclicPoisson(groups=bands, rate=min(1.0, bands * RATE))
    return Correlated(Strategy.toeplitz(column, STEPS), sampling, noise)


def as_independent(training: Correlated, released: Floats) -> Floats:
    """The likelihood ratio of DP-SGD with noise of the same size that is independent between steps."""
    inverse = training.strategy.correlate(np.eye(STEPS))
    variance = training.deviation**2 * np.square(inverse).sum(axis=1)
    exponents = (released - 0.5) / variance[:, None]
    return np.asarray(np.logaddexp(np.log1p(-RATE), np.log(RATE) + exponents).sum(axis=0))


def block(point: int, trials: int, rng: np.random.Generator) -> list[Row]:
    training, rows = mechanism(point), []
    for _ in range(trials):
        bits = 2 * rng.integers(0, 2, CANARIES, dtype=np.int8) - np.int8(1)
        released = training.release(bits, rng)
        losses = training.losses(released)
        for series, scores, rule in (
            ("as independent noise, ranked", as_independent(training, released), Ranked()),
            ("whitened, ranked", losses, Ranked()),
            ("whitened, weighted", losses, Soft()),
        ):
            found = lower_bound(guess_once(rule, scores, bits, rng)[1], DELTA).epsilon
            rows.append({"x": point, "series": series, "value": found})
    return rows


EXPERIMENT: Final = Experiment(
    "bands",
    "correlated noise, over the number of bands (ours)",
    points=(1, 2, 4, 8, 16),
    quick_points=(8,),
    block=block,
    title="Correlated noise hides canaries from an auditor who takes it for independent",
    subtitle=(
        "Banded matrix factorisation, 64 steps, 600 canaries, 1/16 of all rows a step, ε = 8 (PLD), δ = 1e-5"
    ),
    x="bands",
    trials=40,
    quick_trials=2,
    block_size=10,
)
