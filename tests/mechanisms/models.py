"""Every mechanism with its likelihood written out naively: ln Pr[output | all bits]."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from canaria.mechanisms import (
    AllOrNothing,
    Count,
    CountInSets,
    Local,
    LocalGaussian,
    LocalLaplace,
    Mechanism,
    NameAndShame,
    NoisyCountInSets,
    RandomizedResponse,
    Symmetric,
    Xor,
    XorInPairs,
    XorRandomizedResponse,
)

Likelihood = Callable[[Any, np.ndarray], float]


class Model(NamedTuple):
    mechanism: Mechanism
    likelihood: Likelihood
    sizes: tuple[int, ...]
    discrete: bool


def log(value: float) -> float:
    return math.log(value) if value > 0 else -math.inf


def response(epsilon: float) -> Likelihood:
    p = 1 / (1 + math.exp(-epsilon))
    return lambda o, s: sum(log(p if a == b else 1 - p) for a, b in zip(o, s, strict=True))


def shame(o: Any, s: np.ndarray) -> float:
    return log(1 / len(s)) if s[abs(int(o)) - 1] == np.sign(o) else -math.inf


def all_or_nothing(p: float) -> Likelihood:
    return lambda o, s: log(1 - p) if (o == 0).all() else (log(p) if (o == s).all() else -math.inf)


def parity(o: Any, s: np.ndarray) -> float:
    return 0.0 if o == np.prod(s) else -math.inf


def noisy_parity(epsilon: float) -> Likelihood:
    p = 1 / (1 + math.exp(-epsilon))
    return lambda o, s: log(p if o == np.prod(s) else 1 - p)


def pairs(o: Any, s: np.ndarray) -> float:
    return 0.0 if (o == s[0::2] * s[1::2]).all() else -math.inf


def counted(s: np.ndarray, size: int) -> np.ndarray:
    return np.array([(s[start : start + size] > 0).sum() for start in range(0, len(s), size)])


def in_sets(size: int) -> Likelihood:
    return lambda o, s: 0.0 if (o == counted(s, size)).all() else -math.inf


def noisy_sets(size: int, sigma: float) -> Likelihood:
    return lambda o, s: float(stats.norm.logpdf(o, counted(s, size), sigma).sum())


def geometric_noise(counts: Any, rng: np.random.Generator) -> Any:
    return counts + rng.geometric(0.6, np.shape(counts)) - rng.geometric(0.6, np.shape(counts))


def geometric_log_density(output: Any, count: int) -> Any:
    return math.log(0.6 / 1.4) + np.abs(np.asarray(output) - count) * math.log(0.4)


def staircase(values: Any, rng: np.random.Generator) -> Any:
    return values + 2 * rng.integers(-1, 2, np.shape(values))


def staircase_log_density(output: Any, value: int) -> Any:
    with np.errstate(divide="ignore"):
        return np.log(np.isin(np.asarray(output) - value, [-2, 0, 2]) / 3)


MODELS = [
    Model(RandomizedResponse(1.3), response(1.3), (1, 4, 7), True),
    Model(RandomizedResponse(0.0), response(0.0), (3,), True),
    Model(
        LocalLaplace(1.5),
        lambda o, s: float(stats.laplace.logpdf(o, s, 2 / 1.5).sum()),
        (1, 5),
        False,
    ),
    Model(LocalGaussian(0.8), lambda o, s: float(stats.norm.logpdf(o, s, 0.8).sum()), (1, 5), False),
    Model(
        Local(staircase, staircase_log_density),
        lambda o, s: float(sum(staircase_log_density(a, b) for a, b in zip(o, s, strict=True))),
        (2, 5),
        True,
    ),
    Model(NameAndShame(), shame, (1, 5, 8), True),
    Model(AllOrNothing(0.3), all_or_nothing(0.3), (1, 4), True),
    Model(Xor(), parity, (1, 2, 6), True),
    Model(XorRandomizedResponse(0.9), noisy_parity(0.9), (1, 2, 6), True),
    Model(XorInPairs(), pairs, (2, 6, 8), True),
    Model(Count(), lambda o, s: in_sets(len(s))(np.array([o]), s), (1, 5, 8), True),
    Model(CountInSets(3), in_sets(3), (3, 5, 8), True),
    Model(CountInSets(1), in_sets(1), (4,), True),
    Model(NoisyCountInSets(3, 1.1), noisy_sets(3, 1.1), (2, 6, 8), False),
    Model(
        Symmetric(geometric_noise, geometric_log_density, epsilon=-math.log(0.4)),
        lambda o, s: float(geometric_log_density(o, int((s > 0).sum()))),
        (1, 5, 7),
        True,
    ),
]
CASES = [(model, n) for model in MODELS for n in model.sizes]
NAMES = [f"{type(model.mechanism).__name__}-{n}" for model, n in CASES]
