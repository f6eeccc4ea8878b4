"""Processes that train together, DDP or FSDP2, and one process that trains on the same batches."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.accountants import RDPAccountant
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.utils.fsdp_utils import FSDP2Wrapper
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader

from canaria.integrations.opacus import Audit, attach
from tests.integrations.digits import DELTA, SIGMA, digits
from tests.programs.faults import halve_noise

STEPS: Final = 20
MORE_STEPS: Final = 60
"""To find noise that is alike, pairs of weights must agree in so many."""
WAYS: Final = ("ddp", "fsdp", "ddp per layer")
LAYER_NORMS: Final = [0.1, 0.5, 0.7, 0.5]
Batches = list[tuple[Tensor, Tensor]]


def leave(this: int, folder: Path) -> None:
    """Train in each way, and sharded with half the noise or one seed for all, and leave what was seen in the folder."""
    for way, fault in [*((way, "") for way in WAYS), ("fsdp", "halved"), ("fsdp", "same seed")]:
        audit, batches, weights = train(way, this, fault=fault)
        found, record = audit.conformance(), audit.recording()
        np.savez(
            folder / f"{way}{fault}-{this}.npz",
            bits=record.bits,
            sums=record.sums,
            weights=weights,
            p_value=found.p_value,
            contradictions=np.array(record.contradictions, dtype=str),
        )
        torch.save(batches, folder / f"{way}{fault}-{this}.pt")


def many_seeds(this: int, ranks: int, folder: str, seeds: int) -> None:
    """Train sharded with several seeds, and with noise that is alike; leave p-values and bounds."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=this, world_size=ranks)
    audits = [train("fsdp", this, seed=seed)[0] for seed in range(seeds)]
    if this == 0:
        found = [(audit.conformance().p_value, audit.bound(DELTA).epsilon) for audit in audits]
        np.save(Path(folder) / "found.npy", np.array(found))
    alike = train("fsdp", this, fault="alike")[0].conformance()
    np.savez(Path(folder) / f"alike-{this}.npz", p_value=alike.p_value, answer=np.array(alike.answer))
    distributed.destroy_process_group()


def _alike(optimizer: Any) -> None:
    """Every process makes the noise of its own shard, from the same seed."""

    def add_noise() -> None:
        scale = optimizer.noise_multiplier * optimizer.max_grad_norm / optimizer.world_size
        for p in optimizer.params:
            part = optimizer.grad_state[p]["summed_grad"].to_local()
            noise = torch.normal(0.0, scale, part.shape, generator=optimizer.generator)
            p.grad = DTensor.from_local(
                part + noise, p.device_mesh, p.placements, shape=p.shape, stride=p.stride()
            )

    optimizer.add_noise = add_noise


FAULTS: Final[dict[str, Callable[[Any], None]]] = {"halved": halve_noise, "alike": _alike}


def train(
    way: str, this: int = 0, *, batches: Batches | None = None, fault: str = "", seed: int = 0
) -> tuple[Audit, Batches, np.ndarray]:
    """Train; on these batches in one process if they are given."""
    mode = "hooks" if way == "ddp per layer" else "ghost" if way == "ddp" or batches else "ghost_fsdp"
    torch.manual_seed(17 + seed)
    model: nn.Module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    if mode == "ghost_fsdp":
        model = FSDP2Wrapper(model, mesh=distributed.init_device_mesh("cpu", (distributed.get_world_size(),)))
    elif batches is None:
        model = DifferentiallyPrivateDistributedDataParallel(model)
    torch.manual_seed(100 + 2 * seed + (0 if fault == "same seed" else this))
    made = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(digits(400), batch_size=80),
        noise_multiplier=SIGMA,
        max_grad_norm=LAYER_NORMS if mode == "hooks" else 1.0,
        clipping="per_layer" if mode == "hooks" else "flat",
        grad_sample_mode=mode,
        noise_generator=torch.Generator().manual_seed(5 + seed),
        criterion=nn.CrossEntropyLoss(),
    )
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "hooks":
        wrapped, optimizer, loader = made
    else:
        wrapped, optimizer, criterion, loader = made
    if fault in FAULTS:
        FAULTS[fault](optimizer)
    canaries = 8 if mode == "hooks" else 1000
    audit = attach(
        optimizer, loader, injection="sum", canaries=canaries, rng=10 * seed + this, on_error="raise"
    )
    seen: Batches = []
    while audit.steps < (MORE_STEPS if fault == "alike" else STEPS):
        for drawn in loader:
            rows, labels = drawn if batches is None else batches[audit.steps]
            seen.append((rows, labels))
            criterion(wrapped(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    whole = [getattr(p, "full_tensor", lambda p=p: p)() for p in wrapped.parameters()]
    return audit, seen, torch.cat([p.detach().ravel() for p in whole]).numpy()


def claimed() -> float:
    """What the accountant says of a training."""
    accountant = RDPAccountant()
    accountant.history = [(SIGMA, 0.2, STEPS)]
    return float(accountant.get_epsilon(DELTA))


def joined(folder: Path, way: str) -> Batches:
    """The batches of both ranks, as one process would have them."""
    parts = [torch.load(folder / f"{way}-{this}.pt") for this in range(2)]
    return [
        (torch.cat([rows, more]), torch.cat([labels, others]))
        for (rows, labels), (more, others) in zip(*parts, strict=True)
    ]
