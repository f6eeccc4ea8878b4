"""Does the code do what it says? The law of the canaries' sums under a correct DP-SGD, as a test.

A lower bound refutes a claim only when the fault is large. A correct implementation, though, gives sums
whose law is known once the bits are: on a coordinate with m included canaries, Binomial(T m, q) +
N(0, T sigma^2) in units of the clip norm, independent over coordinates. Each sum is mapped to a standard
normal z by its own distribution function, so z is a vector of independent N(0, 1) if the code is correct,
and is split into independent parts, each with an exact p-value:

    offset   along (1, ..., 1): something was added everywhere;
    weight   along the number of included canaries: they weigh more or less than they should;
    noise    the rest, chi-squared: the noise is larger or smaller than stated.

Fisher's method joins them into one p-value, uniform for correct code. This assumes the Gaussian mechanism
and Poisson sampling; it is never a bound on epsilon.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Final, Protocol

import numpy as np
from scipy import linalg, special, stats

from canaria import _validate
from canaria._validate import Floats, Hits, InputError, Integers, shown

_ALARM: Final = 1e-3
_FEWEST: Final = 4


@dataclass(frozen=True)
class Conformance:
    """What a correct implementation would show, what was seen, and how surprising that is.

    `noise` is the noise multiplier that the sums show, `weight` the mean contribution of an included
    canary relative to what it should be; `parts` are the p-values that `p_value` joins.
    """

    p_value: float
    noise: float
    stated_noise: float
    weight: float
    parts: dict[str, float]

    @property
    def conforms(self) -> bool:
        """Whether nothing is wrong at a false-alarm rate of 1 in 1,000."""
        return self.p_value >= _ALARM

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return {**asdict(self), "conforms": self.conforms}

    def __str__(self) -> str:
        """One sentence."""
        verdict = "as a correct implementation would show" if self.conforms else "NOT what was stated"
        return (
            f"noise {self.noise:.3g} where {self.stated_noise:.3g} was stated, canaries weigh "
            f"{self.weight:.2f} of what they should; p = {self.p_value:.2g}: {verdict}"
        )


class Audited(Protocol):
    """Any audit of a training run: an attached one, or its `Recording`."""

    def conformance(
        self, noise_multiplier: float | None, sample_rate: float | None, steps: int | None
    ) -> Conformance: ...


def conformance(
    audit: "Audited",
    noise_multiplier: float | None = None,
    sample_rate: float | None = None,
    steps: int | None = None,
) -> Conformance:
    """Test an audited training run against the law of a correct one (by default with its stated settings)."""
    return audit.conformance(noise_multiplier, sample_rate, steps)


def of_dirac(
    sums: Any, included: Integers, steps: int, sample_rate: float, noise_multiplier: float
) -> Conformance:
    """For Dirac canaries: `included` holds their number on each coordinate. Exact.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> m = rng.integers(0, 2, 1000)
    >>> halved = rng.binomial(100 * m, 0.1) + rng.normal(scale=10 * 1.2, size=1000)
    >>> of_dirac(halved, m, steps=100, sample_rate=0.1, noise_multiplier=2.4).p_value < 1e-6
    True
    """
    seen = _checked(sums, sample_rate, noise_multiplier)
    scale = math.sqrt(steps) * noise_multiplier
    normal = np.empty(len(seen))
    for m in np.unique(included):
        where = included == m
        normal[where] = _normal_scores(seen[where], steps * int(m), sample_rate, scale)
    directions = {"offset": np.ones(len(seen)), "weight": included.astype(np.float64)}
    expected = steps * sample_rate * included
    slope = _slope(included, seen) / (steps * sample_rate)
    left = seen - expected * slope
    variance = np.mean(
        (left - left.mean()) ** 2 - steps * included * sample_rate * (1 - sample_rate) * slope**2
    )
    return _joined(normal, directions, math.sqrt(max(variance, 0.0) / steps), noise_multiplier, slope)


def of_dense(
    sums: Any,
    gradients: Floats,
    included: Hits,
    steps: int,
    sample_rate: float,
    noise_multiplier: float,
) -> Conformance:
    """For dense canaries: the sums are whitened by their covariance given the bits.

    Exact but for the binomial participations, which are taken as normal: they are a small part of each sum.
    """
    seen = _checked(sums, sample_rate, noise_multiplier)
    active = gradients[included]
    weight = active.sum(axis=0)
    expected = steps * sample_rate * weight
    part = steps * sample_rate * (1 - sample_rate)
    covariance = part * active.T @ active
    covariance[np.diag_indices_from(covariance)] += steps * noise_multiplier**2
    factor = linalg.cholesky(covariance, lower=True, check_finite=False)
    normal, along = linalg.solve_triangular(factor, np.column_stack([seen - expected, weight]), lower=True).T
    slope = 1 + float(along @ normal) / max(float(along @ along), 1e-300) / (steps * sample_rate)
    left = seen - slope * expected
    variance = np.mean(left**2) - part * float(np.sum(active**2)) / len(seen)
    return _joined(normal, {"weight": along}, math.sqrt(max(variance, 0.0) / steps), noise_multiplier, slope)


def _checked(sums: Any, sample_rate: float, noise_multiplier: float) -> Floats:
    seen = _validate.vector("sums", sums)
    if len(seen) < _FEWEST:
        raise InputError(f"conformance needs canaries on at least {_FEWEST} coordinates, got {len(seen)}")
    if not 0 < _validate.real("sample_rate", sample_rate) <= 1:
        raise InputError(f"sample_rate must be above 0 and at most 1, got {shown(sample_rate)}")
    if not 0 < _validate.real("noise_multiplier", noise_multiplier) < math.inf:
        raise InputError(f"noise_multiplier must be positive and finite, got {shown(noise_multiplier)}")
    return seen


def _slope(included: Integers, seen: Floats) -> float:
    """The least-squares weight of one included canary; 1 where it cannot be told."""
    centred = included - included.mean()
    total = float(centred @ centred)
    return float(centred @ seen) / total if total > 0 else 1.0


def _normal_scores(values: Floats, trials: int, rate: float, scale: float) -> Floats:
    """Z with Phi(z) = F(value), F the law of Binomial(trials, rate) + N(0, scale^2); far tails included."""
    reach = 12 * math.sqrt(trials * rate * (1 - rate)) + 12
    low, high = max(0, math.floor(trials * rate - reach)), min(trials, math.ceil(trials * rate + reach))
    counts = np.arange(low, high + 1)
    weights = stats.binom.logpmf(counts, trials, rate)
    standard = (values[:, None] - counts) / scale
    below = special.logsumexp(weights + special.log_ndtr(standard), axis=1)
    above = special.logsumexp(weights + special.log_ndtr(-standard), axis=1)
    lower = below < above
    return np.where(
        lower, special.ndtri_exp(np.minimum(below, -1e-16)), -special.ndtri_exp(np.minimum(above, -1e-16))
    )


def _joined(
    normal: Floats, directions: dict[str, Floats], noise: float, stated: float, weight: float
) -> Conformance:
    """Independent parts of z, along the directions and the rest, and their joint p-value."""
    basis: list[Floats] = []
    parts: dict[str, float] = {}
    for name, direction in directions.items():
        size = float(np.linalg.norm(direction))
        left = direction - sum((float(unit @ direction) * unit for unit in basis), np.zeros_like(direction))
        if np.linalg.norm(left) > 1e-9 * max(size, 1.0):
            basis.append(left / np.linalg.norm(left))
            parts[name] = float(2 * stats.norm.sf(abs(float(basis[-1] @ normal))))
    along = sum(float(unit @ normal) ** 2 for unit in basis)
    rest, freedom = max(float(normal @ normal) - along, 0.0), len(normal) - len(basis)
    parts["noise"] = float(2 * min(stats.chi2.cdf(rest, freedom), stats.chi2.sf(rest, freedom)))
    logs = -2 * sum(math.log(max(p, 1e-300)) for p in parts.values())
    return Conformance(float(stats.chi2.sf(logs, 2 * len(parts))), noise, stated, weight, parts)
