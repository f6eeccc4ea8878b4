"""The conformance test of a recorded training run.

Given the bits, correct training makes the p-value of each part uniform (Theorem 26). The p-value of the test
is the smallest one, corrected for their number. This module makes the parts that need more than the sums:
witnesses, draws of the sampler, and timing. `sums` adds the parts from the sums and joins all of them.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from canaria._core import checks
from canaria._core.errors import InputError
from canaria.bounds.conformance import EXTRA, LEAKS, LEVEL, OPEN, SAFE, Cause, Conformance, Part
from canaria.training.canaries.designs import TESTS, Dense, derived
from canaria.training.conformance.coincidences import coincidences
from canaria.training.conformance.draws import part_of
from canaria.training.conformance.measured import squares_of
from canaria.training.conformance.noise import parts_of, untested
from canaria.training.conformance.residuals import SYMPTOMS
from canaria.training.conformance.sums import FEWEST, Stated, enough_draws, of_dense, of_dirac
from canaria.training.likelihood.accumulator import LEAST_NOISE

if TYPE_CHECKING:
    from canaria.training.recording import Recording


def conformance_of(
    run: "Recording",
    *,
    steps: int | None = None,
    sample_rate: float | None = None,
    noise_multiplier: float | None = None,
) -> Conformance:
    """The test at the stated settings, or at others; see `Recorded.conformance`.

    If the test fails, it is repeated with the measured noise, to find out whether the size of the noise is
    the only cause.
    """
    if run.excuse:
        raise InputError(f"conformance is {run.excuse}")
    run.sampling.require_own(steps, sample_rate)
    steps = checks.integer("steps", run.steps if steps is None else steps, 1)
    rate = run.sample_rate if sample_rate is None else sample_rate
    noise = run.noise_multiplier if noise_multiplier is None else noise_multiplier
    found = _tested(run, steps, rate, noise)
    return found if found.conforms else _explained(run, found, steps, rate, noise)


def tested_at(run: "Recording", noise_multiplier: float) -> Conformance | None:
    """The conformance test at this noise multiplier; None if it is not possible."""
    if noise_multiplier <= 0 or run.design.coordinates < FEWEST or run.excuse:
        return None
    if isinstance(run.design, Dense) and not enough_draws(
        run.layers or (run.design.coordinates,),
        run.bits > 0,
        run.steps,
        run.sample_rate,
        max(noise_multiplier / run.canary_norm, LEAST_NOISE),
    ):
        return None
    return conformance_of(run, noise_multiplier=noise_multiplier)


def not_tested(run: "Recording", level: float = LEVEL) -> dict[str, str]:
    """Faults that conformance may miss in this run, one sentence per topic; empty if there are none.

    Other topics are always detected: a step or a parameter without noise, and noise that two parameters share
    from their first weight on. `level` is the false-alarm rate of conformance.
    """
    if run.witnessed is None or run.roles is None:
        return {"noise": "no weight without canaries shows the noise of single steps"}
    return untested(run.witnessed, run.roles, len(run.parameters), level)


def certain_faults(run: "Recording") -> tuple[str, ...]:
    """Differences between training and what was stated that are certain and need no p-value."""
    found = list(run.findings.contradictions)
    noises = [] if run.account is None else [noise for noise, *_ in run.account.to_list()]
    if run.noise_multiplier > 0 and 0 in noises:
        found.append("the noise multiplier was 0 in a step, so ε is unbounded: add noise in every step")
    reused = []
    if run.witnessed is not None and (alike := coincidences(run.witnessed.firsts)):
        pairs = "1 pair of noise tensors begins" if alike == 1 else f"{alike} pairs of noise tensors begin"
        why = "noise is used again, or its generator is seeded from few seeds"
        reused.append(f"{pairs} with the same values: {why}")
    elif run.witnessed is not None and (alike := coincidences(run.witnessed.totals)):
        pairs = "1 pair" if alike == 1 else f"{alike} pairs"
        reused.append(f"the noise of {pairs} of steps has one sum: noise is used again, in another order")
    if reused:
        found = [one for one in found if not one.endswith(SYMPTOMS)]
    return (*found, *reused)


def _explained(run: "Recording", found: Conformance, steps: int, rate: float, stated: float) -> Conformance:
    """Find out whether a noise of another size than stated is the only cause of all failures.

    It is, if everything else conforms at the measured size. More noise than stated is not called safe: a raw
    row that is added in every step can look like noise.
    """
    # "size" tests the size alone, from witnesses. Without witnesses, the size shows in the sums ("noise").
    squares, part = squares_of(run), "size" if "size" in found.parts else "noise"
    ratio = math.sqrt(squares.total / squares.count) if squares.count else found.noise / stated
    if part not in found.failures or not ratio * stated > 0:
        return found
    again = _tested(run, steps, rate, stated * ratio)
    effect = LEAKS if ratio < 1 else EXTRA
    cause = Cause(text=f"noise multiplier {stated * ratio:.3g}, stated {stated:.3g}", effect=effect)
    explained = part if again.conforms else ""
    return replace(found, causes={**found.causes, part: cause}, explained_by=explained)


def _tested(run: "Recording", steps: int, rate: float, noise: float) -> Conformance:
    """The test at these steps, rate and noise. All values in `sums` are in norms of a canary."""
    design, included = run.design, run.bits > 0
    # The noise of a sum of T steps over sqrt(T) times that of one: 1 unless noise is correlated.
    unit = 1.0 if isinstance(design, Dense) else run.sampling.noise_of_sums(steps)
    stated = Stated(
        steps=steps,
        sample_rate=rate,
        noise_multiplier=noise / run.canary_norm * unit,
        layers=run.layers,
        names=_carrying(run),
        besides=_beside_the_sums(run, rate, noise),
        rounding=run.rounding,
    )
    if isinstance(design, Dense):
        found = of_dense(run.sums, design.gradients(), included, stated)
    else:
        sums, often = run.sampling.levelled(run.sums, included, run.steps), run.included_by_coordinate()
        found = _of_rows(run, of_dirac(sums, run.rows * often, stated, run.sampling))
    return replace(found, noise=found.noise * run.canary_norm / unit, stated_noise=noise)


def _beside_the_sums(run: "Recording", rate: float, noise: float) -> dict[str, Part]:
    """The parts from witnesses (Theorem 26 (d) to (h)), the sampler's draws (i), and timing (Theorem 35)."""
    parts: dict[str, Part] = {}
    # Discrete p-values are made uniform by random numbers (g). These are derived from the seed of the audit,
    # so a recording always gives the same p-values.
    rng = np.random.default_rng(derived(run.seed, TESTS))
    if run.witnessed is not None and run.roles is not None:
        # Witnesses are stored over the stated noise. To test another noise, scale their squares.
        factor = (run.noise_multiplier / noise) ** 2 if noise > 0 else 1.0
        parts |= parts_of(run.witnessed, run.roles, rng, factor=factor, names=run.parameters)
    drawn = part_of(run.drawn, rate, rng, run.sampling) if run.drawn is not None else None
    timing = run.sampling.timing(run.table, run.bits > 0, noise, run.witnessed, rng)
    made = {"sampling": drawn, "timing": timing}
    return parts | {name: part for name, part in made.items() if part is not None}


def _of_rows(run: "Recording", found: Conformance) -> Conformance:
    """Report a canary weight that is too low as not safe if canaries are rows.

    It shows that canaries are not treated like other rows, and other rows may weigh more.
    """
    cause = found.causes.get("weight")  # there is none if all bits are alike
    if run.injection not in ("rows", "head") or cause is None or cause.effect != SAFE:
        return found
    return replace(found, causes={**found.causes, "weight": replace(cause, effect=OPEN)})


def _carrying(run: "Recording") -> tuple[str, ...]:
    """Names for `layers`, if all parameters carry canaries; coordinates that span several come last."""
    names = (*run.parameters, "several parameters")
    known = len(run.layers) - len(run.parameters) in (0, 1)
    return names[: len(run.layers)] if known else ()
