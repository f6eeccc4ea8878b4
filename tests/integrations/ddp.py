"""One rank of trainings over several processes with an audit attached."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from torch import distributed, nn
from torch.utils.data import DataLoader

from canaria import InputError
from canaria.integrations.opacus import attach, with_canary_head, with_canary_rows
from tests.integrations import together
from tests.integrations.digits import SIGMA, digits

CASES = (
    ("sum", "hooks", "right"),
    ("sum", "ghost", "right"),
    ("rows", "hooks", "right"),
    ("head", "hooks", "right"),
    ("sum", "hooks", "noiseless"),
    ("rows", "hooks", "loose"),
    ("sum", "hooks", "ended"),
)


def rank(this: int, ranks: int, folder: str) -> None:
    """Train all cases, one after the other, and leave what was seen in the folder."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=this, world_size=ranks)
    for case in CASES:
        np.savez(Path(folder) / f"{'-'.join(case)}-{this}.npz", **train(this, *case))
    together.leave(this, Path(folder))
    distributed.destroy_process_group()


def train(this: int, injection: str, mode: str, fault: str) -> dict[str, Any]:
    torch.manual_seed(17)
    model: nn.Module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    dataset: Any = digits(400)
    if injection == "rows":
        dataset = with_canary_rows(dataset, 1000)
    if injection == "head":
        model, dataset = with_canary_head(model, dataset, 1000)
    model = DifferentiallyPrivateDistributedDataParallel(model)
    torch.manual_seed(100 + this)
    made = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(dataset, batch_size=len(dataset) // 5),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
    )
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        wrapped, optimizer, criterion, loader = made
    else:
        wrapped, optimizer, loader = made
    if fault == "noiseless":
        optimizer.rank = 1
    if fault == "loose" and this == 1:
        _loosen(optimizer)
    audit = attach(optimizer, loader, injection=injection, canaries=1000, rng=this)
    for number in range(4):
        if (fault, this, number) == ("ended", 1, 2):
            _break(audit)
        for rows, labels in loader:
            criterion(wrapped(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    record, found = audit.recording(), audit.conformance()
    weights = torch.cat([p.detach().ravel() for p in wrapped.parameters()]).numpy()
    return {
        "bits": record.bits,
        "sums": record.sums,
        "weights": weights,
        "found": np.array([found.p_value, found.noise, found.weight]),
        "contradictions": np.array(record.contradictions, dtype=str),
        "ended": np.array(audit.ended),
    }


def _loosen(optimizer: Any) -> None:
    """Clip to twice the norm."""
    clip = optimizer.clip_and_accumulate

    def looser() -> None:
        optimizer.max_grad_norm *= 2
        clip()
        optimizer.max_grad_norm /= 2

    optimizer.clip_and_accumulate = looser


def _break(audit: Any) -> None:
    """Let the audit of this rank fail."""

    def fail(clip_norm: float) -> None:
        raise InputError("what only this rank sees")

    audit._injection.before_noise = fail
