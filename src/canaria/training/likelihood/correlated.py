"""Training with correlated noise: scores of canaries, and the law of a correct training.

At the weight of a canary, step t gives y_t, the noisy sum less the part of the real rows, in clip norms. The
score is the likelihood ratio of all of them (Theorem 35). Their plain sum is the number of steps in which the
canary takes part, if it is included, plus noise N(0, s^2 |C'^-1 1|^2). Conformance tests this law, and tests
the scores of included canaries to see whether they took part when they should. Witnesses are whitened step by
step, so their values are independent N(0, s^2), as in DP-SGD.
"""

import math
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import stats

from canaria._core import checks
from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown
from canaria.bounds.conformance import Part
from canaria.claims.families import Family, Gaussian
from canaria.mechanisms.correlated import Correlated
from canaria.mechanisms.participation import InOrder
from canaria.training.canaries.sampling import Chances, Schedule
from canaria.training.canaries.witnesses import Roles, Seen
from canaria.training.conformance.laws import normal
from canaria.training.likelihood.accumulator import CLEAR, LEAST_NOISE

KIND: Final = "correlated"
_WHEN: Final = "canaries do not take part in the stated steps"
_FOR_EACH, _FEWEST, _MOST, _LARGEST = 20, 1000, 20_000, 2**22
"""To estimate the law of losses, this many canaries are drawn per included canary: between the second and
third number, and fewer if the drawn values would exceed the last."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Correlation(Schedule):
    """The way rows take part, and the correlation of the noise between steps.

    Attributes:
        mechanism: The strategy, the law of participation and the noise multiplier, which must not be 0.
        planned: The stated number of steps, if `mechanism` covers only the first of them.

    Example:
        >>> from canaria.mechanisms import Correlated, CyclicPoisson, Strategy
        >>> from canaria.training.likelihood.correlated import Correlation
        >>> bands = Strategy.toeplitz([1.0, 0.5], steps=8)
        >>> Correlation(mechanism=Correlated(bands, CyclicPoisson(2, 0.5), noise_multiplier=1.0)).words
        'correlated noise, 2 bands, cyclic Poisson sampling 2 x 0.5'
    """

    mechanism: Correlated
    planned: int | None = None
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
        law, bands = self.mechanism.participation.words, self.mechanism.strategy.bands
        stopped = "" if self.planned is None else f", stopped before the last of {self.planned} steps"
        return f"correlated noise, {bands} bands, {law}{stopped}"

    @property
    def steps(self) -> int:
        """The stated number of steps."""
        return self.mechanism.strategy.steps

    @property
    def sample_rate(self) -> float:
        """The share of the steps in which a row takes part."""
        return self.mechanism.participation.share

    @property
    def noise_words(self) -> str:
        return "as stated" if self.planned is None else "the stated noise over the sensitivity of these steps"

    @property
    def reached(self) -> float:
        """1, or less if steps are known and C has negative entries: only then is the sensitivity a bound."""
        law, strategy = self.mechanism.participation, self.mechanism.strategy
        return law.reached(strategy) / law.sensitivity(strategy) if isinstance(law, InOrder) else 1.0

    def family(self, steps: int, sample_rate: float) -> Family | None:
        """Gaussian noise, if the steps of a row are known; else None."""
        return Gaussian() if isinstance(self.mechanism.participation, InOrder) else None

    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[Chances, ...]:
        return rows * (Chances(self.mechanism.participation.chances(steps)),)

    def levelled(self, sums: Floats, included: Hits, steps: int) -> Floats:
        """In an unfinished epoch with rows in order, some rows had one step less; add the difference."""
        law = self.mechanism.participation
        if not isinstance(law, InOrder):
            return sums
        return np.asarray(sums + included * (law.most(steps) - law.often(steps, len(sums))))

    def noise_of_sums(self, steps: int) -> float:
        sensitivity = self.mechanism.deviation / self.mechanism.noise_multiplier
        return sensitivity * self.mechanism.strategy.first(steps).spread_of_sums / math.sqrt(steps)

    def first(self, steps: int) -> "Correlation":
        """The same noise over only the first steps, relative to the sensitivity of these steps."""
        strategy, law = self.mechanism.strategy.first(steps), self.mechanism.participation
        # The noise itself stays. Fewer steps have a smaller sensitivity, so it is a larger multiple of that.
        noise = self.mechanism.deviation / law.sensitivity(strategy)
        planned = None if steps == self.steps else self.steps
        return Correlation(mechanism=Correlated(strategy, law, noise), planned=planned)

    def at_worst(self) -> "Correlation":
        """The same with canaries in the steps that leak the most."""
        strategy, law = self.mechanism.strategy, self.mechanism.participation
        return Correlation(
            mechanism=Correlated(strategy, law.worst(strategy), self.mechanism.noise_multiplier)
        )

    def witnessed(self, noise: Floats, totals: Floats, roles: Roles) -> Seen:
        """Observations at witnesses and whole parameters, from their noise in clip norms, (steps, ...)."""
        checks.require_converged(noise, totals)
        strategy, deviation = self.mechanism.strategy, self.mechanism.deviation
        white = [strategy.whiten(values) / deviation for values in (noise, totals)]
        squares = np.square(noise[:, ~roles.shaped]).sum(axis=1)
        return Seen.of(white[0], white[1], roles)._replace(released=self.released(squares))

    def released(self, squares: Floats) -> Floats:
        """Sums of squares of the noise of each step, in clip norms, over the expectation of one square."""
        return np.asarray(squares / (self.mechanism.deviation * self.mechanism.strategy.spread_of_steps) ** 2)

    def require_own(self, steps: int | None, sample_rate: float | None) -> None:
        if (steps, sample_rate) != (None, None):
            raise InputError("with correlated noise, steps and sample rate are those of the strategy")

    def timing(
        self,
        table: Floats | None,
        included: Hits,
        noise_multiplier: float,
        witnessed: Seen | None,
        rng: np.random.Generator,
    ) -> Part:
        """Test whether the losses of included canaries are those of rows that take part as stated.

        With known steps the losses are exactly normal. Otherwise they are compared with the losses of
        simulated canaries (Mann-Whitney test, ties broken at random).
        """
        assert table is not None
        losses, ratio = table[:, 1], noise_multiplier / self.mechanism.noise_multiplier
        law, believed = self.mechanism.participation, _believed(witnessed)
        if not included.any():
            return Part(1.0, _WHEN)
        if isinstance(law, InOrder):
            # With mu = |C u| / s, the loss is N(mu^2 / 2, mu^2) if s is the true noise (Theorem 35). The
            # table was made with `believed` times the stated noise, and `ratio` times it is tested. The
            # spread of the losses is then ratio / believed times mu.
            middle = law.added(self.mechanism.strategy, len(losses)) / 2
            middle /= (self.mechanism.deviation * believed) ** 2
            taking = included & (middle > 0)
            scores = (losses - middle)[taking] / np.sqrt(2 * middle[taking]) * believed / ratio
            p_value = normal(float(scores.sum()) / math.sqrt(max(len(scores), 1)))
        else:
            own = losses[included]
            drawn = self._losses_drawn(_FOR_EACH * len(own), ratio, believed, rng)
            ranks = _ranks(np.concatenate([own, drawn]), rng)
            test = stats.mannwhitneyu(ranks[: len(own)], ranks[len(own) :], method="asymptotic")
            p_value = float(test.pvalue)
        return Part(p_value, _WHEN)

    def _losses_drawn(self, many: int, ratio: float, believed: float, rng: np.random.Generator) -> Floats:
        """Losses of about `many` simulated included canaries, with `ratio` times the stated noise."""
        strategy, law = self.mechanism.strategy, self.mechanism.participation
        # Twenty times as many as included canaries, so that their own scatter adds little to the test.
        count = max(_FEWEST, min(many, _MOST, _LARGEST // self.steps))
        drawn = Correlated(strategy, law, self.mechanism.noise_multiplier * ratio)
        statistic = strategy.statistic(drawn.release(np.ones(count, np.int8), rng))
        return law.log_ratio(strategy, statistic, self.mechanism.deviation * believed)

    def table(self, seen: Floats, witnessed: Seen | None = None) -> Floats:
        """The likelihood table of a `Recording`, from the values at canaries' weights, (steps, canaries).

        If witnesses contradict the stated noise by five standard errors, the observed noise is used, so that
        a fault does not weaken the audit. This does not depend on the bits, so bounds hold either way.
        """
        checks.require_converged(seen)
        law, strategy = self.mechanism.participation, self.mechanism.strategy
        deviation = self.mechanism.deviation * _believed(witnessed)
        ratios = law.log_ratio(strategy, strategy.statistic(seen), deviation)
        return np.stack([np.zeros_like(ratios), ratios], axis=1)


def _believed(witnessed: Seen | None) -> float:
    """The noise at witnesses as a multiple of the stated noise."""
    count = 0 if witnessed is None else len(witnessed.by_place) * witnessed.steps
    if witnessed is None or count == 0:
        return 1.0
    square = float(witnessed.by_step.sum()) / count
    if abs(square - 1) <= CLEAR * math.sqrt(2 / count):
        return 1.0
    return math.sqrt(max(square, 1 / 400))


def _ranks(values: Floats, rng: np.random.Generator) -> Floats:
    """The rank of each value; equal values are ranked in random order.

    With little noise, rows that never take part have equal losses.
    """
    ranks = np.empty(len(values))
    ranks[np.lexsort((rng.random(len(values)), values))] = np.arange(len(values))
    return ranks
