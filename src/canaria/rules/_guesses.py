"""Guesses, and the two steps of every audit: commit without the bits, then reveal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from canaria._core.arrays import Bits, Floats, Hits, Integers
from canaria.evidence import Evidence


@dataclass(frozen=True, eq=False)
class Guesses:
    """The guessed elements, in the order of guessing, with the guess for each.

    Attributes:
        order: The elements in the order of guessing.
        signs: The guess for each of them: -1, +1, or 0 to abstain.

    Example:
        >>> import numpy as np
        >>> from canaria.rules import Guesses
        >>> guesses = Guesses(order=np.array([2, 0]), signs=np.array([1, -1], dtype=np.int8))
        >>> guesses.hits(np.array([1, -1, 1], dtype=np.int8)).tolist()
        [True, False]
    """

    order: Integers
    signs: Bits

    def hits(self, bits: Bits) -> Hits:
        """Whether each guess is right, in the order of guessing; an abstention never is."""
        return np.asarray(bits[self.order] == self.signs)


class Commitment(Protocol):
    """The guesses that a rule has committed to; only `reveal` sees the bits.

    Example:
        >>> import numpy as np
        >>> from canaria.rules import Top
        >>> commitment = Top(2)(np.array([0.3, -1.2, 2.5]), np.random.default_rng(0))
        >>> commitment.reveal(np.array([1, -1, 1], dtype=np.int8)).correct
        2
    """

    def reveal(self, bits: Bits) -> Evidence: ...


class Rule(Protocol):
    """A function of the scores that commits to guesses.

    Higher scores mean "+1 more likely"; `rng` breaks ties.

    Example:
        >>> import numpy as np
        >>> from canaria.rules import Tails
        >>> rule = Tails(2)
        >>> scores, bits = np.array([0.3, -1.2, 2.5]), np.array([1, -1, 1], dtype=np.int8)
        >>> rule(scores, np.random.default_rng(0)).reveal(bits)
        Counts(correct=2, taken=2, elements=3, one_sided=False)
    """

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment: ...


@dataclass(frozen=True, eq=False)
class OneShot:
    """Guesses that all depend on the output alone, with a function from their hits to evidence."""

    guesses: Guesses
    weigh: Callable[[Hits], Evidence]

    def reveal(self, bits: Bits) -> Evidence:
        """Compare the guesses with the bits."""
        return self.weigh(self.guesses.hits(bits))


def falling(scores: Floats, rng: np.random.Generator) -> Integers:
    """The elements from the highest score to the lowest, ties in random order.

    Without ties the order needs no coins, and the unstable sort, which is faster, is enough.
    """
    shuffled = rng.permutation(len(scores))
    found: Integers = np.argsort(-scores)
    ranked = scores[found]
    if (ranked[1:] == ranked[:-1]).any():
        found = shuffled[np.argsort(-scores[shuffled], kind="stable")]
    return found


def highest(scores: Floats, k: int, rng: np.random.Generator) -> Integers:
    """The k elements of highest score in no order; ties for the last places are broken at random."""
    # All elements above the last score are in; of those equal to it, a random choice fills the last places.
    last = np.partition(scores, len(scores) - k)[len(scores) - k]
    above, tied = np.flatnonzero(scores > last), np.flatnonzero(scores == last)
    return np.concatenate([above, rng.choice(tied, k - len(above), replace=False)])


def tails_alternating(order: Integers) -> Guesses:
    """Highest (+1), lowest (-1), second highest (+1), second lowest (-1), and so on."""
    total = len(order)
    alternating = np.empty(total, dtype=np.int64)
    alternating[0::2] = order[: (total + 1) // 2]
    alternating[1::2] = order[::-1][: total // 2]
    signs = np.ones(total, dtype=np.int8)
    signs[1::2] = -1
    return Guesses(alternating, signs)
