"""Audits of programs that nobody touched: whatever they make private is audited while they run."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer

from canaria._core import seeds
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.claims import ApproximateDP, Claim
from canaria.integrations.opacus._audit import Audit, attach
from canaria.integrations.opacus._internals import Promise, accountant_of, noticing
from canaria.results.result import Result
from canaria.training.canaries import Dense, Dirac
from canaria.training.watch import Watch

_PROGRAM: Final = 0x70726F67
_UNPAIRED: Final = (
    "a private optimizer was made without a data loader that samples by Poisson (poisson_sampling=False, or "
    "a loader of its own)"
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
        self._optimizers: list[tuple[DPOptimizer, Promise | None]] = []
        self._loaders: list[DPDataLoader] = []

    def made_optimizer(self, optimizer: DPOptimizer, promise: Promise | None) -> None:
        """The program has a private optimizer, of an engine that was asked to keep the promise."""
        self._optimizers.append((optimizer, promise))
        self._pair()

    def made_loader(self, loader: DPDataLoader) -> None:
        """The program has a private data loader."""
        self._loaders.append(loader)
        self._pair()

    def _pair(self) -> None:
        """Audit the newest optimizer with the newest loader, once there are both."""
        if not self._optimizers or not self._loaders:
            return
        (optimizer, promise), loader = self._optimizers.pop(), self._loaders.pop()
        try:
            audit = attach(
                optimizer, loader, injection="sum", canaries=self._canaries, rng=self._rng, **self._how
            )
        except InputError as error:
            self.refused.append(str(error))
            return
        self.audits.append(audit)
        if promise is not None:
            self._promises[audit] = promise
        if self._watch is not None:
            audit.watch_with(self._watch)

    def finish(self) -> None:
        """The program has ended: say what was left without a partner."""
        for optimizer, _ in self._optimizers:
            counted = accountant_of(optimizer) is not None
            self.refused.append(
                _UNPAIRED + ("; its accountant takes batches for Poisson's" if counted else "")
            )
        self._optimizers.clear()

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
        """The audits that saw a step."""
        return [audit for audit in self.audits if audit.steps]

    @property
    def promised(self) -> bool:
        """Whether the program asked for an ε, and so for a delta, in every training."""
        return all(audit in self._promises for audit in self.trained)

    def _report(
        self, audit: Audit, claimed: float | Claim | None, delta: float | None, confidence: float, how: Any
    ) -> Result:
        promise = self._promises.get(audit)
        if claimed is None and promise is not None and delta in (None, promise.delta):
            claimed, delta = promise.epsilon, promise.delta
        accountant = accountant_of(audit.optimizer)
        if claimed is None and delta is not None and accountant is not None:
            claimed = float(accountant.get_epsilon(delta))
        if claimed is None and delta is None:
            raise InputError("delta must be given: the program did not ask for an ε at one")
        if isinstance(claimed, ApproximateDP):
            return audit.report(claimed.epsilon, claimed.delta, confidence, **how)
        return audit.report(claimed, delta, confidence, **how)

    def _nothing(self) -> str:
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
    with noticing(audit.made_optimizer, audit.made_loader):
        yield audit
    audit.finish()
