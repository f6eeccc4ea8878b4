"""Mechanisms that release elements as they are: one of them, or sometimes all."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats
from canaria._core.errors import InputError
from canaria.mechanisms._protocol import OneRound, Outcomes, Output, certain


@dataclass(frozen=True)
class NameAndShame(OneRound):
    """Releases one element, chosen at random: the signed, 1-based index of its bit.

    Its loss is infinite and all others are 0, so the efficacy with k guesses is 1/2 + 1 / (2 k).

    Example:
        >>> from canaria.mechanisms import NameAndShame
        >>> from canaria.theory import efficacy
        >>> [efficacy(NameAndShame(), n=100, k=k).value for k in (1, 10)]
        [1.0, 0.55]
    """

    adjacency: ClassVar[str] = "replace"
    epsilon: ClassVar[float] = math.inf

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The signed index of the element shown."""
        # Indices begin at 1, because 0 has no sign to carry the bit.
        shown = rng.integers(bits.shape[1], size=len(bits))
        return (shown + 1) * bits[np.arange(len(bits)), shown].astype(np.int64)

    def loss(self, output: Output, known: Bits) -> Floats:
        """Infinite for the element shown."""
        losses = np.zeros(known.shape)
        losses[np.arange(len(output)), np.abs(output) - 1] = certain(output)
        return np.where(known == 0, losses, 0.0)

    def outcomes(self, n: int) -> Outcomes:
        """One outcome stands for all: the losses are the same up to their order."""
        return Outcomes(np.ones(1, dtype=np.int64), np.ones(1))


@dataclass(frozen=True)
class AllOrNothing(OneRound):
    """Releases everything with probability p, nothing otherwise; efficacy 1/2 + p/2.

    Attributes:
        p: The probability, between 0 and 1.

    Example:
        >>> from canaria.mechanisms import AllOrNothing
        >>> from canaria.theory import efficacy
        >>> round(efficacy(AllOrNothing(0.2), n=10).value, 3)
        0.6
    """

    p: float
    adjacency: ClassVar[str] = "replace"

    def __post_init__(self) -> None:
        if not 0 <= checks.real("p", self.p) <= 1:
            raise InputError(f"p must be between 0 and 1, got {self.p!r}")

    @property
    def epsilon(self) -> float:
        """Infinite if p > 0, else 0."""
        return math.inf if self.p > 0 else 0.0

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """All bits, or zeros."""
        shown = rng.random((len(bits), 1)) < self.p
        return np.where(shown, bits, 0)

    def loss(self, output: Output, known: Bits) -> Floats:
        """Infinite for all, or 0 for all."""
        return np.where(known == 0, certain(output), 0.0)

    def outcomes(self, n: int) -> Outcomes:
        """Two outcomes: all elements or none."""
        outputs = np.stack([np.ones(n, dtype=np.int8), np.zeros(n, dtype=np.int8)])
        return Outcomes(outputs, np.array([self.p, 1 - self.p]))
