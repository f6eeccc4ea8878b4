"""Laws of participation: in which steps of training a row takes part, as far as that is known.

Each knows the likelihood ratio of a canary that takes part by it, where noise is correlated (Theorem 35).
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import binomial, checks
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.claims.accounting import dpsgd_epsilon
from canaria.claims.noise import GaussianDP
from canaria.mechanisms.strategies import Strategy


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

    def worst(self, strategy: Strategy) -> "Participation":
        """The law of canaries whose steps are ours to choose: known ones are where a row leaks most."""
        return self

    @abstractmethod
    def chances(self, steps: int) -> Floats:
        """With which probability a row takes part 0, 1, 2, ... times in so many steps."""

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

    The loss of a canary is one inner product, exactly Gaussian.

    Attributes:
        period: The steps of an epoch.
        first: The first step of all canaries. None: canary i begins with step i mod `period`; an audit that
            draws canaries itself then puts all where a row leaks most.

    Example:
        >>> from canaria.mechanisms import InOrder
        >>> InOrder(period=16).period
        16

    """

    period: int
    first: int | None = None

    def __post_init__(self) -> None:
        checks.integer("period", self.period, 1)
        if self.first is not None and checks.integer("first", self.first, 0) >= self.period:
            raise InputError(f"first must be below the period, {self.period}, got {self.first}")

    def _begins(self, count: int) -> Integers:
        """The first step of each canary."""
        return np.arange(count) % self.period if self.first is None else np.full(count, self.first)

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        return _every(self.period, steps)[:, self._begins(count)]

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        count = statistic.shape[1]
        each = _of_epochs(strategy, statistic, self.period, deviation)
        return np.asarray(each[self._begins(count), np.arange(count)])

    def sensitivity(self, strategy: Strategy) -> float:
        """The most that a row may add over its steps, whatever its gradients, wherever it begins.

        Gradients of norm 1 add up to the square root of the sum of <x_s, x_t> (C' C)_st over pairs of steps,
        at most that of the absolute values, which same gradients reach if no entry is negative.
        """
        return math.sqrt(float(_overlaps(strategy, self.period).max()))

    def reached(self, strategy: Strategy) -> float:
        """What a row with the same gradient in all its steps adds, where it adds most."""
        return math.sqrt(float(_added(strategy, self.period).max()))

    def worst(self, strategy: Strategy) -> "InOrder":
        """All canaries where |C u| is largest, unless `first` is given."""
        if self.first is not None:
            return self
        return InOrder(self.period, int(np.argmax(_added(strategy, self.period))))

    def added(self, strategy: Strategy, count: int) -> Floats:
        """The square of |C u| of each canary."""
        return _added(strategy, self.period)[self._begins(count)]

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return GaussianDP(1 / noise_multiplier).epsilon_at(delta)

    def chances(self, steps: int) -> Floats:
        """Of those that take part most often; see `often`."""
        return np.append(np.zeros(self.most(steps)), 1.0)

    def most(self, steps: int) -> int:
        """How often a canary takes part, at most."""
        return len(range(self.first or 0, steps, self.period))

    def often(self, steps: int, count: int) -> Integers:
        """How often each canary takes part: in an epoch that is not over, the last ones once less."""
        return np.maximum(-(-(steps - self._begins(count)) // self.period), 0)

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
        """As if the bin were known."""
        return InOrder(self.bins).sensitivity(strategy)

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return GaussianDP(1 / noise_multiplier).epsilon_at(delta)

    def chances(self, steps: int) -> Floats:
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
        for step in range(steps):
            turns[step] &= rng.random(count) < self.rate
        return turns

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        # Columns of C that are a period or more apart are orthogonal, so |C u|^2 is a sum over the steps of u
        # and the mean over the coins a product over turns; the group is averaged over at last (Theorem 35).
        _require_bands(strategy, self.groups)
        each = _log_mixture(self.rate, _exponents(strategy, statistic, deviation))
        by_group = _of_turns_added(each, self.groups)
        return np.asarray(special.logsumexp(by_group, axis=0) - math.log(self.groups))

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of a column of C: of one participation, since they are composed."""
        return float(np.sqrt(strategy.squares.max()))

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        _require_bands(strategy, self.groups)
        rounds = -(-strategy.steps // self.groups)
        return dpsgd_epsilon(noise_multiplier, delta, rounds, self.rate, "pld")

    def chances(self, steps: int) -> Floats:
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
        # A warm row may still sit out the first steps: it begins at a random one of them.
        law = self._first()
        return np.asarray(special.logsumexp(later[: len(law)].T, b=law, axis=1))

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of a column of C."""
        return float(np.sqrt(strategy.squares.max()))

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return math.inf

    def chances(self, steps: int) -> Floats:
        """From the end, as the likelihood ratio: a step in which a row takes part is one more."""
        most = -(-steps // self.separation)
        later = np.zeros((steps + self.separation, most + 1))
        later[steps:, 0] = 1.0
        for step in range(steps - 1, -1, -1):
            later[step] = (1 - self.rate) * later[step + 1]
            later[step, 1:] += self.rate * later[step + self.separation, :-1]
        law = self._first()
        return np.asarray(law @ later[: len(law)])

    @property
    def share(self) -> float:
        return self.rate / (1 + (self.separation - 1) * self.rate)

    @property
    def words(self) -> str:
        return f"Poisson sampling {self.rate:.6g} at least {self.separation} steps apart"


def _every(period: int, steps: int) -> npt.NDArray[np.bool_]:
    """Participations every `period` steps, one column for each first step."""
    return np.asarray(np.arange(steps)[:, None] % period == np.arange(period))


def _of_turns_added(values: Floats, period: int) -> Floats:
    """Sums over every `period` steps, from each first step on, (period, ...)."""
    missing = np.zeros((-len(values) % period, *values.shape[1:]))
    return np.asarray(np.concatenate([values, missing]).reshape(-1, period, *values.shape[1:]).sum(axis=0))


def _added(strategy: Strategy, period: int) -> Floats:
    """The square of |C u| for participations every `period` steps, from each first step on."""
    return np.asarray(np.square(_of_turns_added(strategy.matrix.T, period)).sum(axis=1))


def _overlaps(strategy: Strategy, period: int) -> Floats:
    """The sum of |C' C| over the same steps: the same, unless C has negative entries."""
    if (strategy.matrix >= 0).all():
        return _added(strategy, period)
    columns = (strategy.matrix[:, first::period] for first in range(period))
    return np.array([abs(own.T @ own).sum() for own in columns])


def _of_turns(period: int, steps: int, rate: float) -> Floats:
    """The chances of rows that take turns: one in each period, and one more for some, who are not known."""
    turns, left = divmod(steps, period)
    one_more, counts = rate * left / period, np.arange(turns + 1)
    whole = np.exp(binomial.log_mass(counts, turns, rate))
    return np.convolve(whole, [1 - one_more, one_more])


def _exponents(strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
    """(m_t - |c_t|^2 / 2) / s^2."""
    return (statistic - strategy.squares[:, None] / 2) / deviation**2


def _of_epochs(strategy: Strategy, statistic: Floats, period: int, deviation: float) -> Floats:
    """(<m, u> - |C u|^2 / 2) / s^2 for participations every `period` steps, from each first step on."""
    added = _added(strategy, period)
    return np.asarray((_of_turns_added(statistic, period) - added[:, None] / 2) / deviation**2)


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
