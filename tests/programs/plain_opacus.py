"""Digits, by a small network and a training loop with Opacus."""

import argparse
from typing import Any

import torch
from faults import halve_noise
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, CLIP_NORM = 120, 1.0


def load_data() -> TensorDataset:
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images, dtype=torch.float32), torch.tensor(labels))


def remove_clipping(optimizer: Any) -> None:
    """A clip norm that was raised to look for a bug, for all but the noise."""
    clipped = optimizer.clip_and_accumulate

    def unclipped() -> None:
        optimizer.max_grad_norm = 1e9
        clipped()
        optimizer.max_grad_norm = CLIP_NORM

    optimizer.clip_and_accumulate = unclipped


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "unclipped"], default="none")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    data = load_data()
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=1.0,
        max_grad_norm=CLIP_NORM,
    )
    if options.fault == "half":
        halve_noise(optimizer)
    elif options.fault == "unclipped":
        remove_clipping(optimizer)
    done = 0
    while done < options.steps:
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if done == options.steps:
                break
    print(f"loss {loss.item():.3f}, epsilon {engine.get_epsilon(1e-5):.3f}")


if __name__ == "__main__":
    main()
