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
from canaria.training.conformance.accounts import Disagreements
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
        self._earlier: tuple[str, ...] = ()
        self._probed: tuple[str, ...] | None = None
        self._earlier_doubts: tuple[str, ...] = ()
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
        told = self._told()
        if steps.watched is not None:
            steps.watched.collect()
        injection, places = steps.injection, steps.injection.places
        if self.steps and self._probed is None:
            self._probed = faults_of_clipper(self.optimizer)
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
            contradictions=(*self._contradictions(), *told.unsafe, *self._given_up()),
            remarks=(*told.safe, *steps.weights.remarks(), *self._copies()),
            doubts=tuple(dict.fromkeys((*self._doubts(), *steps.settings.doubts()))),
            untested=self._untested(),
            account=steps.settings.account,
            ended=self.ended,
            excuse=injection.excuse() or self._excuse(),
            sampling=given.sampling,
            real_rows=given.loader.dataset.real if given.injection != "sum" else 0,
            canary_norm=injection.share,
            rounding=steps.rounded.seen(),
        )

    def _told(self) -> Disagreements:
        """Differences between the accountant's record and the steps that were seen."""
        if self.program.shares_accountant() or not self._given.sampling.is_poisson:
            return Disagreements()
        return self._steps.settings.disagreements(whole=not self.ended)

    def _contradictions(self) -> tuple[str, ...]:
        """Contradictions, including those from before training was resumed."""
        steps = self._steps
        now = (
            *(steps.ranks.contradictions() if steps.ranks else ()),
            *self.draws.contradictions(),
            *(steps.injection.contradictions() or self._probed or ()),
            *steps.weights.contradictions(),
            *steps.residuals.contradictions(),
        )
        return tuple(dict.fromkeys((*self._earlier, *now)))

    def _given_up(self) -> tuple[str, ...]:
        """The contradiction if the audit failed: the claim is about all steps, and the rest is unknown."""
        why = self._steps.failed
        return (f"the audit ended before training did, and knows nothing of later steps: {why}",) * bool(why)

    def _copies(self) -> tuple[str, ...]:
        """A note if the data set lists rows several times, since the claim is about one copy."""
        dataset = self._given.loader.dataset
        copies = copies_of_rows(dataset if self._given.injection == "sum" else dataset.dataset)
        if copies == 1:
            return ()
        return (f"a row is up to {copies} times in the data set: ε is about one copy of it",)

    def _doubts(self) -> tuple[str, ...]:
        """Possible leaks, including those from before training was resumed."""
        steps, names = self._steps, names_of(self.optimizer, self._given.model)
        now = (*steps.weights.doubts(), *steps.ghost_sums.doubts(names), *steps.reads.doubts())
        return (*self._earlier_doubts, *now)

    def _untested(self) -> dict[str, str]:
        """Reasons why topics were not tested. With several processes, sampling is tested in part."""
        steps, given = self._steps, self._given
        found = {"weights": steps.weights.untested()}
        if steps.ranks is not None:
            reasons = (self.draws.excuse(), *steps.ranks.untested())
            found["sampling"] = "; ".join(one for one in reasons if one)
        found["clipping"] = steps.injection.clipping()
        if clips_by_ghost(self.optimizer) and not given.clippers and given.injection == "sum":
            found["clipping"] = (
                "with ghost clipping the model clips, to a norm of its own, and the audit does not see it: "
                "give attach(..., model=model)"
            )
        return {name: why for name, why in found.items() if why or name == "weights"}

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
        return {
            "version": _VERSION,
            **self._settings(),
            "contradictions": list(self._contradictions()),
            "doubts": list(self._doubts()),
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
        self._earlier, self._earlier_doubts = tuple(state["contradictions"]), tuple(state["doubts"])
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
