"""Opacus's ghost clipping takes a wrong norm for the bias of a linear layer that reads sequences."""

import torch
from opacus import PrivacyEngine
from torch import nn

from canaria.preflight import check_sensitivity

torch.manual_seed(0)
texts = torch.randn(16, 50, 8) / 8**0.5  # 16 texts of 50 tokens
labels = torch.zeros(16, 50, dtype=torch.long)
NORM = 0.1


def step(batch: tuple[torch.Tensor, torch.Tensor]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    model, loader = nn.Linear(8, 4), torch.utils.data.DataLoader(batch[0])
    model, optimizer, criterion, _ = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters()),
        criterion=nn.CrossEntropyLoss(reduction="sum"),
        data_loader=loader,
        noise_multiplier=0.0,  # to see the sum alone
        max_grad_norm=NORM,
        loss_reduction="sum",
        grad_sample_mode="ghost",
    )
    shape = (*batch[1].shape, 4)
    criterion(model(batch[0]).flatten(0, 1), batch[1].flatten(), shape=shape).backward()
    optimizer.pre_step()
    return [weights.grad for weights in model.parameters()]


result = check_sensitivity(step, (texts, labels), NORM, rng=0)
