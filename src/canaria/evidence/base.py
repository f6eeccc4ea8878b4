"""The interface of all kinds of evidence, and the assumptions in words that they share."""

from abc import abstractmethod
from enum import Enum
from functools import lru_cache
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.effort import Effort
from canaria._core.kinds import Kind
from canaria.claims import ApproximateDP, Claim, Signs
from canaria.claims.families import Family
from canaria.claims.lines import Lines
from canaria.evidence import _text

FAIR_COINS: Final = "the hidden bits are independent fair coins"
COMMITTED: Final = "the number of guesses was fixed before the output was seen"
ALL_COUNTED: Final = "`elements` counts every hidden bit of the audit, guessed or not"
NOT_ADAPTIVE: Final = (
    "which elements are guessed, and in which order, depends on the output alone; "
    "a guess may use bits revealed before it, never its own"
)
LARGEST_EPSILON: Final = 750.0
"""The largest bound: above it e^epsilon overflows in double precision."""


class Inversion(Enum):
    """The ways in which `lower_bound` may search for the last refuted claim.

    Example:
        >>> from canaria import Counts
        >>> Counts(90, 100, 100).inversion.value
        'bisection'
    """

    BISECTION = "bisection"
    """The p-value is monotone in epsilon."""
    GRID = "grid"
    """It is not monotone: a fixed grid is walked upward from 0."""
    STRETCHES = "stretches"
    """It is monotone within each stretch of a family: the first stretch that is not refuted is bisected."""
    PARTS = "parts"
    """The bound is the largest bound of several parts, each at its share of the error probability."""


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
    """The number of right guesses as the number of guesses grows.

    Attributes:
        taken: Numbers of guesses, rising.
        correct: For each of them, the number of right guesses.

    Example:
        >>> import numpy as np
        >>> from canaria.evidence import Progress
        >>> Progress(taken=np.array([10, 20]), correct=np.array([9, 16])).correct.tolist()
        [9, 16]
    """

    taken: Integers
    correct: Integers


class Evidence(Kind):
    """The observations of an audit, with their p-value against a claim.

    A new kind is one frozen dataclass that defines `method`, `assumptions`, `elements`, `p_value` and
    `tally`. `Evidence.from_dict` reads it back as soon as the class is defined. Fields that are arrays or
    evidence are written by `to_dict`, and need a `read`. Every other member has a default that is valid for
    any kind, though it may be slow or say little: no formula is used that was proved for another kind (the
    grid of Theorem 17 suits all).

    Attributes:
        elements: The number of hidden bits of the audit.
        inversion: How the last refuted claim may be found; by default on a fixed grid, which needs no
            monotone p-value.
        count_kind: The kind of counts that is valid for the number of right guesses alone; None if there is
            none.
        one_sided: Whether all guesses have one sign, fixed before the output was seen.
        weighs: Whether guesses have weights or stakes; then the number of right guesses says little.
        family: The family of claims that the evidence is for; None if it is for any claim.

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
        """The assumptions under which the p-value is one."""

    @property
    def assumed(self) -> str:
        """An assumption about the mechanism that is shown with every bound; empty if there is none."""
        return ""

    @property
    def withdrawn(self) -> str | None:
        """Why the evidence proves nothing, if the guesses contradict an assumption; else None."""
        return None

    @abstractmethod
    def p_value(self, claim: Claim) -> float:
        """A bound on the probability that a mechanism that keeps the claim lets a guesser do as well.

        It is rounded up, so that numerical errors never refute a claim.
        A kind that knows (epsilon, delta) alone tests `claim.point(self.charged)`.
        """

    @abstractmethod
    def tally(self, claim: Claim) -> Tally:
        """Right guesses and guesses taken, where the evidence against the claim is strongest."""

    def refutes(self, claim: Claim, level: float) -> bool:
        """Whether the p-value is at most the level; some kinds can decide this faster."""
        return self.p_value(claim) <= level

    def extremeness(self, claim: "ApproximateDP") -> float | None:
        """A number that the p-value rises with, among audits of one design; None where there is none."""
        return None

    def screen(self, epsilons: Floats, delta: float, level: float) -> npt.NDArray[np.int8]:
        """Settle many claims at once: +1 if surely refuted, -1 if surely not, 0 if not known."""
        return np.zeros(len(epsilons), dtype=np.int8)

    def ceiling(self, level: float) -> float:
        """A value that the bound cannot exceed."""
        return LARGEST_EPSILON

    def clearest(self, claim: Claim) -> "Evidence":
        """The part with the strongest evidence against the claim; by default the evidence itself."""
        return self

    def effort(self, delta: float) -> Effort:
        """The likely seconds for a claim and for a bound, from the sizes alone."""
        return Effort(0.0, 0.0)

    def holds_adaptively(self, guessed: int | None) -> bool:
        """Whether the p-value holds where revealed bits decide what is guessed next.

        `guessed` is the number of elements in rounds that were fixed beforehand; None if bits also decide the
        order.
        """
        return False

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain data for JSON; arrays and other evidence too."""
        return {name: _text.plain(value) for name, value in super().to_dict().items()}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((type(self), self.elements))

    @property
    def charged(self) -> float:
        """The number of elements that delta is charged for: half of them if one sign is guessed."""
        return self.elements / 2 if self.one_sided else self.elements

    @property
    def most_guesses(self) -> int:
        """The number of guesses that could have been taken; 0 if it is not known."""
        return 0

    def best_of_size(self, guesses: int) -> "Evidence | None":
        """An audit of this kind with this many guesses, all right and certain; None if it is not known.

        The number of elements is that of `elements_for`.
        """
        return None

    @classmethod
    def of_count(cls, correct: int, taken: int, elements: int, one_sided: bool) -> "Evidence":
        """Evidence of this kind from a number of right guesses."""
        return cls.read(correct=correct, taken=taken, elements=elements)

    def with_all_right(self) -> "Evidence | None":
        """The same guesses and stakes with every guess right; None if they are not known."""
        return None

    def fixed(self) -> str:
        """The choices that were fixed before the bits were revealed."""
        return "every guess"

    def progress(self, claim: Claim) -> Progress:
        """Right guesses as their number grew, to be shown; by default the tally alone."""
        correct, taken = self.tally(claim)
        return Progress(np.array([taken]), np.array([correct]))


def count_alone(evidence: Evidence, correct: int, taken: int, elements: int | None = None) -> Evidence | None:
    """A number of right guesses as evidence by itself, valid for the way in which the guesses were made."""
    if evidence.count_kind is None:
        return None
    total = max(evidence.elements if elements is None else elements, taken)
    return Evidence.kinds()[evidence.count_kind].of_count(correct, taken, total, evidence.one_sided)


def elements_for(evidence: Evidence, guesses: int) -> int:
    """The elements of an audit with this many guesses: no fewer than now, unless every element is guessed."""
    return guesses if evidence.most_guesses == evidence.elements else max(guesses, evidence.elements)


def progress_of(hits: Hits, first: int = 8, points: int = 60) -> Progress:
    """Right guesses among the first k hits, at up to `points` numbers k, geometric from `first` to all."""
    # Geometric, as accuracies change most over the first guesses, which are the surest.
    spaced = np.geomspace(min(first, len(hits)), len(hits), points)
    taken = np.unique(np.rint(spaced).astype(np.int64))
    return Progress(taken, np.cumsum(hits, dtype=np.int64)[taken - 1])


def lines_of(claim: Claim, signs: Signs = Signs.BOTH) -> Lines:
    """The lines of a claim, remembered: bounds against a family ask for the same ones again and again."""
    try:
        return _remembered(claim, signs)
    except TypeError:  # a claim that can change has no hash
        return claim.lines(signs)


@lru_cache(maxsize=1024)
def _remembered(claim: Claim, signs: Signs) -> Lines:
    return claim.lines(signs)
