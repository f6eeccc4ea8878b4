"""An audit attached to training with Opacus: canaries in, noisy sums out, step by step."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from canaria._core.arrays import Floats
from canaria._core.errors import AuditWarning, InputError, NoiseAlarmError, shown
from canaria.integrations.opacus._accumulator import Accumulator, totalled_steps
from canaria.integrations.opacus._checks import disagreements_with, require_counted, require_unused
from canaria.integrations.opacus._injections import MAKERS, Injection
from canaria.integrations.opacus._internals import (
    GhostClipper,
    LastBeforeUpdate,
    Loader,
    OnBatch,
    after_noise,
    after_update,
    batches_of,
    before_clipping,
    before_noise,
    before_step,
    before_update,
    clip_norm_of,
    clips_adaptively,
    clips_by_ghost,
    copies_of_rows,
    divisor,
    is_distributed,
    is_together,
    layer_norms,
    noise_added,
    processes,
    rate_of,
    require_trained,
    sampled_rows,
    sum_waits,
    waiting_batches,
)
from canaria.integrations.opacus._places import FINE
from canaria.integrations.opacus._ranks import Ranks
from canaria.integrations.opacus._rows import Draws
from canaria.integrations.opacus._watch import Watched
from canaria.integrations.opacus._weights import Weights, checksum_of_gradients, names_of
from canaria.training import accumulator
from canaria.training.accounts import Account, Disagreements, Setting
from canaria.training.accumulator import HELD
from canaria.training.canaries import TIES, Design, Dirac, derived, hidden_bits
from canaria.training.coincidences import FIRST, usable
from canaria.training.conformance import Rounding
from canaria.training.recorded import Recorded
from canaria.training.recording import Recording
from canaria.training.sampling import Sampling
from canaria.training.watch import Reading, Watch

_VERSION: Final = 5
_MOST_ROUNDING: Final = 0.01
"""What rounding may add to the variance of the noise; it is not independent of it where it adds more."""
_MOST_SPACING: Final = 1 / 32
"""How far apart numbers may be where the noise is added, in deviations of it. Rounding twice to half of that
adds 2 / 12 / 32^2 = 0.02% to its variance, and showing it at all takes 10^9 values."""


_PARTED: Final = (
    "ranks had different gradients in step {step}, where they should have the same average: each trains a "
    "model of its own, with less noise than stated"
)


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
        data_loader: Loader,
        design: Design,
        injection: str,
        seed: int,
        *,
        noise_multiplier: float | None,
        on_error: str,
        begun: bool,
        sampling: Sampling,
        clippers: Sequence[GhostClipper],
        model: nn.Module | GhostClipper | None,
        changes_weights: bool,
    ) -> None:
        self.optimizer, self._design, self.injection = optimizer, design, injection
        self._clippers, self._model = clippers, model
        self._weights_seen = Weights(optimizer, model, declared=changes_weights)
        self._stated, self._on_error = noise_multiplier, on_error
        self.sampling = (
            sampling if sampling.is_poisson else replace(sampling, batches=batches_of(data_loader))
        )
        device = optimizer.params[0].device
        self._ranks = Ranks(data_loader, device) if is_together(optimizer) else None
        self._draws = Draws(
            data_loader,
            self.sampling,
            begun=begun,
            followed=injection == "rows",
            stretches=None if self._ranks is None else self._ranks.stretches,
        )
        self._account = Account()
        self._begun, self._ended, self._failed = False, "", ""
        self.required = False
        self.shares_accountant: Callable[[], bool] = lambda: False
        self._parted = 0
        self._earlier: tuple[str, ...] = ()
        self._earlier_doubts: tuple[str, ...] = ()
        self._noises, self._norms = Setting(), Setting()
        self._adapts = clips_adaptively(optimizer)
        self._watched: Watched | None = None
        self._watched_before: dict[str, Any] | None = None
        self.sample_rate = rate_of(data_loader)
        self._most_rows = 2 * self.sample_rate * sampled_rows(data_loader) * sampling.accumulated
        self._weights = sum(parameter.numel() for parameter in optimizer.params)
        self._own: Tensor | None = None
        self._waits = False
        self._clip_norm = 0.0
        self._now: _Stated | None = None
        optimizer.canaria_audit = self
        self._build(seed)
        hooks = [
            before_clipping(optimizer, lambda: self._guarded(self._before_clipping)),
            before_noise(optimizer, lambda: self._guarded(self._before_noise)),
            after_noise(optimizer, lambda: self._guarded(self._after_noise)),
        ]

        last = LastBeforeUpdate(optimizer, lambda: self._guarded(self._weights_seen.before_update))

        def renew() -> None:
            for hook in hooks:
                hook.renew()
            last.renew()

        # Programs replace methods of the optimizer after it was made private, and so after an audit of them
        # is attached.
        hooks.append(before_step(optimizer, renew))
        self._undo = [
            *(hook.undo for hook in hooks),
            last.undo,
            before_update(optimizer, self._before_update),
            after_update(optimizer, lambda: self._guarded(self._weights_seen.after_step)),
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
        self._accumulator = Accumulator(specified, self.optimizer.params[0].device)
        self._several, self._ghost = processes(self.optimizer) > 1, clips_by_ghost(self.optimizer)
        self._together = is_together(self.optimizer)
        self._totalled = totalled_steps(seed)
        self._layer_norms = layer_norms(self.optimizer)
        self._rounding: Tensor | float = 0.0
        self._sums_at_witnesses: list[Tensor] = []
        self._largest: Tensor | float = 0.0
        self._precision = max(
            (torch.finfo(p.dtype).eps for p in self.optimizer.params if p.dtype in FINE), default=0.0
        )

    def _guarded(self, do: Callable[[], None]) -> None:
        """Do it, unless the audit has ended; an error ends it, and training goes on if that is asked for.

        If the audit is `required`, training does not begin with an error.
        """
        if self._ended:
            return
        try:
            do()
        except NoiseAlarmError:
            raise
        except Exception as error:
            begins = self.required and self.steps == 0
            if self._on_error == "raise" or begins or (self._watched and error is self._watched.watch.raised):
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
        """Processes share the heaviest canary that one has seen, and at times what samplers drew.

        Where one audit has ended, all do: the others would wait for its sums, or take a gradient for them.
        In the first steps they also compare their gradients, which must be equal to the last bit once they
        are reduced: the largest checksum is then the smallest one.
        """
        own = self._injection.heaviest.double()
        total = torch.zeros_like(own)
        if self.steps < FIRST and self._several:
            total += checksum_of_gradients(self.optimizer) % 2**50  # exact in double precision
        shared = torch.stack([own, torch.full_like(own, bool(self._ended)), total, -total])
        torch.distributed.all_reduce(shared, torch.distributed.ReduceOp.MAX)
        self._injection.heaviest, ended, most, least = shared
        if not self._parted and most != -least:
            self._parted = self.steps + 1
        if ended > 0:
            self._together = False
            if not self._ended:
                self._end("the audit of another process has ended")
        elif self._ranks is not None:
            self._ranks.tell()

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
        self._injection.before_clipping()

    def _before_noise(self) -> None:
        places = self._injection.places
        if not self._ghost and waiting_batches(self.optimizer.params[0]):
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        require_trained(self.optimizer)
        if self._layer_norms and layer_norms(self.optimizer) != self._layer_norms:
            raise InputError("the norms that layers are clipped to changed; a canary has those of attaching")
        if not self._begun:
            require_unused(self.optimizer)
        self._begun = True
        clip_norm = clip_norm_of(self.optimizer)
        self._clip_norm = self._clip_norm or clip_norm
        self._own = self._injection.before_noise(min(clip_norm, self._clip_norm))
        if self.steps < FIRST and not self._several:
            del self._sums_at_witnesses[self.steps :]  # those of a step that was begun and not made
            self._sums_at_witnesses.append(places.read_witnesses() / self._clip_norm)
        self._note_size(clip_norm)
        self._waits, self._now = True, None
        self._draws.count_step()

    def _note_size(self, clip_norm: float) -> None:
        """Note how large the clipped sum is, in deviations of the noise, where rounding it may show.

        Rows that are clipped add up to a clip norm each at most, so that is rarely looked at.
        """
        noise = self._noise()
        if noise and self._most_rows * self._precision > _MOST_SPACING * noise:
            largest = self._injection.places.largest() / (noise * clip_norm)
            self._largest = torch.maximum(largest, torch.as_tensor(self._largest, device=largest.device))

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
                "a step was made past the audit, without the private optimizer's add_noise: its step or "
                "pre_step was replaced, or the original optimizer was stepped itself"
            )
        self._waits = False
        self._weights_seen.before_step()
        everybody = self._reduced_sums() if self._several else None
        if everybody is not None and self.steps < FIRST:
            self._sums_at_witnesses.append(everybody[places.count :] / self._clip_norm)
        scale = divisor(self.optimizer)
        places.subtract_gradients(scale)
        share = self._injection.share
        clip_norm, self._clip_norm = self._clip_norm * share, 0.0
        if (rounding := places.rounding(scale)) is not None:
            units = torch.tensor([[clip_norm], [clip_norm**2]], device=rounding.device)
            self._rounding = self._rounding + rounding / units
        if (lighter := self._injection.lighter) is not None:
            self._rounding = self._rounding + torch.stack([lighter, torch.zeros_like(lighter)])
        totalled = self._read_places(everybody)
        self._accumulator.add(self._own, clip_norm=clip_norm, stated=now.noise / share, totalled=totalled)
        self._account.add(now.told, self.sample_rate)
        if not self._adapts:
            self._noises.add(now.noise)
            self._norms.add(clip_norm)
        if self._watched is not None and self._watched.due():
            values, told = self._accumulator.witnesses(self._watched.watch.every)
            self._watched.add(values, [(stated * share, unit) for stated, unit in told])

    def _read_places(self, everybody: Tensor | None) -> bool:
        """Read what is left of this step into the accumulator; whether the noise of parameters was totalled.

        `everybody` is the clipped sum of all processes, if there are several.
        """
        places, (values, totals) = self._injection.places, self._accumulator.next_row()
        places.read(values)
        if everybody is not None:
            values.add_(everybody)
        totalled = not self._several and self.steps < len(self._totalled) and bool(self._totalled[self.steps])
        if totalled:
            places.totals(totals)
        if places.sharded:
            for part in (values, totals) if totalled else (values,):
                torch.distributed.all_reduce(part)
        return totalled

    def _reduced_sums(self) -> Tensor:
        """The clipped sums of all processes at the places, in the stead of our own."""
        places = self._injection.places
        sums = places.read(torch.empty(places.all, device=self.optimizer.params[0].device))
        torch.distributed.all_reduce(sums)
        places.forget_sums()
        if self._own is not None:
            # All processes reduce both, since one alone may have a clipper of the program's own.
            lighter = self._injection.lighter
            both = torch.stack([self._own, torch.zeros_like(self._own) if lighter is None else lighter])
            torch.distributed.all_reduce(both)
            self._own, self._injection.lighter = both
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
        return self._accumulator.steps

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
        totals, told = self._accumulator.totals(), self._told()
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
            parameters=names_of(self.optimizer, self._model),
            witnessed=totals.witnessed._replace(fine=self._fine_values()),
            roles=self._injection.places.roles,
            drawn=self._draws.drawn(),
            about_draws="" if self._ranks is None else self._ranks.words,
            noise_changes=self._accumulator.noise_changes or self._adapts,
            contradictions=(*self._seen_contradictions(), *told.unsafe, *self._given_up()),
            remarks=(*told.safe, *self._weights_seen.remarks(), *self._copies()),
            doubts=self._doubts(),
            untested={
                "weights": self._weights_seen.untested(),
                **self._untested_draws(),
                **self._clipping(),
            },
            account=Account.of(self._account.to_list()),
            ended=self._ended,
            excuse=self._injection.excuse() or self._excuse(),
            sampling=self.sampling,
            real_rows=self._draws.loader.dataset.real if self.injection != "sum" else 0,
            canary_norm=self._injection.share,
            rounding=None if (rounded := self._rounded()) is None else Rounding(*rounded),
        )

    def _fine_values(self) -> Floats:
        """Values of the first steps that are fine enough to tell noise that is rounded."""
        values, noise = self._accumulator.first_values, self.noise_multiplier
        if not self._sums_at_witnesses or noise == 0:
            return np.zeros((0, 2))
        sums = torch.stack(self._sums_at_witnesses).double().cpu().numpy()[: len(values)] / noise
        kind = self.optimizer.params[0].dtype if self.optimizer.params[0].dtype in FINE else torch.float32
        rng = np.random.default_rng(derived(self.seed, TIES))
        roles = self._injection.places.roles
        return usable(values[: len(sums)], sums, torch.finfo(kind).eps, roles, rng)

    def _rounded(self) -> Floats | None:
        """By how much rounding moved the sums, and the variance it added; None if sums are precise."""
        if not isinstance(self._rounding, Tensor):
            return None
        return self._rounding.cpu().numpy().astype(np.float64)

    def _clipping(self) -> dict[str, str]:
        """Why clipping was not tested, if there is a reason besides the injection."""
        reason = self._injection.clipping()
        if self._ghost and not self._clippers and self.injection == "sum":
            reason = (
                "with ghost clipping the model clips, to a norm of its own, and the audit does not see it: "
                "give attach(..., model=model)"
            )
        return {"clipping": reason} if reason else {}

    def _excuse(self) -> str:
        """Why the law of what is seen is not known: rounding, or passes that ended early."""
        if (largest := float(self._largest)) * self._precision > _MOST_SPACING:
            return (
                f"not tested (a clipped sum was {largest:.2g} times as large as the noise that was added to "
                f"it, and numbers of that size are rounded to {largest * self._precision:.2g} of the noise)"
            )
        noise = self.steps * (self.noise_multiplier / self._injection.share) ** 2
        if isinstance(self._rounding, Tensor) and float(self._rounding[1].mean()) > _MOST_ROUNDING * noise:
            return (
                "not tested (weights in half precision round the sums by more than a tenth of the noise, or "
                "no noise is stated)"
            )
        if self.sampling.kind != "shuffled" or not self._draws.left_early():
            return ""
        return "not tested (passes over shuffled data were left before their end)"

    def _untested_draws(self) -> dict[str, str]:
        """Why sampling was not tested, or only in part, if several processes train together."""
        if self._ranks is None:
            return {}
        reasons = [one for one in (self._draws.excuse(), *self._ranks.untested()) if one]
        return {"sampling": "; ".join(reasons)} if reasons else {}

    def _seen_contradictions(self) -> tuple[str, ...]:
        """What training did otherwise, here and before it was resumed."""
        now = (
            *(self._ranks.contradictions() if self._ranks else ()),
            *(_PARTED.format(step=self._parted),) * bool(self._parted),
            *self._draws.contradictions(),
            *self._injection.contradictions(),
            *self._weights_seen.contradictions(),
        )
        return tuple(dict.fromkeys((*self._earlier, *now)))

    def _copies(self) -> tuple[str, ...]:
        """That the data set lists rows several times, where the claim is about one of them."""
        dataset = self._draws.loader.dataset
        copies = copies_of_rows(dataset if self.injection == "sum" else dataset.dataset)
        if copies == 1:
            return ()
        return (f"a row is up to {copies} times in the data set: ε is about one copy of it",)

    def _doubts(self) -> tuple[str, ...]:
        """What may leak or not, here and before training was resumed."""
        settings = (*self._noises.doubt("noise multiplier"), *self._norms.doubt("clip norm"))
        return tuple(dict.fromkeys((*self._earlier_doubts, *self._weights_seen.doubts(), *settings)))

    def _given_up(self) -> tuple[str, ...]:
        """Why the audit ended by itself: the claim is about all steps, and nothing is known of the rest."""
        if not self._failed:
            return ()
        return (f"the audit ended before training did, and knows nothing of later steps: {self._failed}",)

    def _told(self) -> Disagreements:
        """Where the accountant was told other than what was seen."""
        if self.shares_accountant() or not self.sampling.is_poisson:
            return Disagreements()
        return disagreements_with(self.optimizer, self._account, whole=not self._ended)

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
            "doubts": [*self._earlier_doubts, *self._weights_seen.doubts()],
            "settings": [asdict(self._noises), asdict(self._norms)],
            "watched": self._watched_state(),
            "rounding": self._rounding.tolist() if isinstance(self._rounding, Tensor) else None,
            "largest": float(self._largest),
            "failed": self._failed,
            "sums at witnesses": [sums.tolist() for sums in self._sums_at_witnesses],
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
        self._earlier, self._earlier_doubts = tuple(state["contradictions"]), tuple(state["doubts"])
        self._noises, self._norms = (Setting(**one) for one in state["settings"])
        self._watched_before = state.get("watched")
        device = self.optimizer.params[0].device
        self._sums_at_witnesses = [torch.tensor(sums, device=device) for sums in state["sums at witnesses"]]
        if (rounded := state.get("rounding")) is not None:
            self._rounding = torch.tensor(rounded, device=self.optimizer.params[0].device)
        self._largest = state.get("largest", 0.0)
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
        }
