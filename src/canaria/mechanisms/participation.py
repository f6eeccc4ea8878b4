"""Laws of participation: the steps of training in which a row takes part, as far as they are known.

With correlated noise the releases are g = C^-1 (C x + z). A canary that takes part in the steps u, a vector
of zeros and ones, adds C u to the whitened releases w = C g. Given u its likelihood ratio is

    exp((<w, C u> - |C u|^2 / 2) / s^2) = exp((<m, u> - |C u|^2 / 2) / s^2),      m = C' w = C' C g,

and the likelihood ratio is the mean of this over the law of u (Theorem 35). There are 2^T vectors u. Each law
below has a structure by which the mean is a short sum, a product over steps, or a recursion.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError
from canaria.claims.accounting import dpsgd_epsilon
from canaria.claims.noise import GaussianDP
from canaria.mechanisms import _turns as turns
from canaria.mechanisms.strategies import Strategy


class Participation(ABC):
    """A law of the steps in which a row takes part: of vectors u of zeros and ones."""

    @abstractmethod
    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Participations of `count` rows, drawn independently, (steps, count)."""

    @abstractmethod
    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        """Ln E_u exp((<m, u> - |C u|^2 / 2) / s^2) of each canary, with s the `deviation`."""

    @abstractmethod
    def sensitivity(self, strategy: Strategy) -> float:
        """The unit of the noise multiplier: the most that one row adds, |C u|, or one participation of it."""

    @abstractmethod
    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        """The epsilon that an accountant gives, which is at least the true one."""

    def worst(self, strategy: Strategy) -> "Participation":
        """The law of canaries that the audit places itself: if steps are known, those that leak the most."""
        return self

    @abstractmethod
    def chances(self, steps: int) -> Floats:
        """The probabilities that a row takes part 0, 1, 2, ... times."""

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
    """Known steps: the data have a fixed order, and a row takes part every `period` steps.

    The loss of a canary is one inner product, which is exactly Gaussian.

    Attributes:
        period: The steps of an epoch.
        first: The first step of all canaries. If it is None, canary i begins with step i mod `period`, but an
            audit that places canaries itself puts all of them where a row leaks the most.

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
        return turns.every(self.period, steps)[:, self._begins(count)]

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        count = statistic.shape[1]
        each = turns.exponents_of_epochs(strategy, statistic, self.period, deviation)
        return np.asarray(each[self._begins(count), np.arange(count)])

    def sensitivity(self, strategy: Strategy) -> float:
        """The most that a row may add over its steps, whatever its gradients, wherever it begins.

        With gradients x_t of norm 1, the square of what a row adds is the sum of <x_s, x_t> (C' C)_st over
        pairs of its steps. That is at most the sum of |C' C|_st, and equal to it for a row with the same
        gradient in all its steps if no entry of C' C is negative.
        """
        return math.sqrt(float(turns.overlaps(strategy, self.period).max()))

    def reached(self, strategy: Strategy) -> float:
        """The most that a row with the same gradient in all its steps adds."""
        return math.sqrt(float(turns.squared_norms(strategy, self.period).max()))

    def worst(self, strategy: Strategy) -> "InOrder":
        """All canaries where |C u| is largest, unless `first` is given."""
        if self.first is not None:
            return self
        return InOrder(self.period, int(np.argmax(turns.squared_norms(strategy, self.period))))

    def added(self, strategy: Strategy, count: int) -> Floats:
        """The square of |C u| of each canary."""
        return turns.squared_norms(strategy, self.period)[self._begins(count)]

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return GaussianDP(1 / noise_multiplier).epsilon_at(delta)

    def chances(self, steps: int) -> Floats:
        """Certain: those of a row that takes part most often; see `often`."""
        return np.append(np.zeros(self.most(steps)), 1.0)

    def most(self, steps: int) -> int:
        """The largest number of participations of a canary."""
        return len(range(self.first or 0, steps, self.period))

    def often(self, steps: int, count: int) -> Integers:
        """The participations of each canary; the last epoch may end before the turn of some."""
        return np.maximum(-(-(steps - self._begins(count)) // self.period), 0)

    @property
    def share(self) -> float:
        return 1 / self.period

    @property
    def words(self) -> str:
        return f"a fixed order, {self.period} steps to an epoch"


@dataclass(frozen=True)
class BallsInBins(Participation):
    """Every row is in one of the `bins`, by a draw that is not known, and takes part when its bin does.

    The accountant assumes that the bin is known. It does not use the amplification by not knowing it, so the
    claim is that of `InOrder`.

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
        return turns.every(self.bins, steps)[:, rng.integers(0, self.bins, count)]

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        each = turns.exponents_of_epochs(strategy, statistic, self.bins, deviation)
        return np.asarray(special.logsumexp(each, axis=0) - math.log(self.bins))

    def sensitivity(self, strategy: Strategy) -> float:
        """As if the bin were known."""
        return InOrder(self.bins).sensitivity(strategy)

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        return GaussianDP(1 / noise_multiplier).epsilon_at(delta)

    def chances(self, steps: int) -> Floats:
        return turns.chances_of_turns(self.bins, steps, 1.0)

    @property
    def share(self) -> float:
        return 1 / self.bins

    @property
    def words(self) -> str:
        return f"balls in {self.bins} bins"


@dataclass(frozen=True)
class CyclicPoisson(Participation):
    """Every row is in one of the `groups`, by a draw that is not known; in its group's turn a coin decides.

    With one group this is Poisson sampling, and with the identity as the strategy it is DP-SGD. A strategy
    must have at most as many bands as there are groups. Then the contributions of a row to different steps
    are orthogonal.

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
        checks.sample_rate(self.rate, "rate")

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        taking = turns.every(self.groups, steps)[:, rng.integers(0, self.groups, count)]
        # Step by step, as (steps, count) floats at once would take eight times the memory of the answer.
        for step in range(steps):
            taking[step] &= rng.random(count) < self.rate
        return taking

    def log_ratio(self, strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
        # Columns of C that are a period or more apart are orthogonal, so |C u|^2 is a sum over the steps of u
        # and the mean over the coins a product over turns; the group is averaged over at last (Theorem 35).
        _require_bands(strategy, self.groups)
        each = turns.log_mixture(self.rate, turns.exponents_of(strategy, statistic, deviation))
        by_group = turns.summed_by_turn(each, self.groups)
        return np.asarray(special.logsumexp(by_group, axis=0) - math.log(self.groups))

    def sensitivity(self, strategy: Strategy) -> float:
        """The largest norm of a column of C: that of one participation, as the accountant composes them."""
        return float(np.sqrt(strategy.squares.max()))

    def epsilon(self, strategy: Strategy, noise_multiplier: float, delta: float) -> float:
        # Turns of a group are orthogonal, so the training is that many steps of DP-SGD on the group.
        _require_bands(strategy, self.groups)
        rounds = -(-strategy.steps // self.groups)
        return dpsgd_epsilon(noise_multiplier, delta, rounds, self.rate, "pld")

    def chances(self, steps: int) -> Floats:
        return turns.chances_of_turns(self.groups, steps, self.rate)

    @property
    def share(self) -> float:
        return self.rate / self.groups

    @property
    def words(self) -> str:
        return f"cyclic Poisson sampling {self.groups} x {self.rate:.6g}"


@dataclass(frozen=True)
class MinSeparation(Participation):
    """A row takes part by a coin in every step, but sits out the next `separation` - 1 steps if it does.

    A strategy must have at most `separation` bands. Accountants of this law simulate it, so `epsilon` is
    infinite.

    Attributes:
        separation: The least distance between two steps of a row.
        rate: The probability with which a row takes part in a step, if it does not sit out.
        warm: Whether training begins in the middle of the process; else no row sits out the first step.

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
        checks.sample_rate(self.rate, "rate")

    def _first(self) -> Floats:
        """The law of the first step in which a row does not sit out, from 0 on."""
        # In the long run a row is in each of its waiting steps `rate` times as often as free.
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
        """By a recursion from the last step: F(t) = (1 - p) F(t + 1) + p e_t F(t + b).

        F(t) is the likelihood ratio of the steps from t on, for a row that does not sit out step t, p is the
        rate, b the separation, and e_t = exp((m_t - |c_t|^2 / 2) / s^2) with c_t the columns of C: these are
        orthogonal for any two steps of a row, so |C u|^2 is the sum of |c_t|^2.
        """
        _require_bands(strategy, self.separation)
        exponents = turns.exponents_of(strategy, statistic, deviation)
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
        """By the recursion of `log_ratio`: a step in which a row takes part adds one to the count."""
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


def _require_bands(strategy: Strategy, most: int) -> None:
    if strategy.bands > most:
        raise InputError(
            f"the strategy must have at most {most} bands, so that no two participations overlap, got "
            f"{strategy.bands}"
        )
