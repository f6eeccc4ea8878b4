"""Attaches an audit to a privatizer."""

from dataclasses import replace
from typing import Any, Final

import numpy.typing as npt
from jax_privacy.batch_selection import BatchSelectionStrategy

from canaria._core import checks, seeds
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.integrations.jax_privacy._audit import Audit, PyTree
from canaria.integrations.jax_privacy._checks import (
    Training,
    coarse_in,
    require_private,
    require_room,
    shapes_of,
    stated,
    with_noise_of,
)
from canaria.integrations.jax_privacy._injections import INJECTIONS
from canaria.integrations.jax_privacy._sampling import correlation_of, groups_of_one_size
from canaria.mechanisms import Strategy
from canaria.mechanisms.participation import Participation
from canaria.training.canaries.designs import Dense, Design, Dirac, design_of

_ATTACH: Final = 0x61747461


def attach(
    privatizer: PyTree,
    params: PyTree,
    *,
    canaries: int | Dense | Dirac,
    clip_norm: Any,
    noise_multiplier: float,
    sample_rate: float | None = None,
    strategy: Strategy | npt.ArrayLike | None = None,
    sampling: Participation | BatchSelectionStrategy | None = None,
    steps: int | None = None,
    per_coordinate: int = 1,
    injection: str = "sum",
    rng: Seed = None,
) -> Audit:
    """Make an audit; use its `privatizer` instead of yours in the training step.

    With injection "sum", the canaries' size and frequency are those of `clip_norm` and `sample_rate` or
    `sampling`. If these exceed what training does, the bound is too high; conformance detects a wrong clip
    norm. On several devices, pass the sum over all of them, with all of the noise. Correlated noise (matrix
    factorization) needs `strategy` and `sampling`; `attach_plan` takes them from an execution plan.

    Args:
        privatizer: The transformation that adds the noise, such as `gaussian_privatizer` returns. It must do
            nothing else: no scaling, no other audit.
        params: The trained parameters.
        canaries: A number of Dirac canaries, or a design such as `Dense`.
        clip_norm: The largest norm that one row adds to the clipped sum: a number, or the function that
            `jax_privacy.clipped_grad` returned, which knows it (and whether it normalises).
        noise_multiplier: The stated noise, in clip norms. For correlated noise, in clip norms times the
            sensitivity of the strategy, like the noise multiplier of the accountant.
        sample_rate: The probability of Poisson sampling, for independent noise.
        strategy: The matrix C of correlated noise: independent noise is multiplied by its inverse.
        sampling: The participation of rows for correlated noise: `InOrder`, `BallsInBins`, `CyclicPoisson` or
            `MinSeparation` of `canaria.mechanisms`, or a sampler of `jax_privacy.batch_selection`. With
            `InOrder`, injection "sum" places canaries in the steps that leak the most; with "head", canary i
            must take part in the steps i modulo the period.
        steps: The number of steps stated to the accountant. If the last state has seen fewer, the report says
            so. Nothing else detects a noise state that is not carried from step to step, which adds the same
            noise again. For correlated noise, it follows from `strategy`.
        per_coordinate: The number of Dirac canaries per weight; 1 for correlated noise.
        injection: "sum" adds canaries to the clipped sum, drawn by the audit with the stated sampling; the
            data are not changed. "head" adds a parameter for canaries, see `Audit.with_canary_head`; your
            sampler and clipper then process them.
        rng: A seed for the hidden bits, the places and the draws of the canaries.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from jax_privacy.noise_addition import gaussian_privatizer
        >>> params = jnp.zeros(400)
        >>> stated = {"clip_norm": 1.0, "noise_multiplier": 0.5, "sample_rate": 1.0}
        >>> stated["steps"] = 1
        >>> audit = attach(gaussian_privatizer(stddev=0.5, prng_key=0), params, canaries=400, rng=0, **stated)
        >>> state = audit.privatizer.init(params)
        >>> noisy, state = jax.jit(audit.privatizer.update)(jnp.ones(400), state)
        >>> audit.bound(state, delta=1e-5).epsilon > 2
        True
    """
    require_private(privatizer, independent=strategy is None)
    design = design_of(canaries, per_coordinate)
    if strategy is None and sampling is None:
        if sample_rate is None:
            raise InputError("sample_rate must be given, or strategy and sampling if noise is correlated")
        planned = None if steps is None else checks.integer("steps", steps, 1)
        training = stated(clip_norm, noise_multiplier, sample_rate, planned)
        training = with_noise_of(privatizer, training, deviation=noise_multiplier)
    elif strategy is None or sampling is None or sample_rate is not None:
        raise InputError("give strategy and sampling together, instead of sample_rate")
    else:
        correlation = correlation_of(strategy, sampling, noise_multiplier)
        if steps not in (None, correlation.steps):
            raise InputError(f"steps must be those of the strategy, {correlation.steps}, got {shown(steps)}")
        training = stated(clip_norm, noise_multiplier, correlation.sample_rate, correlation.steps)
        training = with_noise_of(privatizer, training, deviation=correlation.mechanism.deviation)
        # Again, as the noise may have been updated to what the privatizer adds.
        correlation = correlation_of(strategy, sampling, training.noise_multiplier)
        training = replace(training, correlation=correlation, groups=groups_of_one_size(sampling))
    return audit_of(privatizer, params, design, training, injection=injection, rng=rng)


def audit_of(
    privatizer: PyTree, params: PyTree, design: Design, training: Training, *, injection: str, rng: Seed
) -> Audit:
    """Make the audit, after checking the arguments."""
    correlation = training.correlation
    if injection not in INJECTIONS:
        raise InputError(f"injection must be 'sum' or 'head', got {shown(injection)}")
    if correlation is not None and (isinstance(design, Dense) or design.most > 1):
        raise InputError(
            "with correlated noise, canaries must be Dirac canaries, each with a weight of its own"
        )
    shapes = shapes_of(params)
    if injection == "sum":
        require_room(shapes, design, several=correlation is None)
        # With "sum", canaries are placed in the steps that leak the most. With "head", the sampler decides.
        worst = None if correlation is None else correlation.at_worst()
        training = replace(training, correlation=worst, groups=1)
    seed = int(seeds.generator(rng, _ATTACH).integers(2**62))
    return Audit(privatizer, shapes, design, injection, seed, training=training, coarse=coarse_in(params))
