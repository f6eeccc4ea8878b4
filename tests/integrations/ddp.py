"""One rank of trainings over several processes with an audit attached."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from opacus import PrivacyEngine
from opacus.data_loader import DPDataLoader
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch import distributed, nn
from torch.utils.data import DataLoader, TensorDataset

from canaria import InputError
from canaria.integrations.opacus import attach, with_canary_head, with_canary_rows
from tests.integrations import together
from tests.integrations.digits import DELTA, SIGMA, digits

CASES = (
    ("sum", "hooks", "right"),
    ("sum", "ghost", "right"),
    ("rows", "hooks", "right"),
    ("head", "hooks", "right"),
    ("sum", "hooks", "noiseless"),
    ("rows", "hooks", "loose"),
    ("sum", "hooks", "ended"),
)
SEEDS = 10
"""The number of correct trainings of each kind whose sampling is tested."""
DRAWN = (
    *("same seed", "same seed, uneven rows", "whole data", "whole data, head"),
    *("split by hand", "overlap", "own bias", "subclass", "small batches", "own clip norm", "own weights"),
)
"""How samplers draw: the first four are faults."""


def rank(this: int, ranks: int, folder: str, part: str) -> None:
    """Make one part of the trainings, one after the other, and leave what was seen in the folder."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=this, world_size=ranks)
    PARTS[part](this, Path(folder))
    distributed.destroy_process_group()


def cases(this: int, folder: Path) -> None:
    for case in CASES:
        np.savez(folder / f"{'-'.join(case)}-{this}.npz", **train(this, *case))


def samplers(this: int, folder: Path) -> None:
    for how in DRAWN:
        np.savez(folder / f"{how}-{this}.npz", **draw(this, how))
    for seed in range(SEEDS):
        np.savez(folder / f"correct {seed}-{this}.npz", **draw(this, "correct", seed))


PARTS = {"cases": cases, "samplers": samplers, "together": together.leave}
"""What ranks do, in parts that tests need separately."""


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


class Interleaved(UniformWithReplacementSampler):
    """A sampler of somebody's own, of every second row."""

    def __iter__(self) -> Any:
        for rows in super().__iter__():
            yield [2 * row + distributed.get_rank() for row in rows]


OWN_ROWS = {
    "split by hand": (slice(0, None, 2), slice(1, None, 2)),
    "overlap": (slice(0, 250), slice(150, 400)),
}
"""The rows of each rank, where its data set holds no others."""


def draw(this: int, how: str, seed: int = 0) -> dict[str, Any]:
    """Train for 20 steps with a sampler of this kind, and tell what the report of this rank says of it."""
    torch.manual_seed(17)
    model: nn.Module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    uneven = how == "same seed, uneven rows" or (how == "correct" and seed % 2)
    dataset: Any = digits(401 if uneven else 400)
    injection = "head" if how == "whole data, head" else "sum"
    if injection == "head":
        model, dataset = with_canary_head(model, dataset, 1000)
    model = DifferentiallyPrivateDistributedDataParallel(model)
    torch.manual_seed(1000 + 2 * seed + this)
    generator = torch.Generator().manual_seed(5) if how.startswith("same seed") else None
    size = 8 if how == "small batches" else len(dataset) // 5
    wrapped, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
        data_loader=DataLoader(dataset, batch_size=size, generator=generator),
        noise_multiplier=SIGMA,
        max_grad_norm=1.0,
    )
    if how.startswith("whole data"):
        loader = DPDataLoader(dataset, sample_rate=0.2)
    elif how in OWN_ROWS:
        own = OWN_ROWS[how][this]
        loader = DPDataLoader(TensorDataset(*(part[own] for part in dataset.tensors)), sample_rate=0.2)
    elif how == "subclass":
        loader = DPDataLoader(dataset, sample_rate=0.2)
        sampler: Any = loader.batch_sampler
        sampler.__class__, sampler.num_samples = Interleaved, 200
    audit = attach(optimizer, loader, injection=injection, canaries=1000, rng=seed)
    OWN.get(how, lambda *_: None)(this, optimizer)
    while audit.steps < 20:
        if how == "correct" and hasattr(loader.batch_sampler, "set_epoch"):
            loader.batch_sampler.set_epoch(audit.steps)
        for rows, labels in loader:
            nn.functional.cross_entropy(wrapped(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
            if audit.steps == 20:  # ranks leave out different empty batches, so passes end at different steps
                break
    report = audit.report(2.0, DELTA, rungs=False)
    assert report.conformance is not None
    return {
        "contradictions": np.array(report.contradictions, dtype=str),
        "sampling": report.conformance.parts.get("sampling", np.nan),
        "fact": np.array(report.facts.get("sampling", "")),
        "untested": np.array(getattr(report, "tested", {}).get("sampling", "")),
    }


def _clip_to_another_norm(this: int, optimizer: Any) -> None:
    if this == 1:
        optimizer.max_grad_norm = 2.0


def _change_weights(this: int, optimizer: Any) -> None:
    """One rank shrinks a weight after each step."""

    def shrink(*_: Any) -> None:
        optimizer.params[0].data.mul_(0.9)

    if this == 1:
        optimizer.original_optimizer.register_step_post_hook(shrink)


def _keep_a_bias(_: int, optimizer: Any) -> None:
    """One parameter is not averaged: each rank goes on with a bias of its own."""
    own = optimizer.reduce_gradients

    def partly() -> None:
        bias = optimizer.params[-1].grad.clone()
        own()
        optimizer.params[-1].grad = bias

    optimizer.reduce_gradients = partly


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

    audit._steps.injection.before_noise = fail


OWN = {"own bias": _keep_a_bias, "own clip norm": _clip_to_another_norm, "own weights": _change_weights}
"""What a rank does by itself."""
