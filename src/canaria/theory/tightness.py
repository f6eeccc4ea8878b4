"""Asymptotic tightness: whether one-run bounds approach epsilon as n grows.

One-run auditing (with abstentions) is tight iff, for every level below the privacy level, the number of
elements with |loss_i| >= level tends to infinity in probability.

Count-in-Sets with sets of s(n) elements is an example. An element is exposed at a level if the count of its
set is at least s p(level) or at most s (1 - p(level)). This has probability about 2^(-s (1 - H)), with H the
binary entropy of p(level). H tends to 0 as the level grows, so n 2^(-s (1 - H)) tends to infinity for every
level iff limsup s(n) / log2(n) <= 1. The paper's "iff s(n) = o(log n)" is too strict: s = log2(n) / 2 is
tight.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from canaria._core import binomial, checks, seeds
from canaria._core.seeds import Seed
from canaria.mechanisms import AnalysedMechanism
from canaria.theory.efficacy import THEORY, simulated_sizes


@dataclass(frozen=True)
class Tightness:
    """The number of elements with |loss| of at least `level`, for each n.

    Attributes:
        level: The level.
        sizes: The numbers of elements n.
        mean: The mean number of exposed elements, for each n.
        low: The 5% quantile of the number of exposed elements, for each n.

    Example:
        >>> from canaria.mechanisms import LocalLaplace
        >>> from canaria.theory import tightness
        >>> found = tightness(lambda n: LocalLaplace(2.0), [100, 200], level=1.9, rng=0)
        >>> found.sizes, [round(mean) for mean in found.mean]
        ((100, 200), [60, 119])
    """

    level: float
    sizes: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]


def tightness(
    make: Callable[[int], AnalysedMechanism],
    sizes: Sequence[int],
    level: float,
    trials: int = 200,
    rng: Seed = None,
) -> Tightness:
    """Simulate how the number of exposed elements, its mean and its 5% quantile, grows with n.

    Args:
        make: A function that returns the mechanism for n elements.
        sizes: The numbers of elements n.
        level: An element is exposed if its |loss| is at least this.
        trials: The number of simulated games for each n.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from canaria.mechanisms import RandomizedResponse
        >>> tightness(lambda n: RandomizedResponse(1.0), [10, 100], level=0.9, rng=0).low
        (10.0, 100.0)
    """
    level = checks.nonnegative("level", level)
    checks.integer("trials", trials, 1)
    generator = seeds.generator(rng, THEORY)
    counts = [
        (simulated_sizes(make(n), n, trials, generator) >= level).sum(axis=1)
        for n in (checks.integer("sizes", n, 1) for n in sizes)
    ]
    return Tightness(
        level,
        tuple(sizes),
        tuple(float(count.mean()) for count in counts),
        tuple(float(np.quantile(count, 0.05)) for count in counts),
    )


def certain_elements(n: int, size: int, adaptive: bool = False) -> float:
    """Expected number of certain guesses (tau = infinity) of Count-in-Sets with n / size whole sets.

    Per set: size 2^-(size - 1) in one run, 2 - 2^-(size - 1) adaptively. The adaptive guesser reveals the
    elements of a set one after the other; as soon as all or none of the rest are included, the rest is
    certain.

    Args:
        n: The number of elements.
        size: The number of elements in a set.
        adaptive: Whether bits are revealed one after the other.

    Example:
        >>> certain_elements(1000, 10), certain_elements(1000, 10, adaptive=True)
        (1.953125, 199.8046875)
    """
    # All or none of a set are included with probability 2 / 2^size. In one run all its elements are then
    # certain. Adaptively, the last element always is, and the geometric series of earlier ones adds to it.
    whole = 2.0 ** -(checks.integer("size", size, 1) - 1)
    return n / size * (2 - whole if adaptive else size * whole)


def exposed_elements(n: int, size: int, level: float) -> float:
    """Expected number of elements of Count-in-Sets with |loss| of at least `level`, in one run.

    Args:
        n: The number of elements, in n / size whole sets.
        size: The number of elements in a set.
        level: An element is exposed if its |loss| is at least this.

    Example:
        >>> exposed_elements(1000, 10, level=2.0) > exposed_elements(1000, 10, level=float("inf"))
        True
    """
    # n / size sets, of which each exposes all of its elements or none.
    counts = np.arange(checks.integer("size", size, 1) + 1)
    with np.errstate(divide="ignore"):
        losses = np.abs(np.log(counts) - np.log(size - counts))
    chances = np.exp(binomial.log_mass(counts, size, 0.5))
    return float(n * chances[losses >= level].sum())
