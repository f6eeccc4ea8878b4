"""The work of an audit in each step of a private optimizer: canaries in, the noisy sum out."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from opacus.optimizers import DPOptimizer
from torch import Tensor, nn

from canaria._core.arrays import Floats
from canaria._core.errors import AuditWarning, InputError, NoiseAlarmError
from canaria.integrations.opacus._accumulator import Accumulator, totalled_steps
from canaria.integrations.opacus._checks import require_unused
from canaria.integrations.opacus._ghost import GhostSums
from canaria.integrations.opacus._hooks import Hooks
from canaria.integrations.opacus._injections import MAKERS, Injection
from canaria.integrations.opacus._internals import (
    clip_norm_of,
    clips_as_opacus,
    clips_by_ghost,
    divisor,
    is_together,
    layer_norms,
    processes,
    rows_that_count,
    sum_waits,
    waiting_batches,
)
from canaria.integrations.opacus._places import FINE
from canaria.integrations.opacus._ranks import Ranks
from canaria.integrations.opacus._reads import Reads
from canaria.integrations.opacus._residuals import Residuals
from canaria.integrations.opacus._rounding import Rounded
from canaria.integrations.opacus._rows import Draws
from canaria.integrations.opacus._samplers import rate_of, sampled_rows
from canaria.integrations.opacus._settings import Settings, Stated
from canaria.integrations.opacus._versions import GhostClipper
from canaria.integrations.opacus._watch import Watched
from canaria.integrations.opacus._weights import Weights, checksum_of, gradients_of
from canaria.training.canaries.designs import TIES, Design, derived, hidden_bits
from canaria.training.canaries.sampling import Sampling
from canaria.training.conformance.coincidences import FIRST, usable
from canaria.training.likelihood import accumulator


@dataclass(frozen=True, kw_only=True)
class Given:
    """The arguments with which an audit was attached; see `attach`."""

    optimizer: DPOptimizer
    loader: Any
    design: Design
    injection: str
    sampling: Sampling
    clippers: Sequence[GhostClipper]
    model: nn.Module | GhostClipper | None
    noise_multiplier: float | None
    on_error: str
    begun: bool
    changes_weights: bool
    public_rows: int


@dataclass
class Program:
    """Settings by a program that runs an audited training; `auditing` makes them.

    Attributes:
        required: Whether training must not begin if it cannot be audited.
        shares_accountant: Whether the accountant also counts the steps of other optimizers.

    """

    required: bool = False
    shares_accountant: Callable[[], bool] = lambda: False


class Steps:
    """Follows the steps of an optimizer until an error ends that; `ended` is the reason."""

    _rows: Tensor | int = 0

    def __init__(self, given: Given, seed: int, program: Program) -> None:
        self._given, self._optimizer, self._program = given, given.optimizer, program
        self._device = given.optimizer.params[0].device
        self._ghost = clips_by_ghost(given.optimizer)
        # With DDP every process holds the clipped sums of its own rows, with FSDP a shard of all.
        self._several, self._together = processes(given.optimizer) > 1, is_together(given.optimizer)
        self.sample_rate = rate_of(given.loader)
        self.weights = Weights(given.optimizer, given.model, declared=given.changes_weights)
        self.settings = Settings(given.optimizer, self.sample_rate, given.noise_multiplier)
        self.ranks = Ranks(given.loader, self._device) if self._together else None
        self.draws = Draws(
            given.loader,
            given.sampling,
            begun=given.begun,
            followed=given.injection == "rows",
            public_rows=given.public_rows,
            stretches=None if self.ranks is None else self.ranks.stretches,
        )
        self.watched: Watched | None = None
        self.ended, self.failed, self._clip_norm = "", "", 0.0
        self.begun = self._waits = False
        self._seen: Callable[[], None] | None = None
        # torch calls the hooks of an optimizer twice if its step calls that of its base class, and the
        # program has an optimizer of that class as well. Only the outer call counts.
        self._depth = 0
        self.ghost_sums = GhostSums(given.optimizer, given.clippers)
        self.residuals = Residuals(given.optimizer, alone=not (self._several or self._together))
        self.reads = Reads(given.optimizer)
        self._now: Stated | None = None
        self._own: Tensor | None = None
        self.build(seed)
        self._hooks = Hooks(
            given.optimizer,
            clipping=lambda: self.guarded(self._before_clipping),
            noise=self._begin_step,
            noised=lambda: self.guarded(self._after_noise),
            scaled=self._before_step_hook,
            update=self._before_update,
            last=lambda: self.guarded(self._before_own_step),
            updated=self._after_own_step,
        )

    def build(self, seed: int) -> None:
        """Make everything that depends on the seed: bits, places, draws."""
        given, self.seed = self._given, seed
        self.bits = hidden_bits(given.design.count, seed)
        self.injection: Injection = MAKERS[given.injection](
            given.optimizer, self.draws, given.design, self.bits, seed
        )
        places = self.injection.places
        self.accumulator = Accumulator(
            accumulator.Accumulator.of(
                given.design,
                places.layers,
                places.roles,
                sample_rate=self.sample_rate,
                sampling=given.sampling,
            ),
            self._device,
        )
        self._totalled = totalled_steps(seed)
        self._layer_norms = layer_norms(given.optimizer)
        # Twice the mean: a larger batch is hardly ever drawn.
        most_rows = 2 * self.sample_rate * sampled_rows(given.loader) * given.sampling.accumulated
        self.rounded = Rounded(given.optimizer, most_rows)
        self.sums_at_witnesses: list[Tensor] = []

    @property
    def count(self) -> int:
        """The number of steps seen so far."""
        return self.accumulator.steps

    def guarded(self, do: Callable[[], None]) -> None:
        """Run a function unless the audit has ended. An error ends the audit, and is raised if requested.

        If the audit is required, an error before the first step is raised too.
        """
        if self.ended:
            return
        try:
            do()
        except NoiseAlarmError:
            raise
        except Exception as error:
            begins = self._program.required and self.count == 0
            alarmed = self.watched is not None and error is self.watched.watch.raised
            if self._given.on_error == "raise" or begins or alarmed:
                raise
            self._end(error)

    def _end(self, why: object) -> None:
        self.draws.release()
        self.ended = self.failed = f"nothing was seen after step {self.count}: {why}"
        warnings.warn(f"the audit ended, training goes on: {why}", AuditWarning, stacklevel=5)

    def undo(self) -> None:
        """Restore the optimizer."""
        self.injection.release()
        self.draws.release()
        self.weights.undo()
        self.ghost_sums.undo()
        self._hooks.undo()

    def _before_clipping(self) -> None:
        """Read the norm that the noise must fit: the largest in a step, if it has several batches of rows."""
        earlier = self._clip_norm if self._clip_norm and sum_waits(self._optimizer) else 0.0
        self._clip_norm = max(earlier, clip_norm_of(self._optimizer, self._given.clippers))
        self.ghost_sums.compare(self.count + 1)
        # A clipper of the program's own may take means over several rows of the model for one row.
        if self.residuals.due and (self._ghost or clips_as_opacus(self._optimizer)):
            self._rows = rows_that_count(self._optimizer) + (self._rows if earlier else 0)
        self.injection.before_clipping()

    def _begin_step(self) -> None:
        self._depth, self._seen = 0, None  # an error in the step before may have left them
        self.guarded(self._before_noise)

    def _before_noise(self) -> None:
        """Read the clipped sum, and add canaries to it if they are not in it."""
        self._require_as_attached()
        self.begun = True
        clip_norm = clip_norm_of(self._optimizer)
        self._clip_norm = self._clip_norm or clip_norm
        places = self.injection.places
        self._own = self.injection.before_noise(min(clip_norm, self._clip_norm))
        self.residuals.before_noise()
        if self.count < FIRST and not self._several:
            del self.sums_at_witnesses[self.count :]  # those of a step that was begun and not finished
            self.sums_at_witnesses.append(places.read_witnesses() / self._clip_norm)
        self.rounded.note_size(places, self.settings.noise(), clip_norm)
        self._waits, self._now = True, None
        self.draws.count_step(self._rows)
        self._rows = 0

    def _require_as_attached(self) -> None:
        if not self._ghost and waiting_batches(self._optimizer.params[0]):
            raise InputError("gradients of several batches were accumulated; use BatchMemoryManager instead")
        self.injection.places.require_trained()
        if self._layer_norms and layer_norms(self._optimizer) != self._layer_norms:
            raise InputError("the clip norms of layers changed; canaries have those at the time of attaching")
        if not self.begun:
            require_unused(self._optimizer)

    def _after_noise(self) -> None:
        """Read the stated settings at the moment when the accountant records them.

        Those in effect while noise is added may be wrong, and later hooks may change them for the next step.
        """
        self._now = self.settings.now()
        self.residuals.before_scaling(self._now.noise * self._clip_norm)

    def _before_step_hook(self) -> None:
        """Read the gradient before a hook of the program may change it, unless processes add theirs later.

        The step is not counted yet: the hook may raise an error, and nothing is released.
        """
        if self._waits and not self._together:
            self.guarded(self._read)

    def _before_update(self) -> None:
        # This must run even if this audit has ended, because the other processes wait for it.
        self._depth += 1
        if self._depth > 1:
            return
        if self._together:
            self._tell_others()
        self.guarded(self._count_step)

    def _before_own_step(self) -> None:
        if self._depth == 1:
            self.weights.before_update()
            self.reads.begin(self.count)

    def _after_own_step(self) -> None:
        self._depth -= 1
        if self._depth == 0:
            self.reads.end(self.count)
            self.guarded(self.weights.after_step)

    def _tell_others(self) -> None:
        """Share the heaviest canary that a process has seen, and end the audits of all processes together.

        A process that continued alone would wait for the sums of the others, or mistake a gradient for them.
        """
        assert self.ranks is not None
        compares = self._several and self.count < FIRST
        self.injection.heaviest, ended = self.ranks.share(
            self.injection.heaviest,
            ended=bool(self.ended),
            alike=self._alike() if compares else (),
            step=self.count + 1,
        )
        if ended:
            self._together = False
            if not self.ended:
                self._end("the audit of another process has ended")
        else:
            self.ranks.tell()

    def _alike(self) -> list[Tensor | float]:
        """Numbers that all processes must have the same of; see `ALIKE`."""
        parameters = [parameter.detach() for parameter in self._optimizer.params]
        sums = [checksum_of(some) % 2**50 for some in (gradients_of(self._optimizer), parameters)]
        settings = [self._clip_norm, self.settings.noise()]
        return [*sums, *([0.0, 0.0] if self.settings.adapts else settings)]

    def _count_step(self) -> None:
        if self._seen is None:
            self._read()
        assert self._seen is not None
        self._seen()
        self._seen = None
        self.weights.before_step()

    def _read(self) -> None:
        """Read the gradient as the model will get it, after noise, scaling and reduction."""
        now, places = self._now or self.settings.now(), self.injection.places
        if not self._waits:
            raise InputError(
                "a step bypassed the audit and the private optimizer's add_noise: its step or "
                "pre_step was replaced, or the original optimizer was stepped itself"
            )
        self._waits = False
        self.weights.note_gradients()
        everybody = self._reduced_sums() if self._several else None
        scale = divisor(self._optimizer)
        places.subtract_gradients(scale)
        self.residuals.after_noise(scale, now.noise * self._clip_norm)
        share = self.injection.share
        clip_norm, self._clip_norm = self._clip_norm * share, 0.0
        rounding = places.rounding(scale)
        totalled = self._read_places(everybody)

        def count() -> None:
            self.rounded.add(rounding, self.injection.lighter, clip_norm)
            self.accumulator.add(self._own, clip_norm=clip_norm, stated=now.noise / share, totalled=totalled)
            self.settings.add(now, clip_norm)
            if self.watched is not None and self.watched.due():
                values, told = self.accumulator.witnesses(self.watched.watch.every)
                self.watched.add(values, [(stated * share, unit) for stated, unit in told])

        self._seen = count

    def _read_places(self, everybody: Tensor | None) -> bool:
        """Read the remainder of this step into the accumulator; returns whether parameter noise was summed.

        `everybody` is the clipped sum of all processes, if there are several.
        """
        places, (values, totals) = self.injection.places, self.accumulator.next_row()
        places.read(values)
        if everybody is not None:
            values.add_(everybody)
        totalled = not self._several and self.count < len(self._totalled) and bool(self._totalled[self.count])
        if totalled:
            places.totals(totals)
        if places.sharded:
            for part in (values, totals) if totalled else (values,):
                torch.distributed.all_reduce(part)
        return totalled

    def _reduced_sums(self) -> Tensor:
        """The clipped sums of all processes at the places; replaces those of this process."""
        places = self.injection.places
        sums = places.read(torch.empty(places.all, device=self._device))
        torch.distributed.all_reduce(sums)
        places.forget_sums()
        if self._own is not None:
            # All processes reduce both, since one alone may have a clipper of the program's own.
            lighter = self.injection.lighter
            both = torch.stack([self._own, torch.zeros_like(self._own) if lighter is None else lighter])
            torch.distributed.all_reduce(both)
            self._own, self.injection.lighter = both
        if self.count < FIRST:
            self.sums_at_witnesses.append(sums[places.count :] / self._clip_norm)
        return sums

    def fine_values(self, noise: float) -> Floats:
        """Noise and sums at witnesses in the first steps, if fine enough to detect rounded noise."""
        values = self.accumulator.first_values
        if not self.sums_at_witnesses or noise == 0:
            return np.zeros((0, 2))
        sums = torch.stack(self.sums_at_witnesses).double().cpu().numpy()[: len(values)] / noise
        kind = self._optimizer.params[0].dtype
        spacing = torch.finfo(kind if kind in FINE else torch.float32).eps
        rng = np.random.default_rng(derived(self.seed, TIES))
        return usable(values[: len(sums)], sums, (spacing, 0.0), self.injection.places.roles, rng)

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint. It contains the seed of the hidden bits."""
        return {
            "seed": self.seed,
            "accumulator": self.accumulator.state_dict(),
            "draws": self.injection.draws_state(),
            "settings": self.settings.state_dict(),
            "rounded": self.rounded.state_dict(),
            "sums at witnesses": [sums.cpu() for sums in self.sums_at_witnesses],
            "failed": self.failed,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint with the same bits, canaries and draws. Earlier failures remain."""
        self.injection.release()
        self.build(int(state["seed"]))
        self.injection.restore_draws(state["draws"])
        self.accumulator.load_state_dict(state["accumulator"])
        self.settings.load_state_dict(state["settings"])
        self.rounded.load_state_dict(state["rounded"])
        self.sums_at_witnesses = [sums.to(self._device) for sums in state["sums at witnesses"]]
        self.begun = True
        if state["failed"]:
            self.ended = self.failed = state["failed"]
            self.draws.release()
            warnings.warn(f"the resumed audit had already ended: {self.ended}", AuditWarning, stacklevel=4)
