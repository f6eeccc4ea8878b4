"""Matrix factorisation with gradient canaries: training whose noise is correlated between steps.

A strategy is a lower triangular matrix C of T steps. With x the clipped sums, what is released is

    g = x + C^-1 z,      z ~ N(0, s^2 I),      s = noise multiplier x sensitivity,

coordinate by coordinate. Whitened, w = C g = C x + z: a canary that takes part in the steps u, a vector of
zeros and ones, adds C u. Its likelihood ratio is the mean of exp((<w, C u> - |C u|^2 / 2) / s^2) over the law
of u, and depends on g by m = C' C g alone (Theorem 35). Each coordinate carries one canary.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.claims.accounting import dpsgd_epsilon
from canaria.claims.noise import gaussian_epsilon
from canaria.mechanisms._protocol import Output

_MANY: Final = 4
"""A matrix with one band in so many steps is multiplied by as a whole."""


class Strategy:
    """A lower triangular matrix C with a positive diagonal, by which noise is correlated.

    Args:
        matrix: The matrix, (T, T).

    Raises:
        InputError: If it is not square, lower triangular, finite and positive on the diagonal.

    Example:
        >>> from canaria.mechanisms import Strategy
        >>> print(Strategy.toeplitz([1.0, 0.5, 0.25], steps=100))
        3 bands, 100 steps
        >>> print(Strategy([[1.0, 0.0], [0.5, 1.0]]))
        2 bands, 2 steps

    """

    def __init__(self, matrix: npt.ArrayLike) -> None:
        self.matrix = np.asarray(matrix, dtype=np.float64)
        if self.matrix.ndim != 2 or len({*self.matrix.shape}) != 1 or not self.matrix.size:
            raise InputError(f"a strategy must be a square matrix, got shape {self.matrix.shape}")
        self.steps = len(self.matrix)
        if not np.isfinite(self.matrix).all() or np.triu(self.matrix, 1).any():
            raise InputError("a strategy must be finite and lower triangular")
        if not (np.diag(self.matrix) > 0).all():
            raise InputError("a strategy must be positive on its diagonal")
        nonzero = np.flatnonzero([np.diag(self.matrix, -k).any() for k in range(self.steps)])
        self.bands = int(nonzero[-1]) + 1

    @classmethod
    def toeplitz(cls, column: npt.ArrayLike, steps: int) -> "Strategy":
        """The strategy whose entries depend on the distance from the diagonal alone.

        Args:
            column: Its first column, as far as it is not 0: as many numbers as there are bands.
            steps: The number of steps.

        Returns:
            The strategy.

        Raises:
            InputError: If the column is empty, longer than `steps`, or does not begin with a positive number.

        """
        first = np.asarray(column, dtype=np.float64)
        checks.integer("steps", steps, 1)
        if first.ndim != 1 or not 1 <= first.size <= steps:
            raise InputError(f"column must be a list of 1 to {steps} numbers, got shape {first.shape}")
        whole = np.zeros(steps)
        whole[: first.size] = first
        return cls(linalg.toeplitz(whole, np.zeros(steps)))

    @classmethod
    def buffered(cls, decays: npt.ArrayLike, scales: npt.ArrayLike, steps: int) -> "Strategy":
        """A buffered linear Toeplitz strategy (BLT): 1, then the sum of `scales` x `decays`^(k - 1).

        Args:
            decays: The decay of each buffer.
            scales: What each buffer contributes.
            steps: The number of steps.

        Returns:
            The strategy.

        """
        rates, weights = np.asarray(decays, dtype=np.float64), np.asarray(scales, dtype=np.float64)
        if rates.shape != weights.shape or rates.ndim != 1:
            raise InputError(
                f"decays and scales must be lists of one length, got shapes {rates.shape} and {weights.shape}"
            )
        checks.integer("steps", steps, 1)
        powers = rates[:, None] ** np.arange(steps - 1)
        return cls.toeplitz(np.append(1.0, weights @ powers), steps)

    def first(self, steps: int) -> "Strategy":
        """The strategy of the first steps: what they release depends on them alone."""
        if steps == self.steps:
            return self
        return Strategy(self.matrix[:steps, :steps])

    def back(self) -> Floats:
        """The entries of a step, of the step before, and so on, (steps, bands); 0 before the first step."""
        found = np.zeros((self.steps, self.bands))
        for lag in range(self.bands):
            found[lag:, lag] = np.diag(self.matrix, -lag)
        return found

    @cached_property
    def spread_of_sums(self) -> float:
        """The standard deviation of the sum over all steps of the noise that training adds, in units of s."""
        ones = np.ones(self.steps)
        return float(np.linalg.norm(linalg.solve_triangular(self.matrix, ones, trans="T", lower=True)))

    def whiten(self, released: Floats) -> Floats:
        """C times what was released, (steps, ...): its noise is independent from step to step."""
        return self._times(self.matrix, released)

    def correlate(self, noise: Floats) -> Floats:
        """C^-1 times independent noise, (steps, ...): the noise that training adds."""
        flat = linalg.solve_triangular(self.matrix, noise.reshape(self.steps, -1), lower=True)
        return np.asarray(flat.reshape(noise.shape))

    def statistic(self, released: Floats) -> Floats:
        """C' C times what was released: all that it tells about canaries, step by step."""
        return self._times(self.matrix.T, self.whiten(released))

    def _times(self, matrix: Floats, values: Floats) -> Floats:
        """C or its transpose, as `matrix` says, times values; band by band if there are few."""
        if _MANY * self.bands > self.steps:
            return np.tensordot(matrix, values, axes=1)
        ones = [1] * (values.ndim - 1)
        found = np.diag(matrix).reshape(-1, *ones) * values
        for lag in range(1, self.bands):
            below, above = np.diag(matrix, -lag), np.diag(matrix, lag)
            found[lag:] += below.reshape(-1, *ones) * values[:-lag]
            found[:-lag] += above.reshape(-1, *ones) * values[lag:]
        return np.asarray(found)

    def of(self, steps: npt.NDArray[np.bool_]) -> Floats:
        """C u for participations u, a column each, (steps, ...)."""
        return np.tensordot(self.matrix, steps.astype(np.float64), axes=1)

    @cached_property
    def squares(self) -> Floats:
        """The squared norm of every column: what one participation adds up to."""
        return np.asarray((self.matrix**2).sum(axis=0))

    def __str__(self) -> str:
        """How many bands, and steps."""
        return f"{self.bands} bands, {self.steps} steps"


class Participation(ABC):
    """In which steps a row takes part, as far as that is known: a law of vectors of zeros and ones."""

    @abstractmethod
    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Participations of so many rows, each by itself, (steps, count)."""

    @abstractmethod
    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        """Of each canary, with s the `deviation`: ln E_u exp((<m, u> - |C u|^2 / 2) / s^2)."""

    @abstractmethod
    def sensitivity(self, strategy: Strategy) -> float:
        """What a noise multiplier is a multiple of; for the most that one row adds, |C u|, see each law."""

    @abstractmethod
    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        """What an accountant gives, at least the truth."""

    @abstractmethod
    def times(self, steps: int) -> tuple[tuple[int, float], ...]:
        """How often a row takes part: heads of so many coins, each with a rate; none if it is no such law."""

    @property
    @abstractmethod
    def share(self) -> float:
        """The share of steps in which a row takes part, in the long run."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The law in words."""


@dataclass(frozen=True)
class InOrder(Participation):
    """Known steps: data are walked through in a fixed order, and a canary comes back every `period` steps.

    Canary i takes part in the steps i mod `period`, and so on in every epoch. With m as above its loss is one
    inner product, exactly Gaussian.

    Attributes:
        period: The steps of an epoch.

    Example:
        >>> from canaria.mechanisms import InOrder
        >>> InOrder(period=16).period
        16

    """

    period: int

    def __post_init__(self) -> None:
        checks.integer("period", self.period, 1)

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        return _every(self.period, steps)[:, np.arange(count) % self.period]

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        first = np.arange(statistic.shape[1]) % self.period
        return _of_epochs(strategy, statistic, self.period, deviation)[first, np.arange(len(first))]

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of C u over the steps that a row may have."""
        return float(np.linalg.norm(strategy.of(_every(self.period, strategy.steps)), axis=0).max())

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return gaussian_epsilon(1 / noise_multiplier, delta)

    def times(self, steps: int) -> tuple[tuple[int, float], ...]:
        return _of_turns(self.period, steps, 1.0)

    @property
    def share(self) -> float:
        return 1 / self.period

    @property
    def words(self) -> str:
        return f"a fixed order, {self.period} steps to an epoch"


@dataclass(frozen=True)
class BallsInBins(Participation):
    """Every row is in one of the `bins`, by a draw that is not known, and takes part whenever it is its turn.

    The accountant is told the steps of the row: amplification by not knowing them is not used, so the claim
    is that of `InOrder`.

    Attributes:
        bins: The steps of an epoch.

    Example:
        >>> from canaria.mechanisms import BallsInBins
        >>> BallsInBins(bins=16).bins
        16

    """

    bins: int

    def __post_init__(self) -> None:
        checks.integer("bins", self.bins, 1)

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        return _every(self.bins, steps)[:, rng.integers(0, self.bins, count)]

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        each = _of_epochs(strategy, statistic, self.bins, deviation)
        return np.asarray(special.logsumexp(each, axis=0) - math.log(self.bins))

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of C u over the bins."""
        return InOrder(self.bins).sensitivity(strategy)

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return gaussian_epsilon(1 / noise_multiplier, delta)

    def times(self, steps: int) -> tuple[tuple[int, float], ...]:
        return _of_turns(self.bins, steps, 1.0)

    @property
    def share(self) -> float:
        return 1 / self.bins

    @property
    def words(self) -> str:
        return f"balls in {self.bins} bins"


@dataclass(frozen=True)
class CyclicPoisson(Participation):
    """Rows are in one of `groups`, by a draw that is not known; when it is a group's turn, coins decide.

    One group is Poisson sampling, and with the identity for a strategy it is DP-SGD. Strategies must have at
    most as many bands as there are groups, so that what a row adds in different steps is orthogonal.

    Attributes:
        groups: The number of groups; they take turns.
        rate: The probability with which a row takes part when it is its group's turn.

    Example:
        >>> from canaria.mechanisms import CyclicPoisson
        >>> CyclicPoisson(groups=8, rate=0.5).rate
        0.5

    """

    groups: int
    rate: float = 1.0

    def __post_init__(self) -> None:
        checks.integer("groups", self.groups, 1)
        _check_rate(self.rate)

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        turns = _every(self.groups, steps)[:, rng.integers(0, self.groups, count)]
        return turns & (rng.random(turns.shape) < self.rate)

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        _require_bands(strategy, self.groups)
        each = _log_mixture(self.rate, _exponents(strategy, statistic, deviation))
        by_group = np.tensordot(_every(self.groups, strategy.steps).T.astype(np.float64), each, axes=1)
        return np.asarray(special.logsumexp(by_group, axis=0) - math.log(self.groups))

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of a column of C: of one participation, since they are composed."""
        return float(np.sqrt(strategy.squares.max()))

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        _require_bands(strategy, self.groups)
        rounds = -(-strategy.steps // self.groups)
        return dpsgd_epsilon(noise_multiplier, delta, rounds, self.rate, "pld")

    def times(self, steps: int) -> tuple[tuple[int, float], ...]:
        return _of_turns(self.groups, steps, self.rate)

    @property
    def share(self) -> float:
        return self.rate / self.groups

    @property
    def words(self) -> str:
        return f"cyclic Poisson sampling {self.groups} x {self.rate:.6g}"


@dataclass(frozen=True)
class MinSeparation(Participation):
    """A row takes part by a coin in every step, but sits out the next `separation` - 1 steps if it does.

    Strategies must have at most `separation` bands. Accountants of this are by simulation, so no epsilon is
    given.

    Attributes:
        separation: The least distance between two steps of a row.
        rate: The probability with which a row takes part in a step, if it does not sit out.
        warm: Whether rows begin as if training had been going on before; else none sits out at first.

    Example:
        >>> from canaria.mechanisms import MinSeparation
        >>> MinSeparation(separation=4, rate=0.2).warm
        True

    """

    separation: int
    rate: float
    warm: bool = True

    def __post_init__(self) -> None:
        checks.integer("separation", self.separation, 1)
        _check_rate(self.rate)

    def _first(self) -> Floats:
        """The law of the first step in which a row does not sit out, from 0 on."""
        waits = self.separation - 1 if self.warm else 0
        return np.append(1.0, np.full(waits, self.rate)) / (1 + waits * self.rate)

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        law = self._first()
        free = rng.choice(len(law), count, p=law)
        taking = np.zeros((steps, count), dtype=bool)
        for step in range(steps):
            taking[step] = (free <= step) & (rng.random(count) < self.rate)
            free = np.where(taking[step], step + self.separation, free)
        return taking

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        """From the end: F(t) = (1 - p) F(t + 1) + p e_t F(t + b), where a row does not sit out step t."""
        _require_bands(strategy, self.separation)
        exponents = _exponents(strategy, statistic, deviation)
        steps = strategy.steps
        later = np.zeros((steps + self.separation, statistic.shape[1]))
        with np.errstate(divide="ignore"):
            out, taking = np.log1p(-self.rate), np.log(self.rate)
        for step in range(steps - 1, -1, -1):
            with_it = taking + exponents[step] + later[step + self.separation]
            later[step] = np.logaddexp(out + later[step + 1], with_it)
        law = self._first()
        return np.asarray(special.logsumexp(later[: len(law)].T, b=law, axis=1))

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of a column of C."""
        return float(np.sqrt(strategy.squares.max()))

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return math.inf

    def times(self, steps: int) -> tuple[tuple[int, float], ...]:
        return ()

    @property
    def share(self) -> float:
        return self.rate / (1 + (self.separation - 1) * self.rate)

    @property
    def words(self) -> str:
        return f"Poisson sampling {self.rate:.6g} at least {self.separation} steps apart"


@dataclass(frozen=True, eq=False)
class Correlated:
    """Training with correlated noise; each canary has a coordinate to itself.

    Attributes:
        strategy: The matrix C.
        participation: In which steps rows take part: `InOrder`, `BallsInBins`, `CyclicPoisson` or
            `MinSeparation`.
        noise_multiplier: The noise over the sensitivity, positive and finite.

    Raises:
        InputError: If the noise multiplier is out of range, or if strategy and participation do not fit.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import Correlated, CyclicPoisson, Strategy
        >>> bands = Strategy.toeplitz([1.0, 0.5, 0.375, 0.3125], steps=32)
        >>> training = Correlated(bands, CyclicPoisson(groups=4, rate=0.5), noise_multiplier=1.0)
        >>> round(training.claimed(1e-5), 2)
        9.34
        >>> print(play(training, n=500, rng=0).bound(delta=1e-5))
        ε ≥ 1.660 at δ = 1e-05, with 95% confidence: 77 of 82 guesses right, 500 elements

    """

    strategy: Strategy
    participation: Participation
    noise_multiplier: float
    adjacency: ClassVar[str] = "add-remove"
    epsilon: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        if not 0 < checks.real("noise_multiplier", self.noise_multiplier) < math.inf:
            raise InputError(
                f"noise_multiplier must be positive and finite, got {shown(self.noise_multiplier)}"
            )
        self.participation.log_ratio(self.strategy, np.zeros((self.strategy.steps, 1)), 1.0)

    @property
    def deviation(self) -> float:
        """The standard deviation s of the noise before it is correlated."""
        return self.noise_multiplier * self.participation.sensitivity(self.strategy)

    def claimed(self, delta: float) -> float:
        """What an accountant gives at this delta; infinite if there is none."""
        return self.participation.epsilon(self.strategy, self.noise_multiplier, delta)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The loss of every element, (trials, n), which is all that the output tells."""
        return np.stack([self.losses(self.release(hidden, rng)) for hidden in bits])

    def release(self, bits: Bits, rng: np.random.Generator) -> Floats:
        """What one training run releases at the coordinates of canaries with these bits, (steps, n)."""
        taking = self.participation.draw(self.strategy.steps, len(bits), rng) & (bits > 0)
        noise = rng.normal(scale=self.deviation, size=taking.shape)
        return taking + self.strategy.correlate(noise)

    def losses(self, released: npt.ArrayLike) -> Floats:
        """The loss of canaries by what was released at their coordinates, (steps, n)."""
        values = np.asarray(released, dtype=np.float64)
        if values.ndim != 2 or len(values) != self.strategy.steps:
            raise InputError(f"released must have {self.strategy.steps} rows, one a step, got {values.shape}")
        return self.participation.log_ratio(self.strategy, self.strategy.statistic(values), self.deviation)

    def loss(self, output: Output, known: Bits) -> Floats:
        """The losses; coordinates are independent, so revealed bits say nothing about the others."""
        return np.where(known == 0, output, 0.0)

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """All at once: revealed bits are of no use."""
        return (np.arange(n),)

    def ddp(self, n: int) -> float:
        """Infinite: the loss grows with the output."""
        return math.inf

    def outcomes(self, n: int) -> None:
        """None: outputs are continuous."""


def _every(period: int, steps: int) -> npt.NDArray[np.bool_]:
    """Participations every `period` steps, one column for each first step."""
    return np.asarray(np.arange(steps)[:, None] % period == np.arange(period))


def _of_turns(period: int, steps: int, rate: float) -> tuple[tuple[int, float], ...]:
    """Of rows that take turns: one in each whole period, and one more for some, who are not known."""
    turns, left = divmod(steps, period)
    return (turns, rate), (1, rate * left / period)


def _exponents(strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
    """(m_t - |c_t|^2 / 2) / s^2."""
    return (statistic - strategy.squares[:, None] / 2) / deviation**2


def _of_epochs(strategy: Strategy, statistic: Floats, period: int, deviation: float) -> Floats:
    """(<m, u> - |C u|^2 / 2) / s^2 for participations every `period` steps, from each first step on."""
    turns = _every(period, strategy.steps)
    added = np.square(strategy.of(turns)).sum(axis=0)
    return np.asarray((turns.T.astype(np.float64) @ statistic - added[:, None] / 2) / deviation**2)


def _log_mixture(rate: float, exponents: Floats) -> Floats:
    """Ln (1 - p + p e^x)."""
    if rate == 1:
        return exponents
    return np.logaddexp(math.log1p(-rate), math.log(rate) + exponents)


def _require_bands(strategy: Strategy, most: int) -> None:
    if strategy.bands > most:
        raise InputError(
            f"the strategy must have at most {most} bands, so that no two participations overlap, got "
            f"{strategy.bands}"
        )


def _check_rate(rate: float) -> None:
    if not 0 < checks.real("rate", rate) <= 1:
        raise InputError(f"rate must be above 0 and at most 1, got {shown(rate)}")
