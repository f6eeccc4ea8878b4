"""Counts of included elements, of all or in sets: exact, noisy, or post-processed.

An excluded element contributes nothing, so neighbours are add-remove.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
from scipy import special

from canaria._core import binomial, checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError
from canaria.mechanisms import _sets
from canaria.mechanisms._protocol import OneRound, Outcomes, Output, called

_ENUMERABLE: Final = 20_000


@dataclass(frozen=True)
class CountInSets(OneRound):
    """Releases the number of included elements in each set of consecutive elements.

    If k of the s hidden elements of a set are included, the loss of each is ln(k / (s - k)), which is
    infinite at k = 0 and k = s.

    Attributes:
        size: The number of elements in a set; the last set may be smaller.

    Example:
        >>> from canaria.mechanisms import CountInSets
        >>> from canaria.theory import efficacy
        >>> [round(efficacy(CountInSets(size), n=8).value, 3) for size in (1, 2, 4)]
        [1.0, 0.75, 0.688]
    """

    size: int
    adjacency: ClassVar[str] = "add-remove"
    epsilon: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        checks.integer("size", self.size, 1)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The counts, (trials, sets)."""
        return _sets.included_in_sets(bits, self.size)

    def loss(self, output: Output, known: Bits) -> Floats:
        """The loss from the count of the hidden elements of the set."""
        # What is known of the set is subtracted: k and s of the class are those of the hidden elements.
        included, hidden = _sets.revealed_in_sets(known, self.size)
        return _sets.spread(_odds(output - included, hidden), known, self.size)

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """The first element of every set, then the second, and so on."""
        return _sets.set_rounds(n, self.size)

    def outcomes(self, n: int) -> Outcomes | None:
        """All combinations of counts, if they are few; else None."""
        sizes = _sets.sets_of(n, self.size)
        if np.prod(sizes + 1.0) > _ENUMERABLE:
            return None
        # Sets are independent, and the count of each is Binomial(size, 1/2).
        outputs = np.stack(np.meshgrid(*(np.arange(s + 1) for s in sizes), indexing="ij"), -1)
        outputs = outputs.reshape(-1, len(sizes))
        return Outcomes(outputs, np.prod(special.comb(sizes, outputs) / 2.0**sizes, axis=1))


@dataclass(frozen=True)
class Count(OneRound):
    """Releases the number of included elements; its efficacy is 1/2 + E|Bin(n, 1/2) - n/2| / n.

    Example:
        >>> from canaria.mechanisms import Count
        >>> from canaria.theory import efficacy
        >>> round(efficacy(Count(), n=2).value, 3)
        0.75
    """

    adjacency: ClassVar[str] = "add-remove"
    epsilon: ClassVar[float] = math.inf

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The counts, (trials,)."""
        return np.asarray((bits > 0).sum(axis=1))

    def loss(self, output: Output, known: Bits) -> Floats:
        """ln(k / (h - k)) with k of the h hidden ones included."""
        n = known.shape[1]
        included, hidden = _sets.revealed_in_sets(known, n)
        return _sets.spread(_odds(output[:, None] - included, hidden), known, n)

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """One element after the other."""
        return _sets.set_rounds(n, n)

    def outcomes(self, n: int) -> Outcomes:
        """Every count."""
        counts = np.arange(n + 1)
        return Outcomes(counts, np.exp(binomial.log_mass(counts, n, 0.5)))

    def closed_efficacy(self, n: int, k: int) -> float:
        """All elements share their loss, so k does not matter; E|Bin - n/2| = n C(n-1, n//2) / 2^n."""
        return 0.5 + math.exp(binomial.log_mass(n // 2, n - 1, 0.5)) / 2


@dataclass(frozen=True)
class NoisyCountInSets(OneRound):
    """Count-in-Sets with Gaussian noise: one full-batch step of DP-SGD with gradient canaries.

    Attributes:
        size: The number of elements in a set; the last set may be smaller.
        sigma: The standard deviation of the noise.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import NoisyCountInSets
        >>> play(NoisyCountInSets(size=1, sigma=0.5), n=500, rng=0).bound(delta=1e-5).epsilon > 2
        True
    """

    size: int
    sigma: float
    adjacency: ClassVar[str] = "add-remove"
    epsilon: ClassVar[float] = math.inf

    def __post_init__(self) -> None:
        checks.integer("size", self.size, 1)
        checks.positive("sigma", self.sigma)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The noisy counts, (trials, sets)."""
        counts = _sets.included_in_sets(bits, self.size)
        return counts + rng.normal(scale=self.sigma, size=counts.shape)

    def loss(self, output: Output, known: Bits) -> Floats:
        """The loss from the Gaussian likelihood of every count."""
        distance = (output[..., None] - np.arange(self.size + 1)) / self.sigma
        return _sets.count_loss(-0.5 * distance**2, known, self.size)

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """The first element of every set, then the second, and so on."""
        return _sets.set_rounds(n, self.size)


@dataclass(frozen=True)
class Symmetric(OneRound):
    """Any mechanism that depends only on the number of included elements: post-processing of `Count`.

    Attributes:
        draw: A function `(counts, rng)` that returns an output for every count.
        log_density: A function `(outputs, count)` that returns ln of the density (or probability) of each
            output given the count.
        epsilon: The privacy level; infinite by default.

    Example:
        >>> import numpy as np
        >>> from scipy import stats
        >>> from canaria.mechanisms import Symmetric
        >>> noisy = Symmetric(
        ...     draw=lambda counts, rng: rng.normal(counts),
        ...     log_density=lambda outputs, count: stats.norm.logpdf(outputs, count),
        ... )
        >>> noisy.sample(np.ones((1, 100), dtype=np.int8), np.random.default_rng(0)).round(1).tolist()
        [100.1]
    """

    draw: Callable[[Integers, np.random.Generator], Any]
    log_density: Callable[[Any, int], Any]
    epsilon: float = math.inf
    adjacency: ClassVar[str] = "add-remove"

    def __post_init__(self) -> None:
        checks.nonnegative("epsilon", self.epsilon)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The outputs of `draw` for the counts, (trials,)."""
        output = np.asarray(called("draw", self.draw, (bits > 0).sum(axis=1), rng))
        if output.shape[:1] != (len(bits),):
            raise InputError(f"draw must return {len(bits)} outputs, one per count, got shape {output.shape}")
        return output

    def loss(self, output: Output, known: Bits) -> Floats:
        """The loss from the likelihood of every count."""
        n = known.shape[1]
        # All elements are one set, so the likelihoods of all counts give the loss of each.
        columns = [called("log_density", self.log_density, output, m) for m in range(n + 1)]
        logs = np.stack([np.asarray(column, dtype=np.float64) for column in columns], -1)
        if logs.shape != (len(known), n + 1) or np.isnan(logs).any():
            raise InputError("log_density must return one number per output for every count")
        return _sets.count_loss(logs[:, None, :], known, n)

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """One element after the other."""
        return _sets.set_rounds(n, n)


def _odds(left: Integers, hidden: Integers) -> Floats:
    """ln(k / (h - k)) where k of h hidden elements are included: certain at 0 and h."""
    # ln 0 at both ends is meant. Sets without a hidden element give ln 0 - ln 0, which `spread` drops.
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.log(left) - np.log(hidden - left))
