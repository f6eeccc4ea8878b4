"""Train a small network with Opacus on scikit-learn's digits, and audit it in the same run.

python examples/opacus_digits.py [--injection sum|rows|head] [--adaptive]
"""

import argparse

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import attach, with_canary_head, with_canary_rows

DELTA, CANARIES, STEPS = 1e-5, 1000, 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--injection", choices=["sum", "rows", "head"], default="sum")
    parser.add_argument("--per-coordinate", type=int, default=1)
    parser.add_argument("--adaptive", action="store_true", help="reveal bits while guessing, and bet")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)

    features, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(features / 16, dtype=torch.float32), torch.tensor(labels))
    model: nn.Module = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    dataset = digits
    if options.injection == "rows":
        dataset = with_canary_rows(digits, CANARIES)
    if options.injection == "head":
        model, dataset = with_canary_head(model, digits, CANARIES, options.per_coordinate)

    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(dataset, batch_size=-(-len(dataset) // 10)),
        noise_multiplier=2.4224,
        max_grad_norm=1.0,
    )
    audit = attach(
        optimizer,
        loader,
        injection=options.injection,
        canaries=CANARIES,
        per_coordinate=options.per_coordinate,
        rng=options.seed,
        model=model,
    )

    criterion = nn.CrossEntropyLoss()
    while audit.steps < STEPS:
        for rows, classes in loader:
            optimizer.zero_grad()
            criterion(model(rows), classes).backward()
            optimizer.step()

    with torch.no_grad():
        right = (model(digits.tensors[0]).argmax(1) == digits.tensors[1]).float().mean()
    print(f"accuracy {right:.1%}, epsilon {engine.get_epsilon(DELTA):.2f} by the accountant")
    print(audit.report(claimed=engine.get_epsilon(DELTA), delta=DELTA, adaptive=options.adaptive))


if __name__ == "__main__":
    main()
