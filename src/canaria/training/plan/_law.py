"""The law of the losses of DP-SGD with Dirac canaries, and whole audits drawn from it.

A coordinate with s canaries, m of them included, shows y_t = Binomial(m, q) + N(0, sigma^2) in step t; all
its canaries share one loss, a function of the log likelihood ratios R(m) = sum_t ln f_m(y_t) / f_0(y_t).

One canary to a coordinate: the loss is R(1), a sum of T independent terms, whose law is the T-fold
convolution of the law of one term (Fourier transform on a fine grid). Exact up to the grid.

Several: the loss needs R(1), ..., R(s) together. Steps are drawn from quantiles of the law of y, for each m;
the sum of T of them comes from repeated doubling: the sum of two rows in random order is a row of twice as
many steps. The rare steps with the largest y (about two of T), which make the far tail, are drawn one by
one instead, and the rows are shifted and scaled to their exact means and variances. What is left is the
sampling error of 65,536 rows, and it touches the law of the loss alone: how many canaries are included,
given a row, is Bayes' rule, exact.

If only the finished model is seen, all that it can show of a canary is y, the sum of the y_t: the weights of
a canary of its own have moved by it. The law of y is a mixture of T + 1 normal laws.

Of training with correlated noise, losses are drawn from the mechanism itself, 131,072 of them; again the bit
given what was released is Bayes' rule, by the loss for the actual noise.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import fft, special, stats

from canaria._core import binomial
from canaria._core.arrays import Bits, Floats, Integers
from canaria.claims import DpSgd
from canaria.claims.dpsgd import LEAST_NOISE
from canaria.mechanisms.correlated import Correlated
from canaria.mechanisms.dpsgd import binomial_law

_ROWS: Final = 2**17
"""Equally likely rows that stand for a law. Losses rarer than 1e-5 are left out: of 1,000 canaries, one in a
hundred audits would have such a loss."""
_ROWS_OF_SEVERAL: Final = 2**16
"""The same for several canaries to a coordinate: half as many, since a row has numbers for each of them."""
_FEWEST_ROWS: Final = 1000
"""Rows for each number of included canaries, of which there may be 65. Fewer would show no tail."""
_CELLS: Final = 2**17
"""Cells of the grid of losses. It reaches 14 standard deviations to both sides, so that what wraps around
weighs nothing, and a cell is about 1/4,700 of one."""
_VALUES: Final = 100_001
"""Values of y at which a term is computed, 9 standard deviations of the noise to both sides: what lies beyond
has a probability of 1e-19, and the trapezoidal rule is exact to rounding for densities that end at 0."""
_FINE: Final = 50
"""Numbers of steps that differ by less than the noise over this are counted as one."""
_QUANTILES: Final = 20_001
"""Values of y between which its quantiles are interpolated: a thousandth of the noise apart."""
_RARE: Final = 2.0
"""The expected number of steps that are drawn one by one. Doubling would repeat one extreme step in many
sums, or leave it out of all of them."""
_BLOCK: Final = 4_000_000
"""Numbers that a training with correlated noise releases at once: 32 MB."""
_TINY: Final = 1e-290
"""Sums of exponentials below this may have underflowed, so that their logarithms would be wrong."""
_SEED: Final = 0x6C617773
"""The law of a training must be the same in every plan, or plans could not be compared."""


@dataclass(frozen=True, eq=False)
class Law:
    """The law of a coordinate with `per_coordinate` canaries: equally likely rows, by rising loss.

    `losses` holds the loss of each row, `below[j]` the probability that at most j of the canaries are
    included given the row, j = 0 ... per_coordinate - 1.
    """

    per_coordinate: int
    losses: Floats
    below: npt.NDArray[np.float32]

    def accuracy(self, share: float) -> float:
        """The expected accuracy on the `share` of the canaries with the largest |loss|."""
        included = 1 - self.below.mean(axis=0, dtype=np.float64)
        right = np.where(self.losses >= 0, included, 1 - included)
        surest = np.argsort(-np.abs(self.losses), kind="stable")[: max(1, round(share * len(right)))]
        return float(right[surest].mean())


class Game(NamedTuple):
    """The losses of all canaries of one audit, and their bits."""

    losses: Floats
    bits: Bits


def law_of_losses(training: DpSgd | Correlated, per_coordinate: int, too_small: float = 1.0) -> Law:
    """The law of the losses computed for the stated noise, where the noise is that divided by `too_small`."""
    if isinstance(training, Correlated):
        return _law_of_correlated(training, too_small)
    actual = replace(training, noise_multiplier=max(training.noise_multiplier / too_small, LEAST_NOISE))
    if per_coordinate == 1:
        return _law_of_one(training, actual)
    return _law_of_several(training, actual, per_coordinate)


def law_of_sums(stated: DpSgd, too_small: float = 1.0) -> Law:
    """The law of the losses by y alone, for one canary to a coordinate."""
    steps, rate = stated.steps, stated.sample_rate
    spread = math.sqrt(steps * rate * (1 - rate))
    noise = stated.noise_multiplier * math.sqrt(steps)
    reach = 9 * (spread + noise)
    values = np.linspace(-reach, steps * rate + reach, _QUANTILES)
    # How often a canary takes part, in cells that are narrow beside the noise.
    low, high = (steps * rate + side * 9 * spread for side in (-1, 1))
    times = np.arange(max(0, math.floor(low)), min(steps, math.ceil(high)) + 1)
    cells = np.array_split(times, min(len(times), math.ceil(len(times) * _FINE * too_small / noise)))
    law = [(stats.binom.logpmf(cell, steps, rate), cell.mean()) for cell in cells]

    def densities(deviation: float) -> tuple[Floats, Floats]:
        """The logarithms of the densities of y, but for a constant, without the canary and with it."""
        with_canary = np.full(len(values), -np.inf)
        for mass, middle in law:
            term = special.logsumexp(mass) - 0.5 * ((values - middle) / deviation) ** 2
            with_canary = np.logaddexp(with_canary, term)
        return -0.5 * (values / deviation) ** 2, with_canary

    without, included = densities(noise)
    losses = included - without
    without, included = densities(max(noise / too_small, LEAST_NOISE))
    rows = _equally_likely(np.exp(without) + np.exp(included), _ROWS)
    return Law(1, losses[rows], special.expit(without - included)[rows][None].astype(np.float32))


def games(law: Law, canaries: int, audits: int, rng: np.random.Generator) -> Iterator[Game]:
    """Draw audits one after the other; element i is on coordinate i modulo their number."""
    size = law.per_coordinate
    coordinates = -(-canaries // size)
    for _ in range(audits):
        rows = rng.integers(0, len(law.losses), coordinates)
        included = (rng.random(coordinates) > law.below[:, rows]).sum(axis=0)
        bits = np.where(np.arange(size)[:, None] < included, np.int8(1), np.int8(-1))
        # Who is included is random: where coordinates are not equally full, the last elements are left out.
        bits = rng.permuted(bits, axis=0) if size > 1 else bits
        yield Game(np.tile(law.losses[rows], size)[:canaries], bits.ravel()[:canaries])


def _law_of_one(stated: DpSgd, actual: DpSgd) -> Law:
    """By Fourier transform, without and with the canary: the transform of one step, to the power of steps.

    Each value of a term is shared by three cells such that mean and variance are kept.
    """
    noise_multiplier, rate, steps = actual.noise_multiplier, actual.sample_rate, actual.steps
    values = np.linspace(-9 * noise_multiplier, 1 + 9 * noise_multiplier, _VALUES)
    without = np.exp(-0.5 * (values / noise_multiplier) ** 2)
    present = np.exp(-0.5 * ((values - 1) / noise_multiplier) ** 2)
    densities = np.stack([without, (1 - rate) * without + rate * present])
    densities /= densities.sum(axis=1, keepdims=True)
    terms = _log_ratios(values, 1, stated)[:, 0]
    means = densities @ terms
    spread = math.sqrt(steps * float((densities @ terms**2 - means**2).max()))
    reach = steps * float(np.abs(means).max()) + 14 * spread + 2 * float(np.abs(terms).max())
    width = 2 * reach / _CELLS
    nearest = np.rint(terms / width).astype(np.int64)
    off = terms / width - nearest
    cells = np.zeros((2, _CELLS))
    for shift, weight in ((-1, (off**2 - off) / 2), (0, 1 - off**2), (1, (off**2 + off) / 2)):
        for place in (0, 1):
            cells[place] += np.bincount((nearest + shift) % _CELLS, densities[place] * weight, _CELLS)
    # The transform of a sum of independent terms is the product of theirs. What should be 0 comes out as
    # 1e-17 of either sign.
    laws = np.maximum(fft.irfft(fft.rfft(cells) ** steps, _CELLS), 0.0)
    # Places are losses modulo the grid, and 0 is first. Now it is in the middle, and losses rise.
    laws = np.roll(laws, _CELLS // 2, axis=1)
    # Half of the canaries are included, so losses follow the mean of both laws. Given a loss, the chance of
    # being excluded is Bayes' rule.
    both = laws.sum(axis=0)
    rows = _equally_likely(both, _ROWS)
    losses = (rows - float(_CELLS // 2)) * width
    return Law(1, np.asarray(losses, dtype=np.float64), (laws[0, rows] / both[rows])[None].astype(np.float32))


def _law_of_correlated(stated: Correlated, too_small: float) -> Law:
    """By drawing: half of the canaries are included, in blocks that fit into memory."""
    stated = replace(stated, participation=stated.participation.worst(stated.strategy))
    actual, rng = replace(stated, noise_multiplier=stated.noise_multiplier / too_small), _generator()
    size = max(2, min(_ROWS, _BLOCK // stated.strategy.steps) // 2 * 2)
    bits = np.repeat(np.array([1, -1], dtype=np.int8), size // 2)
    losses, without = [], []
    for _ in range(-(-_ROWS // size)):
        # Canaries in a fixed order take part by their number, so which ones are included must not go with it.
        released = actual.release(rng.permutation(bits), rng)
        losses.append(stated.losses(released))
        without.append(special.expit(-actual.losses(released)))
    order = np.argsort(np.concatenate(losses))
    return Law(1, np.concatenate(losses)[order], np.concatenate(without)[order][None].astype(np.float32))


def _law_of_several(stated: DpSgd, actual: DpSgd, most: int) -> Law:
    """By doubling: R(1 ... s) for the stated noise, and for the actual noise where that differs."""
    rng = _generator()
    trainings = (stated,) if stated == actual else (stated, actual)
    height = max(_FEWEST_ROWS, _ROWS_OF_SEVERAL // (most + 1)) // len(trainings) ** 2
    rows = _rows_of_all_steps(trainings, most, height, rng)
    if actual.steps > _RARE:
        mean, deviation = _moments_of_all_steps(trainings, most)
        scale = deviation / np.maximum(rows.std(axis=1), _TINY)
        rows = (rows - rows.mean(axis=1)[:, None]) * scale[:, None] + mean[:, None]
    rows = rows.reshape((most + 1) * height, -1)
    nothing = np.zeros((len(rows), 1))
    ratios = np.hstack([nothing, rows[:, :most]])
    # The bits of the others are fair coins to the guesser: the loss is the ratio of two mixtures over how
    # many of them are included, with the canary and without it.
    others = binomial.log_mass(np.arange(most), most - 1, 0.5)
    losses = _log_sum(ratios[:, 1:] + others) - _log_sum(ratios[:, :-1] + others)
    prior = binomial.log_mass(np.arange(most + 1), most, 0.5)
    # Bayes' rule for the number of included canaries given the row, under the noise that there is.
    chances = np.hstack([nothing, rows[:, -most:]]) + prior
    chances = np.exp(chances - chances.max(axis=1, keepdims=True))
    below = np.cumsum(chances, axis=1)
    below /= below[:, -1:]
    order = np.argsort(losses)
    # Each number of included canaries has as many rows, but is only as likely as its coins.
    weights = np.repeat(np.exp(prior), height)[order]
    kept = order[_equally_likely(weights, _ROWS_OF_SEVERAL)]
    return Law(most, losses[kept], np.ascontiguousarray(below[kept, :-1].T, dtype=np.float32))


def _rows_of_all_steps(
    trainings: tuple[DpSgd, ...], most: int, height: int, rng: np.random.Generator
) -> Floats:
    """(most + 1, height, ratios): for each number of included canaries, sums over all steps."""
    steps = trainings[-1].steps
    rare = min(1.0, _RARE / steps)
    quantile = _Quantiles(trainings[-1], most)

    def ratios_beyond(above: Floats) -> Floats:
        values = quantile(above)
        return np.concatenate([_log_ratios(values, most, training) for training in trainings], axis=-1)

    evenly = (np.arange(height) + 0.5) / height
    cumulative = special.bdtr(np.arange(min(steps, 60)), steps, rare)
    # How many rare steps each row has: quantiles of their law, so that it is met exactly. They fall along the
    # rows, so the rows with more than `index` of them come first.
    number_rare = np.searchsorted(cumulative, evenly[::-1])
    total = np.zeros((most + 1, height, most * len(trainings)))
    for index in range(int(number_rare.max())):
        drawn = int((number_rare > index).sum())
        # If all rows get one, evenly spread numbers in random order have less scatter than random ones.
        uniform = rng.permutation(evenly) if drawn == height else rng.random(drawn)
        total[:, :drawn] += ratios_beyond(rare * uniform)
    if rare == 1:
        return total
    # Sums of 1, 2, 4, ... of the other steps; the binary digits of how many a row needs say which to add.
    doubled = ratios_beyond(rare + (1 - rare) * evenly)
    left = steps - number_rare
    for place in range(int(left.max()).bit_length()):
        if place > 0:
            doubled = doubled + doubled[:, rng.permutation(height)]
        total += ((left >> place) & 1)[:, None] * doubled[:, rng.permutation(height)]
    return total


def _moments_of_all_steps(trainings: tuple[DpSgd, ...], most: int) -> tuple[Floats, Floats]:
    """Means and standard deviations of the sums, (most + 1, ratios), by the trapezoidal rule."""
    counts, noise_multiplier = np.arange(most + 1), trainings[-1].noise_multiplier
    values = np.linspace(-10 * noise_multiplier, most + 10 * noise_multiplier, _QUANTILES)
    present = np.exp(-0.5 * ((values - counts[:, None]) / noise_multiplier) ** 2)
    densities = binomial_law(most, trainings[-1].sample_rate) @ present
    densities /= densities.sum(axis=1, keepdims=True)
    ratios = np.concatenate([_log_ratios(values, most, training) for training in trainings], axis=-1)
    mean, steps = densities @ ratios, trainings[-1].steps
    variance = np.stack([row @ (ratios - own) ** 2 for row, own in zip(densities, mean, strict=True)])
    return steps * mean, np.sqrt(steps * variance)


class _Quantiles:
    """Of Binomial(m, q) + N(0, sigma^2), m = 0 ... s, by interpolation; asked for by the chance of more."""

    def __init__(self, training: DpSgd, most: int) -> None:
        counts, noise_multiplier = np.arange(most + 1), training.noise_multiplier
        self.values = np.linspace(most + 10 * noise_multiplier, -10 * noise_multiplier, _QUANTILES)
        law = binomial_law(most, training.sample_rate)
        self.above = special.ndtr((counts - self.values[:, None]) / noise_multiplier) @ law.T

    def __call__(self, above: Floats) -> Floats:
        return np.stack([np.interp(above, column, self.values) for column in self.above.T])


def _log_ratios(values: Floats, most: int, training: DpSgd) -> Floats:
    """Ln f_m / f_0 of one step, m = 1 ... most, in a last axis.

    f_m / f_0 = sum_j Bin(j; m, q) e^((y - j / 2) j / sigma^2). Where the terms up to m are nothing beside the
    largest of all, the last of them, j = m, stands for their sum.
    """
    counts, law = np.arange(most + 1), binomial_law(most, training.sample_rate)[1:]
    exponents = (values[..., None] - counts / 2) * (counts / training.noise_multiplier**2)
    peaks = exponents.max(axis=-1, keepdims=True)
    mixed = np.exp(exponents - peaks) @ law.T
    # Bin(m; m, q) = q^m.
    last = exponents[..., 1:] + counts[1:] * math.log(training.sample_rate)
    return np.where(mixed > _TINY, np.log(np.maximum(mixed, _TINY)) + peaks, last)


def _generator() -> np.random.Generator:
    return np.random.default_rng(_SEED)


def _equally_likely(weights: Floats, rows: int) -> Integers:
    """Places in rising order, each about as often as its weight says."""
    cumulative = np.cumsum(weights)
    wanted = (np.arange(rows) + 0.5) / rows * cumulative[-1]
    return np.asarray(np.minimum(np.searchsorted(cumulative, wanted), len(weights) - 1))


def _log_sum(terms: Floats) -> Floats:
    peaks = terms.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(terms - peaks).sum(axis=1)) + peaks[:, 0])
