"""Recordings of simulated DP-SGD, correct or not."""

import numpy as np

from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.training import Dense, Dirac, Recording
from canaria.training.accumulator import Accumulator, Last, left_by_silence, table_of
from canaria.training.canaries import Design, hidden_bits

STEPS, RATE, SIGMA = 100, 0.1, 2.4224


def simulated(
    design: Design, seed: int, steps: int = STEPS, rate: float = RATE, sigma: float = SIGMA, **faults: float
) -> Recording:
    """What a correct DP-SGD shows; faults: `noise` times sigma, `weight` of a canary, `offset` added to all."""
    rng = np.random.default_rng(seed)
    bits = hidden_bits(design.count, seed)
    if isinstance(design, Dense):
        taking = (rng.random((steps, design.count)) < rate) & (bits > 0)
        clean = taking @ design.gradients()
    else:
        places = np.arange(design.count) % design.coordinates
        included = np.bincount(places, weights=bits > 0, minlength=design.coordinates).astype(int)
        clean = rng.binomial(included, rate, (steps, design.coordinates))
    noise = rng.normal(scale=sigma * faults.get("noise", 1), size=clean.shape)
    seen = clean * faults.get("weight", 1) + noise + faults.get("offset", 0)
    table = None
    if isinstance(design, Dirac):
        table = log_likelihoods_of(seen, design.most, rate, sigma)
    return Recording(
        design=design,
        bits=bits,
        sums=seen.sum(axis=0),
        table=table,
        steps=steps,
        sample_rate=rate,
        noise_multiplier=sigma,
        injection="sum",
        seed=seed,
    )


def watched(
    design: Design,
    seed: int,
    sigmas: np.ndarray,
    layers: tuple[int, ...],
    noise: np.ndarray | float = 1.0,
    *,
    one_key: bool = False,
    same: tuple[int, int, int] = (0, 0, 0),
) -> Recording:
    """DP-SGD with one noise multiplier for each step, and all that conformance looks at.

    `noise` multiplies the noise, for all, each step, or each step and coordinate: 1 is correct. With
    `one_key`, every parameter gets the noise of the first from its first coordinate on; `same` says from where
    to where how much noise is copied.
    """
    rng = np.random.default_rng(seed)
    bits = hidden_bits(design.count, seed)
    if isinstance(design, Dense):
        taking = (rng.random((len(sigmas), design.count)) < RATE) & (bits > 0)
        seen = taking @ design.gradients()
    else:
        places = np.arange(design.count) % design.coordinates
        included = np.bincount(places, weights=bits > 0, minlength=design.coordinates).astype(int)
        seen = rng.binomial(included, RATE, (len(sigmas), design.coordinates)).astype(float)
    normal = rng.normal(size=seen.shape)
    if one_key:
        normal = np.concatenate([normal[:, :share] for share in layers], axis=1)
    source, target, width = same
    normal[:, target : target + width] = normal[:, source : source + width]
    seen += normal * sigmas[:, None] * noise
    added = Accumulator.of(design, bits, layers, sample_rate=RATE, noise_multiplier=sigmas[0])
    last = Last(seen[-1], sigmas[-1], float(np.mean(sigmas[:-1] ** 2))) if len(sigmas) % 2 else None
    totals = added.totals(seen, sigmas)
    squares = (sigmas[: len(sigmas) // 2 * 2] ** 2).reshape(-1, 2).tolist()
    left = max([0.5, *(left_by_silence(*pair) for pair in squares)])
    return Recording(
        design=design,
        bits=bits,
        sums=seen.sum(axis=0),
        table=table_of(totals.table) if isinstance(design, Dirac) else None,
        steps=len(sigmas),
        sample_rate=RATE,
        noise_multiplier=float(np.sqrt(np.mean(sigmas**2))),
        injection="sum",
        seed=seed,
        layers=layers,
        parameters=len(layers),
        pairs=added.pairs(totals, last, left),
    )
