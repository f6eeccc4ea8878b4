"""The claim, compared with all other information about a training run.

Four numbers describe the privacy of training: the claim, the accountant's record, the steps as they were
made, and the measured noise. They must agree. If the claim is below the ε of the steps as made, or of the
measured noise, it is false, even if the canaries show little.
"""

import math
from typing import TYPE_CHECKING, Final

import numpy as np

from canaria._core.rounding import rounded_down
from canaria.bounds.conformance import LEVEL
from canaria.claims import ApproximateDP, Claim, DpSgd
from canaria.training.conformance.rungs import least_measured

if TYPE_CHECKING:
    from canaria.training.recording import Recording

_QUOTED: Final = 0.01
"""Relative tolerance: claims are quoted in rounded numbers, and accountants differ in their last digits."""
_SHARES: Final = (0.25, 0.5, 0.75, 1.0)
"""For a noise schedule, ε is computed for these shares of the steps, those with the least noise."""
_LEAST, _MOST = 0.1, 1e6
"""Noise is clipped to this range. Rounding it up lowers ε; losses of little noise take long to compute."""
_LEAST_DELTA: Final = 1e-9
"""Below this, privacy losses cannot be computed; ε at a larger δ is a lower bound."""
DELTA: Final = 1e-5
"""The delta at which curves are compared if none is given."""


def false_claims(run: "Recording", claim: Claim | None, delta: float) -> tuple[str, ...]:
    """Reasons why the claim cannot hold, from the steps as made and the measured noise; empty if it can.

    Each epsilon computed here is rounded down: it is a lower limit for steps that do exactly what they state.
    """
    if claim is None or run.own_family is None or claim.adjacency == "replace":
        return ()
    stated = claim.delta if isinstance(claim, ApproximateDP) else delta or DELTA
    claimed = claim.epsilon if isinstance(claim, ApproximateDP) else claim.epsilon_at(stated)
    delta, most = max(stated, _LEAST_DELTA), claimed * (1 + _QUOTED)
    said = f"the claim is ε = {claimed:.4g} at δ = {stated:g}, but"
    if math.isinf(most):
        return ()
    if (made := epsilon_as_made(run, delta)) > most:
        return (f"{said} {_steps_in_words(run)} have ε ≥ {rounded_down(made)} even if they are done right",)
    if (shown := least_measured(run, delta, 1 - LEVEL)) > most:
        return (f"{said} the noise that was measured gives ε ≥ {rounded_down(shown)}",)
    return ()


def epsilon_as_made(run: "Recording", delta: float) -> float:
    """The epsilon of the steps as they were made, rounded down, if each step does what it states."""
    if run.account is None or not run.sampling.is_poisson:
        noise = min(max(run.noise_multiplier, _LEAST), _MOST)
        return 0.0 if run.noise_changes else _least(run.promise_of(noise), delta)
    runs = sorted(run.account.merged())
    if runs[0][0] == 0:
        return math.inf
    if len(runs) == 1:
        return _dpsgd(*runs[0], delta)
    # Fewer steps, more noise and lower rates can only lower epsilon. So take the steps with the least noise,
    # give all of them the largest noise among them, and use the lowest rate: this is a lower bound.
    noises = np.repeat([noise for noise, *_ in runs], [steps for *_, steps in runs])
    rate = min(rate for _, rate, _ in runs)
    counts = {max(1, round(share * len(noises))) for share in _SHARES}
    return max(_dpsgd(float(noises[count - 1]), rate, count, delta) for count in counts)


def _dpsgd(noise: float, rate: float, steps: int, delta: float) -> float:
    return _least(
        DpSgd(noise_multiplier=min(max(noise, _LEAST), _MOST), sample_rate=rate, steps=steps), delta
    )


def _least(claim: Claim, delta: float) -> float:
    """The epsilon of a claim, rounded down; 0 if delta is too small to compute it."""
    epsilon = claim.least_epsilon_at(delta)
    return epsilon if math.isfinite(epsilon) else 0.0


def _steps_in_words(run: "Recording") -> str:
    runs = (
        run.account.merged()
        if run.account is not None
        else [(run.noise_multiplier, run.sample_rate, run.steps)]
    )
    noises, rates = sorted({noise for noise, *_ in runs}), sorted({rate for _, rate, _ in runs})
    steps = sum(steps for *_, steps in runs)
    return f"{steps:,} steps with noise multiplier {_range(noises)} and sample rate {_range(rates)}"


def _range(values: list[float]) -> str:
    return f"{values[0]:.4g}" if len(values) == 1 else f"{values[0]:.4g} to {values[-1]:.4g}"
