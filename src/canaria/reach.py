"""How far an audit can reach: a test that could not fail, whatever it saw, proves nothing by passing.

An audit is as good as its kind, its number of guesses and of elements, and the level at which it is held. All
that is known before any bit is revealed, and so is the epsilon that perfect guesses would prove. Where a
claim is no lower, the audit cannot refute it. In particular nothing is ever refuted at a level of delta or
below: an (epsilon, delta)-DP mechanism may lay everything open with probability delta.
"""

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from canaria.bound import EPSILON_GRID, lower_bound
from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    Tradeoff,
    UncommittedCounts,
    Weighted,
)

_MOST_GUESSES: Final = 100_000
_LARGEST_LEVEL: Final = 0.5


@dataclass(frozen=True)
class Size:
    """What was fixed of an audit: its kind, the guesses that could be taken, the elements; or its parts."""

    kind: type
    guesses: int
    elements: int
    parts: tuple["Size", ...] = ()
    shares: tuple[float, ...] = ()

    def scaled(self, factor: float) -> "Size":
        """So many times the guesses; elements follow where every one is guessed."""
        guesses = max(1, round(self.guesses * factor))
        elements = guesses if self.guesses == self.elements else max(guesses, self.elements)
        return replace(
            self, guesses=guesses, elements=elements, parts=tuple(part.scaled(factor) for part in self.parts)
        )

    def perfect(self) -> Evidence:
        """An audit of this size in which every guess was right, and made with all the certainty there is."""
        right = np.ones(self.guesses, dtype=np.bool_)
        if self.kind is Split:
            return Split(tuple(part.perfect() for part in self.parts), self.shares)
        if self.kind is Ranking:
            return Ranking(right, self.elements)
        if self.kind is Weighted:
            return Weighted(right, losses=np.full(self.guesses, math.inf), elements=self.elements)
        if self.kind is Bets:
            return Bets(np.full(self.guesses, math.nextafter(1, 0)), right, self.elements)
        if self.kind is Budget:
            return Budget(self.guesses, self.guesses, self.guesses, self.elements)
        counts: Evidence = self.kind(self.guesses, self.guesses, self.elements)
        return counts


def size_of(evidence: Evidence) -> Size | None:
    """The size of an audit; None where it is not known: no guess was made, or the kind is not ours."""
    kind, elements, guesses = type(evidence), evidence.elements, 0
    if isinstance(evidence, Split):
        sizes = [size_of(part) for part in evidence.parts]
        parts = tuple(size for size in sizes if size is not None)
        most = max((part.guesses for part in parts), default=0)
        return Size(kind, most, elements, parts, evidence.shares) if len(parts) == len(sizes) else None
    if isinstance(evidence, Bets | UncommittedCounts):
        guesses = elements
    elif isinstance(evidence, Ranking):
        guesses = int(evidence.grid[-1])
    elif isinstance(evidence, Weighted):
        guesses = len(evidence.hits)
    elif isinstance(evidence, Budget):
        guesses = evidence.budget
    elif isinstance(evidence, Counts | PublishedCounts | Tradeoff):
        guesses = evidence.taken
    return Size(kind, guesses, elements) if guesses > 0 else None


@lru_cache(maxsize=4096)
def reach(size: Size, delta: float, confidence: float) -> float:
    """The epsilon that perfect guesses would prove: no audit of this size shows more.

    >>> from canaria import Counts
    >>> round(reach(size_of(Counts(0, 10, 10)), 0.0, 0.95), 3)
    1.052
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="no claim can be refuted")
        return lower_bound(size.perfect(), delta, confidence).epsilon


def remedy(size: Size, claimed: float, delta: float, confidence: float) -> str:
    """What perfect guesses would need to refute the claim, in words; others need more."""
    level = 1 - confidence
    if level <= delta:
        return f"nothing is ever refuted at a false-alarm probability of delta or less, here {level:.3g}"
    if claimed >= EPSILON_GRID[-1]:
        return "no bound goes so far"
    unit = "elements" if size.guesses == size.elements else "guesses"
    for factor in _factors(size):
        other = size.scaled(factor)
        if reach(other, delta, confidence) > claimed:
            return f"{other.guesses} {unit} would do for perfect guesses"
    while (level := 2 * level) <= _LARGEST_LEVEL:
        if reach(size, delta, 1 - level) > claimed:
            return f"a false-alarm probability of {level:.2g} would do for perfect guesses"
    return "no audit of this kind would do"


def _factors(size: Size) -> Iterator[float]:
    """Twice as many guesses, and again; then half as many, as delta is charged for every element."""
    factor = 2.0
    while factor * size.guesses <= _MOST_GUESSES:
        yield factor
        factor *= 2
    factor = 0.5
    while factor * size.guesses >= 1:
        yield factor
        factor /= 2
