"""What everybody audits: scores and bits from mechanisms whose epsilon is known."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from canaria.claims.accounting import dpsgd_epsilon, dpsgd_noise_multiplier
from canaria.claims.noise import gaussian_epsilon
from canaria.mechanisms import SubsampledGaussian

DELTA = 1e-5
OPACUS_SIGMA, OPACUS_STEPS, OPACUS_RUNS = 0.8, 100, 5
Draw = Callable[[int, np.random.Generator], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True)
class Setting:
    """A row of the tightness table; `draw(audits, rng)` gives scores and bits, one audit per row."""

    name: str
    truth: float
    draw: Draw
    n: int
    audits: int
    shift: float | None = None

    def plain(self) -> dict[str, Any]:
        """What describes it, for JSON."""
        return {name: getattr(self, name) for name in ("name", "truth", "n", "audits", "shift")}


def coins(audits: int, n: int, rng: np.random.Generator) -> np.ndarray:
    return 2 * rng.integers(0, 2, (audits, n), dtype=np.int8) - np.int8(1)


def gaussian(shift: float, n: int, audits: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Normal scores that members shift."""
    bits = coins(audits, n, rng)
    return rng.normal(shift * (bits > 0)), bits


def cauchy(shift: float, n: int, audits: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Heavy tails: a score far out says nothing."""
    bits = coins(audits, n, rng)
    return rng.standard_cauchy((audits, n)) + shift * (bits > 0), bits


def cauchy_epsilon(shift: float) -> float:
    """The largest log-ratio of the two densities, where x (x - shift) = 1."""
    x = (shift + np.sqrt(shift**2 + 4)) / 2
    return float(np.log((1 + x**2) / (1 + (x - shift) ** 2)))


def one_sided(epsilon: float, n: int, audits: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """A twentieth of the others stands out, and e^epsilon times as many members; the rest is noise."""
    bits = coins(audits, n, rng)
    out = rng.random((audits, n)) < 0.05 * np.where(bits > 0, np.exp(epsilon), 1.0)
    return rng.random((audits, n)) + out, bits


def responses(epsilon: float, n: int, audits: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Randomized response: scores -1 and +1."""
    bits = coins(audits, n, rng)
    kept = rng.random((audits, n)) < 1 / (1 + np.exp(-epsilon))
    return np.where(kept, bits, -bits).astype(np.float64), bits


def dpsgd(
    sigma: float, steps: int, rate: float, n: int, audits: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient canaries of DP-SGD, one per coordinate, scored by their likelihood."""
    mechanism = SubsampledGaussian(dimension=n, steps=steps, sample_rate=rate, noise_multiplier=sigma)
    bits = coins(audits, n, rng)
    return mechanism.loss(mechanism.sample(bits, rng), np.zeros_like(bits)), bits


def simulated() -> list[Setting]:
    """All but the real run."""
    rows = [
        Setting(
            f"Gaussian, shift {shift:g}, n = {n:,}",
            gaussian_epsilon(shift, DELTA),
            partial(gaussian, shift, n),
            n,
            audits,
            shift,
        )
        for shift in (0.5, 1.0, 2.0, 3.0)
        for n, audits in ((200, 40), (1000, 40), (5000, 20), (100_000, 3))
    ]
    for epsilon, steps, rate in ((2.0, 100, 0.1), (8.0, 100, 0.1), (8.0, 1000, 0.01)):
        sigma = dpsgd_noise_multiplier(epsilon, DELTA, steps, rate)
        truth = dpsgd_epsilon(sigma, DELTA, steps, rate, "pld")
        name = f"DP-SGD, ε = {epsilon:g}, T = {steps}, q = {rate:g}, n = 1,000"
        rows.append(Setting(name, truth, partial(dpsgd, sigma, steps, rate, 1000), 1000, 40))
    rows += [
        Setting(f"randomized response, ε = {e:g}, n = 1,000", e, partial(responses, e, 1000), 1000, 40)
        for e in (1.0, 3.0)
    ]
    heavy, sided = partial(cauchy, 4.0, 1000), partial(one_sided, 2.0, 1000)
    rows.append(Setting("Cauchy, shift 4, n = 1,000", cauchy_epsilon(4.0), heavy, 1000, 40))
    rows.append(Setting("one-sided, ε = 2, n = 1,000", 2.0, sided, 1000, 40))
    return rows


def opacus_runs() -> Setting:
    """A small network trained with Opacus on scikit-learn's digits and audited as it trains, some times."""
    runs = [opacus_run(seed) for seed in range(OPACUS_RUNS)]
    truth = dpsgd_epsilon(OPACUS_SIGMA, DELTA, runs[0].steps, runs[0].sample_rate, "pld")
    scores = np.stack([run.losses(np.zeros_like(run.bits)) for run in runs])
    bits = np.stack([run.bits for run in runs])
    name = f"Opacus on digits, ε = {truth:.2g}, n = {bits.shape[1]:,}"
    return Setting(name, truth, lambda audits, rng: (scores, bits), bits.shape[1], OPACUS_RUNS)


def opacus_run(seed: int) -> Any:
    """What an audit of one training run recorded."""
    import torch
    from opacus import PrivacyEngine
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    from canaria.integrations.opacus import attach

    torch.manual_seed(seed)
    features, labels = load_digits(return_X_y=True)
    digits = TensorDataset(torch.tensor(features / 16, dtype=torch.float32), torch.tensor(labels))
    network = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.5),
        data_loader=DataLoader(digits, batch_size=-(-len(digits) // 10)),
        noise_multiplier=OPACUS_SIGMA,
        max_grad_norm=1.0,
    )
    audit = attach(optimizer, loader, injection="sum", canaries=5000, rng=seed)
    criterion = nn.CrossEntropyLoss()
    while audit.steps < OPACUS_STEPS:
        for rows, classes in loader:
            optimizer.zero_grad()
            criterion(model(rows), classes).backward()
            optimizer.step()
    return audit.recording()
