"""Cases that run a whole audit: recorded training runs, canaries planted in data, and checks of a release.

Their epsilon is exact without an accountant: at sample rate 1 the steps of DP-SGD are one Gaussian mechanism,
one subsampled step has a privacy profile in closed form, and that of a shuffled pass is an integral.
"""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from canaria._core.arrays import Floats
from canaria.blackbox.own import own_columns
from canaria.blackbox.plant import Planted, plant
from canaria.bounds.bound import Bound
from canaria.claims.noise import gaussian_epsilon
from canaria.game.release import check_release
from canaria.lab.validity._games import Case, Draw, Games, Shape, coins, drawing
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.training.canaries.designs import Dirac
from canaria.training.canaries.sampling import Sampling
from canaria.training.canaries.witnesses import layout
from canaria.training.likelihood.accumulator import Accumulator, table_of
from canaria.training.recording import Recording

_DELTA: Final = 1e-3
_SIGMA: Final = 1.5
_NODES: Final = 121
_CHECK_RUNS: Final = 100


@drawing
def training(shape: Shape, rng: np.random.Generator, level: float, steps: int, sample_rate: float) -> Games:
    """Correct DP-SGD with two canaries per coordinate, recorded like an attached audit."""
    bits, design = coins(shape, rng), Dirac(shape[1], per_coordinate=2)
    # Canary i is on coordinate i modulo their number: the second half is on those of the first.
    included = (bits.reshape(shape[0], 2, -1) > 0).sum(axis=1)
    taking = rng.binomial(included, sample_rate, (steps, *included.shape))
    released = taking + rng.normal(scale=_SIGMA, size=taking.shape)
    tables = log_likelihoods_of(released, design.most, sample_rate, _SIGMA)
    runs = tuple(
        Recording(
            design=design,
            bits=hidden,
            sums=sums,
            table=table,
            steps=steps,
            sample_rate=sample_rate,
            noise_multiplier=_SIGMA,
            injection="sum",
            seed=0,
        )
        for hidden, sums, table in zip(bits, released.sum(axis=0), tables, strict=True)
    )
    scores = np.stack([run.losses(np.zeros_like(run.bits)) for run in runs])
    return Games(scores, bits, runs)


@drawing
def shuffled(shape: Shape, rng: np.random.Generator, level: float, batches: int) -> Games:
    """One pass over shuffled data. A third of the rows are canaries, and excluded ones have places too."""
    audits, n = shape
    bits, sampling = coins(shape, rng), Sampling("shuffled", batches=batches)
    rows = np.tile(np.arange(3 * n) % batches, (audits, 1))
    place = rng.permuted(rows, axis=1)[:, :n]
    taking = (place == np.arange(batches)[:, None, None]) & (bits > 0)
    released = taking + rng.normal(scale=_SIGMA, size=taking.shape)
    laid = layout([(n,)], n, rng)
    likely = Accumulator.of(
        Dirac(n), laid.layers, laid.roles, sample_rate=1 / batches, sampling=sampling
    ).likelihoods
    runs = tuple(
        Recording(
            design=Dirac(n),
            bits=hidden,
            sums=seen.sum(axis=0),
            table=table_of(likely(seen, np.full(batches, _SIGMA), [1.0])),
            steps=batches,
            sample_rate=1 / batches,
            noise_multiplier=_SIGMA,
            injection="head",
            seed=0,
            sampling=sampling,
        )
        for hidden, seen in zip(bits, released.swapaxes(0, 1), strict=True)
    )
    scores = np.stack([run.losses(np.zeros_like(run.bits)) for run in runs])
    return Games(scores, bits, runs)


def shuffled_epsilon(batches: int, sigma: float, delta: float) -> float:
    """The epsilon of one pass over shuffled data, in which a row is in one random batch.

    The likelihood ratio is the mean of independent lognormal numbers, one per batch. Given all but one of
    them, its mean excess and shortfall have a closed form; the others are integrated numerically.

    >>> abs(shuffled_epsilon(1, 1.0, 1e-3) - gaussian_epsilon(1.0, 1e-3)) < 1e-9
    True
    """
    nodes = np.linspace(-8, 8, _NODES)
    ratios, weights = np.exp(nodes / sigma - 1 / (2 * sigma**2)), np.exp(-(nodes**2) / 2)
    # The trapezoidal rule, which converges exponentially for integrands that decay like this one.
    weights /= weights.sum()
    others, chance = np.zeros(1), np.ones(1)
    for _ in range(batches - 1):
        others = np.add.outer(others, ratios).ravel()
        chance = np.multiply.outer(chance, weights).ravel()

    def spent(epsilon: float) -> tuple[float, float]:
        added = _beyond(batches * math.exp(epsilon) - others, sigma, 1)
        removed = math.exp(epsilon) * _beyond(batches * math.exp(-epsilon) - others, sigma, -1)
        return float(chance @ added / batches), float(chance @ removed / batches)

    return float(optimize.brentq(lambda epsilon: max(spent(epsilon)) - delta, 1e-9, 50.0, xtol=1e-12))


def _beyond(level: Floats, sigma: float, side: int) -> Floats:
    """The mean excess of exp(z / sigma - 1 / 2 sigma²), z normal, above a level, or below it (side -1)."""
    # A level is negative if the other batches alone exceed it. Then all of the ratio lies above.
    positive = np.maximum(level, 1e-300)
    high = -sigma * np.log(positive) + 1 / (2 * sigma)
    beyond = side * (special.ndtr(side * high) - positive * special.ndtr(side * (high - 1 / sigma)))
    return np.where(level > 0, beyond, max(side, 0) * (1 - level))


def subsampled_epsilon(sample_rate: float, sigma: float, delta: float) -> float:
    """The epsilon of one Gaussian step with Poisson sampling, for the worse of adding and removing a row.

    >>> abs(subsampled_epsilon(1.0, 1.0, 1e-3) - gaussian_epsilon(1.0, 1e-3)) < 1e-9
    True
    """

    def spent(epsilon: float) -> float:
        grown, rest = math.exp(epsilon), 1 - sample_rate
        high = 0.5 + sigma**2 * math.log((grown - rest) / sample_rate)
        without, with_row = special.ndtr(-high / sigma), special.ndtr((1 - high) / sigma)
        added = rest * without + sample_rate * with_row - grown * without
        if 1 / grown <= rest:
            return float(added)
        low = 0.5 + sigma**2 * math.log((1 / grown - rest) / sample_rate)
        below, below_with = special.ndtr(low / sigma), special.ndtr((low - 1) / sigma)
        return float(max(added, below - grown * (rest * below + sample_rate * below_with)))

    return float(optimize.brentq(lambda epsilon: spent(epsilon) - delta, 1e-9, 50.0, xtol=1e-12))


@dataclass(frozen=True, eq=False)
class Released:
    """Planted canaries, with the score of each from a release."""

    planted: Planted
    scores: npt.ArrayLike

    def bound(self, delta: float, confidence: float, rng: np.random.Generator) -> Bound:
        """The bound, computed as by a user."""
        return self.planted.bound(self.scores, delta, confidence, rng=rng)


@drawing
def black_box(shape: Shape, rng: np.random.Generator, level: float, form: str, epsilon: float) -> Games:
    """Column sums with Laplace noise, from data in which each canary has its own column."""
    canaries, real = np.eye(shape[1]), np.zeros((shape[1], shape[1]))
    runs = []
    for _ in range(shape[0]):
        planted = plant(real, canaries, rng, form=form)
        weights = 1.0 if planted.weights is None else planted.weights[:, None]
        release = (planted.dataset * weights).sum(axis=0) + rng.laplace(scale=1 / epsilon, size=shape[1])
        runs.append(Released(planted, release))
    scores, bits = np.stack([run.scores for run in runs]), np.stack([run.planted.bits for run in runs])
    return Games(scores, bits, tuple(runs))


@drawing
def own_weights(shape: Shape, rng: np.random.Generator, level: float, steps: int) -> Games:
    """Logistic regression by full-batch DP-SGD, seen when it is finished, on canaries with own columns."""
    count, real = shape[1], 10
    runs = []
    for _ in range(shape[0]):
        signs = rng.choice([-1.0, 1.0], real)
        wide, canaries = own_columns(signs[:, None] + rng.normal(size=(real, 3)), signs, count, rng=rng)
        planted = plant((wide, signs), canaries, rng, form="zero-out")
        (rows, labels), weights = planted.dataset, np.zeros(3 + count)
        for _step in range(steps):
            slopes = special.expit(-labels * (rows @ weights)) * labels
            most = np.maximum(np.abs(slopes) * np.linalg.norm(rows, axis=1), 1)
            noise = rng.normal(scale=_SIGMA, size=len(weights))
            weights += 0.02 * ((planted.weights * slopes / most) @ rows + noise)
        own, classes = canaries
        runs.append(Released(planted, (own @ weights) * classes))
    scores, bits = np.stack([run.scores for run in runs]), np.stack([run.planted.bits for run in runs])
    return Games(scores, bits, tuple(runs))


@dataclass(frozen=True, eq=False)
class Checked:
    """A noisy count of rows, at its exact epsilon, that `check_release` looks at with few runs."""

    epsilon: float

    def bound(self, delta: float, confidence: float, rng: np.random.Generator) -> Bound:
        """The bound of a check that chooses its neighbours."""

        def count(rows: npt.NDArray[np.int64], stream: np.random.Generator) -> float:
            return len(rows) + stream.laplace(scale=1 / self.epsilon)

        found = check_release(
            count,
            np.arange(20),
            epsilon=self.epsilon,
            delta=delta,
            runs=_CHECK_RUNS,
            confidence=confidence,
            rng=rng,
        )
        return found.bound


@drawing
def counted(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """Noisy counts of rows, by runs on two data sets of which one has a row more."""
    bits = coins(shape, rng)
    released = (bits > 0) + rng.laplace(scale=1 / epsilon, size=shape)
    return Games(released, bits, (Checked(epsilon),) * shape[0])


def _run(name: str, about: str, epsilon: float, draw: Draw, audited: str = "training") -> Case:
    delta = _DELTA if audited == "training" else 0.0
    return Case(name, about, draw, epsilon, delta=delta, pace=0.2, audited=audited)


_FULL: Final = gaussian_epsilon(2 / _SIGMA, _DELTA)
_SAMPLED: Final = subsampled_epsilon(0.5, _SIGMA, _DELTA)
_SHUFFLED: Final = shuffled_epsilon(3, _SIGMA, _DELTA)
RUNS: Final = (
    _run("training", "DP-SGD, 4 full-batch steps", _FULL, training(4, 1.0)),
    _run("training-sampled", "DP-SGD, one step at rate 1/2", _SAMPLED, training(1, 0.5)),
    _run("training-shuffled", "DP-SGD, one pass of 3 shuffled batches", _SHUFFLED, shuffled(3)),
    _run(
        "planted", "canaries in place of rows, noisy column sums", 1.0, black_box("replace", 1.0), "black box"
    ),
    _run(
        "zeroed-out", "canaries with weights, noisy column sums", 2.0, black_box("zero-out", 2.0), "black box"
    ),
    Case(
        "own-weights",
        "canaries with own columns, a model by DP-SGD",
        own_weights(4),
        _FULL,
        delta=_DELTA,
        pace=0.2,
        audited="black box",
    ),
    _run("counted", "a noisy count, on two data sets", 1.0, counted(1.0), "release"),
)
