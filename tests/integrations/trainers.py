"""Small language models trained privately by Hugging Face's Trainer, with losses that they compute themselves."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peft
import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

WORDS, TOKENS, ROWS, BATCH = 64, 16, 400, 60


class Sentences(Dataset[Any]):
    """Sentences of one length as the Trainer takes them."""

    def __init__(self, rows: int = ROWS) -> None:
        generator = torch.Generator().manual_seed(1)
        self.tokens = torch.randint(0, WORDS, (rows, TOKENS), generator=generator)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index]}


def llama() -> Any:
    settings = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, max_position_embeddings=TOKENS, **settings))


def gpt2() -> Any:
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=WORDS, n_positions=TOKENS, n_embd=32, n_layer=2, n_head=4, **ends)
    )


def with_adapters(model: Any) -> Any:
    names = ["c_attn"] if isinstance(model, GPT2LMHeadModel) else ["q_proj", "v_proj"]
    transposed = isinstance(model, GPT2LMHeadModel)
    return peft.get_peft_model(model, peft.LoraConfig(r=8, target_modules=names, fan_in_fan_out=transposed))


class ClearGradients(TrainerCallback):  # type: ignore[misc]
    """Trainer clears the gradients of the model; Opacus wants the optimizer's cleared."""

    def on_step_end(self, *_: Any, optimizer: Any = None, **__: Any) -> None:
        optimizer.zero_grad()


class PrivateTrainer(Trainer):  # type: ignore[misc]
    """Trains with what PrivacyEngine made of it."""

    loader: Any
    criterion: Any = None

    def get_train_dataloader(self) -> Any:
        return self.loader

    def compute_loss(self, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if self.criterion is None:
            return model(**inputs).loss
        wanted = inputs.pop("labels")[:, 1:]
        logits = model(**inputs).logits[:, :-1]
        return self.criterion(logits.reshape(-1, WORDS), wanted.reshape(-1), shape=logits.shape)


@dataclass
class Made:
    """A trainer and what makes it private."""

    trainer: Any
    engine: Any


def made(
    model: Any,
    rows: Any,
    folder: Path,
    *callbacks: Any,
    ghost: bool = False,
    steps: int = 30,
    batch: int = BATCH,
    noise: float = 1.0,
    **arguments: Any,
) -> Made:
    """A private Trainer of this model, with clipping by hooks or by ghost clipping."""
    settings = {"save_strategy": "no", "lr_scheduler_type": "constant", **arguments}
    trainer = PrivateTrainer(
        model=model,
        args=TrainingArguments(
            output_dir=str(folder),
            max_steps=steps,
            per_device_train_batch_size=batch,
            max_grad_norm=0.0,
            report_to=[],
            logging_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            remove_unused_columns=False,
            **settings,
        ),
        train_dataset=rows,
        callbacks=[ClearGradients(), *callbacks],
    )
    engine = PrivacyEngine(accountant="rdp")
    weights = [one for one in model.parameters() if one.requires_grad]
    how = {"grad_sample_mode": "ghost", "criterion": torch.nn.CrossEntropyLoss()} if ghost else {}
    private, optimizer, *criterion, loader = engine.make_private(
        module=model.train(),
        optimizer=torch.optim.AdamW(weights, lr=1e-3),
        data_loader=DataLoader(rows, batch_size=batch),
        noise_multiplier=noise,
        max_grad_norm=1.0,
        **how,
    )
    trainer.model = trainer.model_wrapped = private
    trainer.optimizer, trainer.loader = optimizer, loader
    if criterion:
        trainer.criterion = criterion[0]
    return Made(trainer, engine)
