"""Recordings of simulated training, correct or not."""

from collections.abc import Callable, Sequence

import numpy as np

from canaria.mechanisms import Correlated, Strategy
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.mechanisms.participation import Participation
from canaria.training import Dense, Dirac, Recording
from canaria.training.canaries.designs import Design, hidden_bits
from canaria.training.canaries.witnesses import layout
from canaria.training.conformance.names import numbered
from canaria.training.likelihood.accumulator import Accumulator, table_of
from canaria.training.likelihood.correlated import Correlation

STEPS, RATE, SIGMA = 100, 0.1, 2.4224

Fault = Callable[[list[np.ndarray], np.random.Generator], list[np.ndarray]]


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
    shapes: Sequence[tuple[int, ...]],
    fault: Fault | None = None,
) -> Recording:
    """DP-SGD with one noise multiplier for each step, and all that conformance looks at.

    `fault` makes noise, (steps, weights) for every parameter, out of correct noise and its generator.
    """
    rng = np.random.default_rng(seed)
    bits = hidden_bits(design.count, seed)
    laid = layout(shapes, design.coordinates, rng)
    noise = [rng.normal(size=(len(sigmas), int(np.prod(shape)))) for shape in shapes]
    noise = noise if fault is None else fault(noise, rng)
    at_canaries, at_witnesses = (
        np.concatenate([one[:, some] for one, some in zip(noise, places, strict=True)], axis=1)
        for places in (laid.canaries, laid.witnesses)
    )
    if isinstance(design, Dense):
        taking = (rng.random((len(sigmas), design.count)) < RATE) & (bits > 0)
        seen = taking @ design.gradients()
    else:
        places = np.arange(design.count) % design.coordinates
        included = np.bincount(places, weights=bits > 0, minlength=design.coordinates).astype(int)
        seen = rng.binomial(included, RATE, (len(sigmas), design.coordinates)).astype(float)
    whole = np.stack([one.sum(axis=1) for one in noise], axis=1)
    seen += at_canaries * sigmas[:, None]
    added = Accumulator.of(design, laid.layers, laid.roles, sample_rate=RATE)
    totals = added.totals(seen, at_witnesses * sigmas[:, None], whole * sigmas[:, None], sigmas)
    return Recording(
        design=design,
        bits=bits,
        sums=totals.sums,
        table=table_of(totals.table) if isinstance(design, Dirac) else None,
        steps=len(sigmas),
        sample_rate=RATE,
        noise_multiplier=float(np.sqrt(np.mean(sigmas**2))),
        injection="sum",
        seed=seed,
        layers=laid.layers,
        parameters=numbered(shapes),
        witnessed=totals.witnessed,
        roles=laid.roles,
    )


def correlated(
    mechanism: Correlated,
    count: int,
    seed: int,
    shapes: Sequence[tuple[int, ...]],
    *,
    made: Strategy | None = None,
    noise: float = 1.0,
    weight: float = 1.0,
    steps: int | None = None,
    silent: int | None = None,
    law: Participation | None = None,
) -> Recording:
    """Training with correlated noise, each canary on a weight of its own, stopped after some steps.

    Faults: the noise is that of another strategy, or `noise` times as much, or missing in one step; canaries
    have another weight, or take part by another law.
    """
    rng = np.random.default_rng(seed)
    bits = hidden_bits(count, seed)
    stated = Correlation(mechanism=mechanism)
    laid = layout(shapes, count, rng)
    whole = stated.steps
    scale = noise * mechanism.deviation
    added = [
        (made or mechanism.strategy).correlate(rng.normal(scale=scale, size=(whole, int(np.prod(shape)))))[
            :steps
        ]
        for shape in shapes
    ]
    if silent is not None:
        for one in added:
            one[silent] = 0
    seen, witnesses = (
        np.concatenate([one[:, some] for one, some in zip(added, places, strict=True)], axis=1)
        for places in (laid.canaries, laid.witnesses)
    )
    seen += weight * ((law or mechanism.participation).draw(whole, count, rng) & (bits > 0))[:steps]
    first = stated.first(len(seen))
    totals = np.stack([one.sum(axis=1) for one in added], axis=1)
    witnessed = first.witnessed(witnesses, totals, laid.roles)
    return Recording(
        design=Dirac(count),
        bits=bits,
        sums=seen.sum(axis=0),
        table=first.table(seen, witnessed),
        steps=len(seen),
        sample_rate=first.sample_rate,
        sampling=first,
        noise_multiplier=first.mechanism.noise_multiplier,
        injection="sum",
        seed=seed,
        layers=laid.layers,
        parameters=numbered(shapes),
        witnessed=witnessed,
        roles=laid.roles,
    )
