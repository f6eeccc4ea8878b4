"""Guesses, and the two steps of every audit: commit without the bits, then reveal."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from canaria._core.arrays import Bits, Floats, Hits, Integers
from canaria.evidence import Counts, Evidence


@dataclass(frozen=True, eq=False)
class Guesses:
    """Which elements are guessed, in which order, and how.

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
        """Compare the guesses with the bits; an abstention is never right.

        Args:
            bits: The hidden bits, -1 or +1, of all elements.

        Returns:
            Whether each guess was right, in the order of guessing.

        """
        return np.asarray(bits[self.order] == self.signs)


class Commitment(Protocol):
    """What a rule commits to; `reveal` is the only place that sees the bits.

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

    Higher scores mean "+1 more likely"; `rng` breaks ties. The rules of canaria also say which evidence they
    can have made (`could_have_made`), so that a relabelled result file contradicts itself.

    Example:
        >>> import numpy as np
        >>> from canaria.rules import Tails
        >>> rule = Tails(2)
        >>> scores, bits = np.array([0.3, -1.2, 2.5]), np.array([1, -1, 1], dtype=np.int8)
        >>> rule(scores, np.random.default_rng(0)).reveal(bits)
        Counts(correct=2, taken=2, elements=3, one_sided=False)

    """

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment: ...


class Checkable(Protocol):
    """A rule that knows which evidence it can have made."""

    def could_have_made(self, evidence: Evidence) -> bool: ...


@runtime_checkable
class Telling(Checkable, Protocol):
    """A rule whose evidence shows the smallest and the largest possible number of included elements.

    Example:
        >>> from canaria.rules import Surest, Telling, Top
        >>> isinstance(Top(20), Telling), isinstance(Surest(20), Telling)
        (True, False)

    """

    def included(self, evidence: Evidence) -> tuple[int, int]: ...


@runtime_checkable
class Ordering(Protocol):
    """A rule whose evidence shows how many of the highest scores are of included elements.

    Example:
        >>> from canaria.rules import Ordering, Ranked, Tails
        >>> isinstance(Ranked(), Ordering), isinstance(Tails(20), Ordering)
        (True, False)

    """

    def included_above(self, evidence: Evidence, highest: Integers) -> tuple[Integers, Integers]:
        """The fewest and the most of so many highest scores."""
        ...


@runtime_checkable
class TwoEnded(Protocol):
    """A rule whose evidence shows right guesses of both ends of the ranked scores together.

    Example:
        >>> from canaria.rules import Matched, Ranked, TwoEnded
        >>> isinstance(Matched("gaussian"), TwoEnded), isinstance(Ranked(), TwoEnded)
        (True, False)

    """

    def fits(self, evidence: Evidence, highest: Integers, included: Integers) -> bool:
        """Whether so many included elements among so many highest scores can be those of the evidence."""
        ...


def nothing_guessed(evidence: Evidence) -> bool:
    """Whether no guess was taken, as with scores that are all equal."""
    return evidence == Counts(0, 0, evidence.elements)


@dataclass(frozen=True, eq=False)
class OneShot:
    """Guesses that all depend on the output alone, and how their hits are weighed."""

    guesses: Guesses
    weigh: Callable[[Hits], Evidence]

    def reveal(self, bits: Bits) -> Evidence:
        """Compare the guesses with the bits."""
        return self.weigh(self.guesses.hits(bits))


def falling(scores: Floats, rng: np.random.Generator) -> Integers:
    """The elements from the highest score to the lowest, ties in random order.

    Elements are shuffled, and sorted by the slower stable sort, only where there are ties.
    """
    shuffled = rng.permutation(len(scores))
    found: Integers = np.argsort(-scores)
    ranked = scores[found]
    if (ranked[1:] == ranked[:-1]).any():
        found = shuffled[np.argsort(-scores[shuffled], kind="stable")]
    return found


def highest(scores: Floats, k: int, rng: np.random.Generator) -> Integers:
    """The k elements of highest score in no order; ties for the last places are broken at random."""
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


def between(known: Integers, counts: Integers, asked: Integers) -> tuple[Integers, Integers]:
    """The fewest and the most of the first `asked`, from what is counted among the first `known`, rising."""
    places, counted = np.append(0, known), np.append(0, counts)
    after = np.searchsorted(places, asked)
    before = np.maximum(after - 1, 0)
    fewest = np.maximum(counted[before], counted[after] - (places[after] - asked))
    return fewest, np.minimum(counted[after], counted[before] + (asked - places[before]))


def ends_fit(
    taken: Integers, correct: Integers, elements: int, highest: Integers, included: Integers
) -> bool:
    """Whether bins of scores can show so many right guesses, half of them at each end.

    The bins have so many included elements among so many highest scores.
    """
    lowest = (elements - highest)[::-1]
    excluded = lowest - (included[-1] - included)[::-1]
    above = between(highest, included, -(-taken // 2))
    below = between(np.append(lowest, elements), np.append(excluded, elements - included[-1]), taken // 2)
    fewest, most = (top + bottom for top, bottom in zip(above, below, strict=True))
    return bool(((fewest <= correct) & (correct <= most)).all())


def between_tails(right: int, taken: int, elements: int) -> tuple[int, int]:
    """The fewest and the most included elements: all right guesses at the lower end, or all at the upper."""
    lower = taken // 2
    fewest = lower - right + 2 * max(0, right - lower)
    most = lower - right + 2 * min(right, taken - lower)
    return fewest, most + elements - taken
