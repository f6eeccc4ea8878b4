"""A small private training with Opacus, into which tests put faults."""

from collections.abc import Callable
from typing import Any

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from canaria import Result
from canaria.integrations.opacus import attach

DELTA = 1e-5


class Training:
    """A small private training; `between` is called after every step."""

    def __init__(
        self,
        *,
        seed: int = 0,
        noise: float = 1.0,
        frozen_head: bool = False,
        trainable_head: bool = True,
        engine: Any = None,
        kind: Any = lambda p: torch.optim.SGD(p, lr=0.1),
    ) -> None:
        torch.manual_seed(seed)
        data = torch.randn(1000, 20)
        self.rows = TensorDataset(data, (data[:, 0] > 0).long())
        self.body, self.head = nn.Sequential(nn.Linear(20, 64), nn.ReLU()), nn.Linear(64, 2)
        self.net = nn.Sequential(self.body, self.head)
        for parameter in self.head.parameters():
            parameter.requires_grad_(requires_grad=trainable_head)
        trained = self.body if frozen_head else self.net
        self.engine = engine or PrivacyEngine()
        self.model, self.optimizer, self.loader = self.engine.make_private(
            module=self.net,
            optimizer=kind(trained.parameters()),
            data_loader=DataLoader(self.rows, batch_size=50),
            noise_multiplier=noise,
            max_grad_norm=1.0,
        )
        self.plain = torch.optim.SGD(self.head.parameters(), lr=0.1)
        self.steps = 0

    def attach(self, **how: Any) -> Any:
        self.audit = attach(
            self.optimizer,
            self.loader,
            **{"injection": "sum", "canaries": 300, "rng": 0, "model": self.model, **how},
        )
        return self

    def train(self, epochs: int = 2, between: Callable[["Training"], object] = lambda _: None) -> "Training":
        for _ in range(epochs):
            for features, labels in self.loader:
                self.model.zero_grad()
                self.optimizer.zero_grad()
                nn.functional.cross_entropy(self.model(features), labels).backward()
                self.optimizer.step()
                self.steps += 1
                between(self)
        return self

    def report(self, epsilon: float | None = None, delta: float = DELTA) -> Result:
        claimed = self.engine.get_epsilon(DELTA) if epsilon is None else epsilon
        return self.audit.report(claimed, delta, rungs=False)
