"""Run two training programs on neighbouring data sets: the usual one with Opacus, and one that is correct.

python examples/neighbours.py
"""

from typing import Any

import torch
from opacus import GradSampleModule, PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from opacus.optimizers import DPOptimizer
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from canaria.integrations.opacus import check_neighbours

STEPS = 100


def usual(data: Dataset[Any]) -> nn.Module:
    model = nn.Linear(64, 10)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(data, batch_size=10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    for _ in range(10):
        for features, labels in loader:
            if len(labels) == 0:
                continue
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(features), labels).backward()
            optimizer.step()
    return model


def correct(data: Dataset[Any]) -> nn.Module:
    model = GradSampleModule(nn.Linear(64, 10))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=10,
    )
    accountant = RDPAccountant()
    optimizer.attach_step_hook(accountant.get_optimizer_hook_fn(sample_rate=0.1))
    loader = DPDataLoader(data, sample_rate=0.1)
    for _ in range(STEPS // len(loader)):
        for features, labels in loader:
            optimizer.zero_grad()
            finite = torch.nan_to_num(features).clamp(0, 1)
            nn.functional.cross_entropy(model(finite), labels).backward()
            optimizer.step()
    return model


def main() -> None:
    features, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(features[:101] / 16, dtype=torch.float32), torch.tensor(labels[:101]))
    for train in (usual, correct):
        print(check_neighbours(train, digits, row=7))


if __name__ == "__main__":
    main()
