"""A small Llama trained with Opacus inside Hugging Face's Trainer, in full or by LoRA adapters of PEFT.

Gradients are clipped row by row, or by ghost clipping.
"""

import argparse
import tempfile
from typing import Any

import peft
import torch
from faults import halve_noise
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments

WORDS, TOKENS, ROWS, BATCH = 64, 16, 400, 40


class Sentences(Dataset[Any]):
    def __init__(self) -> None:
        self.tokens = torch.randint(0, WORDS, (ROWS, TOKENS))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


class ClearGradients(TrainerCallback):
    """Trainer clears the gradients of the model; Opacus wants the optimizer's cleared."""

    def on_step_end(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        optimizer.zero_grad()


class PrivateTrainer(Trainer):
    """Trains with what PrivacyEngine made of model, optimizer and data loader; losses are by row."""

    ghost_loss: Any = None

    def make_private(self, *, poisson: bool, ghost: bool) -> PrivacyEngine:
        engine = PrivacyEngine(accountant="rdp")
        weights = [one for one in self.model.parameters() if one.requires_grad]
        how = {"grad_sample_mode": "ghost", "criterion": torch.nn.CrossEntropyLoss()} if ghost else {}
        self.model, self.optimizer, *loss, self.private_loader = engine.make_private(
            module=self.model.train(),
            optimizer=torch.optim.AdamW(weights, lr=1e-3),
            data_loader=DataLoader(self.train_dataset, batch_size=BATCH, shuffle=not poisson),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            poisson_sampling=poisson,
            **how,
        )
        self.model_wrapped = self.model
        self.ghost_loss = loss[0] if loss else None
        return engine

    def get_train_dataloader(self) -> Any:
        return self.private_loader

    def compute_loss(self, model: Any, inputs: Any, *_: Any, **__: Any) -> Any:
        logits = model(input_ids=inputs["input_ids"]).logits[:, :-1]
        wanted = inputs["labels"][:, 1:]
        if self.ghost_loss is not None:
            return self.ghost_loss(logits.reshape(-1, WORDS), wanted.reshape(-1), shape=logits.shape)
        losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), wanted, reduction="none")
        return losses.mean(dim=1).mean()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lora", action="store_true")
    parser.add_argument("--ghost", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "shuffled"], default="none")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=WORDS,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=TOKENS,
        )
    )
    if options.lora:
        model = peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"]))
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=options.steps,
            per_device_train_batch_size=BATCH,
            max_grad_norm=0.0,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            lr_scheduler_type="constant",
            seed=options.seed,
        )
        trainer = PrivateTrainer(
            model=model, args=arguments, train_dataset=Sentences(), callbacks=[ClearGradients()]
        )
        engine = trainer.make_private(poisson=options.fault != "shuffled", ghost=options.ghost)
        if options.fault == "half":
            halve_noise(trainer.optimizer)
        trainer.train()
    print(f"epsilon {engine.get_epsilon(1e-5):.3f}")


if __name__ == "__main__":
    main()
