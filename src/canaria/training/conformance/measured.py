"""The measured size of the noise: a confidence interval, and an e-value that is valid in every step.

A value that is pure noise, divided by the stated noise, is N(0, r^2), and r = 1 if the noise is as stated.
The sum of squares S of N such values is a sufficient statistic:

    interval    S / r^2 is chi-squared with N degrees of freedom, so r lies between two of its quantiles
                (Theorem 31). It is valid for one look, after training.
    e-value     The likelihood of the values, averaged over other sizes, divided by the likelihood at r. Its
                mean is 1 if r is true, whenever training is stopped (Theorem 32), so the probability that it
                ever exceeds 1 / alpha is at most alpha.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from scipy import optimize, special

from canaria.training.canaries.designs import Dirac

if TYPE_CHECKING:
    from canaria.training.recording import Recording

_PRIOR: Final = 2.0
"""Shape of the gamma prior, with mean 1, for the other precisions relative to the one that is tested."""


@dataclass(frozen=True)
class Squares:
    """The squares of values that are pure noise, in units of the stated noise."""

    total: float
    count: int

    def plus(self, other: "Squares") -> "Squares":
        """The squares of both sets of values together."""
        return Squares(self.total + other.total, self.count + other.count)

    def interval(self, confidence: float) -> tuple[float, float]:
        """A confidence interval for the noise, as multiples of the stated noise, valid for one look.

        Example:
            >>> low, high = Squares(total=10_000.0, count=10_000).interval(0.95)
            >>> round(low, 3), round(high, 3)
            (0.986, 1.014)
        """
        tail = (1 - confidence) / 2
        most, least = (float(special.chdtri(self.count, p)) for p in (tail, 1 - tail))
        # S / r^2 lies between its quantiles `least` and `most` exactly if r lies between these roots.
        return math.sqrt(self.total / most), math.sqrt(self.total / least)

    def log_e_value(self, ratio: float = 1.0) -> float:
        """The logarithm of the e-value against noise that is `ratio` times the stated noise.

        E_t(r) of Theorem 32: the likelihood ratio, averaged over a Gamma(a, a) law of the precision:
        e^(s/2) a^a Gamma(a + N/2) / (Gamma(a) (a + s/2)^(a + N/2)), s = S / r^2.
        """
        half, shape = self.total / ratio**2 / 2, _PRIOR + self.count / 2
        growth = float(special.gammaln(shape)) - shape * math.log(_PRIOR + half) + half
        return growth + _PRIOR * math.log(_PRIOR) - float(special.gammaln(_PRIOR))

    def running_interval(self, alpha: float) -> tuple[float, float]:
        """The multiples of the stated noise with e-values below 1 / alpha.

        With probability at least 1 - alpha, this contains the true multiple in all steps at once.
        """
        if self.count == 0:
            return 0.0, math.inf
        if self.total == 0:
            return 0.0, 0.0

        def excess(ratio: float) -> float:
            return self.log_e_value(ratio) + math.log(alpha)

        middle = math.sqrt(self.total / self.count)
        return _crossing(excess, middle, 0.5), _crossing(excess, middle, 2.0)


def squares_of(run: "Recording") -> Squares:
    """The squares of all values that are pure noise: at witnesses, and at coordinates without a canary."""
    found = Squares(0.0, 0)
    stated = run.noise_multiplier
    if run.witnessed is not None:
        places = len(run.witnessed.by_place)
        found = Squares(float(run.witnessed.by_step.sum()), places * run.steps)
    if isinstance(run.design, Dirac):
        # Where no canary is included, the sum of all steps is noise and nothing else: one value, with the
        # variance of all steps together.
        unit = stated / run.canary_norm * run.sampling.noise_of_sums(run.steps)
        empty = run.sums[run.included_by_coordinate() == 0] / (unit * math.sqrt(run.steps))
        found = found.plus(Squares(float(empty @ empty), len(empty)))
    return found


def _crossing(excess: Callable[[float], float], middle: float, factor: float) -> float:
    """The point above or below `middle`, by `factor`, where a function that is negative there reaches 0."""
    far = middle * factor
    # Of few values, the e-value may stay below 1 / alpha however large the noise is. Then there is no end.
    while excess(far) < 0:
        far *= factor
        if not 1e-12 < far < 1e12:
            return 0.0 if factor < 1 else math.inf
    return float(optimize.brentq(excess, min(far, middle), max(far, middle)))
