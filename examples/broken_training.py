"""Training scripts with the mistakes people make, and what the audit says to each.

    python examples/broken_training.py --fault none|halved|forgotten|unclipped|mean-clipped

halved: half of the stated noise; forgotten: distributed training in which rank 0, which should add the noise,
does not; unclipped: per-sample gradients are summed as they are; mean-clipped: the mean gradient is clipped
instead of each. The claim is the accountant's, who believes that all is well.
"""

import argparse
import tempfile
import warnings
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.optimizers import DPOptimizer
from sklearn.datasets import load_digits
from torch import distributed, multiprocessing, nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import attach, with_canary_rows

DELTA, CANARIES, STEPS, NOISE = 1e-5, 1000, 100, 2.4224


class Unclipped(DPOptimizer):
    """Forgets to clip."""

    def clip_and_accumulate(self) -> None:
        for p in self.params:
            p.summed_grad = self._get_flat_grad_sample(p).sum(0)


class MeanClipped(DPOptimizer):
    """Clips the mean of the batch, which bounds no single row's part."""

    def clip_and_accumulate(self) -> None:
        means = [self._get_flat_grad_sample(p).mean(0) for p in self.params]
        norm = torch.cat([mean.ravel() for mean in means]).norm()
        factor = (self.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
        for p, mean in zip(self.params, means, strict=True):
            p.summed_grad = mean * factor * len(p.grad_sample)


BROKEN: dict[str, Any] = {"unclipped": Unclipped, "mean-clipped": MeanClipped}


def train(fault: str, seed: int) -> Any:
    torch.manual_seed(seed)
    features, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(features / 16, dtype=torch.float32), torch.tensor(labels))
    dataset = with_canary_rows(digits, CANARIES)
    model: nn.Module = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    if fault == "forgotten":
        model = DifferentiallyPrivateDistributedDataParallel(model)
        torch.manual_seed(seed + 1 + distributed.get_rank())  # each rank draws rows of its own
    engine = PrivacyEngine(accountant="rdp")
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(dataset, batch_size=-(-len(dataset) // 10)),
        noise_multiplier=NOISE,
        max_grad_norm=1.0,
    )
    optimizer.__class__ = BROKEN.get(fault, type(optimizer))
    if fault == "halved":
        generate = optimizer.add_noise

        def half() -> None:
            optimizer.noise_multiplier /= 2
            generate()
            optimizer.noise_multiplier *= 2

        optimizer.add_noise = half
    if fault == "forgotten":
        optimizer.rank = 1
    audit = attach(optimizer, loader, injection="rows", canaries=CANARIES, rng=seed, model=model)
    criterion = nn.CrossEntropyLoss()
    while audit.steps < STEPS:
        for rows, classes in loader:
            optimizer.zero_grad()
            criterion(model(rows), classes).backward()
            optimizer.step()
    return audit.report(claimed=engine.get_epsilon(DELTA), delta=DELTA)


def one_rank(rank: int, folder: str, fault: str, seed: int) -> None:
    warnings.simplefilter("ignore")
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    report = train(fault, seed)
    if rank == 0:
        print(report)
    distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    faults = ["none", "halved", "forgotten", "unclipped", "mean-clipped"]
    parser.add_argument("--fault", choices=faults, default="halved")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.fault == "forgotten":
        with tempfile.TemporaryDirectory() as folder:
            multiprocessing.spawn(one_rank, (folder, options.fault, options.seed), nprocs=2)
    else:
        print(train(options.fault, options.seed))


if __name__ == "__main__":
    main()
