"""Parameters for canaries beside a model. Only canary rows have gradients there; nothing is patched."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
from jax import Array
from jax import numpy as jnp

from canaria._core.arrays import Bits
from canaria.training.canaries.designs import HEAD_PARAMETERS, Dense, Design

_PULL: Final = 1e4
"""A canary's norm before clipping, in units of the clip norm or of 1, whichever is larger.

It must be above the norm that rows are clipped to. That norm is not known here: clipped gradients may be
rescaled (`normalize_by`, `rescale_to_unit_norm`), and the audit's clip norm is that of the result.
"""


class CanaryHead(NamedTuple):
    """The parameters of a model, and two more in which only canaries have gradients.

    Attributes:
        model: The parameters of the model.
        canaries: The two parameters of the canaries.

    Example:
        >>> import jax.numpy as jnp
        >>> from canaria.integrations.jax_privacy import CanaryHead
        >>> CanaryHead(model=jnp.zeros(3), canaries=(jnp.zeros(2), jnp.zeros(2))).model.shape
        (3,)
    """

    model: Any
    canaries: tuple[Array, ...]


def with_canary_head(
    loss: Callable[..., Any], params: Any, design: Design, bits: Bits, clip_norm: float
) -> tuple[Callable[..., Any], CanaryHead]:
    """The loss and the parameters to train with; see `Audit.with_canary_head`."""
    included = jnp.asarray(bits > 0)
    dense = jnp.asarray(design.gradients()) if isinstance(design, Dense) else None

    def with_canaries(params: CanaryHead, batch: tuple[Any, Any], *rest: Any, **more: Any) -> Any:
        which, rows = batch
        answer = loss(params.model, rows, *rest, **more)
        value, *aux = answer if isinstance(answer, tuple) else (answer,)
        canary = jnp.ravel(which)[0]
        both = jnp.stack(params.canaries).sum(axis=0) / HEAD_PARAMETERS**0.5
        along = both[canary % design.coordinates] if dense is None else dense[canary] @ both
        pull = _PULL * max(clip_norm, 1.0) * included[canary] * along
        value = jnp.where(canary < 0, value, pull.astype(jnp.result_type(value)))
        return (value, *aux) if isinstance(answer, tuple) else value

    kind = jnp.promote_types(jnp.result_type(*jax.tree.leaves(params)), jnp.float32)
    own = tuple(jnp.zeros(design.coordinates, kind) for _ in range(HEAD_PARAMETERS))
    return with_canaries, CanaryHead(params, own)
