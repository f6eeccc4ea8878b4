"""The common base of callbacks for training frameworks on top of Opacus."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from torch import nn

from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.integrations.opacus import Audit, Dense, Dirac, attach
from canaria.integrations.opacus._accountants import accountant_of, steps_counted
from canaria.training import Watch
from canaria.training.canaries.sampling import Sampling


class AttachesAudit(ABC):
    """Attaches one audit when training begins, and keeps its state and the accountant's in checkpoints.

    The frameworks do not save the accountant. Its state is restored if it has not counted a step yet.
    """

    @property
    @abstractmethod
    def sees_draws(self) -> bool:
        """Whether the callback runs before the framework draws the first batch."""

    def __init__(
        self,
        *,
        injection: str,
        canaries: int | Dense | Dirac,
        per_coordinate: int = 1,
        rng: Seed = None,
        noise_multiplier: float | None = None,
        on_error: str = "warn",
        changes_weights: bool = False,
        sampling: str | Sampling = "poisson",
        watch: Watch | None = None,
    ) -> None:
        if injection == "rows" and not self.sees_draws:
            raise InputError(
                "batches are drawn here before an audit can see them; use injection='sum' or 'head'"
            )
        self._how: dict[str, Any] = {
            "injection": injection,
            "canaries": canaries,
            "per_coordinate": per_coordinate,
            "rng": rng,
            "noise_multiplier": noise_multiplier,
            "on_error": on_error,
            "changes_weights": changes_weights,
            "sampling": sampling,
        }
        self._watch = watch
        self._audit: Audit | None = None
        self._state: dict[str, Any] | None = None

    @property
    def audit(self) -> Audit:
        """The audit, once training has begun."""
        if self._audit is None:
            raise InputError("no audit is attached yet: it begins with training")
        return self._audit

    def _attach(
        self,
        optimizer: DPOptimizer,
        loader: DPDataLoader,
        model: nn.Module,
        *,
        begun: bool,
        stop: Callable[[], None],
        logger: object,
    ) -> None:
        if self._audit is not None:
            if getattr(optimizer, "canaria_audit", None) is not self._audit:
                raise InputError("this callback has audited another training; make a new one for this")
            return
        if self._state is not None:
            accountant = accountant_of(optimizer)
            if accountant is not None and steps_counted(accountant) == 0 and self._state["accountant"]:
                accountant.load_state_dict(self._state["accountant"])
        how = {**self._how, "state": self._state, "begun": begun, "model": model}
        self._audit = attach(optimizer, loader, **how)
        if self._watch is not None:
            self._watch.under(stop, logger)
            self._audit.watch(self._watch)

    def _whole_state(self) -> dict[str, Any]:
        """The state to save in a checkpoint: that of the audit, with the accountant's beside it."""
        if self._audit is None:
            return {}
        accountant = accountant_of(self._audit.optimizer)
        kept = None if accountant is None else dict(accountant.state_dict())
        return {**self._audit.state_dict(), "accountant": kept}
