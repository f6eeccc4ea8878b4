"""Train a small CNN with Opacus on Fashion-MNIST, and audit it in the same run.

The data are Debian's package dataset-fashion-mnist, or any folder with its four files:

    python examples/opacus_fashion_mnist.py [--data FOLDER] [--steps 300] [--canaries 20000]
"""

import argparse
import gzip
from pathlib import Path

import numpy as np
import torch
from opacus import PrivacyEngine
from rich.progress import track
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import attach

DELTA, BATCH = 1e-5, 600


def pictures(folder: Path, part: str) -> tuple[Tensor, Tensor]:
    def numbers(name: str, header: int) -> np.ndarray:
        with gzip.open(folder / f"{part}-{name}-ubyte.gz") as file:
            return np.frombuffer(file.read(), np.uint8, offset=header)

    pixels = numbers("images-idx3", 16).reshape(-1, 1, 28, 28).astype(np.float32) / 255
    return torch.tensor(pixels), torch.tensor(numbers("labels-idx1", 8).astype(np.int64))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--canaries", type=int, default=20_000)
    parser.add_argument("--noise", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if not options.data.is_dir():
        raise SystemExit(f"{options.data} is no folder; install dataset-fashion-mnist or give --data")
    torch.manual_seed(options.seed)

    train, test = pictures(options.data, "train"), pictures(options.data, "t10k")
    model = nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10)),
    )
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5),
        data_loader=DataLoader(TensorDataset(*train), batch_size=BATCH),
        noise_multiplier=options.noise,
        max_grad_norm=1.0,
    )
    audit = attach(
        optimizer, loader, injection="sum", canaries=options.canaries, rng=options.seed, model=model
    )

    criterion, batches = nn.CrossEntropyLoss(), iter(loader)
    for _ in track(range(options.steps), "training"):
        try:
            rows, classes = next(batches)
        except StopIteration:
            batches = iter(loader)
            rows, classes = next(batches)
        optimizer.zero_grad()
        criterion(model(rows), classes).backward()
        optimizer.step()

    with torch.no_grad():
        right = (model(test[0]).argmax(1) == test[1]).float().mean()
    print(f"test accuracy {right:.1%}, epsilon {engine.get_epsilon(DELTA):.2f} by the accountant")
    print(audit.report(claimed=engine.get_epsilon(DELTA), delta=DELTA))


if __name__ == "__main__":
    main()
