"""Digits under Lightning, and what Lightning advises that is no error."""

from typing import Any

import lightning.pytorch as pl
import pytest
from torch import nn

ADVICE = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*The number of training batches"),
    pytest.mark.filterwarnings("ignore:.*isinstance.*LeafSpec.*"),
    pytest.mark.filterwarnings("ignore:.*resume.*"),
    pytest.mark.filterwarnings("ignore:.*batch_idx.*"),
    pytest.mark.filterwarnings("ignore:.*batch_size.*"),
]


class Digits(pl.LightningModule):
    """A module whose model and optimizer are private already."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        super().__init__()
        self.model, self.private = model, optimizer

    def training_step(self, batch: Any, _: int) -> Any:
        rows, labels = batch
        return nn.functional.cross_entropy(self.model(rows), labels)

    def configure_optimizers(self) -> Any:
        return self.private
