"""Checks whether one row of a batch changes another's contribution to the clipped sum."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import jax
import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats
from canaria._core.errors import InputError
from canaria.integrations.jax_privacy._checks import positive_norm, shapes_of
from canaria.integrations.jax_privacy._internals import norm_bound, precision
from canaria.preflight.isolation import Isolation, isolation_of

_ROWS: Final = 0x726F7773
"""The stream of random numbers that chooses rows."""


def check_isolation(
    gradients: Callable[..., Any],
    params: Any,
    *batch: Any,
    clip_norm: Any = None,
    rows: int = 8,
    rng: seeds.Seed = None,
) -> Isolation:
    """Check that no row of a batch changes another row's contribution to the clipped sum.

    If one does, adding or removing it moves the sum by more than the clip norm, and the stated epsilon does
    not hold. Canaries cannot detect that. Rows are dropped one at a time and in pairs.
    `jax_privacy.clipped_grad` computes the loss of each row separately, so with it this checks only the code
    around it. Functions that clip in other ways have no such protection.

    Args:
        gradients: The gradient function of training. `gradients(params, *batch)` returns the sum of clipped
            gradients. It must be deterministic: fix the random keys that it uses.
        params: The parameters.
        *batch: Arrays with one entry for each row, in any nested structure.
        clip_norm: The largest norm that one row may add to the sum. Not needed if `gradients` was returned by
            `jax_privacy.clipped_grad`.
        rows: The number of rows to drop in pairs, half of them those that move the sum farthest. The cost is
            about rows x rows / 2 steps.
        rng: A seed for the choice of rows in a large batch.

    Raises:
        InputError: If the batch has fewer than three rows, or its arrays have different lengths.

    Example:
        >>> from jax import numpy as jnp
        >>> def gradients(weights, rows):
        ...     each = 2 * (rows @ weights)[:, None] * rows
        ...     return (each / jnp.maximum(1, jnp.linalg.norm(each, axis=1, keepdims=True))).sum(0)
        >>> check_isolation(gradients, jnp.ones(3), jnp.ones((4, 3)), clip_norm=1.0).holds
        True
    """
    checks.integer("rows", rows, 2)
    lengths = {np.shape(leaf)[0] if np.ndim(leaf) else 0 for leaf in jax.tree.leaves(batch)}
    if len(lengths) != 1:
        raise InputError(
            "batch must hold arrays with one entry for each row, all of the same length, got lengths "
            f"{sorted(lengths)}"
        )
    (count,) = lengths
    if clip_norm is None and norm_bound(gradients) is gradients:
        raise InputError("clip_norm must be given: gradients is not what jax_privacy.clipped_grad returned")

    shapes = shapes_of(params)

    def clipped(taken: Sequence[int]) -> Floats:
        part = jax.tree.map(lambda leaf: leaf[np.asarray(taken)], batch)
        leaves = jax.tree.leaves(gradients(params, *part))
        if [np.shape(leaf) for leaf in leaves] != shapes:
            raise InputError(
                "gradients must return the sum of clipped gradients alone, in the form of params"
            )
        return np.concatenate([np.asarray(leaf, np.float32).ravel() for leaf in leaves])

    return isolation_of(
        clipped,
        None,
        count=count,
        rows=rows,
        rng=seeds.generator(rng, _ROWS),
        clip_norm=positive_norm(gradients if clip_norm is None else clip_norm),
        rounding=_rounding(params),
        cause_in_model=lambda rows, dropped: "",
    )


def _rounding(params: Any) -> float:
    """The relative rounding error of the arithmetic: of the parameters, or of products on the device."""
    device = {"cpu": 0.0, "gpu": 2.0**-10}.get(jax.default_backend(), 2.0**-7)
    return max(device, *(precision(leaf) for leaf in jax.tree.leaves(params)))
