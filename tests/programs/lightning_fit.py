"""Digits under Lightning; the module makes itself private, as does its data loader."""

import argparse
from typing import Any

import lightning.pytorch as pl
import torch
from opacus import PrivacyEngine
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 100


class Digits(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        images, labels = load_digits(return_X_y=True)
        self.rows = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))

    def train_dataloader(self) -> Any:
        return DataLoader(self.rows, batch_size=BATCH)


class PrivateClassifier(pl.LightningModule):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.model: Any = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        self.engine = PrivacyEngine(accountant="rdp")

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)
        self.trainer.fit_loop.setup_data()
        self.model, private, loader = self.engine.make_private(
            module=self.model.train(),
            optimizer=optimizer,
            data_loader=self.trainer.train_dataloader,
            noise_multiplier=1.2,
            max_grad_norm=1.0,
        )
        self.trainer.fit_loop._combined_loader.flattened = [loader]
        if self.fault == "half":
            halve_noise(private)
        return private

    def training_step(self, batch: Any, _: int) -> Any:
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels)


