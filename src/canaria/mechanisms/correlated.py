"""Matrix factorisation with gradient canaries: training whose noise is correlated between steps.

A strategy is a lower triangular matrix C of T steps. With x the clipped sums, training releases

    g = x + C^-1 z,      z ~ N(0, s^2 I),      s = noise multiplier x sensitivity,

coordinate by coordinate. Whitened, w = C g = C x + z: a canary that takes part in the steps u, a vector of
zeros and ones, adds C u. Its likelihood ratio is the mean of exp((<w, C u> - |C u|^2 / 2) / s^2) over the law
of u, and depends on g by m = C' C g alone (Theorem 35). Each coordinate carries one canary.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Bits, Floats
from canaria._core.errors import InputError, shown
from canaria.mechanisms._protocol import OneRound, Output
from canaria.mechanisms.participation import Participation
from canaria.mechanisms.strategies import Strategy


@dataclass(frozen=True, eq=False)
class Correlated(OneRound):
    """Training with correlated noise; each canary has a coordinate to itself.

    Attributes:
        strategy: The matrix C; some laws of participation allow only so many bands.
        participation: The steps in which rows take part: `InOrder`, `BallsInBins`, `CyclicPoisson` or
            `MinSeparation`.
        noise_multiplier: The noise over the sensitivity, positive and finite.

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
        checks.positive("noise_multiplier", self.noise_multiplier)
        if not isinstance(self.strategy, Strategy):
            raise InputError(f"strategy must be a Strategy, got {shown(self.strategy)}")
        if not isinstance(self.participation, Participation):
            raise InputError(
                "participation must be InOrder, BallsInBins, CyclicPoisson or MinSeparation, got "
                f"{shown(self.participation)}"
            )
        # A law refuses strategies with too many bands when it is asked for a likelihood ratio.
        self.participation.log_ratio(self.strategy, np.zeros((self.strategy.steps, 1)), 1.0)

    @property
    def deviation(self) -> float:
        """The standard deviation s of the noise before it is correlated."""
        return self.noise_multiplier * self.participation.sensitivity(self.strategy)

    def claimed(self, delta: float) -> float:
        """The epsilon that an accountant gives at this delta; infinite if there is none."""
        return self.participation.epsilon(self.strategy, self.noise_multiplier, delta)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The loss of every element, (trials, n): the output says nothing more about the bits."""
        return np.stack([self.losses(self.release(hidden, rng)) for hidden in bits])

    def release(self, bits: Bits, rng: np.random.Generator) -> Floats:
        """The releases of one training run at the coordinates of canaries with these bits, (steps, n)."""
        taking = self.participation.draw(self.strategy.steps, len(bits), rng) & (bits > 0)
        noise = rng.normal(scale=self.deviation, size=taking.shape)
        return taking + self.strategy.correlate(noise)

    def losses(self, released: npt.ArrayLike) -> Floats:
        """The loss of canaries, from the releases at their coordinates, (steps, n)."""
        values = np.asarray(released, dtype=np.float64)
        if values.ndim != 2 or len(values) != self.strategy.steps:
            raise InputError(f"released must have {self.strategy.steps} rows, one a step, got {values.shape}")
        return self.participation.log_ratio(self.strategy, self.strategy.statistic(values), self.deviation)

    def loss(self, output: Output, known: Bits) -> Floats:
        """The losses; coordinates are independent, so revealed bits say nothing about the others."""
        return np.where(known == 0, output, 0.0)
