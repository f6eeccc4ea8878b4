"""Whole training programs with Opacus, right and wrong, as functions of a data set."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from opacus.data_loader import DPDataLoader
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.batch_memory_manager import BatchMemoryManager
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn

RATE, EXPECTED, CLIP = 0.1, 10, 1.0


def small() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))


def sane(optimizer: Any) -> None:
    """Replace per-sample gradients that are not finite by zero, before they are clipped."""
    for parameter in optimizer.params:
        gradients = parameter.grad_sample
        whole = gradients.flatten(1).isfinite().all(dim=1)
        parameter.grad_sample = torch.where(
            whole.view(-1, *[1] * (gradients.ndim - 1)), gradients, torch.zeros_like(gradients)
        )


class Correct:
    """A program whose settings are constants, and which makes a step of every batch.

    What a test changes is an argument, or a method that it overrides.
    """

    def __init__(
        self,
        *,
        make: Callable[[], nn.Module] = small,
        base: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
        kind: type[DPOptimizer] = DPOptimizer,
        passes: int = 3,
        rate: float = RATE,
        physical: int | None = None,
        reduction: str = "mean",
        **loading: Any,
    ) -> None:
        self.make, self.base, self.kind = make, base, kind
        self.passes, self.rate, self.physical, self.reduction = passes, rate, physical, reduction
        self.loading = loading

    def __call__(self, data: Any) -> None:
        self.model = GradSampleModule(self.make(), loss_reduction=self.reduction)
        self.optimizer = self.kind(
            self.base(self.model.parameters(), lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=CLIP,
            expected_batch_size=EXPECTED,
            loss_reduction=self.reduction,
        )
        self.optimizer.attach_step_hook(RDPAccountant().get_optimizer_hook_fn(sample_rate=self.rate))
        loader = DPDataLoader(self.prepared(data), sample_rate=self.rate, **self.loading)
        for _ in range(self.passes):
            with self.split(loader) as batches:
                self.one_pass(batches)
            self.after_pass(data)

    def prepared(self, data: Any) -> Any:
        return data

    def split(self, loader: Any) -> AbstractContextManager[Any]:
        if self.physical is None:
            return nullcontext(loader)
        return BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=self.physical, optimizer=self.optimizer
        )

    def one_pass(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self.one_step(batch)

    def one_step(self, batch: Any) -> None:
        features, labels = batch
        self.optimizer.zero_grad()
        self.loss(features, labels).backward()
        self.mend()
        self.optimizer.step()

    def loss(self, features: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.model(features), labels, reduction=self.reduction)

    def mend(self) -> None:
        sane(self.optimizer)

    def after_pass(self, data: Any) -> None:
        """Nothing, here."""


class Ghost(Correct):
    """The same by ghost clipping, with features that are made finite."""

    def __call__(self, data: Any) -> None:
        self.model = GradSampleModuleFastGradientClipping(
            self.make(), max_grad_norm=CLIP, use_ghost_clipping=True
        )
        self.optimizer = DPOptimizerFastGradientClipping(
            self.base(self.model.parameters(), lr=0.1),
            noise_multiplier=1.0,
            max_grad_norm=CLIP,
            expected_batch_size=EXPECTED,
        )
        self.criterion = DPLossFastGradientClipping(self.model, self.optimizer, nn.CrossEntropyLoss())
        loader = DPDataLoader(data, sample_rate=self.rate)
        for _ in range(self.passes):
            with self.split(loader) as batches:
                self.one_pass(batches)

    def one_step(self, batch: Any) -> None:
        features, labels = batch
        self.optimizer.zero_grad()
        self.criterion(self.model(torch.nan_to_num(features)), labels).backward()
        self.optimizer.step()
