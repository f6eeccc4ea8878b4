"""Train with Opacus and audit, and go on after an interruption as if there had been none.

python examples/resumed_training.py [--folder resumed-training]

Kill it at any moment and start it again: model, accountant, audit and result are those of an undisturbed run.
"""

import argparse
import os
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import attach, with_canary_rows

DELTA, CANARIES, EVERY = 1e-5, 1000, 4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--injection", choices=["sum", "rows"], default="sum")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--folder", type=Path, default=Path("resumed-training"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    checkpoint = options.folder / "checkpoint.pt"

    torch.manual_seed(0)
    features, labels = load_digits(return_X_y=True)
    dataset: Any = TensorDataset(torch.tensor(features / 16, dtype=torch.float32), torch.tensor(labels))
    if options.injection == "rows":
        dataset = with_canary_rows(dataset, CANARIES)
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=network,
        optimizer=torch.optim.Adam(network.parameters(), lr=0.01),
        data_loader=DataLoader(dataset, batch_size=-(-len(dataset) // 10)),
        noise_multiplier=2.4224,
        max_grad_norm=1.0,
    )

    saved = torch.load(checkpoint) if checkpoint.exists() else None
    if saved is not None:
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        engine.accountant.load_state_dict(saved["accountant"])
    audit = attach(
        optimizer,
        loader,
        injection=options.injection,
        canaries=CANARIES,
        rng=0,
        state=saved and saved["audit"],
        model=model,
    )
    if saved is not None:
        torch.set_rng_state(saved["random"])

    while audit.steps < options.steps:
        for rows, classes in islice(loader, EVERY):  # batches are independent: a pass may end anywhere
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(rows), classes).backward()
            optimizer.step()
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "accountant": engine.accountant.state_dict(),
            "audit": audit.state_dict(),
            "random": torch.get_rng_state(),
        }
        draft = checkpoint.with_suffix(".draft")
        torch.save(state, draft)
        os.replace(draft, checkpoint)  # at once: a kill leaves the old checkpoint or the new one

    result = audit.report(claimed=engine.get_epsilon(DELTA), delta=DELTA)
    result.save(options.folder / "result.json")
    print(result)


if __name__ == "__main__":
    main()
