"""What an attached audit costs a training step, as a ratio. Run by `make bench-training`.

Two trainings of one model, with and without the audit, alternate in blocks of 32 steps in one process; the
ratio of their times is what counts, its error comes from the blocks. What watching costs is the ratio of an
audit that is watched to one that is not. With `--cuda` a model of more than ten million weights carries a
million canaries. `--write` puts the table into RESULTS.md.
"""

import argparse
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import opacus
import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from canaria.integrations.opacus import attach

RESULTS = Path(__file__).with_name("RESULTS.md")
MARK = "<!-- training -->"


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 10))


def cnn() -> nn.Module:
    """The usual small network for 28 x 28 pictures under differential privacy."""
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(32 * 4 * 4, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def wide() -> nn.Module:
    return nn.Sequential(
        *(nn.Linear(784, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU()),
        *(nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)),
    )


class Step:
    """One training step on a fixed batch."""

    def __init__(
        self, build: Callable[[], nn.Module], shape: tuple[int, ...], batch: int, device: str, mode: str
    ) -> None:
        model = build().to(device)
        self.weights = sum(p.numel() for p in model.parameters())
        rows, labels = torch.randn(10 * batch, *shape), torch.randint(0, 10, (10 * batch,))
        made = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
            data_loader=DataLoader(TensorDataset(rows, labels), batch_size=batch),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
            grad_sample_mode=mode,
        )
        self.criterion: Any = nn.CrossEntropyLoss()
        if mode == "ghost":
            self.model, self.optimizer, self.criterion, self.loader = made
        else:
            self.model, self.optimizer, self.loader = made
        self.rows, self.labels = rows[:batch].to(device), labels[:batch].to(device)
        self.wait: Callable[[], None] = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def timed(self, count: int) -> list[float]:
        seconds = []
        for _ in range(count):
            start = time.perf_counter()
            self.criterion(self.model(self.rows), self.labels).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.wait()
            seconds.append(time.perf_counter() - start)
        return seconds


def overhead(
    make: Callable[[], Step], canaries: int, blocks: int, *, every: int = 0
) -> tuple[Step, float, float, float]:
    """Step time without audit, and the ratio with it to that: median over blocks, and its error.

    Or, where it is watched every so many steps, without and with watching.
    """
    bare, audited = make(), make()
    audit = attach(audited.optimizer, audited.loader, injection="sum", canaries=canaries, rng=0)
    if every:
        attach(bare.optimizer, bare.loader, injection="sum", canaries=canaries, rng=0)
        audit.watch(every=every)
    for step in (bare, audited):
        step.timed(32)
    plain, ratios = [], []
    for _ in range(blocks):
        with_audit, without = statistics.fmean(audited.timed(32)), statistics.fmean(bare.timed(32))
        plain.append(without)
        ratios.append(with_audit / without)
    spread = sorted(ratios)[len(ratios) // 4 : -len(ratios) // 4]
    error = 1.5 * (spread[-1] - spread[0]) / len(ratios) ** 0.5
    return bare, statistics.median(plain), statistics.median(ratios), error


def rows_of(cuda: bool) -> list[str]:
    cases = [
        ("MLP, batch 256", mlp, (64,), 256, "hooks", 20_000, "5%", 60, 0),
        ("MLP, batch 256, watching alone", mlp, (64,), 256, "hooks", 20_000, "1%", 60, 1),
        ("CNN for Fashion-MNIST, batch 256", cnn, (1, 28, 28), 256, "hooks", 20_000, "2%", 12, 0),
    ]
    if cuda:
        name, ghost = "wide MLP, batch 512", "wide MLP, batch 512, ghost clipping"
        cases = [
            (name, wide, (784,), 512, "hooks", 1_000_000, "1%", 20, 0),
            (f"{name}, watching alone", wide, (784,), 512, "hooks", 1_000_000, "1%", 20, 1),
            (ghost, wide, (784,), 512, "ghost", 1_000_000, "5%", 400, 0),
            (f"{ghost}, watching every fourth step", wide, (784,), 512, "ghost", 1_000_000, "1%", 80, 4),
        ]
    rows = []
    for name, model, shape, batch, mode, canaries, limit, blocks, every in cases:
        make = partial(Step, model, shape, batch, "cuda" if cuda else "cpu", mode)
        step, plain, ratio, error = overhead(make, canaries, blocks, every=every)
        rows.append(
            f"| {name} | {machine(cuda)} | {step.weights:,} | {canaries:,} | {1e3 * plain:.2f} ms | "
            f"{100 * (ratio - 1):+.1f}% ± {100 * error:.1f} | {limit} |"
        )
    return rows


def machine(cuda: bool) -> str:
    versions = f"torch {torch.__version__}, opacus {opacus.__version__}, {datetime.now(tz=UTC):%Y-%m-%d}"
    if cuda:
        return f"GPU: {torch.cuda.get_device_name()}, {versions}"
    return f"CPU: {platform.machine()}, {torch.get_num_threads()} threads, {versions}"


def write(rows: list[str], cuda: bool) -> None:
    """Put the rows of one kind of machine into RESULTS.md, leaving those of the other."""
    text = RESULTS.read_text() if RESULTS.exists() else f"# Measured\n\n{MARK}\n{MARK}\n"
    before, held, after = text.split(MARK)
    kept = [line for line in held.splitlines() if ("| CPU:" if cuda else "| GPU:") in line]
    table = [
        "",
        "## What an attached audit costs (`make bench-training`, injection `sum`)",
        "",
        "| training step | machine | weights | canaries | step without | overhead | limit |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *sorted([*kept, *rows]),
        "",
    ]
    RESULTS.write_text(before + MARK + "\n".join(table) + MARK + after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cuda", action="store_true")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = rows_of(options.cuda)
    print("\n".join(rows))
    if options.write:
        write(rows, options.cuda)


if __name__ == "__main__":
    main()
