"""Opacus's fast gradient clipping divides the loss of a text by the length of the longest in its batch."""

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from canaria.preflight import check_sensitivity

torch.manual_seed(0)
texts = [torch.randint(10, (length,)) for length in (2, 2, 2, 2, 2, 2, 2, 40)]
NORM, IGNORED = 1.0, -100


def step(batch: list[torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 10))
    model, optimizer, criterion, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters()),
        criterion=nn.CrossEntropyLoss(ignore_index=IGNORED),
        data_loader=torch.utils.data.DataLoader(batch),
        noise_multiplier=0.0,  # to see the sum alone
        max_grad_norm=NORM,
        grad_sample_mode="ghost",
    )
    tokens, labels = pad_sequence(batch, True), pad_sequence(batch, True, IGNORED)
    criterion(model(tokens).flatten(0, 1), labels.flatten(), shape=(*tokens.shape, 10)).backward()
    optimizer.pre_step()
    # Opacus divides the sum by the expected batch size, which is public.
    return [weights.grad * optimizer.expected_batch_size for weights in model.parameters()]


result = check_sensitivity(step, texts, NORM, rng=0)
