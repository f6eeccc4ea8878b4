"""Faults of the noise that training adds, each made out of the correct noise of all steps."""

import math

import numpy as np

from tests.training.simulated import Fault

SHAPES = [(64, 64), (64,), (64, 64), (64,), (64, 10), (10,)]
Noise = list[np.ndarray]


def one_stream(noise: Noise, rng: np.random.Generator) -> Noise:
    """Every parameter gets the noise of one generator in the same state."""
    return [noise[0][:, : one.shape[1]] for one in noise]


def by_shape(noise: Noise, rng: np.random.Generator) -> Noise:
    """Noise is kept for every shape, and used again in the same step."""
    kept: dict[tuple[int, ...], np.ndarray] = {}
    return [kept.setdefault(shape, one) for shape, one in zip(SHAPES, noise, strict=True)]


def mirrored(noise: Noise, rng: np.random.Generator) -> Noise:
    """The second half of a parameter gets minus the first."""
    return [
        np.concatenate([one[:, : one.shape[1] // 2], -one[:, : one.shape[1] // 2]], axis=1) for one in noise
    ]


def broadcast(noise: Noise, rng: np.random.Generator) -> Noise:
    """All rows of a parameter get the same noise."""
    return [
        np.tile(one[:, : one.shape[1] // shape[0]], (1, shape[0])) if len(shape) > 1 else one
        for shape, one in zip(SHAPES, noise, strict=True)
    ]


def half_missing(noise: Noise, rng: np.random.Generator) -> Noise:
    """Half of one weight gets no noise."""
    noise[2][:, 2048:] = 0
    return noise


def odd_steps_bare(noise: Noise, rng: np.random.Generator) -> Noise:
    """Odd steps have none, the next ones as much as both."""
    factors = np.where(np.arange(len(noise[0])) % 2, math.sqrt(2), 0.0)[:, None]
    return [one * factors for one in noise]


def used_again(noise: Noise, rng: np.random.Generator) -> Noise:
    """The noise of the first half of training is used again, with alternating signs."""
    half = len(noise[0]) // 2
    signs = np.where(np.arange(half) % 2, 1, -1)[:, None]
    return [np.concatenate([one[:half], signs * one[:half]]) for one in noise]


def one_silent_step(noise: Noise, rng: np.random.Generator) -> Noise:
    for one in noise:
        one[17] = 0
    return noise


def in_common(noise: Noise, rng: np.random.Generator) -> Noise:
    """A tenth of the variance is the same for all weights."""
    shared = rng.normal(size=(len(noise[0]), 1))
    return [math.sqrt(0.9) * one + math.sqrt(0.1) * shared for one in noise]


def tiled(noise: Noise, rng: np.random.Generator) -> Noise:
    """A buffer of 500 numbers a step is used over and over."""
    return [np.tile(noise[0][:, :500], (1, 9))[:, : one.shape[1]] for one in noise]


def in_thirds(noise: Noise, rng: np.random.Generator) -> Noise:
    """One parameter is made of three, which get the same noise."""
    third = noise[0].shape[1] // 3
    noise[0][:, : 3 * third] = np.tile(noise[0][:, :third], (1, 3))
    return noise


def in_another_order(noise: Noise, rng: np.random.Generator) -> Noise:
    """A parameter gets the noise of another one, backwards."""
    noise[2] = noise[0][:, ::-1].copy()
    return noise


def in_any_order(noise: Noise, rng: np.random.Generator) -> Noise:
    """A parameter gets minus the noise of another one, shuffled."""
    noise[2] = -rng.permuted(noise[0], axis=1)
    return noise


def in_a_subspace(noise: Noise, rng: np.random.Generator) -> Noise:
    """All noise lies in the same 1,000 dimensions of 8,970; every weight has the right variance."""
    short = rng.normal(size=(len(noise[0]), 1000))
    axes = [rng.normal(size=(1000, one.shape[1])) for one in noise]
    return [short @ (axis / np.linalg.norm(axis, axis=0)) for axis in axes]


def smoothed(noise: Noise, rng: np.random.Generator) -> Noise:
    """Each weight gets the mean of its own noise and that of the weight seven places on."""
    return [(one + np.roll(one, 7, axis=1)) / math.sqrt(2) for one in noise]


FAULTS: list[tuple[Fault, str]] = [
    (one_stream, "parameter 1 of 6 (64 x 64) and parameter 3 of 6 (64 x 64) share noise"),
    (by_shape, "parameter 1 of 6 (64 x 64) and parameter 3 of 6 (64 x 64) share noise"),
    (mirrored, "noise is used twice in parameter"),
    (broadcast, "noise is used twice in parameter"),
    (half_missing, "parameter 3 of 6 (64 x 64) has no noise: ε is unbounded"),
    (odd_steps_bare, "from step 1 on, 50 of 100 steps have no noise: ε is unbounded"),
    (used_again, "the noise of step 51 repeats that of step 1 with the sign changed"),
    (one_silent_step, "step 18 has no noise: ε is unbounded"),
    (in_common, "noise is common to all parameters"),
    (lambda noise, _: [np.sign(one) for one in noise], "the noise is not normally distributed"),
    (
        lambda noise, rng: [rng.uniform(-math.sqrt(3), math.sqrt(3), one.shape) for one in noise],
        "the noise is not normally distributed",
    ),
    (lambda noise, _: [np.clip(one, -3, 3) for one in noise], "the noise is not normally distributed"),
    (lambda noise, _: [0.98 * one for one in noise], "noise multiplier 0.98"),
    (tiled, "noise"),
    (in_thirds, "noise is used twice in parameter 1 of 6"),
    (in_another_order, "parameter 1 of 6 (64 x 64) and parameter 3 of 6 (64 x 64) share noise"),
    (in_any_order, "parameter 1 of 6 (64 x 64) and parameter 3 of 6 (64 x 64) share noise"),
    (in_a_subspace, "the noise of weights can be predicted from that of others"),
    (smoothed, "noise is smoothed, or used twice, in several parameters"),
]
NAMES = [
    *("one stream", "by shape", "mirrored", "broadcast", "half of a weight", "odd steps", "used again"),
    *("silent step", "in common", "coins", "uniform", "clamped", "98%"),
    *("tiled", "in thirds", "in another order", "in any order", "in a subspace", "smoothed"),
]
