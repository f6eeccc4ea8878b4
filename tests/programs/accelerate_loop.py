"""Digits, by a loop with Accelerate around what Opacus made private."""

import argparse
from typing import Any

import torch
from accelerate import Accelerator
from faults import halve_noise
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH, DRAWS = 100, 4


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(64, 48), nn.GELU(), nn.LayerNorm(48))
        self.head = nn.Linear(48, 10)

    def forward(self, images: Any) -> Any:
        return self.head(self.body(images))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "accumulated"], default="none")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    images, labels = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))
    model = Classifier()
    engine = PrivacyEngine(accountant="rdp")
    made = engine.make_private(
        module=model,
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-3),
        data_loader=DataLoader(data, batch_size=BATCH),
        noise_multiplier=0.8,
        max_grad_norm=0.5,
    )
    private = made[1]
    if options.fault == "half":
        halve_noise(private)
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader = accelerator.prepare(*made)
    draws, done = 0, 0
    while done < options.steps:
        for rows, wanted in loader:
            draws += 1
            # four draws make a step, each clipped; the accountant counts the step
            waits = options.fault == "accumulated" and draws % DRAWS > 0
            private.signal_skip_step(waits)
            accelerator.backward(nn.functional.cross_entropy(model(rows), wanted))
            optimizer.step()
            optimizer.zero_grad()
            done += not waits
            if done == options.steps:
                break
    accelerator.print(f"epsilon {engine.get_epsilon(1e-5):.3f}")


if __name__ == "__main__":
    main()
