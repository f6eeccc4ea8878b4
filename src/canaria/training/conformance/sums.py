"""The conformance test: it compares the sums with the law of a correct DP-SGD.

A lower bound refutes a claim only when the fault is large. In a correct implementation, however, the law of
the observations given the bits is known. On a coordinate with m included canaries, the sum of all steps is
Binomial(T m, q) + N(0, T sigma^2) in units of the clip norm, independently over coordinates. Each sum is
mapped to a standard normal z by its own distribution function, so z is a vector of independent N(0, 1) if the
code is correct. It is split into independent parts, each with an exact p-value:

    offset   along (1, ..., 1): something was added everywhere;
    weight   along the number of included canaries: their weight is not 1;
        layers   the rest of these directions within each parameter: the weight differs between parameters;
    noise    the remainder, chi-squared within each parameter: the noise is larger or smaller than stated.

The smallest p-value over parameters is corrected for the number of parameters (Sidak). The parts from
witnesses, which show the noise of each step without canaries, are in `noise`. `draws` tests the sampler.

The p-value of the test is the smallest p-value of all parts, corrected for their number. Correct code gets a
small p-value at most as often as it states. This assumes the Gaussian mechanism, and Poisson sampling unless
another sampling is stated. It is never a bound on epsilon.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import linalg, special

from canaria._core import checks
from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.errors import InputError
from canaria.bounds.conformance import LEAKS, OPEN, SAFE, Cause, Conformance, Part, joined
from canaria.training.canaries.sampling import POISSON, Chances, Schedule, Trials
from canaria.training.conformance import laws
from canaria.training.conformance.names import named

FEWEST: Final = 4
"""With fewer coordinates, there is nothing to test."""
_SMALLEST: Final = 1e-300
"""The smallest p-value that is reported."""
_FEWEST_DRAWS: Final = 5
"""Dense canaries must take part at least this often in expectation to treat their sum as normal."""
_MOST_SPREAD: Final = 0.15
"""Dense canaries may add at most this share to the variance of the squares."""


class Rounding(NamedTuple):
    """The effect of half-precision rounding on the sum of all steps at each coordinate (Theorem 34).

    Attributes:
        shift: The rounding error made when canaries were added.
        variance: The variance that rounding added when the noise was added and afterwards.
    """

    shift: Floats
    variance: Floats

    @classmethod
    def none(cls, coordinates: int) -> "Rounding":
        """No rounding, as in precise sums."""
        return cls(np.zeros(coordinates), np.zeros(coordinates))


@dataclass(frozen=True, kw_only=True)
class Stated:
    """What the sums are compared with, and what is tested besides.

    Attributes:
        steps: The number of steps.
        sample_rate: The sampling rate.
        noise_multiplier: The noise multiplier.
        layers: The number of coordinates in each parameter, in order.
        names: The names of the parameters in `layers`.
        besides: The parts that do not depend on the sums, from witnesses and draws.
        rounding: The effect of rounding on the sums; None if they are precise.
    """

    steps: int
    sample_rate: float
    noise_multiplier: float
    layers: tuple[int, ...] = ()
    names: Sequence[str] = ()
    besides: dict[str, Part] = field(default_factory=dict)
    rounding: Rounding | None = None

    def __post_init__(self) -> None:
        checks.sample_rate(self.sample_rate)
        checks.positive("noise_multiplier", self.noise_multiplier)

    def seen(self, sums: npt.ArrayLike) -> tuple[Floats, Floats]:
        """The sums without the known part of their rounding, and the variance that rounding adds."""
        seen = checks.vector("sums", sums)
        if len(seen) < FEWEST:
            raise InputError(f"conformance needs canaries on at least {FEWEST} coordinates, got {len(seen)}")
        shift, variance = self.rounding or Rounding.none(len(seen))
        return seen - shift, variance


def of_dirac(
    sums: npt.ArrayLike, included: Integers, stated: Stated, sampling: Schedule = POISSON
) -> Conformance:
    """The conformance test for Dirac canaries; its p-value is exact.

    `sums` are those of all steps on each coordinate, in units of the clip norm, and `included` counts the
    included canaries there.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> m = rng.integers(0, 2, 1000)
        >>> halved = rng.binomial(100 * m, 0.1) + rng.normal(scale=10 * 1.2, size=1000)
        >>> stated = Stated(steps=100, sample_rate=0.1, noise_multiplier=2.4)
        >>> of_dirac(halved, m, stated).p_value < 1e-6
        True
    """
    (seen, rounded), steps, rate = stated.seen(sums), stated.steps, stated.sample_rate
    scale = np.sqrt(steps * stated.noise_multiplier**2 + rounded)
    # z = Phi^-1(F_m(Y)), Theorem 26 (a): coordinates with the same number of included canaries share F_m.
    normal = np.empty(len(seen))
    for m in np.unique(included):
        where = included == m
        taking = sampling.participations(int(m), steps, rate)
        normal[where] = _normal_scores(seen[where], taking, scale[where])
    directions = {"offset": np.ones(len(seen)), "weight": included.astype(np.float64)}
    one = sampling.participations(1, steps, rate)
    often, spread = sum(part.mean for part in one), sum(part.variance for part in one)
    # The estimated noise, for the reader only: the variance of the sums around the fitted canaries, less the
    # part from the draws of the canaries and from rounding. No p-value depends on it.
    slope = _slope(included, often, seen)
    left = seen - often * included * slope
    variance = np.mean((left - left.mean()) ** 2 - spread * included * slope**2 - rounded)
    shown = math.sqrt(max(variance, 0.0) / steps)
    return _joined(normal, directions, stated, noise=shown, weight=slope)


def of_dense(sums: npt.ArrayLike, gradients: Floats, included: Hits, stated: Stated) -> Conformance:
    """The conformance test for dense canaries: the sums are whitened by their covariance given the bits.

    The p-value is exact except that the binomial participations, a small part of each sum, are treated as
    normal.
    """
    (seen, rounded), steps, rate = stated.seen(sums), stated.steps, stated.sample_rate
    if not enough_draws(stated.layers or (len(seen),), included, steps, rate, stated.noise_multiplier):
        raise InputError(
            f"conformance needs dense canaries to take part at least {_FEWEST_DRAWS} times in expectation, "
            "and more often where there is little noise; train for more steps, or use more canaries"
        )
    active = gradients[included]
    weight = active.sum(axis=0)
    expected = steps * rate * weight
    part = steps * rate * (1 - rate)
    covariance = part * active.T @ active
    covariance[np.diag_indices_from(covariance)] += steps * stated.noise_multiplier**2 + rounded
    # The direction in which a wrong weight would move the sums is whitened in the same way.
    factor = linalg.cholesky(covariance, lower=True, check_finite=False)
    normal, along = linalg.solve_triangular(factor, np.column_stack([seen - expected, weight]), lower=True).T
    slope = 1 + float(along @ normal) / max(float(along @ along), 1e-300) / (steps * rate)
    left = seen - slope * expected
    variance = np.mean(left**2 - rounded) - part * float(np.sum(active**2)) / len(seen)
    shown = math.sqrt(max(variance, 0.0) / steps)
    return _joined(normal, {"weight": along}, stated, noise=shown, weight=slope)


def enough_draws(
    layers: tuple[int, ...], included: Hits, steps: int, sample_rate: float, noise_multiplier: float
) -> bool:
    """Whether the participations of dense canaries may be treated as normal.

    They must be frequent enough. Their fourth cumulants must add little to the variance of the squares, even
    if all fall into the smallest tested parameter: along its own gradient, a canary has at least the variance
    of its draws and of the noise (Theorem 26).
    """
    coordinates = min((share for share in layers if share > 1), default=1)
    number, once = int(np.sum(included)), sample_rate * (1 - sample_rate)
    cumulant = steps * once * abs(1 - 6 * once)
    variance = steps * (once + noise_multiplier**2)
    spread = number * cumulant / (2 * coordinates * variance**2)
    return bool(steps * sample_rate * number >= _FEWEST_DRAWS and spread <= _MOST_SPREAD)


def _slope(included: Integers, often: float, seen: Floats) -> float:
    """The least-squares weight of an included canary over its expectation; 1 if it cannot be estimated."""
    centred = included - included.mean()
    total = often * float(centred @ centred)
    return float(centred @ seen) / total if total > 0 else 1.0


def _normal_scores(values: Floats, taking: Sequence[Trials | Chances], scale: Floats) -> Floats:
    """Z with Phi(z) = F(value), where F is the law of participations + N(0, scale^2); exact in far tails."""
    # The law of the number of participations, in logarithms: the parts are convolved one at a time.
    counts, weights = np.zeros(1, dtype=np.int64), np.zeros(1)
    for part in taking:
        more, chances = part.law()
        both = (counts[:, None] + more).ravel()
        joint = (weights[:, None] + chances).ravel()
        counts = np.arange(both.min(), both.max() + 1)
        weights = np.full(len(counts), -np.inf)
        np.logaddexp.at(weights, both - counts[0], joint)
    standard = (values[:, None] - counts) / scale[:, None]
    below = special.logsumexp(weights + special.log_ndtr(standard), axis=1)
    above = special.logsumexp(weights + special.log_ndtr(-standard), axis=1)
    # Compute both tails in logarithms and invert the smaller one: 1 - F loses all digits far out.
    lower = below < above
    return np.where(
        lower, special.ndtri_exp(np.minimum(below, -1e-16)), -special.ndtri_exp(np.minimum(above, -1e-16))
    )


def _within_layers(
    normal: Floats, columns: Sequence[Floats], layers: tuple[int, ...]
) -> tuple[Floats, Integers, float, int]:
    """The squares of z outside the U_l, by parameter, with degrees of freedom; then those inside all U_l."""
    bounds = np.cumsum([0, *layers]) if layers else np.array([0, len(normal)])
    rests, freedoms, inside, inner = [], [], 0.0, 0
    for first, last in pairwise(bounds):
        local = _orthonormal([column[first:last] for column in columns])
        part, shared = normal[first:last], local.T @ normal[first:last]
        rests.append(max(float(part @ part - shared @ shared), 0.0))
        freedoms.append(len(part) - local.shape[1])
        inside, inner = inside + float(shared @ shared), inner + local.shape[1]
    return np.array(rests), np.array(freedoms), inside, inner


def _joined(
    normal: Floats, directions: dict[str, Floats], stated: Stated, *, noise: float, weight: float
) -> Conformance:
    """Split z into independent parts along the directions and within layers, and add those of witnesses.

    Theorem 26 (b). U is spanned by the directions, U_l by the same vectors cut to parameter l, and U lies in
    the sum of the U_l. So z splits into orthogonal pieces, which are independent: its coordinates along U,
    what lies in the U_l but not in U ("layers"), and the rest within each parameter ("noise"). `noise` and
    `weight` are what the sums show.
    """
    columns = list(directions.values())
    along = _orthonormal(columns).T @ normal
    causes = {
        "offset": ("the same is added to every weight", OPEN),
        "weight": (
            f"an included canary weighs {weight:.3g} times what it should",
            LEAKS if weight > 1 else SAFE,
        ),
    }
    parts = {
        name: Part(laws.normal(value), *causes[name]) for name, value in zip(directions, along, strict=False)
    }
    rests, freedoms, inside, inner = _within_layers(normal, columns, stated.layers)
    if inner > len(along):
        apart = float(special.chdtrc(inner - len(along), max(inside - float(along @ along), 0.0)))
        parts["layers"] = Part(apart, "the weight of canaries differs between parameters")
    p_value, worst = _smallest(rests, freedoms)
    varies = math.sqrt(rests[worst] / max(freedoms[worst], 1))
    where = f" of {named(worst, stated.names)}" if len(rests) > 1 else ""
    text = f"the sums{where} vary {varies:.3g} times as much as the stated noise makes them"
    parts["noise"] = Part(p_value, text, LEAKS if varies < 1 else OPEN)
    parts |= stated.besides
    p_values = {name: max(part.p_value, _SMALLEST) for name, part in parts.items()}
    return Conformance(
        p_value=joined(p_values),
        noise=noise,
        stated_noise=stated.noise_multiplier,
        weight=weight,
        parts=p_values,
        causes={
            name: Cause(text=part.cause, effect=part.effect, unbounded=part.missing)
            for name, part in parts.items()
        },
    )


def _orthonormal(columns: list[Floats]) -> Floats:
    """An orthonormal basis of the columns, in order; linearly dependent columns are dropped."""
    basis = np.empty((len(columns[0]), 0))
    for column in columns:
        left = column - basis @ (basis.T @ column)
        size = float(np.linalg.norm(left))
        if size > 1e-9 * max(float(np.linalg.norm(column)), 1.0):
            basis = np.column_stack([basis, left / size])
    return basis


def _smallest(values: Floats, freedoms: Integers) -> tuple[float, int]:
    """The smallest two-sided p-value of independent chi-squared values (Sidak-corrected), and its index."""
    real = np.flatnonzero(freedoms > 0)
    if len(real) == 0:
        return 1.0, 0
    p_value, least = laws.smallest([laws.chi_squared(values[one], freedoms[one]) for one in real])
    return p_value, int(real[least])
