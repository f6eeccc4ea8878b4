"""Parities: worthless to a guesser who knows no bit, fully revealing to one who knows all others.

Bits are -1 and +1, so the parity is their product.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError
from canaria.mechanisms._protocol import Outcomes, Output, certain


class _OfAll:
    """The parity of all bits, which says nothing of one of them unless all others are known."""

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """All but one, then that one."""
        return (np.arange(n - 1), np.array([n - 1])) if n > 1 else (np.arange(1),)

    def ddp(self, n: int) -> float:
        """0 if there is more than one element."""
        return 0.0 if n > 1 else float(self.epsilon)  # type: ignore[attr-defined]

    def outcomes(self, n: int) -> Outcomes:
        """One outcome stands for both parities."""
        return Outcomes(np.ones(1), np.ones(1))


@dataclass(frozen=True)
class Xor(_OfAll):
    """Releases the product of all bits; the loss is 0 unless all other bits are known.

    Example:
        >>> from canaria.mechanisms import Xor
        >>> from canaria.theory import efficacy
        >>> efficacy(Xor(), n=10).value
        0.5
    """

    adjacency: ClassVar[str] = "replace"
    epsilon: ClassVar[float] = math.inf

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The product of the bits."""
        return _parity(bits)

    def loss(self, output: Output, known: Bits) -> Floats:
        """Infinite for the last hidden element, 0 for all others."""
        return certain(_last_hidden(output, known))


@dataclass(frozen=True)
class XorRandomizedResponse(_OfAll):
    """Releases the product of all bits through randomized response.

    Attributes:
        epsilon: The privacy level, at least 0.

    Example:
        >>> from canaria.mechanisms import XorRandomizedResponse
        >>> from canaria.theory import gaps
        >>> round(gaps(XorRandomizedResponse(1.0), n=10).efficacy.value, 3)
        0.5
    """

    epsilon: float
    adjacency: ClassVar[str] = "replace"

    def __post_init__(self) -> None:
        checks.nonnegative("epsilon", self.epsilon)

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The product of the bits, flipped with probability 1 - p(epsilon)."""
        keep = rng.random(len(bits)) < 1 / (1 + math.exp(-self.epsilon))
        parity = _parity(bits)
        return np.where(keep, parity, -parity)

    def loss(self, output: Output, known: Bits) -> Floats:
        """Epsilon for the last hidden element, 0 for all others."""
        signs = _last_hidden(output, known)
        return np.where(signs == 0, 0.0, np.copysign(self.epsilon, signs))


@dataclass(frozen=True)
class XorInPairs:
    """Releases the product of each pair of neighbours.

    One-run auditing shows nothing about it; adaptive auditing shows everything. The number of elements must
    be even.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import XorInPairs
        >>> pairs = XorInPairs()
        >>> play(pairs, n=200, rng=0).bound().epsilon
        0.0
        >>> play(pairs, n=200, rounds=pairs.rounds(200), rng=0).bound().epsilon > 3
        True
    """

    adjacency: ClassVar[str] = "replace"
    epsilon: ClassVar[float] = math.inf

    def sample(self, bits: Bits, rng: np.random.Generator) -> Output:
        """The products of bits 0 and 1, 2 and 3, and so on."""
        _require_even(bits.shape[1])
        return bits[:, 0::2] * bits[:, 1::2]

    def loss(self, output: Output, known: Bits) -> Floats:
        """Infinite if the other element of the pair is known, else 0."""
        # The product of a pair times one of its bits is the other bit; an unknown partner gives 0.
        partner = known.reshape(len(known), -1, 2)[:, :, ::-1]
        signs = (output[:, :, None] * partner).reshape(known.shape)
        return certain(np.where(known == 0, signs, 0))

    def rounds(self, n: int) -> tuple[Integers, ...]:
        """The first of every pair, then the second."""
        _require_even(n)
        return np.arange(0, n, 2), np.arange(1, n, 2)

    def ddp(self, n: int) -> float:
        """0: the other element of the pair is unknown."""
        return 0.0

    def outcomes(self, n: int) -> Outcomes:
        """One outcome stands for all parities."""
        _require_even(n)
        return Outcomes(np.ones((1, n // 2)), np.ones(1))


def _parity(bits: Bits) -> Integers:
    return np.asarray(np.prod(bits, axis=1, dtype=np.int64))


def _last_hidden(output: Output, known: Bits) -> Any:
    """The bit of the last hidden element, if the output is the true parity; 0 for all others."""
    alone = (known == 0) & ((known == 0).sum(axis=1, keepdims=True) == 1)
    # Bits are their own inverses: parity times the known bits leaves the product of the hidden ones.
    others = np.prod(np.where(known == 0, 1, known), axis=1, dtype=np.int64)
    return alone * (output * others)[:, None]


def _require_even(n: int) -> None:
    if n % 2:
        raise InputError(f"n must be even for elements in pairs, got {n}")
