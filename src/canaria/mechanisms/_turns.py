"""Sums over the steps of rows that take turns: every `period`-th step, for each first step."""

import math

import numpy as np
import numpy.typing as npt

from canaria._core import binomial
from canaria._core.arrays import Floats
from canaria.mechanisms.strategies import Strategy


def every(period: int, steps: int) -> npt.NDArray[np.bool_]:
    """Participations every `period` steps, one column for each first step."""
    return np.asarray(np.arange(steps)[:, None] % period == np.arange(period))


def summed_by_turn(values: Floats, period: int) -> Floats:
    """Sums over every `period`-th step, for each first step, (period, ...)."""
    missing = np.zeros((-len(values) % period, *values.shape[1:]))
    return np.asarray(np.concatenate([values, missing]).reshape(-1, period, *values.shape[1:]).sum(axis=0))


def squared_norms(strategy: Strategy, period: int) -> Floats:
    """|C u|^2 for participations every `period` steps, for each first step."""
    return np.asarray(np.square(summed_by_turn(strategy.matrix.T, period)).sum(axis=1))


def overlaps(strategy: Strategy, period: int) -> Floats:
    """The sum of |C' C| over pairs of these steps; it is |C u|^2 unless C has negative entries."""
    if (strategy.matrix >= 0).all():
        return squared_norms(strategy, period)
    columns = (strategy.matrix[:, first::period] for first in range(period))
    return np.array([abs(own.T @ own).sum() for own in columns])


def chances_of_turns(period: int, steps: int, rate: float) -> Floats:
    """The chances of the numbers of participations of rows that take turns."""
    # All rows have one turn in each period. In the last one, which may be cut short, it is not known which.
    turns, left = divmod(steps, period)
    one_more, counts = rate * left / period, np.arange(turns + 1)
    # Which turns a row takes is independent of that, so the two laws are convolved.
    whole = np.exp(binomial.log_mass(counts, turns, rate))
    return np.convolve(whole, [1 - one_more, one_more])


def exponents_of(strategy: Strategy, statistic: Floats, deviation: float) -> Floats:
    """(m_t - |c_t|^2 / 2) / s^2."""
    return (statistic - strategy.squares[:, None] / 2) / deviation**2


def exponents_of_epochs(strategy: Strategy, statistic: Floats, period: int, deviation: float) -> Floats:
    """(<m, u> - |C u|^2 / 2) / s^2 for participations every `period` steps, for each first step."""
    squares = squared_norms(strategy, period)
    return np.asarray((summed_by_turn(statistic, period) - squares[:, None] / 2) / deviation**2)


def log_mixture(rate: float, exponents: Floats) -> Floats:
    """Ln (1 - p + p e^x)."""
    if rate == 1:
        return exponents
    return np.logaddexp(math.log1p(-rate), math.log(rate) + exponents)
