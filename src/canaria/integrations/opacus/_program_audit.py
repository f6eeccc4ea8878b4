"""The audit of a program: one audit for each optimizer that it makes private, and reports on all."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from opacus.optimizers import DPOptimizer
from torch import nn
from torch.utils.data import DataLoader

from canaria._core import seeds
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim
from canaria.integrations.opacus._accountants import accountant_of, steps_counted
from canaria.integrations.opacus._attach import attach
from canaria.integrations.opacus._audit import Audit
from canaria.integrations.opacus._checks import most_coordinates
from canaria.integrations.opacus._internals import clippers_of
from canaria.integrations.opacus._programs import Promise
from canaria.integrations.opacus._samplers import (
    OnBatch,
    Undo,
    rate_of,
    record_draws,
    sampled_rows,
    sampler_of,
    samples_by_poisson,
)
from canaria.integrations.opacus._versions import GhostClipper
from canaria.training.canaries.designs import Dense, Dirac
from canaria.training.watch import Watch

_PROGRAM: Final = 0x70726F67
_CANARIES: Final = 1000
"""The default number of canaries."""
_UNPAIRED: Final = (
    "a private optimizer was made without a data loader that samples by Poisson (poisson_sampling=False, or "
    "a loader of its own)"
)


_NOT_PLAIN: Final = (
    "it is not clear which data loader feeds an optimizer that was made by hand; attach an audit to both"
)


class ProgramAudit:
    """The audits of all training that a program does with Opacus. Made by `auditing`.

    Attributes:
        audits: The attached audits, in the order in which the program made its optimizers private.
        refused: The reasons why optimizers could not be audited, one line each.
        stopped: The error that stopped the program before its first private step, or None.

    Example:
        ```python
        with auditing(canaries=1000) as audit:
            program()  # makes its optimizer private and trains
        for result in audit.reports(delta=1e-5):
            print(result.verdict)
        ```
    """

    def __init__(self, canaries: int | Dense | Dirac | None, rng: Seed, **how: Any) -> None:
        self.audits: list[Audit] = []
        self.refused: list[str] = []
        self.stopped: InputError | None = None
        self._canaries, self._how = canaries, how
        self._watch: Watch | None = how.pop("watch")
        self._insists: bool = how.pop("insist")
        self._rng = seeds.generator(rng, _PROGRAM)
        self._promises: dict[Audit, Promise] = {}
        self._reasons: dict[DPOptimizer, str] = {}
        self._stepped: set[DPOptimizer] = set()
        self._engines: list[_Making] = []
        self._optimizers: list[DPOptimizer] = []
        self._clippers: list[GhostClipper] = []
        self._by_hand = _Making(None, None)
        self._fed_by: dict[DataLoader[Any], Audit] = {}
        self._attached: set[DataLoader[Any]] = set()

    def begin_engine(self, promise: Promise | None, given: DataLoader[Any]) -> None:
        """Note that an engine begins to make things private; nested engines inherit the promise."""
        before = self._engines[-1].promise if self._engines else None
        self._engines.append(_Making(promise or before, given))

    def end_engine(self, made: tuple[object, ...]) -> None:
        """Pair the optimizers and loaders that the engine has made."""
        making = self._engines.pop()
        if self._engines:
            self._engines[-1].optimizers += making.optimizers
            self._engines[-1].loaders += making.loaders
            return
        # With poisson_sampling=False an engine makes no loader: training continues with the given one, which
        # may have a sampler of the program's own.
        given = making.given
        loaders = making.loaders or [one for one in self._by_hand.loaders if one is given]
        for optimizer in making.optimizers:
            if len(loaders) == 1:
                (loader,) = loaders
                audit = self._attach(optimizer, loader, making.promise, made)
                if audit is not None and given is not None and _draws_alike(given, loader):
                    self._fed_by[given] = audit
            else:
                self._refuse(optimizer, _unpaired(optimizer))

    def made_optimizer(self, optimizer: DPOptimizer) -> None:
        """Note that the program has a private optimizer."""
        self._optimizers.append(optimizer)
        (self._engines[-1] if self._engines else self._by_hand).optimizers.append(optimizer)

    def made_loader(self, loader: DataLoader[Any]) -> None:
        """Note a loader that may draw by coins; one made by hand is paired when it first draws."""
        (self._engines[-1] if self._engines else self._by_hand).loaders.append(loader)
        if not self._engines and hasattr(loader.batch_sampler, "__dict__"):
            undo = record_draws(sampler_of(loader), lambda: self._drawing(loader, undo))

    def made_clipper(self, clipper: GhostClipper) -> None:
        """Note that the program has a model that clips by ghost clipping."""
        self._clippers.append(clipper)

    def _drawing(self, loader: DataLoader[Any], undo: Undo) -> OnBatch:
        """A loader made by hand begins a pass: pair it with the only optimizer that has no loader yet.

        If its batches are not used for training, the audit sees steps that it did not draw. If an engine got
        this loader, it has made another that draws in the same way, and programs may train with either.
        """
        if loader in self._fed_by:
            return self._fed_by[loader].draws.begin()
        private = any(map(samples_by_poisson, self._by_hand.loaders))
        if loader in self._attached or (private and not samples_by_poisson(loader)):
            return lambda _: None
        undo()
        audit = None
        if len(self._by_hand.optimizers) == 1:
            audit = self._attach(self._by_hand.optimizers.pop(), loader)
        return (lambda _: None) if audit is None else audit.draws.begin()

    def before_step(self, optimizer: DPOptimizer) -> None:
        """Do not audit an optimizer without a certain loader, or one that continues from a checkpoint."""
        self._stepped.add(optimizer)
        waiting = self._by_hand
        if any(one is optimizer for one in waiting.optimizers):
            waiting.optimizers = [one for one in waiting.optimizers if one is not optimizer]
            self._refuse(optimizer, _NOT_PLAIN if waiting.loaders else _unpaired(optimizer))
        for audit in self.audits:
            if audit.optimizer is optimizer and audit.steps == 0 and not audit.ended and _resumed(audit):
                audit.detach()
                resumed = "training goes on from a checkpoint, and was not seen from its beginning"
                self._refuse(optimizer, resumed)
        if self._insists and not any(audit.steps or not audit.ended for audit in self.audits):
            self.stopped = InputError(self._nothing())
            raise self.stopped

    def _attach(
        self,
        optimizer: DPOptimizer,
        loader: DataLoader[Any],
        promise: Promise | None = None,
        made: tuple[object, ...] = (),
    ) -> Audit | None:
        model = model_of(optimizer, [*made, *self._clippers])
        canaries = (
            _fitting(optimizer, self._how["per_coordinate"]) if self._canaries is None else self._canaries
        )
        how = {"canaries": canaries, "rng": self._rng, "model": model, **self._how}
        try:
            audit = attach(optimizer, loader, injection="sum", **how)
        except InputError as error:
            self._refuse(optimizer, str(error))
            return None
        audit.program.required = self._insists
        self._attached.add(loader)
        audit.program.shares_accountant = lambda: self._counts_for_others(optimizer)
        self.audits.append(audit)
        if promise is not None:
            self._promises[audit] = promise
        if self._watch is not None:
            audit.watch(self._watch)
        return audit

    def _refuse(self, optimizer: DPOptimizer, why: str) -> None:
        """Record that an optimizer is not audited."""
        self.refused.append(why)
        self._reasons[optimizer] = why

    @property
    def unaudited(self) -> tuple[str, ...]:
        """The reasons why trainings of the program were not audited, one line for each that made a step."""
        strayed = ("its steps were made of batches that its data loader did not draw",)
        return (
            *(why for optimizer, why in self._reasons.items() if optimizer in self._stepped),
            *(why for audit in self.audits if audit.steps and audit.draws.strayed for why in strayed),
        )

    def _counts_for_others(self, optimizer: DPOptimizer) -> bool:
        """Whether the accountant of an optimizer also counts the steps of others."""
        own = accountant_of(optimizer)
        others = (one for one in self._optimizers if one is not optimizer)
        return own is not None and any(accountant_of(one) is own for one in others)

    def report(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        **how: Any,
    ) -> Result:
        """Report bound, claim and conformance of the only training that the program made.

        Args:
            claimed: The claim. By default the ε that the program passed to `make_private_with_epsilon`, or
                the accountant's ε at `delta`.
            delta: The delta of the bound; by default the one that the program passed.
            confidence: The confidence of the bound.
            **how: As for `Recording.report`.

        Raises:
            InputError: If the program made no training that could be audited, or several.
        """
        found = self.reports(claimed, delta, confidence, **how)
        if len(found) > 1:
            raise InputError(f"the program made {len(found)} trainings: ask for reports(), one for each")
        return found[0]

    def reports(
        self,
        claimed: float | Claim | None = None,
        delta: float | None = None,
        confidence: float = 0.95,
        **how: Any,
    ) -> list[Result]:
        """Reports for all trainings of the program; see `report`."""
        if not self.trained:
            raise InputError(self._nothing())
        missing = tuple(
            f"another training of this program was not audited, and nothing is known of it: {why}"
            for why in self.unaudited
        )
        results = [self._report(audit, claimed, delta, confidence, how) for audit in self.trained]
        several = (
            (f"this program made {len(results)} trainings: what they learn from the same rows adds up",)
            if len(results) > 1
            else ()
        )
        return [
            replace(one, contradictions=(*one.contradictions, *missing), remarks=(*one.remarks, *several))
            for one in results
        ]

    @property
    def trained(self) -> list[Audit]:
        """The audits that saw a step and whose data loader drew all batches.

        Canaries are drawn at the rate of that loader. A bound for other batches would be meaningless.
        """
        return [audit for audit in self.audits if audit.steps and not audit.draws.strayed]

    @property
    def promised(self) -> bool:
        """Whether the program asked for an ε, and so for a delta, in each training."""
        return all(audit in self._promises for audit in self.trained)

    def _report(
        self, audit: Audit, claimed: float | Claim | None, delta: float | None, confidence: float, how: Any
    ) -> Result:
        promise = self._promises.get(audit)
        if promise is not None and delta in (None, promise.delta):
            claimed, delta = promise.epsilon if claimed is None else claimed, promise.delta
        if claimed is None and delta is not None:
            claimed = _counted(audit, delta)
        if claimed is None and delta is None:
            raise InputError("delta must be given: the program did not ask for an ε at one")
        if isinstance(claimed, ApproximateDP):
            delta, claimed = claimed.delta, claimed.epsilon
        result = audit.report(claimed, delta, confidence, **how)
        if self._canaries is not None or result.bound.evidence.elements == _CANARIES:
            return result
        fewer = (
            f"{result.facts['canaries']}; fewer than {_CANARIES}, to leave half of the weights to the noise"
        )
        return replace(result, facts={**result.facts, "canaries": fewer})

    def _nothing(self) -> str:
        if any(audit.draws.strayed for audit in self.audits):
            return (
                "the program could not be audited: steps were made of batches that the data loader which was "
                "made with the optimizer did not draw"
            )
        ended = [audit.ended for audit in self.audits if audit.ended]
        if ended and not self.refused:
            return f"the program could not be audited: {'; '.join(ended)}"
        if self.refused:
            return f"the program could not be audited: {'; '.join(dict.fromkeys(self.refused))}"
        if self.audits:
            return "the program made an optimizer private, but no step with it"
        return "the program made nothing private with Opacus"


def model_of(optimizer: DPOptimizer, made: Sequence[object]) -> Any:
    """The model that an optimizer trains, among the objects made with it; None if there is none."""
    if clippers := clippers_of(optimizer, made):
        return clippers[0]
    trained = {id(parameter) for parameter in optimizer.params}
    models = (one for one in made if isinstance(one, nn.Module))
    return next((one for one in models if trained & set(map(id, one.parameters()))), None)


def _fitting(optimizer: DPOptimizer, per_coordinate: int) -> int:
    """The default number of canaries. In a small model, half of the weights are left for witnesses."""
    if not isinstance(optimizer, DPOptimizer):
        return _CANARIES
    return min(_CANARIES, max(1, most_coordinates(optimizer) // 2) * per_coordinate)


def _counted(audit: Audit, delta: float) -> float | None:
    """The accountant's ε; None if there is no accountant, or if it fails, as some do without noise."""
    accountant = accountant_of(audit.optimizer)
    try:
        return None if accountant is None else float(accountant.get_epsilon(delta))
    except (ArithmeticError, ValueError):
        return None


def _unpaired(optimizer: DPOptimizer) -> str:
    """The reason why an optimizer without a private data loader is not audited."""
    return _UNPAIRED + "; its accountant assumes Poisson sampling" * (accountant_of(optimizer) is not None)


def _draws_alike(given: DataLoader[Any], made: DataLoader[Any]) -> bool:
    """Whether an engine's given loader uses Poisson sampling at the same rate as the one it made."""
    if not samples_by_poisson(given):
        return False
    rows = sampled_rows(given) == sampled_rows(made)
    return rows and rate_of(given) == rate_of(made)


def _resumed(audit: Audit) -> bool:
    """Whether the accountant has counted steps that the audit did not see."""
    accountant = accountant_of(audit.optimizer)
    return accountant is not None and steps_counted(accountant) > 0 and not audit.program.shares_accountant()


@dataclass
class _Making:
    """The objects made private by one call of an engine, or by hand."""

    promise: Promise | None
    given: DataLoader[Any] | None
    optimizers: list[DPOptimizer] = field(default_factory=list)
    loaders: list[DataLoader[Any]] = field(default_factory=list)
