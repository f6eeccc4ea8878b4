"""Audits of programs that nobody touched: whatever they make private is audited while they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch.utils.data import DataLoader

from canaria._core import seeds
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.claims import ApproximateDP, Claim
from canaria.integrations.opacus._attach import attach
from canaria.integrations.opacus._audit import Audit
from canaria.integrations.opacus._internals import (
    OnBatch,
    Undo,
    accountant_of,
    clippers_of,
    rate_of,
    record_draws,
    sampled_rows,
    samples_by_poisson,
    steps_counted,
)
from canaria.integrations.opacus._programs import Promise, noticing
from canaria.results.result import Result
from canaria.training.canaries import Dense, Dirac
from canaria.training.watch import Watch

_PROGRAM: Final = 0x70726F67
_UNPAIRED: Final = (
    "a private optimizer was made without a data loader that samples by Poisson (poisson_sampling=False, or "
    "a loader of its own)"
)


_NOT_PLAIN: Final = (
    "it is not plain which data loader feeds an optimizer that was made by hand; attach an audit to both"
)


class ProgramAudit:
    """The audits of all that a program trained with Opacus. Made by `auditing`.

    Attributes:
        audits: The attached audits, in the order in which the program made its optimizers private.
        refused: Why an optimizer could not be audited, one line for each that was not.

    Example:
        ```python
        with auditing(canaries=1000) as audit:
            program()  # makes its optimizer private and trains
        for result in audit.reports(delta=1e-5):
            print(result.verdict)
        ```

    """

    def __init__(self, canaries: int | Dense | Dirac, rng: Seed, **how: Any) -> None:
        self.audits: list[Audit] = []
        self.refused: list[str] = []
        self._canaries, self._how = canaries, how
        self._watch: Watch | None = how.pop("watch")
        self._rng = seeds.generator(rng, _PROGRAM)
        self._promises: dict[Audit, Promise] = {}
        self._engines: list[_Making] = []
        self._optimizers: list[DPOptimizer] = []
        self._by_hand = _Making(None, None)
        self._fed_by: dict[DataLoader[Any], Audit] = {}

    def begin_engine(self, promise: Promise | None, given: DataLoader[Any]) -> None:
        """An engine makes things private; one that asks another passes its promise on."""
        before = self._engines[-1].promise if self._engines else None
        self._engines.append(_Making(promise or before, given))

    def end_engine(self, made: tuple[object, ...]) -> None:
        """What the engine made belongs together."""
        making = self._engines.pop()
        if self._engines:
            self._engines[-1].optimizers += making.optimizers
            self._engines[-1].loaders += making.loaders
            return
        for optimizer in making.optimizers:
            if len(making.loaders) == 1:
                (loader,) = making.loaders
                audit = self._attach(optimizer, loader, making.promise, made)
                if audit is not None and making.given is not None and _draws_alike(making.given, loader):
                    self._fed_by[making.given] = audit
            else:
                self.refused.append(_unpaired(optimizer))

    def made_optimizer(self, optimizer: DPOptimizer) -> None:
        """The program has a private optimizer."""
        self._optimizers.append(optimizer)
        (self._engines[-1] if self._engines else self._by_hand).optimizers.append(optimizer)

    def made_loader(self, loader: DPDataLoader) -> None:
        """The program has a private data loader; one made by hand shows by drawing what it is for."""
        (self._engines[-1] if self._engines else self._by_hand).loaders.append(loader)
        if not self._engines:
            undo = record_draws(loader.batch_sampler, lambda: self._drawing(loader, undo))

    def _drawing(self, loader: DPDataLoader, undo: Undo) -> OnBatch:
        """A loader that was made by hand begins a pass: for the only optimizer that waits for a loader.

        If its batches are not trained on after all, the audit sees steps that it did not draw. If an engine
        was given the loader, it has made another that draws alike, and programs train with either.
        """
        if loader in self._fed_by:
            return self._fed_by[loader].begin_pass()
        undo()
        audit = None
        if len(self._by_hand.optimizers) == 1:
            audit = self._attach(self._by_hand.optimizers.pop(), loader)
        return (lambda _: None) if audit is None else audit.begin_pass()

    def before_step(self, optimizer: DPOptimizer) -> None:
        """Leave an optimizer alone if nothing feeds it for certain, or if it goes on from a checkpoint."""
        waiting = self._by_hand
        if any(one is optimizer for one in waiting.optimizers):
            waiting.optimizers = [one for one in waiting.optimizers if one is not optimizer]
            self.refused.append(_NOT_PLAIN if waiting.loaders else _unpaired(optimizer))
        for audit in self.audits:
            if audit.optimizer is optimizer and audit.steps == 0 and not audit.ended and _resumed(audit):
                audit.detach()
                self.refused.append("training goes on from a checkpoint, and was not seen from its beginning")

    def _attach(
        self,
        optimizer: DPOptimizer,
        loader: DPDataLoader,
        promise: Promise | None = None,
        made: tuple[object, ...] = (),
    ) -> Audit | None:
        model = next(iter(clippers_of(optimizer, made)), None)
        how = {"canaries": self._canaries, "rng": self._rng, "model": model, **self._how}
        try:
            audit = attach(optimizer, loader, injection="sum", **how)
        except InputError as error:
            self.refused.append(str(error))
            return None
        audit.shares_accountant = lambda: self._counts_for_others(optimizer)
        self.audits.append(audit)
        if promise is not None:
            self._promises[audit] = promise
        if self._watch is not None:
            audit.watch_with(self._watch)
        return audit

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
        """Bound, claim and conformance of the one training that the program made.

        Args:
            claimed: What is promised. By default the ε that the program asked `make_private_with_epsilon`
                for, or what its accountant says at `delta`.
            delta: The delta of the bound; by default the one that the program asked for.
            confidence: With which probability the bound holds.
            **how: As for `Recording.report`.

        Returns:
            The result.

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
        """The same of every training; see `report`."""
        if not self.trained:
            raise InputError(self._nothing())
        return [self._report(audit, claimed, delta, confidence, how) for audit in self.trained]

    @property
    def trained(self) -> list[Audit]:
        """The audits that saw a step, each made of a batch of the data loader that they were attached to.

        Canaries are drawn at the rate of that loader; of steps from another one, a bound would say nothing.
        """
        return [audit for audit in self.audits if audit.steps and not audit.strayed]

    @property
    def promised(self) -> bool:
        """Whether the program asked for an ε, and so for a delta, in every training."""
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
            return audit.report(claimed.epsilon, claimed.delta, confidence, **how)
        return audit.report(claimed, delta, confidence, **how)

    def _nothing(self) -> str:
        if any(audit.strayed for audit in self.audits):
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


@contextmanager
def auditing(
    canaries: int | Dense | Dirac = 1000,
    *,
    rng: Seed = None,
    per_coordinate: int = 1,
    on_error: str = "warn",
    watch: Watch | None = None,
) -> Iterator[ProgramAudit]:
    """Audit whatever is trained with Opacus within: a program that makes itself private.

    Private optimizers and data loaders are noticed when they are made, by `PrivacyEngine.make_private*` or by
    hand, and get an audit with `injection="sum"`, which needs nothing of the program. Its own random numbers
    stay as they are. A training that cannot be audited goes on, and the report says why.

    Args:
        canaries: A number of Dirac canaries, or a design such as `Dense`.
        rng: A seed for the hidden bits and the places of the canaries.
        per_coordinate: How many Dirac canaries share a weight.
        on_error: What happens if a training cannot be audited any further: "warn" or "raise".
        watch: Watches the noise of every training, if given.

    Yields:
        The audits; ask for a `report` when the program has ended.

    Example:
        ```python
        with auditing(canaries=1000) as audit:
            program()
        print(audit.report(delta=1e-5))
        ```

    """
    audit = ProgramAudit(canaries, rng, per_coordinate=per_coordinate, on_error=on_error, watch=watch)
    with noticing(audit):
        yield audit


def _counted(audit: Audit, delta: float) -> float | None:
    """What the accountant says; None if there is none, or if it fails, as some do without noise."""
    accountant = accountant_of(audit.optimizer)
    try:
        return None if accountant is None else float(accountant.get_epsilon(delta))
    except (ArithmeticError, ValueError):
        return None


def _unpaired(optimizer: DPOptimizer) -> str:
    """Why an optimizer is not audited that no private data loader was made with."""
    return _UNPAIRED + "; its accountant takes batches for Poisson's" * (accountant_of(optimizer) is not None)


def _draws_alike(given: DataLoader[Any], made: DPDataLoader) -> bool:
    """Whether the loader that an engine was given draws by Poisson, too, at the rate of the one it made."""
    if not samples_by_poisson(given):
        return False
    rows = sampled_rows(given) == sampled_rows(made)
    return rows and rate_of(given) == rate_of(made)


def _resumed(audit: Audit) -> bool:
    """Whether its accountant has counted steps that nobody saw."""
    accountant = accountant_of(audit.optimizer)
    return accountant is not None and steps_counted(accountant) > 0 and not audit.shares_accountant()


@dataclass
class _Making:
    """What was made private, by one call of an engine or by hand."""

    promise: Promise | None
    given: DataLoader[Any] | None
    optimizers: list[DPOptimizer] = field(default_factory=list)
    loaders: list[DPDataLoader] = field(default_factory=list)
