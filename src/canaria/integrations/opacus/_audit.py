"""An audit attached to training with Opacus: canaries in, noisy sums out, step by step."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import Tensor

from canaria._core.arrays import Floats
from canaria._core.errors import AuditWarning, InputError, NoiseAlarmError, shown
from canaria.integrations.opacus._accumulator import Accumulator
from canaria.integrations.opacus._checks import disagreements_with, require_counted, require_unused
from canaria.integrations.opacus._injections import MAKERS, Injection
from canaria.integrations.opacus._internals import (
    GhostClipper,
    OnBatch,
    after_noise,
    batches_of,
    before_clipping,
    before_noise,
    before_update,
    clip_norm_of,
    clips_adaptively,
    clips_by_ghost,
    divisor,
    is_distributed,
    is_together,
    layer_norms,
    noise_added,
    processes,
    rate_of,
    sum_waits,
)
from canaria.integrations.opacus._reader import Reader, Step
from canaria.integrations.opacus._rows import Draws
from canaria.integrations.opacus._watch import Watched
from canaria.training import accumulator
from canaria.training.accounts import Account
from canaria.training.accumulator import HELD
from canaria.training.canaries import Design, Dirac, hidden_bits
from canaria.training.conformance import Rounding
from canaria.training.recorded import Recorded
from canaria.training.recording import Recording
from canaria.training.sampling import Sampling
from canaria.training.watch import Reading, Watch

_VERSION: Final = 2
_MOST_ROUNDING: Final = 0.01
"""What rounding may add to the variance of the noise; it is not independent of it where it adds more."""


class _Stated(NamedTuple):
    """The noise that is stated for a step, and what its accountant is told."""

    noise: float
    told: float


class Audit(Recorded):
    """An audit that runs along with training; ask it for a bound when training is done.

    Made by `attach`. Nothing it shows during training depends on the hidden bits.

    Example:
        ```python
        audit = attach(optimizer, loader, injection="sum", canaries=1000)
        ...  # train as always
        audit.bound(delta=1e-5)  # a lower bound on epsilon
        audit.conformance()  # does training add the noise that it states?
        audit.report(claimed=2.0, delta=1e-5).save("result.json")
        ```

    """

    def __init__(
        self,
        optimizer: DPOptimizer,
        data_loader: DPDataLoader,
        design: Design,
        injection: str,
        seed: int,
        *,
        noise_multiplier: float | None,
        on_error: str,
        begun: bool,
        sampling: Sampling,
        clippers: Sequence[GhostClipper],
    ) -> None:
        self.optimizer, self._design, self.injection = optimizer, design, injection
        self._clippers = clippers
        self._stated, self._on_error = noise_multiplier, on_error
        self.sampling = (
            sampling if sampling.is_poisson else replace(sampling, batches=batches_of(data_loader))
        )
        self._draws = Draws(data_loader, self.sampling, begun=begun, followed=injection == "rows")
        self._account = Account()
        self._begun, self._ended, self._failed = False, "", ""
        self.shares_accountant: Callable[[], bool] = lambda: False
        self._earlier: tuple[str, ...] = ()
        self._watched: Watched | None = None
        self._watched_before: dict[str, Any] | None = None
        self.sample_rate = rate_of(data_loader)
        self._weights = sum(parameter.numel() for parameter in optimizer.params)
        self._own: Tensor | None = None
        self._waits = False
        self._clip_norm = 0.0
        self._now: _Stated | None = None
        optimizer.canaria_audit = self
        self._build(seed)
        self._undo = [
            before_clipping(optimizer, lambda: self._guarded(self._before_clipping)),
            before_noise(optimizer, lambda: self._guarded(self._before_noise)),
            after_noise(optimizer, lambda: self._guarded(self._after_noise)),
            before_update(optimizer, self._before_update),
        ]

    def _build(self, seed: int) -> None:
        """Everything that follows from the seed: bits, places, draws."""
        self.seed = seed
        self._bits = hidden_bits(self._design.count, seed)
        self._injection: Injection = MAKERS[self.injection](
            self.optimizer, self._draws, self._design, self._bits, seed
        )
        places = self._injection.places
        specified = accumulator.Accumulator.of(
            self._design,
            places.layers,
            places.roles,
            sample_rate=self.sample_rate,
            sampling=self.sampling,
        )
        held = HELD if places.together == 1 else 4 * HELD
        kept = Accumulator(specified, self.optimizer.params[0].device, held=held)
        self._several, self._ghost = processes(self.optimizer) > 1, clips_by_ghost(self.optimizer)
        self._together = is_together(self.optimizer)
        self._reader = Reader(places, kept, seed, totals=not self._several)
        self._layer_norms = layer_norms(self.optimizer)
        self._rounding: Tensor | float = 0.0

    @property
    def _accumulator(self) -> Accumulator:
        return self._reader.accumulated()

    def _guarded(self, do: Callable[[], None]) -> None:
        """Do it, unless the audit has ended; an error ends it, and training goes on if that is asked for."""
        if self._ended:
            return
        try:
            do()
        except NoiseAlarmError:
            raise
        except Exception as error:
            if self._on_error == "raise" or (self._watched and error is self._watched.watch.raised):
                raise
            self._end(error)

    def _end(self, why: object) -> None:
        self._draws.release()
        self._ended = self._failed = f"nothing was seen after step {self.steps}: {why}"
        warnings.warn(f"the audit ended, training goes on: {why}", AuditWarning, stacklevel=5)

    def _before_update(self) -> None:
        if self._together:
            self._tell_others()
        self._guarded(self._read)

    def _tell_others(self) -> None:
        """Processes share the heaviest canary that one has seen; where one audit has ended, all do.

        Else the others would wait for its sums, or take a gradient for them.
        """
        own = self._injection.heaviest.float()
        shared = torch.stack([own, torch.full_like(own, bool(self._ended))])
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
        self._injection.heaviest, ended = shared
        if ended > 0:
            self._together = False
            if not self._ended:
                self._end("the audit of another process has ended")

    def _noise(self) -> float:
        """The noise multiplier that is stated for this step."""
        return noise_added(self.optimizer) if self._stated is None else self._stated

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier that is stated, its root mean square over the steps."""
        if not self.steps:
            return self._noise()
        return self._injection.share * math.sqrt(self._accumulator.noise_square / self.steps)

    def _before_clipping(self) -> None:
        """Take the norm that noise must be for: a step's largest, if its rows come in several batches."""
        earlier = self._clip_norm if sum_waits(self.optimizer) else 0.0
        self._clip_norm = max(earlier, clip_norm_of(self.optimizer, self._clippers))
        if not self._ghost:
            self._injection.before_clipping()

    def _before_noise(self) -> None:
        places = self._injection.places
        if not self._ghost and places.accumulated():
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        places.require_trained()
        if self._layer_norms and layer_norms(self.optimizer) != self._layer_norms:
            raise InputError("the norms that layers are clipped to changed; a canary has those of attaching")
        if not self._begun:
            require_unused(self.optimizer)
        self._begun = True
        self._reader.begin()
        clip_norm = clip_norm_of(self.optimizer)
        self._clip_norm = self._clip_norm or clip_norm
        self._own = self._injection.before_noise(min(clip_norm, self._clip_norm))
        self._waits, self._now = True, None
        self._draws.count_step()

    def _after_noise(self) -> None:
        """Take what is stated as the accountant is told it: what holds while noise is added may be a fault.

        And step hooks may set that of the next step.
        """
        self._now = self._stated_now()

    def _stated_now(self) -> _Stated:
        return _Stated(self._noise(), float(self.optimizer.noise_multiplier))

    def _read(self) -> None:
        """Read the gradient as the model will get it, after noise, scaling and reduction."""
        now, places = self._now or self._stated_now(), self._injection.places
        if not self._waits:
            raise InputError(
                "a step was made past the audit: the private optimizer's add_noise was replaced after "
                "attaching, or the original optimizer was stepped itself"
            )
        self._waits = False
        everybody = self._reduced_sums() if self._several else None
        scale = divisor(self.optimizer)
        places.subtract_gradients(scale)
        share = self._injection.share
        clip_norm, self._clip_norm = self._clip_norm * share, 0.0
        if (rounding := places.rounding(scale)) is not None:
            units = torch.tensor([[clip_norm], [clip_norm**2]], device=rounding.device)
            self._rounding = self._rounding + rounding / units
        self._reader.add(Step(everybody, self._own, clip_norm, now.noise / share))
        self._account.add(now.told, self.sample_rate)
        if self._watched is not None and self._watched.due():
            values, told = self._accumulator.witnesses(self._watched.watch.every)
            self._watched.add(values, [(stated * share, unit) for stated, unit in told])

    def _reduced_sums(self) -> Tensor:
        """The clipped sums of all processes at the places, in the stead of our own."""
        places = self._injection.places
        sums = places.read(torch.empty(places.all, device=self.optimizer.params[0].device))
        torch.distributed.all_reduce(sums)
        places.forget_sums()
        if self._own is not None:
            torch.distributed.all_reduce(self._own)
        return sums

    def watch(
        self,
        *,
        alpha: float = 1e-3,
        every: int = 1,
        on_alarm: str | Callable[[Reading], None] = "stop",
        log: Any = None,
        log_every: int = 50,
        delta: float | None = None,
    ) -> Watch:
        """Watch the noise from the next step on, with an alarm; see `canaria.training.Watch`.

        Bounds hold whether or not training is stopped: what is watched knows nothing of the hidden bits.

        Args:
            alpha: The probability with which correct training raises the alarm, at most, over all its steps.
            every: The alarm is looked at every so many steps, at most 16; rarely costs less.
            on_alarm: "stop", "warn", or a function of the `Reading`.
            log: Where readings go, such as "terminal" or a TensorBoard writer.
            log_every: Readings are logged every so many steps.
            delta: The delta at which epsilon is implied.

        Returns:
            The watch, to be asked for its `reading()`.

        Raises:
            InputError: If an argument is not usable, or if no weight shows its noise alone.

        Example:
            ```python
            audit = attach(optimizer, loader, injection="sum", canaries=1000)
            audit.watch(alpha=1e-3, on_alarm="stop", log="terminal", delta=1e-5)
            ```

        """
        watch = Watch(alpha=alpha, every=every, on_alarm=on_alarm, log=log, log_every=log_every, delta=delta)
        self.watch_with(watch)
        return watch

    def watch_with(self, watch: Watch) -> None:
        """Watch the noise with a `Watch` that was made before."""
        if len(self._injection.places.roles.index) == 0:
            raise InputError("no weight is free to show its noise alone; to watch it, use fewer canaries")
        if watch.every > HELD:
            raise InputError(f"every must be at most {HELD} steps, got {watch.every}")
        watch.begin(self.sample_rate, self._watched_before)
        self._watched = Watched(watch, self.optimizer.params[0].device)

    @property
    def steps(self) -> int:
        """How many steps were seen."""
        return self._reader.steps

    def begin_pass(self) -> OnBatch:
        """The data loader begins a pass that its sampler was asked for before the audit was attached."""
        return self._draws.begin()

    @property
    def strayed(self) -> bool:
        """Whether steps were made of batches that the attached data loader did not draw."""
        return self._draws.strayed

    @property
    def ended(self) -> str:
        """Why nothing more is seen; empty if the audit goes on."""
        return self._ended

    def recording(self) -> Recording:
        """What was seen so far, on the CPU and free of torch."""
        totals = self._accumulator.totals()
        if self._watched is not None:
            self._watched.collect()
        return Recording(
            design=self._design,
            bits=self._bits.copy(),
            sums=totals.sums,
            table=accumulator.table_of(totals.table) if isinstance(self._design, Dirac) else None,
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            injection=self.injection,
            seed=self.seed,
            layers=self._injection.places.layers,
            parameters=len(self.optimizer.params),
            witnessed=totals.witnessed,
            roles=self._injection.places.roles,
            drawn=self._draws.drawn(),
            noise_changes=self._accumulator.noise_changes or clips_adaptively(self.optimizer),
            contradictions=self._contradictions(),
            ended=self._ended,
            excuse=self._injection.excuse() or self._excuse(),
            sampling=self.sampling,
            real_rows=self._draws.loader.dataset.real if self.injection != "sum" else 0,
            canary_norm=self._injection.share,
            rounding=None if (rounded := self._rounded()) is None else Rounding(*rounded),
        )

    def _rounded(self) -> Floats | None:
        """By how much rounding moved the sums, and the variance it added; None if sums are precise."""
        if not isinstance(self._rounding, Tensor):
            return None
        return self._rounding.cpu().numpy().astype(np.float64)

    def _excuse(self) -> str:
        """Why the law of what is seen is not known: rounding, or passes that ended early."""
        noise = self.steps * (self.noise_multiplier / self._injection.share) ** 2
        if isinstance(self._rounding, Tensor) and float(self._rounding[1].mean()) > _MOST_ROUNDING * noise:
            return (
                "not tested (weights in half precision round the sums by more than a tenth of the noise, or "
                "no noise is stated)"
            )
        if self.sampling.kind != "shuffled" or not self._draws.left_early():
            return ""
        return "not tested (passes over shuffled data were left before their end)"

    def _seen_contradictions(self) -> tuple[str, ...]:
        """What training did otherwise, here and before it was resumed."""
        now = (*self._draws.contradictions(), *self._injection.contradictions())
        return tuple(dict.fromkeys((*self._earlier, *now)))

    def _contradictions(self) -> tuple[str, ...]:
        return (
            *self._seen_contradictions(),
            *(
                ()
                if self.shares_accountant() or not self.sampling.is_poisson
                else disagreements_with(self.optimizer, self._account, whole=not self._ended)
            ),
        )

    def detach(self) -> None:
        """Leave the optimizer as it was; what was seen stays. Of several processes, all must."""
        if getattr(self.optimizer, "canaria_audit", None) is not self:
            return
        self._ended = self._ended or f"the audit was detached after step {self.steps}"
        self._injection.release()
        self._draws.release()
        for undo in self._undo:
            undo()
        del self.optimizer.canaria_audit

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs. It holds the seed of the hidden bits."""
        return {
            "version": _VERSION,
            "seed": self.seed,
            **self._settings(),
            **self._accumulator.state_dict(),
            "account": self._account.to_list(),
            "draws": self._injection.draws_state(),
            "contradictions": list(self._seen_contradictions()),
            "watched": self._watched_state(),
            "rounding": self._rounding.tolist() if isinstance(self._rounding, Tensor) else None,
            "failed": self._failed,
        }

    def _watched_state(self) -> dict[str, Any] | None:
        if self._watched is None:
            return self._watched_before
        self._watched.collect()
        return self._watched.watch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint: same bits, same canaries, same draws. What had failed stays so."""
        version = state.get("version") if isinstance(state, dict) else None
        if version != _VERSION:
            raise InputError(f"the audit's state must have version {_VERSION}, got {shown(version)}")
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise InputError(
                    f"the audit's state has {name} = {shown(state.get(name))}, but this audit {value!r}"
                )
        if not state["failed"]:
            require_counted(self.optimizer, int(state["steps"]))
        self._injection.release()
        self._build(int(state["seed"]))
        self._injection.restore_draws(state["draws"])
        self._accumulator.load_state_dict(state)
        self._account, self._begun = Account.of(state["account"]), True
        self._earlier = tuple(state["contradictions"])
        self._watched_before = state.get("watched")
        if (rounded := state.get("rounding")) is not None:
            self._rounding = torch.tensor(rounded, device=self.optimizer.params[0].device)
        if state["failed"]:
            self._ended = self._failed = state["failed"]
            self._draws.release()
            warnings.warn(f"the audit that goes on had ended: {self._ended}", AuditWarning, stacklevel=3)

    def _settings(self) -> dict[str, Any]:
        return {
            "design": repr(self._design),
            "injection": self.injection,
            "sample_rate": self.sample_rate,
            "sampling": self.sampling.words,
            "trained weights": self._weights,
            "distributed": is_distributed(self.optimizer),
            "steps kept": self._injection.places.together,
        }
