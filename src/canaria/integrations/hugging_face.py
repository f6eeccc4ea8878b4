"""Audit training with Opacus inside Hugging Face's Trainer: a callback.

trainer = PrivateTrainer(..., callbacks=[audit := CanaryAudit(injection="sum", canaries=1000)])
trainer.train()
print(audit.audit.report(claimed=engine.get_epsilon(1e-5), delta=1e-5))
"""

import hashlib
from pathlib import Path
from typing import Any, Final

from canaria._core.errors import InputError
from canaria._core.extras import needed_for

with needed_for("an audit of training with Hugging Face's Trainer", "huggingface"):
    import torch
    from accelerate.optimizer import AcceleratedOptimizer
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
    from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

    from canaria.integrations._callback import AttachesAudit

STATE_FILE: Final = "canaria.pt"
_WEIGHTS: Final = "weights"


class CanaryAudit(AttachesAudit, TrainerCallback):
    """Attach an audit when `Trainer.train` begins; its state goes into the Trainer's checkpoints.

    The accountant's state is saved there too, because the Trainer does not save it. It is restored if the
    accountant has not counted a step. The file holds the seed of the hidden bits: keep it from the guesser.

    Takes the arguments of `canaria.integrations.opacus.attach`, and a `Watch` to watch the noise. Readings go
    to the Trainer's logs unless the watch has a logger. An alarm that stops training stops the Trainer in its
    usual way. The Trainer's optimizer and training data loader must be those that
    `PrivacyEngine.make_private` returned.

    Args:
        injection: The way canaries enter training: "sum", "rows" or "head".
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
        PrivateTrainer(model=model, args=arguments, callbacks=[callback]).train()
        print(callback.audit.report(claimed=2.0, delta=1e-5))
        ```
    """

    sees_draws = True

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach to the optimizer and loader of the Trainer, with the saved state if training is resumed."""
        optimizer, loader = kwargs["optimizer"], kwargs["train_dataloader"]
        private = optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer
        if state.global_step > 0 and self._audit is None:
            self._state = _kept(args, state, len(loader), _digest(private))
        self._attach(
            private,
            loader,
            kwargs["model"],
            begun=False,
            stop=lambda: setattr(control, "should_training_stop", True),
            logger=lambda metrics, step: state.log_history.append({**metrics, "step": step}),
        )

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Save the audit's state in the checkpoint."""
        if self._audit is not None:
            kept = {**self._whole_state(), _WEIGHTS: _digest(self._audit.optimizer)}
            torch.save(kept, _folder(args, state) / STATE_FILE)


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    return Path(args.output_dir or "") / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"


def _digest(optimizer: torch.optim.Optimizer) -> str:
    """A fingerprint of the trained weights."""
    found = hashlib.blake2b(digest_size=16)
    for group in optimizer.param_groups:
        for weights in group["params"]:
            found.update(weights.detach().cpu().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _kept(args: TrainingArguments, state: TrainerState, batches: int, weights: str) -> dict[str, Any]:
    """The saved state in the checkpoint from which training resumes; the weights must match it."""
    if state.global_step % batches and not args.ignore_data_skip:
        raise InputError(
            "resume with TrainingArguments(ignore_data_skip=True): the Trainer would draw as many batches as "
            "were trained on and leave them out, but batches that are drawn by coins do not come back"
        )
    file = _folder(args, state) / STATE_FILE
    if not file.exists():
        raise InputError(
            f"training resumes at step {state.global_step}, but {file} does not exist: keep output_dir, and "
            "train with this callback from the beginning"
        )
    kept: dict[str, Any] = torch.load(file, weights_only=True)
    if kept.pop(_WEIGHTS) != weights:
        raise InputError(
            f"the weights are not those with which {file} was saved: resume a run in its own output_dir, "
            "from a checkpoint whose weights the Trainer can load"
        )
    return kept
