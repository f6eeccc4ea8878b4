"""Recordings of simulated DP-SGD, correct or not."""

import numpy as np

from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.training import Dense, Dirac, Recording
from canaria.training.canaries import Design, hidden_bits
from canaria.training.conformance import Pairs

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


def watched(design: Dirac, seed: int, sigmas: np.ndarray, layers: tuple[int, ...]) -> Recording:
    """A correct DP-SGD with one noise multiplier for each step, and all that conformance looks at."""
    rng = np.random.default_rng(seed)
    bits = hidden_bits(design.count, seed)
    places = np.arange(design.count) % design.coordinates
    included = np.bincount(places, weights=bits > 0, minlength=design.coordinates).astype(int)
    seen = rng.binomial(included, RATE, (len(sigmas), design.coordinates)).astype(float)
    seen += rng.normal(size=seen.shape) * sigmas[:, None]
    differences = (seen[0::2] - seen[1::2])[:, included == 0]
    squares = (differences**2).sum(axis=1) / (sigmas[0::2] ** 2 + sigmas[1::2] ** 2)
    return Recording(
        design=design,
        bits=bits,
        sums=seen.sum(axis=0),
        table=np.zeros((design.coordinates, design.most + 1)),
        steps=len(sigmas),
        sample_rate=RATE,
        noise_multiplier=float(np.sqrt(np.mean(sigmas**2))),
        injection="sum",
        seed=seed,
        layers=layers,
        pairs=Pairs.of(squares, int((included == 0).sum())),
    )
