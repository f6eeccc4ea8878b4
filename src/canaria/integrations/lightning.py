"""Audit training with Opacus under Lightning: a callback.

trainer = Trainer(callbacks=[audit := CanaryAudit(injection="sum", canaries=1000)])
trainer.fit(module, private_loader)
print(audit.audit.report(claimed=engine.get_epsilon(1e-5), delta=1e-5))
"""

from typing import Any

from canaria._core.errors import InputError
from canaria._core.extras import needed_for

with needed_for("an audit of training with Lightning", "lightning"):
    from lightning.pytorch import Callback, LightningModule, Trainer

    from canaria.integrations._callback import AttachesAudit


class CanaryAudit(AttachesAudit, Callback):
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
        changes_weights: Whether training changes weights by functions of the weights alone; see `attach`.
        sampling: How rows are claimed to take part; others than "poisson" need `injection="head"`.
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

    sees_draws = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach to what is trained with."""
        if len(trainer.optimizers) != 1:
            raise InputError(f"the audit needs exactly one optimizer, got {len(trainer.optimizers)}")
        self._attach(
            trainer.optimizers[0],
            trainer.train_dataloader,
            pl_module,
            begun=True,
            stop=lambda: setattr(trainer, "should_stop", True),
            logger=trainer.logger,
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs."""
        return self._whole_state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self._state = state_dict or None
        if self._audit is not None and state_dict:
            self._audit.load_state_dict(state_dict)
