"""The size of the noise, measured: an interval for it, and an e-value that may be looked at in every step.

A value that is noise and nothing else, over the stated noise, is N(0, r^2), where r = 1 if the noise is what
was stated. All that is needed of N such values is the sum of their squares, S:

    interval   S / r^2 is chi-squared with N degrees of freedom, so r lies between two of its quantiles
               (Theorem 31). It is meant to be looked at once, when training is done.
    e-value    The likelihood of the values, on average over other sizes, against the likelihood at r. Its
               mean is 1 if r is true, at any time at which training may be stopped (Theorem 32), so it is
               above 1 / alpha, ever, with a probability of at most alpha.
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
"""The other precisions, relative to the one that is tested, have a gamma law with mean 1 and this shape."""


@dataclass(frozen=True)
class Squares:
    """The squares of values that are noise and nothing else, in units of the stated noise.

    Attributes:
        total: Their sum.
        count: Their number.

    """

    total: float
    count: int

    def plus(self, other: "Squares") -> "Squares":
        """Those of both."""
        return Squares(self.total + other.total, self.count + other.count)

    def interval(self, confidence: float) -> tuple[float, float]:
        """Between which multiples of the stated noise the noise lies, with this confidence, at one look.

        Example:
            >>> low, high = Squares(total=10_000.0, count=10_000).interval(0.95)
            >>> round(low, 3), round(high, 3)
            (0.986, 1.014)

        """
        tail = (1 - confidence) / 2
        most, least = (float(special.chdtri(self.count, p)) for p in (tail, 1 - tail))
        return math.sqrt(self.total / most), math.sqrt(self.total / least)

    def log_e_value(self, ratio: float = 1.0) -> float:
        """The logarithm of the e-value against noise of this multiple of the stated one.

        E_t(r) of Theorem 32, the mean likelihood ratio over a gamma law of shape and rate a of the precision:
        e^(s/2) a^a Gamma(a + N/2) / (Gamma(a) (a + s/2)^(a + N/2)), s = S / r^2.
        """
        half, shape = self.total / ratio**2 / 2, _PRIOR + self.count / 2
        growth = float(special.gammaln(shape)) - shape * math.log(_PRIOR + half) + half
        return growth + _PRIOR * math.log(_PRIOR) - float(special.gammaln(_PRIOR))

    def running_interval(self, alpha: float) -> tuple[float, float]:
        """The multiples of the stated noise with e-values below 1 / alpha.

        Over all steps together, the true one is outside with a probability of at most alpha.
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
    """All values that are noise and nothing else: of witnesses, and of coordinates without a canary."""
    found = Squares(0.0, 0)
    stated = run.noise_multiplier
    if run.witnessed is not None:
        places = len(run.witnessed.by_place)
        found = Squares(float(run.witnessed.by_step.sum()), places * run.steps)
    if isinstance(run.design, Dirac):
        unit = stated / run.canary_norm * run.sampling.noise_of_sums(run.steps)
        empty = run.sums[run.included_by_coordinate() == 0] / (unit * math.sqrt(run.steps))
        found = found.plus(Squares(float(empty @ empty), len(empty)))
    return found


def _crossing(excess: Callable[[float], float], middle: float, factor: float) -> float:
    """Where a function that is below 0 in the middle comes above 0, downwards or upwards."""
    far = middle * factor
    while excess(far) < 0:
        far *= factor
        if not 1e-12 < far < 1e12:
            return 0.0 if factor < 1 else math.inf
    return float(optimize.brentq(excess, min(far, middle), max(far, middle)))
