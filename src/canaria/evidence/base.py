"""What every kind of evidence offers, how kinds are written and read, and what they assume in words."""

from abc import abstractmethod
from enum import Enum
from typing import ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.effort import Effort
from canaria._core.kinds import Kind
from canaria.claims import ApproximateDP, Claim
from canaria.claims.families import Family

FAIR_COINS: Final = "the hidden bits are independent fair coins"
COMMITTED: Final = "the number of guesses was fixed before the output was seen"
ALL_COUNTED: Final = "`elements` counts every hidden bit of the audit, guessed or not"
NOT_ADAPTIVE: Final = (
    "which elements are guessed, and in which order, depends on the output alone; "
    "a guess may use bits revealed before it, never its own"
)
LARGEST_EPSILON: Final = 750.0
"""No bound goes further: beyond it e^epsilon is not a number of double precision."""


class Inversion(Enum):
    """How `lower_bound` may search for the last refuted claim.

    Example:
        >>> from canaria import Counts
        >>> Counts(90, 100, 100).inversion.value
        'bisection'

    """

    BISECTION = "bisection"
    """The p-value is monotone in epsilon."""
    GRID = "grid"
    """It is not monotone: walk a fixed grid upward from 0."""
    STRETCHES = "stretches"
    """It is monotone in each stretch of the family that the evidence is about: bisect the first one kept."""
    PARTS = "parts"
    """The largest bound of several parts, each at its share of the error probability."""


class Tally(NamedTuple):
    """Right guesses and guesses taken.

    Attributes:
        correct: The number of right guesses.
        taken: The number of guesses.

    Example:
        >>> from canaria import Counts, lower_bound
        >>> lower_bound(Counts(90, 100, 1000)).tally
        Tally(correct=90, taken=100)

    """

    correct: int
    taken: int


class Progress(NamedTuple):
    """Numbers of guesses, rising, and how many of so many were right.

    Attributes:
        taken: Numbers of guesses, rising.
        correct: How many of so many guesses were right.

    Example:
        >>> import numpy as np
        >>> from canaria.evidence import Progress
        >>> Progress(taken=np.array([10, 20]), correct=np.array([9, 16])).correct.tolist()
        [9, 16]

    """

    taken: Integers
    correct: Integers


class Evidence(Kind):
    """What an audit saw; it knows its p-value against a claim.

    A new kind is one class that defines `method`, `assumptions`, `elements`, `p_value`, `tally` and
    `to_dict`; once it is defined, `Evidence.from_dict` reads it back. All the rest has a default that is
    valid, if slow or silent, for any kind: no formula is used that was proved for another (the grid of
    Theorem 17 suits all).

    Attributes:
        elements: How many hidden bits the audit had.
        inversion: How the last refuted claim may be found; by default on a fixed grid, which needs no
            monotone p-value.
        count_kind: The kind of counts that holds for a number of these guesses by itself; None if none does.
        one_sided: Whether all guesses have one sign, fixed before the output was seen.
        weighs: Whether guesses count for more or less, by their losses; then a number of right ones says
            little.
        family: The family of claims that it was made for; None if it is for any claim.

    Example:
        >>> from canaria import Counts, lower_bound
        >>> from canaria.claims import ApproximateDP
        >>> evidence = Counts(90, 100, 100)  # 90 of 100 guesses right, 100 elements
        >>> evidence.p_value(ApproximateDP(1.0, delta=0)) < 0.001
        True
        >>> round(lower_bound(evidence).epsilon, 2)
        1.63

    """

    elements: int
    one_sided: bool = False
    family: Family | None = None
    inversion: ClassVar[Inversion] = Inversion.GRID
    count_kind: ClassVar[str | None] = None
    weighs: ClassVar[bool] = False

    @property
    @abstractmethod
    def method(self) -> str:
        """The name of the kind in results."""

    @property
    @abstractmethod
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the p-value to be one."""

    @property
    def assumed(self) -> str:
        """What is assumed of the mechanism and said wherever the bound is shown; empty if nothing is."""
        return ""

    @property
    def withdrawn(self) -> str | None:
        """Why it says nothing, if an assumption that it makes is seen to be wrong."""
        return None

    @abstractmethod
    def p_value(self, claim: Claim) -> float:
        """A bound on the probability that a mechanism that keeps the claim lets a guesser do as well.

        A kind that knows (epsilon, delta) alone asks for `claim.point(self.charged)`.
        """

    @abstractmethod
    def tally(self, epsilon: float) -> Tally:
        """Right guesses and guesses taken, where the evidence speaks most clearly against the claim."""

    def tally_against(self, claim: Claim) -> Tally:
        """The same for a claim that is a curve."""
        return self.tally(claim.point(self.charged).epsilon)

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most the level; some kinds can tell for less than a p-value costs."""
        return self.p_value(claim) <= level

    def extremeness(self, claim: "ApproximateDP") -> float | None:
        """A number that the p-value rises with, among audits of one design; None where there is none."""
        return None

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle many claims at once: +1 where surely refuted, -1 where surely not, 0 where not known."""
        return np.zeros(len(epsilons), dtype=np.int8)

    def bracket(self, epsilon: float, beyond: float = 1.0) -> tuple[float, float]:
        """Bounds on the p-value at delta = 0; they may be rough where it is above `beyond`."""
        p_value = self.p_value(ApproximateDP(epsilon, delta=0))
        return p_value, p_value

    def ceiling(self, level: float) -> float:
        """A value that the bound cannot exceed."""
        return LARGEST_EPSILON

    def clearest(self, epsilon: float) -> "Evidence":
        """The part that speaks most clearly against the claim; evidence of one piece is its own."""
        return self

    def clearest_against(self, claim: Claim) -> "Evidence":
        """The same for a claim of a family."""
        return self

    def effort(self, delta: float) -> Effort:
        """How long a claim, and a bound, are likely to take, known from the sizes alone."""
        return Effort(0.0, 0.0)

    def holds_adaptively(self, guessed: int | None) -> bool:
        """Whether the p-value holds where revealed bits decide what is guessed next.

        `guessed` is the number of elements in rounds that were fixed beforehand; None where bits also decide
        the order.
        """
        return False

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), self.elements))

    @property
    def charged(self) -> float:
        """The number of elements that delta is charged for: half of them where one sign is guessed."""
        return self.elements / 2 if self.one_sided else self.elements

    @property
    def most_guesses(self) -> int:
        """How many guesses could have been taken; 0 where that is not known."""
        return 0

    def best_of_size(self, guesses: int) -> "Evidence | None":
        """An audit of this kind with so many guesses, all right and certain; None where that is not known.

        Elements stay as they are, or become as many as the guesses where every element is guessed.
        """
        return None

    @classmethod
    def of_count(cls, correct: int, taken: int, elements: int, one_sided: bool) -> "Evidence":
        """Evidence of this kind from a number of right guesses."""
        return cls.read(correct=correct, taken=taken, elements=elements)

    def with_all_right(self) -> "Evidence | None":
        """The same guesses and stakes with every guess right; None where they are not known."""
        return None

    def count_alone(self, correct: int, taken: int) -> "Evidence | None":
        """A count by itself, as evidence that is valid for the way in which these guesses were made."""
        if self.count_kind is None:
            return None
        return Evidence.kinds()[self.count_kind].of_count(
            correct, taken, max(self.elements, taken), self.one_sided
        )

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        return "every guess"

    def progress(self, epsilon: float) -> Progress:
        """How guesses went as their number grew, for the eye; by default the one number that is known."""
        correct, taken = self.tally(epsilon)
        return Progress(np.array([taken]), np.array([correct]))

    @property
    def words(self) -> str:
        """What it is, and how large, for messages."""
        guesses = f" of {self.most_guesses} guesses" if self.most_guesses else ""
        return f"a {type(self).__name__}{guesses}"

    def elements_for(self, guesses: int) -> int:
        """The elements of an audit with so many guesses: see `best_of_size`."""
        return guesses if self.most_guesses == self.elements else max(guesses, self.elements)


def progress_of(hits: Hits, first: int = 8, points: int = 60) -> Progress:
    """Right guesses among the first k hits, at up to `points` numbers k, geometric from `first` to all."""
    spaced = np.geomspace(min(first, len(hits)), len(hits), points)
    taken = np.unique(np.rint(spaced).astype(np.int64))
    return Progress(taken, np.cumsum(hits, dtype=np.int64)[taken - 1])
