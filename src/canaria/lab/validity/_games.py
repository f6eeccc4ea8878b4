"""What the laboratory plays: games against mechanisms whose epsilon is known exactly."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Final, Literal, Protocol

import numpy as np
from scipy import special

from canaria._core.arrays import Bits, Floats, Hits

Known = Literal["nothing", "earlier", "others"]
KNOWN: Final[tuple[Known, ...]] = ("nothing", "earlier", "others")
"""What the scores may know besides the output: no bit, the bits revealed before, all other bits."""


@dataclass(frozen=True, eq=False)
class Games:
    """Scores and hidden bits (-1 or +1) of some audits, one per row.

    Where the audited thing is a training run or a data set with canaries, `audits` holds what canaria made of
    each: anything that can be asked for `bound(delta, confidence)`.
    """

    scores: Floats
    bits: Bits
    audits: tuple[Any, ...] = ()


Shape = tuple[int, int]
Draw = Callable[[Shape, np.random.Generator, float], Games]


class Player(Protocol):
    """Of an auditor, what decides which cases it must withstand."""

    @property
    def known(self) -> Known: ...
    @property
    def audited(self) -> str: ...
    @property
    def reads_list(self) -> bool: ...


@dataclass(frozen=True)
class Case:
    """A mechanism that is exactly (epsilon, delta)-DP on n elements, and somebody who scores them.

    `draw((audits, n), rng, level)` plays games; worst cases aim at tests of that level. Scores that know
    the bits revealed earlier come in the order of guessing, and 0 is an abstention. Where `fair` is False
    the bits are not independent fair coins, so that no auditor is to blame. Where `listed` is True the
    list is sorted by the bits, so that nobody may use its order. `audited` names what was audited where that
    is more than scores: "training" or "black box". `pace` is the share of the audits that a large case gets.
    """

    name: str
    about: str
    epsilon: float
    draw: Draw
    _: KW_ONLY
    delta: float = 0.0
    known: Known = "nothing"
    fair: bool = True
    listed: bool = False
    audited: str = ""
    n: int = 100
    pace: float = 1.0

    def withstood_by(self, auditor: Player) -> bool:
        """Whether an auditor must withstand this case.

        One of a training run, or of planted canaries, needs such a case. One that takes the list for the
        order of guessing cannot be given a list that is sorted by the bits.
        """
        if auditor.audited:
            return auditor.audited == self.audited
        allowed = KNOWN.index(self.known) <= KNOWN.index(auditor.known)
        return allowed and not (self.listed and auditor.reads_list)


def coins(shape: Shape, rng: np.random.Generator) -> Bits:
    """Independent fair bits."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - np.int8(1)


def tosses(shape: Shape, epsilon: float, rng: np.random.Generator) -> Hits:
    """Hits of randomised response: independent, right with probability p(epsilon)."""
    return np.asarray(rng.random(shape) < special.expit(epsilon))


def sizes(shape: Shape, epsilon: float, rng: np.random.Generator) -> Floats:
    """Sizes of scores that know nothing: they set order, weights and stakes at random, above epsilon."""
    return epsilon + rng.exponential(size=shape)


def guessed(hits: Hits, size: Floats, rng: np.random.Generator) -> Games:
    """Fair bits, and scores whose signs are right where `hits` says so."""
    bits = coins((len(hits), hits.shape[1]), rng)
    return Games(np.where(hits, bits, -bits) * size, bits)
