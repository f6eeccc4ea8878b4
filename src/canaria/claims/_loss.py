"""Privacy loss distributions of dp-accounting, with the two directions apart.

dp-accounting is imported when a function is called. All distributions are pessimistic: their deltas are upper
bounds, so that a claim comes out weaker, never stronger.
"""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np

from canaria._core import effort
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.claims.base import Claim, Profile, Signs
from canaria.claims.lines import Lines

INTERVAL: Final = 1e-3
"""Losses are rounded to multiples of this. 1e-4 would lower deltas by up to 0.2%, in ten times the time."""
_MOST_STEPS: Final = 300_000
_LONGEST: Final = 60.0
"""Seconds of an ordinary core that a curve may take."""
_PER_CELL, _PER_COMPOSED_CELL = 1.3e-5, 3e-6
"""Seconds for a cell of one step, and of the composition."""
_PER_STEP: Final = 1e-2
"""Seconds for a distribution of few cells."""
_PER_OUTCOME, _PER_JOINED_CELL, _PER_READ_CELL = 7e-6, 5e-7, 5e-8
"""Seconds for a line that becomes an outcome, and for a cell that is convolved, or summed for a profile."""
_OVER_ALL_STEPS: Final = 0.05
"""The standard deviation of the sum of all roundings: with many steps each loss is rounded less."""
FFT_NOISE: Final = 1e-11
"""Added to every delta: transforms leave up to 2e-11 where there is nothing (docs/proofs.md, Rounding 11)."""
NEGLIGIBLE: Final = 1e-10
SMALLEST_DELTA: Final = 1e-9
"""Below it, the epsilon of a distribution depends more on the error of transforms than on the mechanism."""


def profile(distribution: Any, epsilons: Floats) -> Profile:
    """The deltas of a distribution in both directions, rounded up."""
    effort.spend(effort.CALL + _PER_READ_CELL * _cells(distribution))
    return Profile(*(_deltas(side, epsilons) for side in (distribution._pmf_remove, distribution._pmf_add)))


def _deltas(side: Any, epsilons: Floats) -> Floats:
    """Pr[infinite loss] + sum over losses l > epsilon of Pr[l] (1 - e^(epsilon - l)), summed from the end."""
    # As sums from the end, all epsilons cost one pass: with H = sum Pr[l] and L = sum Pr[l] e^-l over the
    # losses above epsilon, delta is Pr[infinite loss] + H - e^epsilon L.
    dense = side.to_dense_pmf()
    losses = (np.arange(dense.size) + dense._lower_loss) * dense._discretization
    heavier, lighter = (
        np.append(np.cumsum(masses[::-1])[::-1], 0.0)
        for masses in (dense._probs, dense._probs * np.exp(-losses))
    )
    first = np.searchsorted(losses, epsilons, side="right")
    deltas = dense._infinity_mass + heavier[first] - np.exp(epsilons) * lighter[first]
    return np.asarray(np.clip(deltas + FFT_NOISE, 0.0, 1.0))


def reach(distribution: Any) -> float:
    """The epsilon from which on deltas are negligible."""
    return float(distribution.get_epsilon_for_delta(NEGLIGIBLE))


def interval_for(steps: int) -> float:
    """The interval for a number of steps: roundings of single steps add up like a random walk."""
    return min(INTERVAL, _OVER_ALL_STEPS / math.sqrt(steps))


@lru_cache(maxsize=16)
def of_dpsgd(noise_multiplier: float, sample_rate: float, steps: int, interval: float = INTERVAL) -> Any:
    """The distribution of all steps of subsampled Gaussian noise."""
    from dp_accounting.pld import privacy_loss_distribution

    needed = seconds(noise_multiplier, sample_rate, steps, interval)
    if steps > _MOST_STEPS or needed > _LONGEST:
        raise InputError(
            f"the curve of DP-SGD with noise multiplier {noise_multiplier:g}, rate {sample_rate:g} and "
            f"{steps:,} steps takes too long to compute: at most {_MOST_STEPS:,} steps, or more noise"
        )
    effort.spend(_PER_STEP + needed)
    step = privacy_loss_distribution.from_gaussian_mechanism(
        noise_multiplier, sampling_prob=sample_rate, value_discretization_interval=interval
    )
    return step.self_compose(steps)


def seconds(noise: float, rate: float, steps: int, interval: float) -> float:
    """The seconds that a distribution takes, by the cells of one step and of the composition."""
    one = (0.5 / noise**2 + 8 / noise) / interval
    mean = steps * min(rate**2 * math.expm1(min(1 / noise**2, 50.0)) / 2, rate / (2 * noise**2))
    return _PER_CELL * one + _PER_COMPOSED_CELL * (mean + 8 * math.sqrt(2 * mean)) / interval


def of_claim(claim: Claim) -> Any:
    """A distribution that dominates the claim, from its lines in each direction."""
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    sides = [_of_lines(claim.lines(signs)) for signs in (Signs.INCLUDED, Signs.EXCLUDED)]
    return PrivacyLossDistribution(*(side._pmf_remove for side in sides))


def composed(distributions: Sequence[Any]) -> Any:
    """The distribution of all of them together."""
    whole = distributions[0]
    for other in distributions[1:]:
        effort.spend(10 * effort.CALL + _PER_JOINED_CELL * (_cells(whole) + _cells(other)))
        whole = whole.compose(other)
    return whole


def _cells(distribution: Any) -> int:
    """The losses from the first to the last, in both directions; few of them may have any probability."""
    sides = (distribution._pmf_remove, distribution._pmf_add)
    few = [list(getattr(side, "_loss_probs", ())) for side in sides]
    return sum(
        max(losses) - min(losses) + 1 if losses else side.size
        for side, losses in zip(sides, few, strict=True)
    )


def _of_lines(lines: Lines) -> Any:
    """The pair of laws whose Neyman-Pearson curve consists of the lines.

    A piece of the curve on the line (kappa, delta) is an outcome with likelihood ratio kappa. Its two
    probabilities are the lengths of the piece along Q and along P. At Q = 0 the curve begins at P = delta of
    the steepest line, which is an outcome that only occurs with the element. The curve ends at P = 1, and
    what is left of Q is an outcome that only occurs without it.
    """
    from dp_accounting.pld import privacy_loss_distribution

    effort.spend(_PER_OUTCOME * lines.kappas.size)
    # Lines are listed from the flattest; the curve begins with the steepest. Each piece ends where it meets
    # the next line, or at P = 1, or at Q = 1.
    meet_q = np.append(lines.corners_q[::-1], np.inf)
    meet_p = np.append(lines.corners_p[::-1], np.inf)
    with np.errstate(divide="ignore"):
        last_q = np.minimum(np.minimum(meet_q, ((1 - lines.deltas) / lines.kappas)[::-1]), 1.0)
    last_p = np.minimum(meet_p, (lines.deltas + lines.kappas * last_q[::-1])[::-1])
    q = np.diff(np.maximum.accumulate(last_q), prepend=0.0)
    p = np.diff(np.maximum.accumulate(np.minimum(last_p, 1.0)), prepend=lines.deltas[-1])
    upper: dict[Any, float] = {"only included": lines.deltas[-1], **dict(enumerate(p.tolist()))}
    lower: dict[Any, float] = {"only excluded": max(0.0, 1 - float(q.sum())), **dict(enumerate(q.tolist()))}
    logs = [
        {outcome: float(np.log(mass)) for outcome, mass in law.items() if mass > 0} for law in (lower, upper)
    ]
    return privacy_loss_distribution.from_two_probability_mass_functions(
        logs[0], logs[1], value_discretization_interval=INTERVAL, symmetric=False
    )
