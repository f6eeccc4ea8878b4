"""Gradient canaries: how many, where, how they are injected, and the coins that include them."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Bits, Floats
from canaria._core.errors import InputError
from canaria.mechanisms.interference import unit_rows

RAW_NORM: Final = 10.0
"""The norm of a canary before clipping, in units of the clip norm, so that clipping is exercised."""
_LEAST_RAW_NORM: Final = 0.01
"""The raw norm is never below this, because clippers add a small constant to the norm they divide by."""
HEAD_PARAMETERS: Final = 2
"""Parameters of a canary head. Canary gradients are in all of them: clipped apart, they weigh too much."""
DRAWS, PLACES, TESTS, TOTALS, TIES = 1, 2, 3, 4, 5
"""Purposes of the auditor's own random numbers."""
_BITS: Final = 0x62697473
_DERIVED: Final = 0x64726177
_LARGEST_DENSE: Final = 8000
_MOST_SPANNING: Final = 16


@dataclass(frozen=True)
class Dirac:
    """Canaries that are unit vectors, each of one coordinate.

    Attributes:
        count: The number of canaries.
        per_coordinate: The number of canaries per coordinate, at most `count`; some coordinates have fewer if
            `count` is not a multiple of it.

    Example:
        >>> from canaria.training import Dirac
        >>> design = Dirac(count=1000, per_coordinate=4)
        >>> design.coordinates, design.most
        (250, 4)
    """

    count: int
    per_coordinate: int = 1

    def __post_init__(self) -> None:
        checks.integer("canaries", self.count, 1)
        checks.integer("per_coordinate", self.per_coordinate, 1, self.count, "canaries")

    @property
    def words(self) -> str:
        return f"{self.count} unit gradients, {self.per_coordinate} per coordinate"

    @property
    def coordinates(self) -> int:
        """The number of coordinates with canaries; canary i is on coordinate i modulo this."""
        return -(-self.count // self.per_coordinate)

    @property
    def most(self) -> int:
        """The largest number of canaries on one coordinate, at most `per_coordinate`.

        It is smaller than `per_coordinate` if the canaries spread more evenly.
        """
        return -(-self.count // self.coordinates)

    @property
    def spanning(self) -> int:
        """The number of coordinates that span several parameters if canaries are rows; 0 if below eight."""
        return min(_MOST_SPANNING, self.coordinates // 8)


@dataclass(frozen=True)
class Dense:
    """Random canaries of norm 1 that all use the same coordinates.

    Each canary has independent random signs and the same absolute value in every coordinate. The canaries
    interfere with each other, and interfere less if there are more coordinates.

    Attributes:
        count: The number of canaries, at most 8,000.
        coordinates: The number of coordinates.
        seed: The seed of the signs.

    Example:
        >>> from canaria.training import Dense
        >>> design = Dense(count=3, coordinates=16)
        >>> (design.gradients() ** 2).sum(axis=1).round(6).tolist()
        [1.0, 1.0, 1.0]
    """

    count: int
    coordinates: int
    seed: int = 0

    def __post_init__(self) -> None:
        checks.integer("canaries", self.count, 1, _LARGEST_DENSE)
        checks.integer("coordinates", self.coordinates, 1)
        checks.integer("seed", self.seed, 0)

    @property
    def words(self) -> str:
        return f"{self.count} random directions over the same {self.coordinates} coordinates"

    def gradients(self) -> Floats:
        """The canaries, as an array of shape (count, coordinates)."""
        return unit_rows(self.count, self.coordinates, np.random.default_rng(self.seed))


Design = Dirac | Dense


def raw_norm(clip_norm: float) -> float:
    """The norm of a canary before clipping."""
    return max(RAW_NORM * clip_norm, _LEAST_RAW_NORM)


def design_of(canaries: int | Design, per_coordinate: int) -> Design:
    """Return a design unchanged, or make one from a number of Dirac canaries."""
    if isinstance(canaries, Dirac | Dense):
        if per_coordinate != 1:
            raise InputError("per_coordinate goes with a number of canaries; a design holds its own")
        return canaries
    return Dirac(checks.integer("canaries", canaries, 1), per_coordinate)


def hidden_bits(count: int, seed: int) -> Bits:
    """The coins of the canaries, from their own random stream."""
    rng = seeds.generator(seed, _BITS)
    # A stream of their own: places and draws, which a program can see, say nothing about the bits.
    return 2 * rng.integers(0, 2, count, dtype=np.int8) - np.int8(1)


def derived(seed: int, purpose: int) -> int:
    """A random number of 63 bits that follows from the seed of an audit, for a purpose such as `DRAWS`."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_DERIVED, purpose))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
