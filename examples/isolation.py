"""Does one row of a batch change what another contributes? Asked of a Hugging Face model, before training.

    python examples/isolation.py [--loss batch|rows]

batch: `model(**batch).loss`, a mean over all tokens of the batch; rows: a mean over the tokens of each row.
"""

import argparse

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader
from transformers import LlamaConfig, LlamaForCausalLM

from canaria.integrations.opacus import check_isolation

WORDS, LENGTH, CLIP_NORM = 64, 96, 4.0


def loss_of_batch(model, batch):
    return model(**batch).loss


def loss_of_rows(model, batch):
    answers = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    losses = nn.functional.cross_entropy(answers[:, :-1].transpose(1, 2), labels, reduction="none")
    return (losses.sum(1) / (labels >= 0).sum(1)).mean()


def texts(count: int) -> list[dict[str, torch.Tensor]]:
    """Token sequences, some tokens far more frequent than others, padded: one long, the others short."""
    tokens = 1 + (torch.rand(count, LENGTH) ** 4 * (WORDS - 1)).long()
    lengths = torch.randint(4, 9, (count, 1))
    lengths[0] = LENGTH
    mask = (torch.arange(LENGTH) < lengths).long()
    padded = {
        "input_ids": tokens * mask,
        "attention_mask": mask,
        "labels": tokens.masked_fill(mask == 0, -100),
    }
    return [{name: part[row] for name, part in padded.items()} for row in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loss", choices=["batch", "rows"], default="batch")
    options = parser.parse_args()
    torch.manual_seed(0)
    loss = {"batch": loss_of_batch, "rows": loss_of_rows}[options.loss]
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=WORDS, attn_implementation="eager", **shape)).train()
    rows = texts(12)
    model, optimizer, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(rows, batch_size=12),
        noise_multiplier=1.0,
        max_grad_norm=CLIP_NORM,
    )
    batch = next(iter(DataLoader(rows, batch_size=12)))
    print(check_isolation(model, optimizer, loss, batch, rng=0))


if __name__ == "__main__":
    main()
