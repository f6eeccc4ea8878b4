"""An audited privatizer: canaries in, noisy sums out, step by step, all in its state."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, NamedTuple

import jax
import numpy as np
import optax
from jax import Array
from jax import numpy as jnp

from canaria._core.errors import InputError, shown
from canaria.bounds.bound import Bound
from canaria.bounds.conformance import Conformance
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.integrations.jax_privacy._accumulator import Accumulated, Accumulator
from canaria.integrations.jax_privacy._checks import Training, require_fitting
from canaria.integrations.jax_privacy._head import CanaryHead, with_canary_head
from canaria.integrations.jax_privacy._injections import Coins, Draw, Head, Sum, Turns
from canaria.integrations.jax_privacy._internals import Uses, key_of
from canaria.integrations.jax_privacy._places import Places
from canaria.integrations.jax_privacy._residuals import Residuals
from canaria.integrations.jax_privacy._rows import rows_of
from canaria.integrations.jax_privacy._watch import Watched
from canaria.integrations.jax_privacy._whitening import Readings, Whitening
from canaria.training.canaries.designs import DRAWS, HEAD_PARAMETERS, PLACES, Design, derived, hidden_bits
from canaria.training.canaries.sampling import POISSON, Schedule
from canaria.training.canaries.witnesses import layout
from canaria.training.conformance.accounts import counted
from canaria.training.conformance.clipping import too_heavy
from canaria.training.conformance.names import numbered
from canaria.training.findings import Findings
from canaria.training.likelihood import accumulator
from canaria.training.recording import Recording
from canaria.training.watch import Watch

PyTree = Any
"""Arrays in any nested structure of tuples, lists and dicts."""
_MISSING: Final = (
    "the noise state is not carried from step to step, or begins again, so the same noise is added again"
)
_UNSEEN: Final = "no training step was seen; ask for the state that the last update returned"
_STEPS_UNKNOWN: Final = (
    "the number of steps is not stated (attach with steps=), and a noise state that is not carried looks "
    "like a shorter training whose noise is fresh"
)
_USED_AGAIN: Final = (
    "a noise state was used in several updates: the same noise was added to each of their sums, so their "
    "difference has none"
)


class AuditState(NamedTuple):
    """The state of an audited privatizer: plain arrays, saved and restored with the rest of training.

    Attributes:
        noise_state: The state of the audited privatizer.
        mark: A fingerprint of the audit that the state belongs to.
        key: The random key for participations.
        heaviest: The largest weight of the canaries before the noise, in clip norms.
        accumulated: The totals so far.
        readings: For correlated noise, the values of single steps; else empty.
        residuals: For independent noise, a row of `beside_the_noise` for each of the first steps; else empty.

    Example:
        ```python
        noise_state = audit.privatizer.init(params)
        gradients, noise_state = audit.privatizer.update(gradients, noise_state)
        audit.bound(noise_state, delta=1e-5)
        ```
    """

    noise_state: PyTree
    mark: Array
    key: Array
    heaviest: Array
    accumulated: Accumulated
    readings: Readings | tuple[()]
    residuals: Array


class Audit:
    """An audit that runs along with training and gives a bound afterwards.

    Made by `attach`. Train with its `privatizer` instead of yours. All observations are in the privatizer's
    state, so `jax.jit`, `jax.lax.scan` and checkpoints work as usual. An audit that is attached again with
    the same arguments and `rng` continues from a restored state.

    Example:
        ```python
        stated = {"clip_norm": 1.0, "noise_multiplier": 1.1, "sample_rate": 0.01}
        audit = attach(privatizer, params, canaries=1000, **stated)
        ...  # train with audit.privatizer
        print(audit.report(noise_state, claimed=2.0, delta=1e-5))
        ```
    """

    def __init__(
        self,
        audited: PyTree,
        shapes: list[tuple[int, ...]],
        design: Design,
        injection: str,
        seed: int,
        *,
        training: Training,
        coarse: list[int],
    ) -> None:
        self.design, self.injection, self.seed, self._training = design, injection, seed, training
        self.clip_norm, self.noise_multiplier = training.clip_norm, training.noise_multiplier
        self.sample_rate = training.sample_rate
        self.correlation = correlation = training.correlation
        self._uses, self._used_again = Uses(), False
        self._unit = self.noise_multiplier if correlation is None else correlation.mechanism.deviation
        self._audited = optax.with_extra_args_support(audited)
        self._bits = hidden_bits(design.count, seed)
        home: list[int] = []
        if injection == "head":
            home = [len(shapes) + one for one in range(HEAD_PARAMETERS)]
            shapes = [*shapes, *[(design.coordinates,)] * HEAD_PARAMETERS]
        rng = np.random.default_rng(derived(seed, PLACES))
        places = Places(layout(shapes, design.coordinates, rng, home=home, coarse=coarse))
        self._injection = self._injected(shapes, places)
        specified = accumulator.Accumulator.of(
            design, places.layers, places.roles, sample_rate=self.sample_rate
        )
        self._accumulator = Accumulator(
            specified if correlation is None else replace(specified, most=0), self._unit
        )
        known = correlation is None
        deviation = self.clip_norm * self.noise_multiplier
        self._residuals = Residuals(shapes, numbered(shapes), deviation, known=known)
        self._whitening: Whitening | None = None
        settings = self.clip_norm, self.noise_multiplier, self.sample_rate
        # Audits for which all of this is equal have the same canaries at the same places.
        made = repr((seed, design, injection, settings, self._injection.shapes)).encode()
        if correlation is not None:
            strategy = correlation.mechanism.strategy
            self._whitening = Whitening(strategy, design.coordinates, places.roles)
            made += repr(correlation.mechanism.participation).encode() + strategy.back().tobytes()
        self._mark = np.frombuffer(hashlib.blake2b(made, digest_size=8).digest(), np.uint32)
        self._watched: Watched | None = None
        self.privatizer: PyTree = optax.GradientTransformationExtraArgs(self._init, self._update)

    def _injected(self, shapes: list[tuple[int, ...]], places: Places) -> Sum | Head:
        if self.injection == "head":
            return Head(shapes, places)
        if self.correlation is None:
            draw: Draw = Coins(self.design, self._bits, self.sample_rate)
        else:
            rng = np.random.default_rng(derived(self.seed, DRAWS))
            draw = Turns(self.correlation, self._bits, rng)
        return Sum(shapes, places, self.clip_norm, draw)

    def _init(self, params: PyTree) -> AuditState:
        self._require_fitting("params", jax.tree.leaves(params))
        key, inner = key_of(derived(self.seed, DRAWS)), self._audited.init(params)
        if _states_in(inner):
            raise InputError(
                "privatizer is audited already: of two audits of one training, each would take the other's "
                "canaries for noise; attach one, with more canaries"
            )
        readings = () if self._whitening is None else self._whitening.begin()
        mark, accumulated = jnp.asarray(self._mark), self._accumulator.begin()
        return AuditState(inner, mark, key, jnp.zeros(()), accumulated, readings, self._residuals.begin())

    def _update(
        self, sum_of_clipped_grads: PyTree, noise_state: AuditState, params: PyTree = None, **extra: Any
    ) -> tuple[Any, AuditState]:
        """Do one step: add canaries to the sum (injection "sum"), add the noise, and read the result."""
        leaves, structure = jax.tree.flatten(sum_of_clipped_grads)
        self._require_fitting("sum_of_clipped_grads", leaves)
        leaves, real, key = self._injection.add(leaves, noise_state.key, noise_state.accumulated.steps)
        places = self._injection.places
        heaviest = noise_state.heaviest
        if self.injection == "head":
            most = self.clip_norm * getattr(self.design, "most", 1)
            heaviest = jnp.maximum(heaviest, abs(places.read(leaves)).max() / most)
        noisy, inner = self._audited.update(
            jax.tree.unflatten(structure, leaves), noise_state.noise_state, params, **extra
        )
        read = jax.tree.leaves(noisy)
        added = (
            (places.read(read) - real) / self.clip_norm,
            (places.read_witnesses(read) - places.read_witnesses(leaves)) / self.clip_norm,
            places.totals(read, leaves) / self.clip_norm,
        )
        accumulated, readings = self._added(noise_state, *added)
        place = noise_state.accumulated.steps
        residuals = self._residuals.add(noise_state.residuals, place, read, leaves)
        # The state cannot show that it was used twice: training continues from only one of the updates. This
        # detects two updates with the very same array, if both are in one jitted step or in none.
        self._used_again |= self._uses.again(noise_state.accumulated.steps)
        return noisy, AuditState(inner, noise_state.mark, key, heaviest, accumulated, readings, residuals)

    def _added(
        self, state: AuditState, seen: Array, noise: Array, whole: Array
    ) -> tuple[Accumulated, Readings | tuple[()]]:
        """Add a step to the totals, with correlated noise whitened; steps beyond the last one are ignored."""
        if self._whitening is None or not isinstance(state.readings, Readings):
            return self._accumulator.add(state.accumulated, seen, noise, whole), ()
        readings, white = self._whitening.add(state.readings, seen, jnp.concatenate([noise, whole]))
        accumulated: Accumulated = jax.lax.cond(
            state.readings.steps < self._whitening.steps,
            lambda before: self._accumulator.add(before, seen, white[: len(noise)], white[len(noise) :]),
            lambda before: before,
            state.accumulated,
        )
        return accumulated, readings

    def _require_fitting(self, name: str, leaves: list[Array]) -> None:
        require_fitting(name, leaves, self._injection.shapes, self.injection)

    def with_canary_head(
        self, loss: Callable[..., Any], params: PyTree
    ) -> tuple[Callable[..., Any], CanaryHead]:
        """The loss and the parameters to train with if `injection="head"`.

        The new loss takes a pair (`which`, batch) instead of the batch of `loss(params, batch, ...)`. `which`
        (see `rows`) is -1 for real rows, whose loss is unchanged. The loss of a canary row has a gradient in
        the head alone, far larger than the clip norm; that of an excluded one is 0. Sample from real rows and
        all canaries alike. The audited model is `params.model`.
        """
        if self.injection != "head":
            raise InputError(f"a canary head goes with injection='head', got injection={self.injection!r}")
        return with_canary_head(loss, params, self.design, self._bits, self.clip_norm)

    def rows(self, indices: PyTree, real: int) -> tuple[Any, Any]:
        """Split indices sampled from `real` rows followed by the canaries into canaries and real rows.

        Non-canaries get -1. Canaries get the index of some real row. Negative indices (padding) are kept.
        """
        return rows_of(indices, real, self.design.count, self._training.groups)

    def watch(self, watch: Watch | None = None, **how: Any) -> Watch:
        """Watch the noise, with an alarm. Call `look` with the state after each step, or every few steps.

        Bounds hold whether or not training is stopped, because the noise does not depend on the hidden bits.
        Give a `canaria.training.Watch` or its arguments.

        Example:
            ```python
            audit.watch(alpha=1e-3, on_alarm="stop", log="terminal", delta=1e-5)
            for batch in batches:
                params, noise_state = step(params, noise_state, batch)
                audit.look(noise_state)
            ```
        """
        watch = Watch(**how) if watch is None else watch
        if watch.delta is not None and self.correlation is not None:
            raise InputError(
                "delta needs independent noise: for correlated noise, the watch shows only the size"
            )
        if self.noise_multiplier == 0:
            raise InputError("no noise is stated, so there is none to watch")
        roles, count = self._injection.places.roles, sum(self._injection.places.layers)
        if len(roles.index) == 0:
            raise InputError("no weight without canaries is left to show the noise; use fewer canaries")
        watch.begin(self.sample_rate)
        witnesses = slice(count, count + len(roles.index))
        self._watched = Watched(watch, witnesses, self._unit, self.noise_multiplier)
        return watch

    def look(self, state: PyTree) -> None:
        """Watch the steps up to this state. Call it at least once every 16 steps."""
        if self._watched is None:
            raise InputError("nothing watches this training; call audit.watch() first")
        self._watched.look(_state_in(state).accumulated)

    def recording(self, state: PyTree, *, unfinished: bool = False) -> Recording:
        """The record up to this state (the privatizer's, or one that contains it), without JAX arrays.

        Set `unfinished` if training was stopped early or continues, so that steps are missing on purpose.
        """
        ours = _state_in(state)
        if not np.array_equal(np.asarray(ours.mark), self._mark):
            raise InputError(
                "the state is of another audit; attach with the same arguments and rng as at its start"
            )
        # With correlated noise, steps beyond those of the strategy are counted, but not added to the totals.
        made = int((ours.readings or ours.accumulated).steps)
        return Recording(
            **self._seen(ours),
            design=self.design,
            bits=self._bits.copy(),
            sample_rate=self.sample_rate,
            injection=self.injection,
            seed=self.seed,
            layers=self._injection.places.layers,
            parameters=numbered(self._injection.shapes),
            roles=self._injection.places.roles,
            by_the_optimizer=False,
            findings=self._findings(ours, made, unfinished=unfinished),
            ended="" if made else _UNSEEN,
        )

    def _findings(self, ours: AuditState, made: int, *, unfinished: bool) -> Findings:
        """What the arguments, the weight of canaries, and the number of steps and uses show."""
        # Canaries of a head are clipped by the user's clipper. Others join the sum after it.
        heavy = too_heavy(float(ours.heaviest), self.design) if self.injection == "head" else ()
        unknown = self._training.steps is None and not unfinished
        return (
            self._training.findings
            + Findings(contradictions=heavy, doubts=(_STEPS_UNKNOWN,) * unknown)
            + counted(made, self._training.steps, _MISSING, unfinished=unfinished)
            + Findings(contradictions=(_USED_AGAIN,) * self._used_again)
            + self._residuals.findings(ours.residuals, made)
        )

    def _seen(self, ours: AuditState) -> dict[str, Any]:
        """The fields of a recording that the state determines."""
        sums, likelihoods, witnessed = self._accumulator.totals(ours.accumulated)
        steps, noise, readings = int(ours.accumulated.steps), self.noise_multiplier, ours.readings
        sampling: Schedule = POISSON
        table = accumulator.table_of(likelihoods) if len(likelihoods) else None
        whitening = self._whitening if steps else None  # of no step there is nothing to whiten
        if self.correlation is not None and whitening is not None and isinstance(readings, Readings):
            # The stated noise is over the sensitivity of all steps. Here it is over that of the steps so far.
            so_far = self.correlation.first(steps)
            noise, sampling = so_far.mechanism.noise_multiplier, so_far
            witnessed = witnessed._replace(released=so_far.released(whitening.squares(readings)))
            table = so_far.table(whitening.seen(readings), witnessed)
        return {
            "sums": sums,
            "steps": steps,
            "noise_multiplier": noise,
            "sampling": sampling,
            "table": table,
            "witnessed": witnessed,
        }

    def bound(self, state: PyTree, delta: float = 0.0, confidence: float = 0.95, **how: Any) -> Bound:
        """The lower bound on epsilon from training up to this state; see `Recording.bound`."""
        return self.recording(state, unfinished=True).bound(delta, confidence, **how)

    def report(
        self,
        state: PyTree,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        *,
        unfinished: bool = False,
        **how: Any,
    ) -> Result:
        """Report bound, claim and conformance; see `recording` and `Recording.report`."""
        return self.recording(state, unfinished=unfinished).report(claimed, delta, confidence, **how)

    def conformance(
        self,
        state: PyTree,
        *,
        steps: int | None = None,
        sample_rate: float | None = None,
        noise_multiplier: float | None = None,
    ) -> Conformance:
        """Test whether the sums are those of correct training; see `Recorded.conformance`."""
        return self.recording(state).conformance(
            steps=steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier
        )


def _state_in(state: PyTree) -> AuditState:
    """The only audited state within a state, such as that of optax.chain."""
    ours = _states_in(state)
    if len(ours) != 1:
        raise InputError(
            f"the state must hold that of one audited privatizer (audit.privatizer), got {len(ours)} "
            f"in {shown(type(state).__name__)}"
        )
    return ours[0]


def _states_in(state: PyTree) -> list[AuditState]:
    parts = jax.tree.leaves(state, is_leaf=lambda part: isinstance(part, AuditState))
    return [part for part in parts if isinstance(part, AuditState)]
