"""Checks of a training script before an audit is attached. Each error is one line."""

import math
from dataclasses import dataclass, field, replace
from typing import Final

import jax
import numpy as np
from jax import Array
from jax import numpy as jnp

from canaria._core import checks
from canaria._core.errors import InputError, shown
from canaria.integrations.jax_privacy import _internals
from canaria.training.canaries.designs import Design
from canaria.training.findings import Findings
from canaria.training.likelihood.correlated import Correlation

_SINGLE: Final = 4
_LOOKED_AT: Final = 16
"""A noising matrix is judged by this many steps."""
_CLOSE: Final = 1e-4
"""Relative differences between the noise and the stated noise below this are rounding."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """The stated settings of training, and notes about them.

    Attributes:
        clip_norm: The largest norm that one row adds to the clipped sum.
        noise_multiplier: The noise, in clip norms times the sensitivity of the strategy.
        sample_rate: The probability, or share of steps, with which a row takes part.
        correlation: The correlation between steps, if any.
        steps: The stated number of steps, if any.
        groups: The number of equal groups into which the sampler splits the rows.
        findings: What is already known.
    """

    clip_norm: float
    noise_multiplier: float
    sample_rate: float
    correlation: Correlation | None = None
    steps: int | None = None
    groups: int = 1
    findings: Findings = field(default_factory=Findings)


def require_private(privatizer: object, *, independent: bool) -> None:
    """Refuse transformations without noise, and correlated noise if it should be `independent`."""
    if not _internals.is_privatizer(privatizer):
        raise InputError(
            "privatizer must be an optax.GradientTransformation such as gaussian_privatizer makes, "
            f"got {type(privatizer).__name__}"
        )
    matrix = _internals.noising_matrix(privatizer, _LOOKED_AT) if independent else None
    if matrix is not None and not np.allclose(matrix, np.eye(len(matrix)), atol=1e-6):
        raise InputError(
            "privatizer adds noise that is correlated over the steps (matrix factorization), or changes: "
            "give its strategy and sampling, or audit its plan with attach_plan"
        )


def positive_norm(clip_norm: object) -> float:
    return checks.positive("clip_norm", _internals.norm_bound(clip_norm))


def stated(
    clip_norm: object, noise_multiplier: float, sample_rate: float, steps: int | None = None
) -> Training:
    norm = positive_norm(clip_norm)
    if not 0 <= checks.real("noise_multiplier", noise_multiplier) < math.inf:
        raise InputError(f"noise_multiplier must be at least 0 and finite, got {shown(noise_multiplier)}")
    checks.sample_rate(sample_rate)
    return Training(
        clip_norm=norm, noise_multiplier=float(noise_multiplier), sample_rate=float(sample_rate), steps=steps
    )


def with_noise_of(privatizer: object, training: Training, *, deviation: float) -> Training:
    """Update the noise to what the privatizer adds; `deviation` is the stated one at clip norm 1.

    Less noise than stated is a fault. More is not: training is audited with the noise that it has, or correct
    training would be accused. One of JAX Privacy's own examples does this: its accountant is about adding a
    row, but its noise is calibrated for replacing one, which has twice the sensitivity.
    """
    added, expected = _internals.added_deviation(privatizer), training.clip_norm * deviation
    if added is None or expected == 0 or abs(added / expected - 1) <= _CLOSE:
        return training
    times, said = added / expected, training.noise_multiplier
    if times < 1:
        fault = (
            f"the privatizer adds {times:.3g} times the stated noise: its standard deviation is "
            f"{added:.4g}, and {expected:.4g} follows from noise_multiplier and clip_norm"
        )
        return replace(training, findings=Findings(contradictions=(fault,)))
    twice = "; the sensitivity of replacing a row is twice the clip norm" if abs(times - 2) < _CLOSE else ""
    note = (
        f"the privatizer adds {times:.3g} times the noise that noise_multiplier={said:.4g} needs, and is "
        f"audited with it. If clip_norm is right, less leaks than stated, and accuracy is lost{twice}"
    )
    return replace(training, noise_multiplier=times * said, findings=Findings(remarks=(note,)))


def shapes_of(params: object) -> list[tuple[int, ...]]:
    leaves = jax.tree.leaves(params)
    for leaf in leaves:
        if not jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.floating):
            raise InputError(f"params must hold arrays of floating-point numbers, got {shown(leaf)}")
    if not leaves:
        raise InputError(f"params must hold arrays of floating-point numbers, got {shown(params)}")
    return [jnp.shape(leaf) for leaf in leaves]


def coarse_in(params: object) -> list[int]:
    """The arrays in less than single precision, whose sums are rounded too coarsely for witnesses."""
    return [
        place
        for place, leaf in enumerate(jax.tree.leaves(params))
        if np.dtype(getattr(leaf, "dtype", np.float32)).itemsize < _SINGLE
    ]


def require_room(shapes: list[tuple[int, ...]], design: Design, *, several: bool) -> None:
    weights = sum(map(math.prod, shapes))
    if design.coordinates > weights:
        most = weights * getattr(design, "per_coordinate", 1)
        raise InputError(
            f"canaries need {design.coordinates} coordinates, but params hold {weights} weights; "
            f"take at most {most} canaries{', or more per coordinate' if several else ''}"
        )


def require_fitting(name: str, leaves: list[Array], shapes: list[tuple[int, ...]], injection: str) -> None:
    found = [jnp.shape(leaf) for leaf in leaves]
    if found != shapes:
        beside = ", with the canary head beside" if injection == "head" else ""
        raise InputError(
            f"{name} must have the arrays that the audit was attached to{beside}, "
            f"{shown(shapes)}, got {shown(found)}"
        )


def require_precise(leaves: list[Array]) -> None:
    """Refuse sums whose precision could round a canary away."""
    for leaf in leaves:
        if leaf.dtype.itemsize < 4:
            raise InputError(
                f"injection='sum' adds canaries to the clipped sum, which {leaf.dtype} would round away; "
                "cast the sum to float32 before the privatizer (its noise needs that, too), or use 'head'"
            )
