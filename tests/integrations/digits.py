"""Small real trainings with Opacus on scikit-learn's digits."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from opacus import PrivacyEngine
from opacus.utils.batch_memory_manager import BatchMemoryManager
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import Audit, attach, with_canary_head, with_canary_rows

SIGMA = 2.4224
"""The noise of epsilon 2 at delta 1e-5 (RDP), 100 steps, sampling rate 0.1."""
DELTA = 1e-5


@cache
def digits(rows: int) -> TensorDataset:
    features, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(features[:rows] / 16, dtype=torch.float32), torch.tensor(labels[:rows]))


@dataclass
class Private:
    """What make_private returned, and how to train with it."""

    model: Any
    optimizer: Any
    loader: Any
    criterion: Any
    engine: PrivacyEngine
    physical: int | None = None

    def one_pass(self) -> None:
        context = nullcontext(self.loader)
        if self.physical is not None:
            context = BatchMemoryManager(
                data_loader=self.loader, max_physical_batch_size=self.physical, optimizer=self.optimizer
            )
        with context as loader:
            for rows, labels in loader:
                self.criterion(self.model(rows), labels).backward()
                self.optimizer.step()
                self.optimizer.zero_grad()


class RealRowsWeigh(nn.Module):
    """Cross-entropy whose gradient on real rows is multiplied by a weight."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        canary = (answers.detach() == 0).all(dim=1)
        losses = nn.functional.cross_entropy(answers, labels, reduction="none")
        return (losses * torch.where(canary, 1.0, self.weight)).mean()


def private(
    injection: str,
    *,
    canaries: int = 1000,
    per_coordinate: int = 1,
    seed: int = 0,
    mode: str = "hooks",
    rows: int = 400,
    hidden: int = 16,
    sigma: float = SIGMA,
    clip: float | list[float] = 1.0,
    batches: int = 10,
    adam: bool = False,
    physical: int | None = None,
    poisson: bool = True,
    real_weight: float | None = None,
    biases: bool = True,
    **engine_options: Any,
) -> Private:
    torch.manual_seed(seed)
    first, last = nn.Linear(64, hidden, bias=biases), nn.Linear(hidden, 10, bias=biases)
    model: nn.Module = nn.Sequential(first, nn.ReLU(), last)
    dataset: Any = digits(rows)
    if injection == "rows":
        dataset = with_canary_rows(dataset, canaries)
    if injection == "head":
        model, dataset = with_canary_head(model, dataset, canaries, per_coordinate)
    kind: Any = torch.optim.AdamW if adam else torch.optim.SGD
    engine = PrivacyEngine(accountant="rdp")
    made = engine.make_private(
        module=model,
        optimizer=kind(model.parameters(), lr=0.01 if adam else 0.5),
        data_loader=DataLoader(dataset, batch_size=-(-len(dataset) // batches)),
        noise_multiplier=sigma,
        max_grad_norm=clip,
        grad_sample_mode=mode,
        poisson_sampling=poisson,
        **engine_options,
    )
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        wrapped, optimizer, criterion, loader = made
    else:
        wrapped, optimizer, loader = made
    if real_weight is not None:
        criterion = RealRowsWeigh(real_weight)
    return Private(wrapped, optimizer, loader, criterion, engine, physical)


def audited(
    injection: str,
    *,
    canaries: Any = 1000,
    per_coordinate: int = 1,
    seed: int = 0,
    steps: int = 100,
    tamper: Callable[[Any], None] | None = None,
    stated: float | None = None,
    **options: Any,
) -> tuple[Audit, Private]:
    """Train once with an audit attached; `tamper` breaks the optimizer first."""
    count = canaries if isinstance(canaries, int) else canaries.count
    made = private(injection, canaries=count, per_coordinate=per_coordinate, seed=seed, **options)
    if tamper is not None:
        tamper(made.optimizer)
    audit = attach(
        made.optimizer,
        made.loader,
        injection=injection,
        canaries=canaries,
        per_coordinate=per_coordinate,
        rng=seed,
        noise_multiplier=stated,
    )
    while audit.steps < steps:
        made.one_pass()
    return audit, made
