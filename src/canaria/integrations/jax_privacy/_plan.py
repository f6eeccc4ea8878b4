"""An audit that takes everything it needs from an execution plan of JAX Privacy."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import dp_accounting
import numpy as np
from scipy import linalg

from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.integrations.jax_privacy import _sampling
from canaria.integrations.jax_privacy._attach import audit_of
from canaria.integrations.jax_privacy._audit import Audit
from canaria.integrations.jax_privacy._checks import positive_norm, require_private, stated
from canaria.integrations.jax_privacy._internals import is_plan, noise_deviation, noising_matrix
from canaria.mechanisms import Correlated, CyclicPoisson, Strategy
from canaria.training.canaries.designs import design_of
from canaria.training.findings import Findings

if TYPE_CHECKING:
    from canaria.integrations.jax_privacy._internals import DPExecutionPlan

_ROUNDED: Final = 1e-5
"""Entries of a strategy below this share of the largest are 0, up to single-precision rounding."""
_MOST_WRONG: Final = 1e-4
"""Upper limit for the effect of rounding, by an estimate about ten times too large."""
_CLOSE: Final = 1e-4
"""The accountant's settings may differ from the plan's by this share, because of rounding."""
_DELTA, _CLOSE_EPSILON = 1e-5, 1e-2
"""The delta at which epsilons are compared, and the tolerance for discretisation."""


class _Told(NamedTuple):
    """The settings stated to an accountant."""

    noise_multiplier: float
    rate: float
    rounds: int


def attach_plan(
    plan: "DPExecutionPlan", params: Any, *, canaries: int, injection: str = "sum", rng: Seed = None
) -> Audit:
    """An audit of training by an execution plan, whose noise may be correlated.

    Clip norm, noise, strategy and sampling are taken from the plan. Train with `audit.privatizer` instead of
    `plan.noise_addition_transform`, and with the plan's sampler and clipper as usual.

    Args:
        plan: The plan, such as `BandMFExecutionPlanConfig` makes.
        params: The trained parameters.
        canaries: The number of canaries, each with a weight of its own.
        injection: The way canaries enter: "sum", drawn by the plan's sampling, or "head"; see `attach`.
        rng: A seed for the hidden bits, the places and the draws of the canaries.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig
        >>> from canaria.integrations.jax_privacy import attach_plan
        >>> plan = BandMFExecutionPlanConfig(
        ...     iterations=8,
        ...     strategy=[1.0, 0.5],
        ...     epsilon=None,
        ...     delta=None,
        ...     noise_multiplier=0.5,
        ...     noise_seed=0,
        ... ).plan
        >>> params = jnp.zeros(600)
        >>> audit = attach_plan(plan, params, canaries=400, rng=0)
        >>> state, step = audit.privatizer.init(params), jax.jit(audit.privatizer.update)
        >>> for _ in range(8):
        ...     noisy, state = step(jnp.ones(600), state)
        >>> audit.bound(state, delta=1e-5).epsilon > 2
        True
    """
    if not is_plan(plan):
        raise InputError(f"plan must be a DPExecutionPlan, got {type(plan).__name__}")
    privatizer, sampling = plan.noise_addition_transform, plan.batch_selection_strategy
    require_private(privatizer, independent=False)
    law, steps = _sampling.participation_of(sampling), _sampling.steps_of(sampling)
    assert steps is not None
    deviation, noising = noise_deviation(privatizer), noising_matrix(privatizer, steps)
    if deviation is None or noising is None:
        raise InputError(
            "the plan's noise_addition_transform does not say what it adds; use attach, with strategy and "
            "sampling"
        )
    clip_norm = positive_norm(plan.clipped_grad(lambda: None))
    strategy = strategy_of(noising)
    noise = deviation / (clip_norm * law.sensitivity(strategy))
    correlation = _sampling.correlation_of(strategy, sampling, noise)
    independent = law == CyclicPoisson(1, law.share) and np.allclose(noising, np.eye(steps), atol=1e-6)
    training = replace(
        stated(clip_norm, noise, law.share, steps),
        correlation=None if independent else correlation,
        findings=Findings(contradictions=_disagreements(plan.dp_event, correlation.mechanism)),
        groups=_sampling.groups_of_one_size(sampling),
    )
    return audit_of(privatizer, params, design_of(canaries, 1), training, injection=injection, rng=rng)


def strategy_of(noising: Floats) -> Strategy:
    """The strategy whose inverse multiplies the noise, without rounding errors."""
    square = noising.ndim == 2 and len({*noising.shape}) == 1
    if not square or np.triu(noising, 1).any() or not (np.diag(noising) > 0).all():
        raise InputError(
            f"the plan's noising matrix must be square and lower triangular, got {shown(noising)}"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        matrix = linalg.solve_triangular(noising, np.eye(len(noising)), lower=True, check_finite=False)
        largest = float(abs(matrix).max())
        wrong = float(np.finfo(np.float32).eps * (abs(matrix) @ abs(noising) @ abs(matrix)).max())
    if not wrong <= _MOST_WRONG * largest:
        raise InputError(
            f"the plan's noising matrix grows to {abs(noising).max():.3g} and is rounded, so the strategy "
            "does not follow from it; use attach, with strategy and sampling"
        )
    least = _ROUNDED * largest
    matrix = np.where(abs(matrix) > least, matrix, 0.0)
    # If one column tells it all, the rounding errors of the others are left out.
    column = np.trim_zeros(matrix[:, 0], "b")
    toeplitz = Strategy.toeplitz(column, len(matrix))
    return (
        toeplitz
        if np.allclose(toeplitz.whiten(np.eye(len(matrix))), matrix, atol=least)
        else Strategy(matrix)
    )


def _disagreements(event: dp_accounting.DpEvent, planned: Correlated) -> tuple[str, ...]:
    """Settings with which the plan's accountant overstates the privacy of the plan."""
    told, law = _told(event), planned.participation
    if not isinstance(law, CyclicPoisson):
        return ()
    if told is None:
        return _too_private(event, planned)
    rounds = math.ceil(planned.strategy.steps / law.groups)
    pairs = (
        (
            told.noise_multiplier > planned.noise_multiplier * (1 + _CLOSE),
            "noise multiplier",
            told[0],
            planned.noise_multiplier,
        ),
        (told.rate < law.rate * (1 - _CLOSE), "sample rate", told.rate, law.rate),
        (told.rounds < rounds, "number of rounds", told.rounds, rounds),
    )
    return tuple(
        f"the plan's accountant was told the {name} {said:.6g}, where that of the plan is {true:.6g}"
        for wrong, name, said, true in pairs
        if wrong
    )


def _too_private(event: dp_accounting.DpEvent, planned: Correlated) -> tuple[str, ...]:
    """The contradiction if an event of another shape gives a smaller epsilon than the plan has."""
    accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE)
    if not accountant.supports(event):
        return ()
    said, true = accountant.compose(event).get_epsilon(_DELTA), planned.claimed(_DELTA)
    if said >= true * (1 - _CLOSE_EPSILON):
        return ()
    return (
        f"the plan's accountant was told of ε = {said:.4g} at δ = {_DELTA:g}, where the plan has {true:.4g}",
    )


def _told(event: dp_accounting.DpEvent) -> _Told | None:
    """The settings of composed Poisson-sampled Gaussian noise; None if the event is something else."""
    if not isinstance(event, dp_accounting.SelfComposedDpEvent):
        return None
    once = event.event
    if not isinstance(once, dp_accounting.PoissonSampledDpEvent):
        return None
    if not isinstance(once.event, dp_accounting.GaussianDpEvent):
        return None
    return _Told(once.event.noise_multiplier, once.sampling_probability, event.count)
