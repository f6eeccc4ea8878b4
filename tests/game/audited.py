"""Mechanisms that keep a known claim, and how often it is refuted."""

import math
from typing import Any

import numpy as np

from canaria.claims import ApproximateDP
from canaria.mechanisms import (
    Local,
    LocalLaplace,
    RandomizedResponse,
    Symmetric,
    XorRandomizedResponse,
)
from tests.mechanisms.models import geometric_log_density, geometric_noise


def three_point(values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A user's sub-mechanism: silent half of the time, else right with probability 3/4."""
    kept = np.where(rng.random(values.shape) < 0.75, values, -values)
    return np.where(rng.random(values.shape) < 0.5, 0, kept)


def three_point_log_density(output: np.ndarray, value: int) -> np.ndarray:
    return np.log(np.where(output == 0, 0.5, np.where(output == value, 0.375, 0.125)))


PRIVATE: list[Any] = [
    RandomizedResponse(0.0),
    RandomizedResponse(1.0),
    LocalLaplace(1.0),
    XorRandomizedResponse(1.0),
    Symmetric(geometric_noise, geometric_log_density, epsilon=-math.log(0.4)),
    Local(three_point, three_point_log_density, epsilon=math.log(3)),
]


def refusal_rate(games: list[Any], epsilon: float) -> float:
    """How often the true claim is refuted; equal evidence is judged once."""
    seen: dict[str, bool] = {}
    refuted = 0
    for game in games:
        key = repr(sorted(game.evidence.to_dict().items(), key=str))
        if key not in seen:
            seen[key] = game.evidence.p_value(ApproximateDP(epsilon, delta=0)) <= 0.05
        refuted += seen[key]
    return refuted / len(games)
