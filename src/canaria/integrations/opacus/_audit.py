"""The user's interface of an audit that is attached to training with Opacus."""

import math
from typing import Any, Final

from canaria._core.errors import InputError, shown
from canaria.integrations.opacus._checks import require_counted
from canaria.integrations.opacus._internals import clips_by_ghost, is_distributed
from canaria.integrations.opacus._probes import faults_of_clipper
from canaria.integrations.opacus._samplers import copies_of_rows
from canaria.integrations.opacus._steps import Given, Program, Steps
from canaria.integrations.opacus._watch import Watched
from canaria.integrations.opacus._weights import names_of
from canaria.training.canaries.designs import Dirac
from canaria.training.findings import Findings
from canaria.training.likelihood import accumulator
from canaria.training.likelihood.accumulator import HELD
from canaria.training.recorded import Recorded
from canaria.training.recording import Recording
from canaria.training.watch import Watch

_VERSION: Final = 5


class Audit(Recorded):
    """An audit that runs along with training and gives a bound afterwards.

    Made by `attach`. Nothing that it shows during training depends on the hidden bits.

    Attributes:
        optimizer: The audited optimizer.
        sample_rate: The probability that a row takes part in a step, from the data loader.
        draws: The draws of the data loader's sampler.
        program: The interface for programs that run the training.

    Example:
        ```python
        audit = attach(optimizer, loader, injection="sum", canaries=1000)
        ...  # train as always
        audit.bound(delta=1e-5)  # a lower bound on epsilon
        audit.conformance()  # does training add the noise that it states?
        audit.report(claimed=2.0, delta=1e-5).save("result.json")
        ```
    """

    def __init__(self, given: Given, seed: int) -> None:
        self._given, self.optimizer, self.program = given, given.optimizer, Program()
        self._weights = sum(parameter.numel() for parameter in given.optimizer.params)
        self._earlier = Findings()
        self._probed: tuple[str, ...] | None = None
        self._watched_before: dict[str, Any] | None = None
        given.optimizer.canaria_audit = self
        self._steps = Steps(given, seed, self.program)
        self.sample_rate, self.draws = self._steps.sample_rate, self._steps.draws

    @property
    def steps(self) -> int:
        """The number of steps seen so far."""
        return self._steps.count

    @property
    def ended(self) -> str:
        """The reason why the audit ended; empty if it continues."""
        return self._steps.ended

    @property
    def noise_multiplier(self) -> float:
        """The stated noise multiplier, as its root mean square over the steps."""
        if not self.steps:
            return self._steps.settings.noise()
        mean_square: float = self._steps.accumulator.noise_square / self.steps
        return self._steps.injection.share * math.sqrt(mean_square)

    def watch(self, watch: Watch | None = None, **how: Any) -> Watch:
        """Watch the noise from the next step on, with an alarm; see `canaria.training.Watch`.

        Bounds hold whether or not training is stopped, because the noise does not depend on the hidden bits.

        Args:
            watch: An existing watch; by default a new one is made.
            **how: The arguments of a new `Watch`. Its `every` is at most 16.

        Raises:
            InputError: If no weight shows its noise alone.

        Example:
            ```python
            audit = attach(optimizer, loader, injection="sum", canaries=1000)
            audit.watch(alpha=1e-3, on_alarm="stop", log="terminal", delta=1e-5)
            ```
        """
        watch = Watch(**how) if watch is None else watch
        if len(self._steps.injection.places.roles.index) == 0:
            raise InputError("no weight without canaries is left to show the noise; use fewer canaries")
        if watch.every > HELD:
            raise InputError(f"every must be at most {HELD} steps, got {watch.every}")
        watch.begin(self.sample_rate, self._watched_before)
        self._steps.watched = Watched(watch, self.optimizer.params[0].device)
        return watch

    def recording(self) -> Recording:
        """The record so far, as NumPy arrays."""
        given, steps = self._given, self._steps
        totals = steps.accumulator.totals()
        if steps.watched is not None:
            steps.watched.collect()
        injection, places = steps.injection, steps.injection.places
        fine = steps.fine_values(self.noise_multiplier)
        return Recording(
            design=given.design,
            bits=steps.bits.copy(),
            sums=totals.sums,
            table=accumulator.table_of(totals.table) if isinstance(given.design, Dirac) else None,
            steps=self.steps,
            sample_rate=self.sample_rate,
            noise_multiplier=self.noise_multiplier,
            injection=given.injection,
            seed=steps.seed,
            layers=places.layers,
            parameters=names_of(self.optimizer, given.model),
            witnessed=totals.witnessed._replace(fine=fine),
            roles=places.roles,
            drawn=self.draws.drawn(),
            about_draws="" if steps.ranks is None else steps.ranks.words,
            noise_changes=steps.accumulator.noise_changes or steps.settings.adapts,
            findings=self._findings(),
            account=steps.settings.account,
            ended=self.ended,
            excuse=injection.excuse() or self._excuse(),
            sampling=given.sampling,
            real_rows=given.loader.dataset.real if given.injection != "sum" else 0,
            canary_norm=injection.share,
            rounding=steps.rounded.seen(),
        )

    def _findings(self) -> Findings:
        """All that the parts of the audit found, and what the settings and the data set show."""
        if self.steps and self._probed is None:
            # Not for checkpoints: a clipper may keep a state that probes would change.
            self._probed = faults_of_clipper(self.optimizer)
        settings = self._steps.settings.findings(
            whole=not self.ended,
            accounted=self._given.sampling.is_poisson and not self.program.shares_accountant(),
        )
        # The claim is about all steps. If the audit failed, the rest of them is unknown.
        why = self._steps.failed
        given_up = (f"the audit ended before training did, and knows nothing of later steps: {why}",)
        dataset = self._given.loader.dataset
        copies = copies_of_rows(dataset if self._given.injection == "sum" else dataset.dataset)
        copied = (f"a row is up to {copies} times in the data set: ε is about one copy of it",)
        last = Findings(contradictions=given_up * bool(why), remarks=copied * (copies > 1))
        return self._observed() + settings + last

    def _observed(self) -> Findings:
        """The findings that only the steps show, from before training was resumed and since then."""
        steps, found = self._steps, self._earlier
        if steps.ranks is not None:
            found += steps.ranks.findings(self.draws.excuse())
        found += Findings(contradictions=self.draws.contradictions()) + self._clipping()
        names = names_of(self.optimizer, self._given.model)
        beside = steps.residuals.findings(names)
        if self._given.changes_weights:  # as clipping the noisy gradient does, which changes its law
            beside = Findings(doubts=beside.contradictions)
        found += steps.weights.findings() + beside
        return found + steps.ghost_sums.findings(names) + steps.reads.findings()

    def _clipping(self) -> Findings:
        """Faults of the clipper: what canaries show, or else probes; and why it was not tested, if so."""
        injection, given = self._steps.injection, self._given
        untested = injection.clipping()
        if clips_by_ghost(self.optimizer) and not given.clippers and given.injection == "sum":
            untested = (
                "with ghost clipping the model clips, to a norm of its own, and the audit does not see it: "
                "give attach(..., model=model)"
            )
        return Findings(
            contradictions=injection.contradictions() or self._probed or (),
            untested={"clipping": untested} if untested else {},
        )

    def _excuse(self) -> str:
        """The reason why the law of the sums is not known: rounding, or passes that ended early."""
        noise = self.steps * (self.noise_multiplier / self._steps.injection.share) ** 2
        if rounded := self._steps.rounded.excuse(noise):
            return rounded
        if self._given.sampling.kind != "shuffled" or not self.draws.left_early():
            return ""
        return "not tested (passes over shuffled data were left before their end)"

    def detach(self) -> None:
        """Restore the optimizer; the record is kept. With several processes, all must call this."""
        if getattr(self.optimizer, "canaria_audit", None) is not self:
            return
        self._steps.ended = self.ended or f"the audit was detached after step {self.steps}"
        self._steps.undo()
        del self.optimizer.canaria_audit

    def state_dict(self) -> dict[str, Any]:
        """The state to save in a checkpoint. It contains the seed of the hidden bits."""
        found = self._observed()
        return {
            "version": _VERSION,
            **self._settings(),
            "contradictions": list(found.contradictions),
            "doubts": list(found.doubts),
            "watched": self._watched_state(),
            "steps": self.steps,
            "seen": self._steps.state_dict(),
        }

    def _watched_state(self) -> dict[str, Any] | None:
        watched = self._steps.watched
        if watched is None:
            return self._watched_before
        watched.collect()
        return watched.watch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint with the same bits, canaries and draws. Earlier failures remain."""
        version = state.get("version") if isinstance(state, dict) else None
        if version != _VERSION:
            raise InputError(f"the audit's state must have version {_VERSION}, got {shown(version)}")
        for name, value in self._settings().items():
            if state.get(name) != value:
                raise InputError(
                    f"the audit's state has {name} = {shown(state.get(name))}, but this audit {value!r}"
                )
        if not state["seen"]["failed"]:
            require_counted(self.optimizer, int(state["steps"]))
        self._earlier = Findings(contradictions=tuple(state["contradictions"]), doubts=tuple(state["doubts"]))
        self._watched_before = state["watched"]
        self._steps.load_state_dict(state["seen"])

    def _settings(self) -> dict[str, Any]:
        """The settings that must be the same when an audit continues."""
        return {
            "design": repr(self._given.design),
            "injection": self._given.injection,
            "sample_rate": self.sample_rate,
            "sampling": self._given.sampling.words,
            "trained weights": self._weights,
            "distributed": is_distributed(self.optimizer),
        }
