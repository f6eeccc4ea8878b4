"""Digits under Lightning; the module makes itself private when it is asked for its optimizer."""

import argparse
import logging
from typing import Any

import pytorch_lightning as pl
import torch
from faults import halve_noise
from opacus import PrivacyEngine
from opacus.lightning import DPLightningDataModule
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

BATCH = 100


class Digits(pl.LightningDataModule):
    def setup(self, stage: str) -> None:
        images, labels = load_digits(return_X_y=True)
        self.rows = TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))

    def train_dataloader(self) -> Any:
        return DataLoader(self.rows, batch_size=BATCH, shuffle=True)


class Classifier(pl.LightningModule):
    def __init__(self, *, poisson: bool, halved: bool) -> None:
        super().__init__()
        self.poisson, self.halved = poisson, halved
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 10))
        self.engine = PrivacyEngine(accountant="rdp")
        self.private: dict[str, Any] = {}

    def forward(self, images: Any) -> Any:
        return self.layers(images)

    def training_step(self, batch: Any, _: int) -> Any:
        images, labels = batch
        loss = nn.functional.cross_entropy(self(images), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        self.trainer.fit_loop.setup_data()
        model, optimizer, _ = self.engine.make_private(
            module=self,
            optimizer=torch.optim.Adam(self.parameters(), lr=1e-3),
            data_loader=self.trainer.train_dataloader,
            noise_multiplier=1.2,
            max_grad_norm=1.0,
            poisson_sampling=self.poisson,
        )
        self.private["model"] = model  # in a dict, so that the module does not hold itself
        if self.halved:
            halve_noise(optimizer)
        return optimizer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fault", choices=["none", "half", "shuffled"], default="none")
    options = parser.parse_args()
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    pl.seed_everything(options.seed, verbose=False)
    poisson = options.fault != "shuffled"
    classifier = Classifier(poisson=poisson, halved=options.fault == "half")
    data = DPLightningDataModule(Digits()) if poisson else Digits()
    trainer = pl.Trainer(
        max_steps=options.steps,
        accelerator="cpu",
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(classifier, data)
    print(f"epsilon {classifier.engine.get_epsilon(1e-5):.3f}")


if __name__ == "__main__":
    main()
