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
    """Attach an audit when training starts; its state is saved in Lightning's checkpoints.

    The accountant's state is saved too. It is restored if the accountant has not counted a step yet.

    Takes the arguments of `canaria.integrations.opacus.attach`, and a `Watch` to watch the noise. Readings go
    to the trainer's logger unless the watch has a logger. An alarm that stops training stops the trainer in
    its usual way. The module must have one optimizer. It and the training data loader must be those that
    `PrivacyEngine.make_private` returned.

    Args:
        injection: The way canaries enter training: "sum" or "head".
        canaries: The number of canaries, or a design of them.
        per_coordinate: The number of canaries per coordinate.
        rng: A seed for the hidden bits and the places of the canaries.
        noise_multiplier: The stated noise multiplier, if it differs from the optimizer's.
        on_error: The action if training cannot be audited any further: "warn" or "raise".
        changes_weights: Whether training changes weights by functions of the weights alone; see `attach`.
        sampling: The claimed sampling; schemes other than "poisson" need `injection="head"`.
        watch: An alarm that watches the noise, or None.

    Example:
        ```python
        callback = CanaryAudit(injection="sum", canaries=1000, rng=0)
        Trainer(callbacks=[callback], max_epochs=5).fit(module, loader)
        print(callback.audit.report(claimed=2.0, delta=1e-5))
        ```
    """

    sees_draws = False

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Attach to the trainer's optimizer and data loader."""
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
        """The state to save in a checkpoint."""
        return self._whole_state()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self._state = state_dict or None
        if self._audit is not None and state_dict:
            self._audit.load_state_dict(state_dict)
