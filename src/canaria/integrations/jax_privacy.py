"""Audit training with JAX Privacy: wrap the privatizer, train as always, ask its last state for a bound.

privatizer = gaussian_privatizer(stddev=2.4 * clip_norm)
audit = attach(
    privatizer, params, canaries=1000, clip_norm=clip_norm, noise_multiplier=2.4, sample_rate=0.1
)
noise_state = audit.privatizer.init(params)
...  # every step: noisy, noise_state = audit.privatizer.update(sum_of_clipped_grads, noise_state)
print(audit.report(noise_state, claimed=2.0, delta=1e-5))
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax_privacy.clipping import BoundedSensitivityCallable

from canaria._core import checks, seeds
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.evidence.bound import Bound
from canaria.mechanisms.dpsgd import binomial_law
from canaria.results.conformance import Conformance
from canaria.results.result import Result
from canaria.training.canaries import Dense, Design, Dirac, design_of, hidden_bits
from canaria.training.recording import Recording

__all__ = ["RAW_NORM", "Audit", "AuditState", "CanaryHead", "Dense", "Dirac", "attach"]

RAW_NORM: Final = 10.0
"""The norm of a head's canary before clipping, in units of the clip norm, so that clipping is exercised."""
_ATTACH: Final = 0x61747461
_DRAWS: Final = 0x64726177
PyTree = Any
"""Arrays in any nest of tuples, lists and dicts."""
_KEYS: Final = "threefry2x32"
_FEWEST: Final = 30


class AuditState(NamedTuple):
    """The state of an audited privatizer: plain arrays, saved and restored with the rest of training.

    `noise_state` is the audited privatizer's own; `mark` says which audit the state is of, `key` draws
    participations; `sums` and `table` are those of `canaria.training.Recording`, the table without its
    L(0) = 0. The table assumes the noise multiplier `noise`: the stated one, unless the first step's sums are
    too large or too small for it by five standard errors; then what they show, so that a fault does not blunt
    the audit. The bits are not looked at, so bounds hold either way.
    """

    noise_state: PyTree
    mark: Array
    key: Array
    noise: Array
    sums: Array
    table: Array
    steps: Array


class CanaryHead(NamedTuple):
    """The parameters of a model, and beside them one for each coordinate that carries canaries."""

    model: Any
    canaries: Array


class Audit:
    """An audit that runs along with training; ask it for a bound when training is done.

    Made by `attach`. Train with `privatizer` in the place of the audited one. All that is seen is in its
    state, so `jax.jit`, `jax.lax.scan` and checkpoints work as always; an audit attached again with the same
    arguments and `rng` goes on from a restored state.
    """

    def __init__(
        self,
        audited: PyTree,
        shapes: list[tuple[int, ...]],
        design: Design,
        injection: str,
        settings: tuple[float, float, float],
        seed: int,
    ) -> None:
        self.design, self.injection, self.seed = design, injection, seed
        self.clip_norm, self.noise_multiplier, self.sample_rate = settings
        self._audited = optax.with_extra_args_support(audited)
        self._bits = hidden_bits(design.count, seed)
        self._shapes = shapes + [(design.coordinates,)] * (injection == "head")
        sizes = [math.prod(shape) for shape in self._shapes]
        if injection == "head":
            self._places = [np.arange(0)] * len(shapes) + [np.arange(design.coordinates)]
        else:
            self._places = _spread(sizes, design.coordinates, int(_words(seed, 2)[0]))
        self._dense = jnp.asarray(design.gradients()) if isinstance(design, Dense) else None
        self._most = 0 if isinstance(design, Dense) else design.most
        with np.errstate(divide="ignore"):
            self._law = jnp.asarray(np.log(binomial_law(self._most, self.sample_rate))[1:, :, None])
        made = repr((seed, design, injection, settings, self._shapes)).encode()
        self._mark = np.frombuffer(hashlib.blake2b(made, digest_size=8).digest(), np.uint32)
        self.privatizer: PyTree = optax.GradientTransformationExtraArgs(self._init, self._update)

    def _init(self, params: PyTree) -> AuditState:
        self._require_fitting("params", jax.tree.leaves(params))
        return AuditState(
            self._audited.init(params),
            jnp.asarray(self._mark),
            jnp.asarray(_words(self.seed, 1)),
            jnp.zeros(()) + max(self.noise_multiplier, 1e-3),
            jnp.zeros(self.design.coordinates),
            jnp.zeros((self._most, self.design.coordinates)),
            jnp.zeros((), jnp.int32),
        )

    def _update(
        self, sum_of_clipped_grads: PyTree, noise_state: AuditState, params: PyTree = None, **extra: Any
    ) -> tuple[Any, AuditState]:
        """One step: canaries are added to the sum (injection "sum"), and what comes out is read."""
        leaves, structure = jax.tree.flatten(sum_of_clipped_grads)
        self._require_fitting("sum_of_clipped_grads", leaves)
        key, real = noise_state.key, jnp.zeros(())
        if self.injection == "sum":
            self._require_precise(leaves)
            key, drawn = self._draw(key)
            real = self._read(leaves)
            leaves = self._put(leaves, real, self.clip_norm * drawn.astype(real.dtype))
        noisy, inner = self._audited.update(
            jax.tree.unflatten(structure, leaves), noise_state.noise_state, params, **extra
        )
        seen = (self._read(jax.tree.leaves(noisy)) - real) / self.clip_norm
        seen = seen.astype(noise_state.sums.dtype)
        noise = jnp.where(noise_state.steps == 0, self._noise_in(seen, noise_state.noise), noise_state.noise)
        return noisy, AuditState(
            inner,
            noise_state.mark,
            key,
            noise,
            noise_state.sums + seen,
            noise_state.table + self._grown(seen, noise),
            noise_state.steps + 1,
        )

    def _draw(self, key: Array) -> tuple[Array, Array]:
        """The next key, and the sum of the canaries that take part: a Poisson draw of the auditor's own."""
        count, width = self.design.count, self.design.coordinates
        words = jax.random.bits(jax.random.wrap_key_data(key, impl=_KEYS), (count + 2,), jnp.uint32)
        # Rounded so that the chance is never above the rate.
        least = min(math.ceil((1 - self.sample_rate) * 2**32), 2**32 - 1)
        drawn = ((words[2:] >= np.uint32(least)) & (self._bits > 0)).astype(jnp.float32)
        if self._dense is not None:
            return words[:2], jnp.matmul(drawn, self._dense, precision="highest")
        stacked = jnp.pad(drawn, (0, self._most * width - count)).reshape(self._most, width)
        return words[:2], stacked.sum(axis=0)

    def _read(self, leaves: list[Any]) -> Array:
        """The values at the canaries' places, in single precision or better."""
        parts = [
            leaf.reshape(-1)[places].astype(jnp.promote_types(leaf.dtype, jnp.float32))
            for leaf, places in zip(leaves, self._places, strict=True)
            if len(places)
        ]
        return jnp.concatenate(parts)

    def _put(self, leaves: list[Any], real: Array, added: Array) -> list[Any]:
        """The leaves with the real part and the canaries at the places, in their own precision.

        Rounding is toward the real part, so that canaries never weigh more than they should.
        """
        ends = np.cumsum([len(places) for places in self._places])[:-1]
        parts = zip(leaves, self._places, jnp.split(real, ends), jnp.split(added, ends), strict=True)
        return [_with(*part) if len(part[1]) else part[0] for part in parts]

    def _noise_in(self, seen: Array, stated: Array) -> Array:
        """The stated noise, or what one step's sums show if that is clearly another."""
        if len(seen) <= _FEWEST:
            return stated
        squares, mean = seen**2, self._most * self.sample_rate / 2
        variance = squares.mean() - mean * (1 - self.sample_rate / 2) - mean**2
        clear = abs(variance - stated**2) > 5 * squares.std() / math.sqrt(len(seen))
        return jnp.where(clear, jnp.sqrt(jnp.maximum(variance, (stated / 20) ** 2)), stated)

    def _grown(self, seen: Array, noise: Array) -> Array:
        """Ln sum_j Bin(j; m, q) phi((y - j) / sigma), less that of m = 0, for m = 1 ... s."""
        counts = np.arange(self._most + 1)[:, None]
        exponents = (seen - counts / 2) * (counts / noise**2)
        return jax.nn.logsumexp(self._law + exponents, axis=1).astype(seen.dtype)

    def _require_precise(self, leaves: list[Any]) -> None:
        """Refuse sums in which a canary could be rounded away."""
        for leaf, places in zip(leaves, self._places, strict=True):
            if len(places) and leaf.dtype.itemsize < 4:
                raise InputError(
                    f"injection='sum' adds canaries to the clipped sum, which {leaf.dtype} would round away; "
                    "cast the sum to float32 before the privatizer (its noise needs that, too), or use 'head'"
                )

    def _require_fitting(self, name: str, leaves: list[Any]) -> None:
        shapes = [jnp.shape(leaf) for leaf in leaves]
        if shapes != self._shapes:
            beside = ", with the canary head beside" if self.injection == "head" else ""
            raise InputError(
                f"{name} must have the arrays that the audit was attached to{beside}, "
                f"{shown(self._shapes)}, got {shown(shapes)}"
            )

    def with_canary_head(
        self, loss: Callable[..., Any], params: PyTree
    ) -> tuple[Callable[..., Any], CanaryHead]:
        """The loss and the parameters to train with when `injection="head"`.

        Where `loss(params, batch, ...)` takes its batch, the new loss takes a pair (`which`, batch), where
        `which` (see `rows`) is -1 for real rows, whose loss is unchanged. The loss of a canary row pulls on
        the head alone, by 10 clip norms; that of an excluded one is 0. Sample from real rows and all canaries
        alike; the audited model is `params.model`.
        """
        if self.injection != "head":
            raise InputError(f"a canary head goes with injection='head', got injection={self.injection!r}")
        included = jnp.asarray(self._bits > 0)

        def with_canaries(params: CanaryHead, batch: tuple[Any, Any], *rest: Any, **more: Any) -> Any:
            which, rows = batch
            answer = loss(params.model, rows, *rest, **more)
            value, *aux = answer if isinstance(answer, tuple) else (answer,)
            canary = jnp.ravel(which)[0]
            if self._dense is None:
                along = params.canaries[canary % self.design.coordinates]
            else:
                along = self._dense[canary] @ params.canaries
            pull = RAW_NORM * self.clip_norm * included[canary] * along
            value = jnp.where(canary < 0, value, pull.astype(jnp.result_type(value)))
            return (value, *aux) if isinstance(answer, tuple) else value

        kind = jnp.result_type(*jax.tree.leaves(params))
        return with_canaries, CanaryHead(params, jnp.zeros(self.design.coordinates, kind))

    def rows(self, indices: PyTree, real: int) -> tuple[Any, Any]:
        """For indices sampled from `real` rows and the canaries after them: which canary, and which real row.

        -1 stands for no canary; a canary looks like some real row. Negative indices (padding) stay.
        """
        drawn = np.asarray(indices, dtype=np.int64)
        rows = checks.integer("real", real, 1) + self.design.count
        if drawn.size and drawn.max() >= rows:
            raise InputError(
                f"indices must be below {rows}, {real} real rows and {self.design.count} canaries, "
                f"got {drawn.max()}"
            )
        canary = drawn >= real
        return np.where(canary, drawn - real, -1), np.where(canary, drawn % real, drawn)

    def recording(self, state: PyTree) -> Recording:
        """What was seen up to this state (the privatizer's, or one that holds it), free of JAX."""
        ours = _state_in(state)
        if not np.array_equal(np.asarray(ours.mark), self._mark):
            raise InputError(
                "the state is of another audit; attach with the same arguments and rng as where it began"
            )
        table = np.asarray(ours.table, np.float64)
        return Recording(
            design=self.design,
            bits=self._bits.copy(),
            sums=np.asarray(ours.sums, np.float64),
            table=None if self._most == 0 else np.concatenate([np.zeros_like(table[:1]), table]).T.copy(),
            steps=int(ours.steps),
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            injection=self.injection,
            seed=self.seed,
            layers=tuple(len(places) for places in self._places if len(places)),
        )

    def bound(self, state: PyTree, delta: float = 0.0, confidence: float = 0.95, **how: Any) -> Bound:
        """The lower bound on epsilon that training proves up to this state; see `Recording.bound`."""
        return self.recording(state).bound(delta, confidence, **how)

    def report(
        self,
        state: PyTree,
        claimed: float | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        **how: Any,
    ) -> Result:
        """Bound, claim and conformance in one text; see `Recording.report`."""
        return self.recording(state).report(claimed, delta, confidence, **how)

    def conformance(
        self,
        state: PyTree,
        noise_multiplier: float | None = None,
        sample_rate: float | None = None,
        steps: int | None = None,
    ) -> Conformance:
        """Whether the sums are what correct training would show; see `canaria.conformance`."""
        return self.recording(state).conformance(noise_multiplier, sample_rate, steps)


def attach(
    privatizer: PyTree,
    params: PyTree,
    *,
    canaries: int | Dense | Dirac,
    clip_norm: Any,
    noise_multiplier: float,
    sample_rate: float,
    per_coordinate: int = 1,
    injection: str = "sum",
    rng: Seed = None,
) -> Audit:
    """An audit whose `privatizer` takes the place of `privatizer` in a training step.

    With injection "sum", canaries are as large as `clip_norm` and as frequent as `sample_rate` say. If these
    are above what training does, so is the bound; conformance shows a wrong clip norm. On several devices,
    the sum must be that of all, and the noise all of the noise. Correlated noise (matrix factorization) is
    accounted for with a sampling pattern of its own: use "head" for it, and no conformance.

    Args:
        privatizer: What adds the noise, such as `gaussian_privatizer` makes.
        params: The parameters that are trained.
        canaries: A number of Dirac canaries, or a design such as `Dense`.
        clip_norm: The most that one row adds to the clipped sum: a number, or the function that
            `jax_privacy.clipped_grad` returned, which knows it (and whether it normalises).
        noise_multiplier: The noise that training states, in clip norms.
        sample_rate: How often training draws a row.
        per_coordinate: How many Dirac canaries share a weight.
        injection: How canaries are injected. "sum": added to the clipped sum by a Poisson draw of our own;
            the data are left alone. "head": a parameter of its own, see `Audit.with_canary_head`; your
            sampler and clipper decide.
        rng: A seed for the hidden bits, the places and the draws of the canaries.

    Returns:
        The audit; ask it for a bound or a report of the last state of its privatizer.

    Raises:
        InputError: If an argument cannot be used.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> from jax_privacy.noise_addition import gaussian_privatizer
        >>> params = jnp.zeros(400)
        >>> stated = {"clip_norm": 1.0, "noise_multiplier": 0.5, "sample_rate": 1.0}
        >>> audit = attach(gaussian_privatizer(stddev=0.5, prng_key=0), params, canaries=400, rng=0, **stated)
        >>> state = audit.privatizer.init(params)
        >>> noisy, state = jax.jit(audit.privatizer.update)(jnp.ones(400), state)
        >>> audit.bound(state, delta=1e-5).epsilon > 2
        True

    """
    if injection not in ("sum", "head"):
        raise InputError(f"injection must be 'sum' or 'head', got {shown(injection)}")
    if not isinstance(privatizer, optax.GradientTransformation):
        raise InputError(
            "privatizer must be an optax.GradientTransformation such as gaussian_privatizer makes, "
            f"got {type(privatizer).__name__}"
        )
    design = design_of(canaries, per_coordinate)
    settings = _settings(clip_norm, noise_multiplier, sample_rate)
    shapes = _shapes(params)
    weights = sum(map(math.prod, shapes))
    if injection == "sum" and design.coordinates > weights:
        most = weights * getattr(design, "per_coordinate", 1)
        raise InputError(
            f"canaries need {design.coordinates} coordinates, but params hold {weights} weights; "
            f"take at most {most} canaries, or more per coordinate"
        )
    seed = int(seeds.generator(rng, _ATTACH).integers(2**62))
    return Audit(privatizer, shapes, design, injection, settings, seed)


def _settings(clip_norm: Any, noise_multiplier: float, sample_rate: float) -> tuple[float, float, float]:
    norm = clip_norm.l2_norm_bound if isinstance(clip_norm, BoundedSensitivityCallable) else clip_norm
    if not 0 < checks.real("clip_norm", norm) < math.inf:
        raise InputError(f"clip_norm must be positive and finite, got {shown(norm)}")
    if not 0 <= checks.real("noise_multiplier", noise_multiplier) < math.inf:
        raise InputError(f"noise_multiplier must be at least 0 and finite, got {shown(noise_multiplier)}")
    if not 0 < checks.real("sample_rate", sample_rate) <= 1:
        raise InputError(f"sample_rate must be above 0 and at most 1, got {shown(sample_rate)}")
    return float(norm), float(noise_multiplier), float(sample_rate)


def _shapes(params: PyTree) -> list[tuple[int, ...]]:
    leaves = jax.tree.leaves(params)
    for leaf in leaves:
        if not jnp.issubdtype(getattr(leaf, "dtype", type(leaf)), jnp.floating):
            raise InputError(f"params must hold arrays of floating-point numbers, got {shown(leaf)}")
    if not leaves:
        raise InputError(f"params must hold arrays of floating-point numbers, got {shown(params)}")
    return [jnp.shape(leaf) for leaf in leaves]


def _words(seed: int, purpose: int) -> Any:
    """Random words that follow from the seed."""
    return np.random.SeedSequence(seed, spawn_key=(_DRAWS, purpose)).generate_state(2, np.uint32)


def _spread(sizes: list[int], count: int, word: int) -> list[Any]:
    """`count` places at equal distances in arrays of these sizes laid end to end, from a random one on."""
    ends = np.cumsum(sizes)
    stride = int(ends[-1]) // count
    places = word % stride + stride * np.arange(count)
    return [
        places[(places >= end - size) & (places < end)] - (end - size)
        for end, size in zip(ends, sizes, strict=True)
    ]


def _with(leaf: Array, places: Any, real: Array, added: Array) -> Array:
    """A leaf that holds real + added at the places, or the next number toward real where that is more."""
    near = (real + added).astype(leaf.dtype)
    over = abs(near.astype(real.dtype) - real) > abs(added)
    values = jnp.where(over, jnp.nextafter(near, real.astype(leaf.dtype)), near)
    return leaf.reshape(-1).at[places].set(values).reshape(leaf.shape)


def _state_in(state: PyTree) -> AuditState:
    """The one state of an audited privatizer that a state, such as that of optax.chain, holds."""
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, AuditState))
    ours = [part for part in parts if isinstance(part, AuditState)]
    if len(ours) != 1:
        raise InputError(
            f"the state must hold that of one audited privatizer (audit.privatizer), got {len(ours)} "
            f"in {shown(type(state).__name__)}"
        )
    return ours[0]
