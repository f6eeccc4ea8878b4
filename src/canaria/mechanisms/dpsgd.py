"""DP-SGD with gradient canaries, step by step: the case study of the paper, and beyond.

Coordinate c carries the elements i with i mod d = c. A canary is the unit vector of its coordinate (clip norm
1); an excluded one contributes nothing. In every step an element takes part with probability q, and the sum
gets Gaussian noise: with m_c elements included,

    y_{t,c} = Binomial(m_c, q) + N(0, sigma^2),      t = 1 ... T, sigma the noise multiplier.

Only m_c matters, so T x d values are drawn, never T x n; for the sum over steps, d values.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import interpolate, special

from canaria._core import binomial, checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.mechanisms._protocol import OneRound, Output
from canaria.mechanisms._sets import count_loss

SCORES: Final = ("likelihood", "sum")
_LARGEST_EXPONENT: Final = 600.0
"""The largest exponent of a product of likelihood ratios; e^710 overflows in double precision."""


@dataclass(frozen=True, kw_only=True)
class SubsampledGaussian(OneRound):
    """DP-SGD as a mechanism, whose n elements are spread evenly over `dimension` coordinates.

    Each step is a subsampled Gaussian.

    With `score="likelihood"` the output is, per coordinate, the log likelihood L(m) of m included elements,

        L(m) = sum_t ln sum_j Bin(j; m, q) phi((y_t - j) / sigma)      (up to a constant),

    from which the loss is exact, so the guesser is optimal for all T and q, in one run and adaptively. With
    `score="sum"` the output is the sum over steps, as in the paper, Binomial(T m, q) + N(0, T sigma^2), and
    the loss is that of the sum, which has the same order as the sums.

    Attributes:
        dimension: The number of coordinates d.
        steps: The number of steps T.
        sample_rate: The sampling rate q, above 0 and at most 1.
        noise_multiplier: The noise multiplier sigma, positive and finite.
        score: "likelihood" or "sum".

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import SubsampledGaussian
        >>> training = SubsampledGaussian(dimension=500, steps=20, sample_rate=0.2, noise_multiplier=1.0)
        >>> print(play(training, n=500, rng=0).bound(delta=1e-5))
        ε ≥ 1.040 at δ = 1e-05, with 95% confidence: 53 of 60 guesses right, 500 elements
    """

    dimension: int
    steps: int
    sample_rate: float
    noise_multiplier: float
    score: str = "likelihood"
    adjacency: ClassVar[str] = "add-remove"
    epsilon: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        checks.integer("dimension", self.dimension, 1)
        checks.integer("steps", self.steps, 1)
        checks.sample_rate(self.sample_rate)
        checks.positive("noise_multiplier", self.noise_multiplier)
        if self.score not in SCORES:
            raise InputError(f"score must be 'likelihood' or 'sum', got {shown(self.score)}")

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """Log likelihoods (trials, coordinates, s + 1), or sums (trials, coordinates)."""
        included = (self._by_coordinate(bits, 0) > 0).sum(axis=1)
        most = -(-bits.shape[1] // included.shape[1])
        if self.score == "sum":
            sums = rng.binomial(self.steps * included, self.sample_rate).astype(np.float64)
            scale = math.sqrt(self.steps) * self.noise_multiplier
            return np.asarray(sums + rng.normal(scale=scale, size=sums.shape))
        return self._log_likelihoods(included, most, rng)

    def loss(self, output: Output, known: Bits) -> Floats:
        """The loss from the likelihood of every number of included elements on the coordinate."""
        # An absent element (n not a multiple of the coordinates) counts as revealed and excluded.
        stacked = self._by_coordinate(known, -1)
        trials, most, coordinates = stacked.shape
        logs = output if self.score == "likelihood" else self._log_likelihood_of_sums(output, most)
        flat = np.ascontiguousarray(stacked.transpose(0, 2, 1)).reshape(trials, -1)
        losses = count_loss(logs, flat, most).reshape(trials, coordinates, most)
        return losses.transpose(0, 2, 1).reshape(trials, -1)[:, : known.shape[1]]

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """The first element of every coordinate, then the second, and so on."""
        return tuple(
            np.arange(start, min(start + self.dimension, n)) for start in range(0, n, self.dimension)
        )

    def _by_coordinate(self, values: Bits, absent: int) -> Bits:
        """(trials, n) as (trials, s, coordinates in use), padded."""
        trials, n = values.shape
        coordinates = min(self.dimension, n)
        most = -(-n // coordinates)
        padded = np.full((trials, most * coordinates), absent, dtype=np.int8)
        padded[:, :n] = values
        return padded.reshape(trials, most, coordinates)

    def _log_likelihoods(self, included: Integers, most: int, rng: np.random.Generator) -> Floats:
        """Draw the steps one after the other and add up ln f_m(y) / f_0(y) for m = 0 ... s.

        f_m / f_0 is a polynomial in e^(y / sigma^2) whose coefficients are Bin(j; m, q) e^(-j^2 /
        (2 sigma^2)). So a step costs one exponential and one matrix product. Logarithms are taken of products
        over as many steps as cannot overflow. If even one step could overflow, logarithms are taken of each
        step, shifted by its largest term for each m.
        """
        law, counts = binomial_law(most, self.sample_rate), np.arange(most + 1)
        below = np.cumsum(law, axis=1)
        # About ln f_m / f_0 at m = s, for an output eight standard deviations above all s.
        reach = most * (most + 8 * self.noise_multiplier) / self.noise_multiplier**2
        group = int(min(8, _LARGEST_EXPONENT // reach))
        coefficients = law * np.exp(-0.5 * (counts / self.noise_multiplier) ** 2)
        total = np.zeros((*included.shape, most + 1))
        product = np.ones_like(total)
        powers = np.ones_like(total)
        # `total` has the logarithms, `product` the factors of steps whose logarithm is still to be taken.
        for step in range(1, self.steps + 1):
            seen = self._step(included, below, rng)
            if group == 0:
                exponents = (seen[..., None] - counts / 2) * (counts / self.noise_multiplier**2)
                total += _log_mixtures(exponents, law)
                continue
            odds = np.exp(seen / self.noise_multiplier**2)
            for count in range(1, most + 1):
                np.multiply(powers[..., count - 1], odds, out=powers[..., count])
            product *= powers @ coefficients.T
            if step % group == 0 or step == self.steps:
                total += np.log(product)
                product.fill(1.0)
        return total

    def _step(self, included: Integers, below: Floats, rng: np.random.Generator) -> Floats:
        """One step of every coordinate: the number that takes part, by inversion, and noise."""
        # One uniform number for each coordinate: it exceeds the distribution function at every count below.
        uniform = rng.random(included.shape)
        seen = rng.normal(scale=self.noise_multiplier, size=included.shape)
        for count in range(below.shape[0] - 1):
            seen += uniform > below[included, count]
        return seen

    def _log_likelihood_of_sums(self, sums: Floats, most: int) -> Floats:
        """Ln sum_j Bin(j; T m, q) phi((y - j) / (sigma sqrt(T))), m = 0 ... s, up to a constant.

        For many sums it is tabulated at steps of 1/40 standard deviation and interpolated by a cubic
        spline (error below 1e-7).
        """
        scale = math.sqrt(self.steps) * self.noise_multiplier
        low, high = float(sums.min()) - scale, float(sums.max()) + scale
        points = math.ceil(40 * (high - low) / scale) + 4
        if sums.size <= points:
            return self._log_law_of_sums(sums, most, scale)
        grid = np.linspace(low, high, points)
        return np.asarray(interpolate.CubicSpline(grid, self._log_law_of_sums(grid, most, scale))(sums))

    def _log_law_of_sums(self, values: Floats, most: int, scale: float) -> Floats:
        columns = []
        for m in range(most + 1):
            trials, rate = self.steps * m, self.sample_rate
            reach = 10 * math.sqrt(trials * rate * (1 - rate)) + 10
            first = max(0, math.floor(trials * rate - reach))
            counts = np.arange(first, min(trials, math.ceil(trials * rate + reach)) + 1)
            squares = ((values[..., None] - counts) / scale) ** 2
            terms = binomial.log_mass(counts, trials, rate) - squares / 2
            columns.append(special.logsumexp(terms, axis=-1))
        return np.stack(columns, axis=-1)


def binomial_law(most: int, rate: float) -> Floats:
    """Bin(j; m, rate) at [m, j], by f_m(j) = (1 - rate) f_{m-1}(j) + rate f_{m-1}(j - 1)."""
    law = np.zeros((most + 1, most + 1))
    law[0, 0] = 1.0
    for m in range(1, most + 1):
        law[m] = (1 - rate) * law[m - 1]
        law[m, 1:] += rate * law[m - 1, :-1]
    return law


def algorithm_3(
    gradients: Floats,
    steps: int,
    sample_rate: float,
    noise_multiplier: float,
    rng: np.random.Generator,
    clip: float = 1.0,
) -> Floats:
    """The noisy clipped sums, (steps, d), of the paper's DP-SGD as written: a reference, O(T n d).

    Args:
        gradients: The gradients, (n, d).
        steps: The number of steps T.
        sample_rate: The sampling rate.
        noise_multiplier: The noise multiplier.
        rng: The generator.
        clip: The clip norm.

    Example:
        >>> import numpy as np
        >>> from canaria.mechanisms import algorithm_3
        >>> rng = np.random.default_rng(0)
        >>> algorithm_3(np.eye(4), steps=3, sample_rate=0.5, noise_multiplier=1.0, rng=rng).shape
        (3, 4)
    """
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    clipped = gradients / np.maximum(1.0, norms / clip)
    released = np.empty((steps, gradients.shape[1]))
    for step in range(steps):
        batch = rng.random(len(gradients)) < sample_rate
        noise = rng.normal(scale=clip * noise_multiplier, size=gradients.shape[1])
        released[step] = clipped[batch].sum(axis=0) + noise
    return released


def log_likelihoods_of(
    released: npt.ArrayLike, most: int, sample_rate: float, noise_multiplier: float
) -> Floats:
    """L(m) of released values for m = 0 ... `most`, in the last axis, as `SubsampledGaussian` adds them up.

    It includes the Gaussian constant, so that it is the log density itself.

    Args:
        released: The released values, (steps, ...).
        most: The largest number of included elements on a coordinate.
        sample_rate: The sampling rate.
        noise_multiplier: The noise multiplier.

    Example:
        >>> import numpy as np
        >>> from canaria.mechanisms import log_likelihoods_of
        >>> table = log_likelihoods_of(np.full((10, 1), 0.5), most=1, sample_rate=1.0, noise_multiplier=1.0)
        >>> table.shape, bool(np.isclose(table[0, 0], table[0, 1]))
        ((1, 2), True)
    """
    values = np.asarray(released, dtype=np.float64)
    law, counts = binomial_law(most, sample_rate), np.arange(most + 1)
    exponents = -0.5 * ((values[..., None] - counts) / noise_multiplier) ** 2
    logs = _log_mixtures(exponents, law) - math.log(noise_multiplier * math.sqrt(2 * math.pi))
    return np.asarray(logs.sum(axis=0))


def _log_mixtures(exponents: Floats, law: Floats) -> Floats:
    """Ln sum_j law(m, j) e^exponent(j) for every m, also where the likeliest j is impossible for m."""
    with np.errstate(divide="ignore"):
        logs = np.log(law)
    return np.stack([special.logsumexp(exponents + row, axis=-1) for row in logs], axis=-1)
