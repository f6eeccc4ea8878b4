"""All uses of undocumented parts of JAX, Optax and JAX Privacy, checked with the versions named here.

When one of them changes, review this file.
"""

import inspect
import weakref
from typing import TYPE_CHECKING, Any, Final

import jax
import numpy as np
import optax
from jax import Array
from jax import numpy as jnp
from jax.extend.core import get_opaque_trace_state
from jax_privacy.clipping import BoundedSensitivityCallable
from jax_privacy.matrix_factorization.streaming_matrix import StreamingMatrix

from canaria._core.arrays import Floats

if TYPE_CHECKING:
    from jax_privacy.experimental.execution_plan import DPExecutionPlan

__all__ = ["DPExecutionPlan"]  # the rest is defined here
CHECKED: Final = {"jax": ("0.10.2",), "jax-privacy": ("2.0.0",), "optax": ("0.2.8",)}
"""The versions with which this file was read and tested."""
_KEYS: Final = "threefry2x32"
"""Keys of this kind are two 32-bit words, whatever kind JAX uses by default."""


def is_plan(plan: object) -> bool:
    """Whether this is an execution plan. Making one needs packages that nothing else needs."""
    from jax_privacy.experimental.execution_plan import DPExecutionPlan

    return isinstance(plan, DPExecutionPlan)


def is_privatizer(privatizer: object) -> bool:
    """Whether this is a transformation such as `gaussian_privatizer` returns."""
    return isinstance(privatizer, optax.GradientTransformation)


def noise_deviation(privatizer: object) -> float | None:
    """The standard deviation of the noise before it is correlated; None if it is not known."""
    deviation = _held(privatizer).get("stddev")
    return None if deviation is None or isinstance(deviation, jax.core.Tracer) else float(deviation)


def added_deviation(privatizer: object) -> float | None:
    """The same for privatizers made by JAX Privacy; others may use the name for something else."""
    made_by = getattr(getattr(privatizer, "update", None), "__module__", None) or ""
    return noise_deviation(privatizer) if made_by.startswith("jax_privacy.") else None


class Uses:
    """Remembers which arrays were used, without keeping them alive.

    In a jitted training step, arrays are tracers: a state that two calls in one step share is one tracer,
    while the state of another step, or of a function that is traced again, is a different one. Two branches
    of a `cond` may share a state, since only one of them runs; they are traced separately.
    """

    def __init__(self) -> None:
        self._used: dict[int, tuple[weakref.ref[Any], object]] = {}

    def again(self, array: object) -> bool:
        """Whether this very array was used before at the same level of tracing; marks it as used."""
        name, level = id(array), get_opaque_trace_state(convention="flax")  # type: ignore[no-untyped-call]
        before, where = self._used.get(name, (None, None))
        if before is not None and before() is array and where == level:
            return True
        try:
            kept = weakref.ref(array, lambda _: self._used.pop(name, None))
        except TypeError:  # a plain number, from a checkpoint; the next state is an array again
            return False
        self._used[name] = (kept, level)
        return False


def noising_matrix(privatizer: object, steps: int) -> Floats | None:
    """The matrix that multiplies the independent noise of the first steps; None if it is not known."""
    matrix = _held(privatizer).get("noising_matrix")
    if matrix is None or isinstance(matrix, jax.core.Tracer):
        return None
    with jax.ensure_compile_time_eval():
        whole = matrix.materialize(steps) if isinstance(matrix, StreamingMatrix) else matrix
        return np.asarray(whole, np.float64)[:steps, :steps]


def _held(privatizer: object) -> dict[str, Any]:
    """The variables that the privatizer's update function was made with."""
    update = getattr(privatizer, "update", None)
    return dict(inspect.getclosurevars(update).nonlocals) if inspect.isfunction(update) else {}


def norm_bound(clip_norm: object) -> object:
    """The sensitivity that a function made by `clipped_grad` states; anything else unchanged."""
    return clip_norm.l2_norm_bound if isinstance(clip_norm, BoundedSensitivityCallable) else clip_norm


def precision(array: object) -> float:
    """The relative rounding error of an array's numbers."""
    return float(jnp.finfo(jnp.asarray(array).dtype).eps)  # type: ignore[no-untyped-call]


def key_of(number: int) -> Array:
    """The words of a key, as stored in the state."""
    return jnp.asarray(np.array([number >> 32, number & 0xFFFFFFFF], np.uint32))


def words_from(key: Array, count: int) -> tuple[Array, Array]:
    """The next key, and `count` random words of 32 bits."""
    words = jax.random.bits(jax.random.wrap_key_data(key, impl=_KEYS), (count + 2,), jnp.uint32)
    return words[:2], words[2:]
