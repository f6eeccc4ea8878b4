"""Cases of training with correlated noise.

With known steps, the mechanism is exactly Gaussian. With two unknown steps of a row, its privacy profile is
an integral over the plane.
"""

import math
from typing import Final

import numpy as np
from scipy import optimize

from canaria._core.arrays import Floats
from canaria.claims.noise import gaussian_epsilon
from canaria.lab.validity._games import Case, Games, Shape, coins, drawing
from canaria.mechanisms import Correlated, CyclicPoisson, InOrder, Strategy

_DELTA: Final = 1e-3
_EPOCHS, _PERIOD = 3, 4
_FALLING: Final = (1.0, 0.5, 0.375, 0.3125)


def _even(strategy: Strategy, period: int) -> Strategy:
    """Scale the strategy's columns so that each row adds the same, whichever step it begins with."""
    turns = np.arange(strategy.steps)[:, None] % period == np.arange(period)
    sizes = np.linalg.norm(strategy.of(turns), axis=0)
    return Strategy(strategy.matrix / sizes[np.arange(strategy.steps) % period])


_IN_ORDER: Final = Correlated(
    _even(Strategy.toeplitz(1 / np.sqrt(np.arange(1, 13)), _EPOCHS * _PERIOD), _PERIOD), InOrder(_PERIOD), 1.2
)
_BANDED: Final = Correlated(Strategy.toeplitz(_FALLING[:2], 2), CyclicPoisson(groups=2, rate=0.5), 0.8)


@drawing
def training(shape: Shape, rng: np.random.Generator, level: float, mechanism: Correlated) -> Games:
    """Canaries of one training run each, scored by their losses."""
    bits = coins(shape, rng)
    return Games(mechanism.sample(bits, rng), bits)


def epsilon_of_two_steps(mechanism: Correlated, delta: float, points: int = 601) -> float:
    """The epsilon of a mechanism with two steps, by its likelihood ratio on a grid of whitened noise.

    >>> from canaria.lab.validity.runs import shuffled_epsilon
    >>> plain = Correlated(Strategy(np.eye(2)), CyclicPoisson(groups=2), 1.5)
    >>> abs(epsilon_of_two_steps(plain, 1e-3) - shuffled_epsilon(2, 1.5, 1e-3)) < 1e-4
    True
    """
    axis = np.linspace(-8, 8, points)
    noise = np.stack(np.meshgrid(axis, axis)).reshape(2, -1)
    chance = np.exp(-np.square(noise).sum(axis=0) / 2)
    chance /= chance.sum()
    ratio = np.exp(mechanism.losses(mechanism.strategy.correlate(mechanism.deviation * noise)))

    def spent(epsilon: float) -> float:
        return max(_excess(chance, ratio, epsilon), _excess(chance * ratio, 1 / ratio, epsilon))

    return float(optimize.brentq(lambda epsilon: spent(epsilon) - delta, 1e-9, 20.0, xtol=1e-9))


def _excess(chance: Floats, ratio: Floats, epsilon: float) -> float:
    return float(chance @ np.maximum(ratio - math.exp(epsilon), 0))


CORRELATED: Final = (
    Case(
        "correlated-in-order",
        "correlated noise, 3 epochs in a fixed order",
        training(_IN_ORDER),
        gaussian_epsilon(1 / _IN_ORDER.noise_multiplier, _DELTA),
        delta=_DELTA,
        pace=0.2,
    ),
    Case(
        "correlated-banded",
        "correlated noise, 2 bands, cyclic Poisson sampling",
        training(_BANDED),
        epsilon_of_two_steps(_BANDED, _DELTA),
        delta=_DELTA,
        pace=0.2,
    ),
)
