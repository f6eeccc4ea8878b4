"""Training with correlated noise: how its readings become scores, and what correct ones look like.

At a canary's weight step t shows y_t, the noisy sum less the part of the real rows, in clip norms. The loss
follows from all of them (Theorem 35). Their plain sum is the number of steps in which the canary takes part,
if it is included, with noise N(0, s^2 |C'^-1 1|^2); conformance is held against that. Witnesses are whitened
step by step, so their values are independent N(0, s^2), as in DP-SGD.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria.claims.families import Family, gaussian
from canaria.mechanisms.correlated import Correlated
from canaria.mechanisms.participation import InOrder
from canaria.training.accumulator import CLEAR, LEAST_NOISE
from canaria.training.sampling import Sampling, Trials
from canaria.training.witnesses import Seen

KIND: Final = "correlated"
_NO_LAW: Final = "not tested (no simple law says how often rows take part that keep a distance)"


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlation(Sampling):
    """How rows take part, and how the noise of steps depends on that of the steps before.

    Attributes:
        mechanism: The strategy, the law of participation and the noise multiplier.

    Raises:
        InputError: If there is no noise.

    Example:
        >>> from canaria.mechanisms import Correlated, CyclicPoisson, Strategy
        >>> from canaria.training.correlated import Correlation
        >>> bands = Strategy.toeplitz([1.0, 0.5], steps=8)
        >>> Correlation(mechanism=Correlated(bands, CyclicPoisson(2, 0.5), noise_multiplier=1.0)).words
        'correlated noise, 2 bands, cyclic Poisson sampling 2 x 0.5'

    """

    mechanism: Correlated
    kind: str = field(default=KIND, init=False)

    def __post_init__(self) -> None:
        if self.mechanism.noise_multiplier < LEAST_NOISE:
            noise = shown(self.mechanism.noise_multiplier)
            raise InputError(
                f"correlated noise must be at least {LEAST_NOISE} of the sensitivity, got {noise}"
            )

    @property
    def is_poisson(self) -> bool:
        return False

    @property
    def caveat(self) -> str:
        return "an excluded canary is drawn, and contributes 0"

    @property
    def words(self) -> str:
        law = self.mechanism.participation.words
        return f"correlated noise, {self.mechanism.strategy.bands} bands, {law}"

    @property
    def steps(self) -> int:
        """How many steps are stated."""
        return self.mechanism.strategy.steps

    @property
    def sample_rate(self) -> float:
        """The share of the steps in which a row takes part."""
        return self.mechanism.participation.share

    @property
    def excuse(self) -> str:
        """Why conformance cannot be tested; empty if it can."""
        return "" if self.mechanism.participation.times(self.steps) else _NO_LAW

    @property
    def family(self) -> Family | None:
        """The claims that are exactly about such mechanisms, where the loss is Gaussian; else None."""
        return gaussian() if isinstance(self.mechanism.participation, InOrder) else None

    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[Trials, ...]:
        coins = self.mechanism.participation.times(steps)
        return tuple(Trials(rows * number, rate) for number, rate in coins)

    def noise_of_sums(self, steps: int) -> float:
        sensitivity = self.mechanism.deviation / self.mechanism.noise_multiplier
        return sensitivity * self.mechanism.strategy.first(steps).spread_of_sums / math.sqrt(steps)

    def first(self, steps: int) -> "Correlation":
        """Of the first steps alone: the same noise, over the sensitivity of these."""
        strategy, law = self.mechanism.strategy.first(steps), self.mechanism.participation
        noise = self.mechanism.deviation / law.sensitivity(strategy)
        return Correlation(mechanism=Correlated(strategy, law, noise))

    def at_worst(self) -> "Correlation":
        """The same for canaries whose steps are ours to choose."""
        strategy, law = self.mechanism.strategy, self.mechanism.participation
        return Correlation(
            mechanism=Correlated(strategy, law.worst(strategy), self.mechanism.noise_multiplier)
        )

    def table(self, seen: Floats, witnessed: Seen | None = None) -> Floats:
        """The likelihood table of a `Recording`, from what canaries' weights show, (steps, canaries).

        Where witnesses contradict the stated noise by five standard errors, what they show is believed, so
        that a fault does not blunt the audit. The bits are not looked at, so bounds hold either way.
        """
        law, strategy = self.mechanism.participation, self.mechanism.strategy
        deviation = self.mechanism.deviation * _believed(witnessed)
        ratios = law.log_ratio(strategy, strategy.statistic(seen), deviation)
        return np.stack([np.zeros_like(ratios), ratios], axis=1)


def _believed(witnessed: Seen | None) -> float:
    """How many times the stated noise there is, by witnesses."""
    count = 0 if witnessed is None else len(witnessed.by_place) * witnessed.steps
    if witnessed is None or count == 0:
        return 1.0
    square = float(witnessed.by_step.sum()) / count
    if abs(square - 1) <= CLEAR * math.sqrt(2 / count):
        return 1.0
    return math.sqrt(max(square, 1 / 400))
