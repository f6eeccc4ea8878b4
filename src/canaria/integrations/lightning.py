"""Audit training with Opacus under Lightning: a callback.

trainer = Trainer(callbacks=[audit := CanaryAudit(injection="sum", canaries=1000)])
trainer.fit(module, private_loader)
print(audit.audit.report(claimed=engine.get_epsilon(1e-5), delta=1e-5))
"""

from typing import Any

from canaria._core.errors import InputError
from canaria._core.extras import needed_for
from canaria._core.seeds import Seed
from canaria.integrations.opacus import Audit, Dense, Dirac, attach
from canaria.integrations.opacus._internals import accountant_of, steps_counted
from canaria.training import Watch

with needed_for("an audit of training with Lightning", "lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer


class CanaryAudit(Callback):
    """Attach an audit when training starts; its state goes into Lightning's checkpoints.

    So does the accountant's, which Lightning does not know of, and comes back if it has counted nothing yet.

    Takes the settings of `canaria.integrations.opacus.attach`, and a `Watch` if the noise is to be watched:
    its readings go to the trainer's logger unless it has one of its own, and an alarm that stops training
    ends it as a trainer ends. The module's one optimizer and the training data loader must be those that
    `PrivacyEngine.make_private` returned.

    Args:
        injection: "sum" or "head": how canaries get into the training.
        canaries: The number of canaries, or a design of them.
        per_coordinate: The number of canaries to a coordinate.
        rng: A seed for the hidden bits and the places of the canaries.
        noise_multiplier: What training states, if that is not what the optimizer holds.
        on_error: What happens if training cannot be audited any further: "warn" or "raise".
        watch: An alarm that watches the noise; None for none.

    Raises:
        InputError: If `injection` is "rows".

    Example:
        ```python
        callback = CanaryAudit(injection="sum", canaries=1000, rng=0)
        Trainer(callbacks=[callback], max_epochs=5).fit(module, loader)
        print(callback.audit.report(claimed=2.0, delta=1e-5))
        ```

    """

    def __init__(
        self,
        *,
        injection: str,
        canaries: int | Dense | Dirac,
        per_coordinate: int = 1,
        rng: Seed = None,
        noise_multiplier: float | None = None,
        on_error: str = "warn",
        watch: Watch | None = None,
    ) -> None:
        if injection == "rows":
            raise InputError(
                "Lightning draws batches before an audit can see them; use injection='sum' or 'head'"
            )
        self._how: dict[str, Any] = {
            "injection": injection,
            "canaries": canaries,
            "per_coordinate": per_coordinate,
            "rng": rng,
            "noise_multiplier": noise_multiplier,
            "on_error": on_error,
        }
        self._watch = watch
        self._audit: Audit | None = None
        self._state: dict[str, Any] | None = None

    @property
    def audit(self) -> Audit:
        """The audit, once training has started."""
        if self._audit is None:
            raise InputError("no audit is attached yet: it begins with trainer.fit")
        return self._audit

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach to what is trained with."""
        if len(trainer.optimizers) != 1:
            raise InputError(f"the audit needs exactly one optimizer, got {len(trainer.optimizers)}")
        (optimizer,) = trainer.optimizers
        if self._audit is not None:
            if getattr(optimizer, "canaria_audit", None) is not self._audit:
                raise InputError("this callback has audited another training; make a new one for this")
            return
        if self._state is not None:
            accountant = accountant_of(optimizer)
            if accountant is not None and steps_counted(accountant) == 0 and self._state["accountant"]:
                accountant.load_state_dict(self._state["accountant"])
        self._audit = attach(optimizer, trainer.train_dataloader, **self._how, state=self._state, begun=True)
        if self._watch is not None:
            self._watch.under(lambda: setattr(trainer, "should_stop", True), trainer.logger)
            self._audit.watch_with(self._watch)

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        if self._audit is None:
            return {}
        accountant = accountant_of(self._audit.optimizer)
        kept = None if accountant is None else dict(accountant.state_dict())
        return {**self._audit.state_dict(), "accountant": kept}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._state = state_dict or None
        if self._audit is not None and state_dict:
            self._audit.load_state_dict(state_dict)
