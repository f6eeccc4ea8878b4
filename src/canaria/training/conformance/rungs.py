"""The rungs of the ladder of assumptions that a recorded training run reaches."""

import math
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from canaria._core.rounding import rounded_down, rounded_up
from canaria.bounds.bound import Bound
from canaria.bounds.conformance import LEVEL, in_words, joined
from canaria.bounds.rungs import Rung
from canaria.claims import Claim
from canaria.rules import Matched
from canaria.training.canaries.designs import Dirac
from canaria.training.conformance.measured import Squares, squares_of
from canaria.training.conformance.residuals import is_size_alone
from canaria.training.conformance.tested import certain_faults, tested_at

if TYPE_CHECKING:
    from canaria.training.recording import Recording

ANY: Final = "for any mechanism"
ALONE: Final = "also assuming that canaries do not influence each other"
AS_STATED: Final = "also assuming Gaussian, independent noise and Poisson sampling at that rate"
CORRELATED: Final = (
    "also assuming that the noise is as stated, and that each row takes part only in its own steps"
)
NAMES: Final = ("any mechanism", "DP-SGD", "independent canaries", "measured noise")
_CHANGES: Final = "the stated noise changes from step to step"
_SURE: Final = 0.999
"""The confidence of the noise interval that is used to check the other assumptions of the last rung."""
_SIZES: Final = 25
"""The number of noise sizes that are tried in that interval."""
_LEAST_NOISE, _MOST_NOISE = 0.2, 1e6
"""The range of noise multipliers for the accountant. Less noise would give an even larger epsilon."""


def rungs_of(recording: "Recording", bound: Bound, score: str) -> tuple[Rung, ...]:
    """The four rungs of a training run: three bounds, and an interval from the measured noise.

    The first rung is the requested bound, if that holds for any mechanism.
    """
    delta, confidence = bound.delta, bound.confidence
    family, tested, names = _of_its_kind(recording), recording.own_family, _names(recording)
    assert tested is not None
    first = bound if bound.family is None else recording.bound(delta, confidence, score=score)
    shown = [Rung(name=names[0], assumes=ANY, least=first.epsilon)]
    if recording.noise_changes:
        others = zip(names[1:], (family, ALONE, _as_stated(recording)), strict=True)
        return (*shown, *(Rung(name=name, assumes=one, withdrawn=_CHANGES) for name, one in others))
    rule = Matched(tested, confidence, independent=True)
    curve = recording.bound(delta, confidence, score=score, family=tested)
    alone = recording.bound(delta, confidence, score=score, family=tested, rule=rule)
    return (
        *shown,
        Rung(name=names[1], assumes=family, least=curve.epsilon),
        _independent(alone),
        _measured(recording, delta, confidence),
    )


def _of_its_kind(recording: "Recording") -> str:
    if not recording.sampling.is_poisson:
        return "if it is Gaussian noise, correlated as stated, and every row's steps are known"
    how = f"{recording.steps:,} steps and sample rate {recording.sample_rate:.6g}"
    return f"if it is DP-SGD with {how}"


def _names(recording: "Recording") -> tuple[str, ...]:
    return NAMES if recording.sampling.is_poisson else (NAMES[0], "Gaussian noise", *NAMES[2:])


def _as_stated(recording: "Recording") -> str:
    return AS_STATED if recording.sampling.is_poisson else CORRELATED


def _independent(bound: Bound) -> Rung:
    withdrawn = bound.evidence.withdrawn or ""
    least = None if withdrawn else bound.epsilon
    return Rung(name=NAMES[2], assumes=ALONE, least=least, withdrawn=withdrawn)


def _measured(recording: "Recording", delta: float, confidence: float) -> Rung:
    """The last rung: an interval for the noise, and the accountant's epsilon at both ends of it."""
    assumes = _as_stated(recording)
    if objection := objection_to(recording):
        return Rung(name=NAMES[3], assumes=assumes, withdrawn=objection)
    seen, stated = squares_of(recording), recording.noise_multiplier
    low, high = (stated * ratio for ratio in seen.interval(confidence))
    words = f"noise multiplier {rounded_down(low)} to {rounded_up(high)} (stated {stated:.4g})"
    weight = weight_of(recording, (low + high) / 2 / recording.canary_norm, confidence)
    if weight is not None:
        words += f", canary weight {weight[0]:.2f} to {weight[1]:.2f} (expected 1)"
    least = _claim(recording, high / recording.sampling.reached).least_epsilon_at(delta)
    if recording.ended:
        words += "; of the steps that were seen"
        return Rung(name=NAMES[3], assumes=assumes, least=least, measured=words)
    most = math.inf if low < _LEAST_NOISE else _claim(recording, low).epsilon_at(delta)
    return Rung(name=NAMES[3], assumes=assumes, least=least, most=max(least, most), measured=words)


def least_measured(recording: "Recording", delta: float, confidence: float) -> float:
    """A lower limit for the epsilon of the measured noise, at this confidence; 0 if nothing is shown."""
    if recording.noise_changes or objection_to(recording):
        return 0.0
    high = recording.noise_multiplier * squares_of(recording).interval(confidence)[1]
    least = _claim(recording, high / recording.sampling.reached).least_epsilon_at(delta)
    return least if math.isfinite(least) else 0.0


def _claim(recording: "Recording", noise: float) -> Claim:
    return recording.promise_of(min(max(noise, _LEAST_NOISE), _MOST_NOISE))


def weight_of(recording: "Recording", noise: float, confidence: float) -> tuple[float, float] | None:
    """A confidence interval for the weight of a canary, by a normal approximation; None if unknown.

    `noise` is in norms of a canary. The estimate is the least-squares slope of the sums over the number of
    included canaries.
    """
    if not isinstance(recording.design, Dirac):
        return None
    included, steps = recording.included_by_coordinate(), recording.steps
    coins = recording.sampling.participations(1, steps, recording.sample_rate)
    often, spread = sum(part.mean for part in coins), sum(part.variance for part in coins)
    centred = included - included.mean()
    total = float(centred @ centred)
    if total == 0 or often == 0:
        return None
    sums = recording.sampling.levelled(recording.sums, recording.bits > 0, steps)
    slope = float(centred @ sums) / total / often
    unit = noise * recording.sampling.noise_of_sums(steps)
    # The variance of each sum comes from the noise of all steps and from the draws of its included canaries.
    variance = float(centred**2 @ (steps * unit**2 + spread * included))
    error = -float(special.ndtri((1 - confidence) / 2)) * math.sqrt(variance) / total / often
    return slope - error, slope + error


def objection_to(recording: "Recording") -> str:
    """The evidence against Gaussian, independent noise and the stated sampling; empty if there is none."""
    # Noise of another size is no objection: the size is what is measured.
    if faults := [one for one in certain_faults(recording) if not is_size_alone(one)]:
        return f"training was not what was stated: {'; '.join(faults)}"
    if recording.findings.doubts:
        return "; ".join(recording.findings.doubts)
    if recording.noise_multiplier == 0:
        return "no noise is stated"
    if recording.excuse:
        return f"canaries may not have been clipped: conformance is {recording.excuse}"
    seen = squares_of(recording)
    if seen.count == 0:
        return "no weight shows its noise alone"
    return _misfit(recording, seen) if seen.total > 0 else ""


def _misfit(recording: "Recording", seen: Squares) -> str:
    """The misfit of the run to noise of the measured size, with each part at its most favourable size.

    The last rung assumes Gaussian noise of some size, and everything else as stated. All parts of conformance
    but "size" test this once the size is known (Theorem 31). The size is only known up to an interval, and a
    correct run could fail at a wrong size. So each part is tested at many sizes in an interval that contains
    the true one almost surely, and counts with its largest p-value.
    """
    low, high = seen.interval(_SURE)
    measured = math.sqrt(seen.total / seen.count)
    parts: dict[str, float] = {}
    causes = ""
    # The measured size comes first. P-values only rise as sizes are added, so the loop can stop as soon as
    # they are large enough. In a correct run this is nearly always after the first size.
    for ratio in (measured, *np.geomspace(low, high, _SIZES)):
        found = tested_at(recording, recording.noise_multiplier * float(ratio))
        if found is None:
            return ""
        # Failures at the measured size are the most informative. At other sizes the noise fails as well.
        causes = causes or "; ".join(cause.text for cause in found.failures.values())
        parts |= {name: max(p_value, parts.get(name, 0.0)) for name, p_value in found.parts.items()}
        # "size" tests whether the noise is as stated. This rung does not assume that.
        parts.pop("size", None)
        if not parts or joined(parts) >= LEVEL:
            return ""
    return f"what was seen does not fit it ({in_words(joined(parts))}): {causes}"
