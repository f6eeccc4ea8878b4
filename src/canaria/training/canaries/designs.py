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
_TOO_HEAVY: Final = 0.05
"""Canaries may weigh at most this much more than one clip norm. Rounding errors are far smaller."""
HEAD_PARAMETERS: Final = 2
"""Parameters of a canary head. Canary gradients are in all of them: clipped apart, they weigh too much."""
DRAWS, PLACES, TESTS, TOTALS, TIES = 1, 2, 3, 4, 5
"""Purposes of the auditor's own random numbers."""
_BITS: Final = 0x62697473
_DERIVED: Final = 0x64726177
_LARGEST_DENSE: Final = 8000
_MOST_SPANNING: Final = 16

INJECTIONS: Final = {
    "rows": (
        "the sampling rate, the clipper (canary rows have norm 10 C before it), the noise",
        "the computation of per-sample gradients (those of canary rows are replaced)",
    ),
    "sum": (
        "the noise",
        "the sampler, per-sample gradients and the clipper (canaries join the clipped sum, drawn by the "
        "audit)",
    ),
    "gradients": (
        "the clipper (canary gradients have norm 10 C before it), the noise",
        "the sampler (the audit draws the canaries) and the computation of per-sample gradients",
    ),
    "head": (
        "the sampling rate, per-sample gradients, the clipper, the noise",
        "per-sample gradients of the audited model's own layers, and whether these are clipped together "
        "(canaries have parameters of their own)",
    ),
    "clients": (
        "the clipper (updates of canary clients have norm 10 C before it), the weights of clients, the noise",
        "the sampler (the audit draws the canary clients) and what clients compute",
    ),
    "clipped clients": (
        "the weights of clients, the noise",
        "the sampler (the audit draws the canary clients), what clients compute, and whether they clip it",
    ),
}
"""For each injection: what it exercises, up to the noisy sum, and what it does not."""


@dataclass(frozen=True)
class Dirac:
    """Canaries that are unit vectors, each of one coordinate.

    Attributes:
        count: The number of canaries.
        per_coordinate: The number of canaries per coordinate. Some coordinates have fewer if `count` is not a
                multiple of it.

    Raises:
        InputError: If not 1 <= per_coordinate <= count.

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
        """The design in words."""
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
        """The design in words."""
        return f"{self.count} random directions over the same {self.coordinates} coordinates"

    def gradients(self) -> Floats:
        """The canaries, as an array of shape (count, coordinates)."""
        return unit_rows(self.count, self.coordinates, np.random.default_rng(self.seed))


Design = Dirac | Dense


PROBES: Final = (0.03, 0.1, 0.3, 0.9, 1.1, 1.5, 3.0, 6.0, 30.0, 1e3, 1e5)
"""Sizes of gradients, in clip norms, with which a clipper is tried.

All canaries have one size. A clipper may also let gradients pass that are larger than its author expected, or
scale up small ones."""


def raw_norm(clip_norm: float) -> float:
    """The norm of a canary before clipping."""
    return max(RAW_NORM * clip_norm, _LEAST_RAW_NORM)


def too_heavy(heaviest: float, design: Design, *, apart: bool = False) -> tuple[str, ...]:
    """The contradiction if a canary weighed up to `heaviest` clip norms in the clipped sum of a step.

    If `apart`, layers are clipped separately and `heaviest` is in units of the clip norm of a layer.
    """
    if isinstance(design, Dense) or not heaviest > 1 + _TOO_HEAVY:
        return ()
    if apart:
        return (
            f"canaries weighed {heaviest:.3g} norms of a layer in its clipped sum, above the limit of 1: the "
            "layer is not clipped to its norm, or a row is in a batch twice",
        )
    return (
        f"canaries weighed {heaviest:.3g} clip norms in the clipped sum of a step, above the limit of 1: "
        "gradients are not clipped to the clip norm as a whole, or a row is in a batch twice",
    )


def too_heavy_in(heaviest: dict[str, float]) -> tuple[str, ...]:
    """The contradiction if canaries weighed up to this many clip norms, by parameter."""
    heavy = {name: weight for name, weight in heaviest.items() if weight > 1 + _TOO_HEAVY}
    if not heavy:
        return ()
    return (
        f"a canary weighed {max(heavy.values()):.3g} clip norms in {', '.join(heavy)}, above the limit of 1: "
        "gradients are not clipped, or a parameter is left out of their norm",
    )


def clipped_apart(weight: float) -> tuple[str, ...]:
    """The contradiction if a gradient that is large in every parameter weighed this many clip norms."""
    if not weight > 1 + _TOO_HEAVY:
        return ()
    return (
        f"a gradient over all parameters weighed {weight:.3g} clip norms, above the limit of 1: gradients "
        "are not clipped to the clip norm as a whole",
    )


def amplified(size: float, weight: float) -> tuple[str, ...]:
    """The fault of a clipper that gives a gradient of this size this weight, both in clip norms."""
    if not weight > 1 + _TOO_HEAVY:
        return ()
    return (
        f"the clipper made {weight:.3g} clip norms of a gradient of {size:.3g}, above the limit of 1: it "
        "does not bound the contribution of a row",
    )


def unclipped(heaviest: float) -> tuple[str, ...]:
    """The contradiction if each row added this many clip norms to the clipped sum of a step, on average."""
    if not heaviest > 1 + _TOO_HEAVY:
        return ()
    return (
        f"the clipped sum of a step has a norm of {heaviest:.3g} clip norms per row, above the limit of 1: "
        "gradients are not clipped to the norm that the noise is made for",
    )


def exercised(injection: str, design: Design, *, by_the_optimizer: bool) -> tuple[str, str]:
    """Describe in words the parts of training that an audit exercises, and those it does not.

    If `by_the_optimizer`, the audit reads the gradient that the optimizer uses, not only the noisy sum.
    """
    touched, *untouched = INJECTIONS[injection]
    if injection == "rows" and isinstance(design, Dirac) and design.spanning == 0:
        untouched.append("which norm is clipped (a canary's gradient has one coordinate)")
    if by_the_optimizer:
        return f"{touched}, scaling and reduction", "; ".join(untouched)
    return touched, "; ".join([*untouched, "what becomes of the noisy sum after the privatizer"])


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
    return 2 * rng.integers(0, 2, count, dtype=np.int8) - np.int8(1)


def derived(seed: int, purpose: int) -> int:
    """A random number of 63 bits that follows from the seed of an audit, for a purpose such as `DRAWS`."""
    sequence = np.random.SeedSequence(seed, spawn_key=(_DERIVED, purpose))
    return int(sequence.generate_state(1, np.uint64)[0] >> 1)
