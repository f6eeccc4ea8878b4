"""Does one row of a batch change what another contributes? Asked of the function that clips and adds up."""

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
    """Check that no row of a batch changes what another contributes to the clipped sum.

    If one does, adding or removing it moves the sum by more than the clip norm, and the stated epsilon does
    not hold; no canary can see that. Rows are dropped one by one and two by two.
    `jax_privacy.clipped_grad` gives every row a loss of its own, so with it this is about what stands around
    it; functions that clip by other means have no such guard.

    Args:
        gradients: What training does with a batch: called as `gradients(params, *batch)`, it returns the
            sum of clipped gradients. It must give the same for the same batch: fix the keys it draws from.
        params: The parameters.
        *batch: Arrays with one entry for each row, in any trees.
        clip_norm: The most that one row may add to the sum; not needed if `gradients` is what
            `jax_privacy.clipped_grad` returned.
        rows: How many rows to drop two by two, half of them those that move the sum farthest. The cost is
            that of rows x rows / 2 steps.
        rng: Of a large batch, which rows to try.

    Returns:
        Whether rows are isolated, and if not, which row moves which, by how much, and the likely cause.

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
    """The relative rounding error of the arithmetic: of parameters, or of how the device multiplies."""
    device = {"cpu": 0.0, "gpu": 2.0**-10}.get(jax.default_backend(), 2.0**-7)
    return max(device, *(precision(leaf) for leaf in jax.tree.leaves(params)))
