"""Games against mechanisms whose epsilon is known exactly, and the auditors that play them."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Concatenate, Final, Literal, ParamSpec

import numpy as np
from scipy import special

from canaria._core.arrays import Bits, Floats, Hits

Known = Literal["nothing", "earlier", "others"]
KNOWN: Final[tuple[Known, ...]] = ("nothing", "earlier", "others")
"""Bits that scores may use besides the output: none, the bits revealed before, or all other bits."""


@dataclass(frozen=True, eq=False)
class Games:
    """Scores and hidden bits of several audits, one audit per row.

    Attributes:
        scores: The scores, (audits, n).
        bits: The hidden bits, -1 or +1, (audits, n).
        audits: For training runs and planted canaries, the audit of each row: an object with
            `bound(delta, confidence)`. Empty for audits of scores.

    Example:
        >>> import numpy as np
        >>> from canaria.lab.validity import CASES
        >>> games = CASES["rr-1"].draw((5, 100), np.random.default_rng(0), 0.05)
        >>> games.scores.shape, games.bits.shape
        ((5, 100), (5, 100))
    """

    scores: Floats
    bits: Bits
    audits: tuple[Any, ...] = ()


Shape = tuple[int, int]
Draw = Callable[[Shape, np.random.Generator, float], Games]
Settings = ParamSpec("Settings")


@dataclass(frozen=True, eq=False)
class Game:
    """One audit of a case.

    Attributes:
        scores: The scores.
        bits: The hidden bits, -1 or +1.
        in_order: Whether the scores are in the order of guessing, each made with knowledge of earlier bits.
        audit: For training runs and planted canaries, an object with `bound(delta, confidence)`; else None.
    """

    scores: Floats
    bits: Bits
    in_order: bool = False
    audit: Any = None


@dataclass(frozen=True)
class Auditor(ABC):
    """Turns a game into a lower bound on epsilon.

    Attributes:
        name: The name in tables.
        known: The bits that scores may use besides the output: "nothing", "earlier" or "others".
        audited: "training", "black box" or "release" for audits of such a run; empty for audits of scores.
        family: The family of claims that the auditor assumes; empty if its bounds are for every mechanism.
        pace: The share of the requested claims that the auditor gets; slow auditors get fewer.
        control: Whether the auditor is invalid on purpose, to show that the laboratory detects it.

    Example:
        >>> from canaria.lab.validity import AUDITORS
        >>> auditor = AUDITORS["ranked"]
        >>> auditor.name, auditor.known, auditor.control
        ('ranked', 'nothing', False)
    """

    name: str
    _: KW_ONLY
    known: Known = "nothing"
    audited: str = ""
    family: str = ""
    pace: float = 1.0
    control: bool = False

    @property
    def reads_list(self) -> bool:
        """Whether the order of the list is treated as the order of guessing."""
        return False

    @abstractmethod
    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """The lower bound on epsilon that the auditor reports for a game."""


@dataclass(frozen=True)
class Case:
    """A mechanism that is exactly (epsilon, delta)-DP on n elements, with scores for its outputs.

    Attributes:
        name: The name on the command line.
        about: A description in a few words.
        draw: A function `((audits, n), rng, level)` that plays games. Worst cases are aimed at tests of that
            level. If the scores use bits revealed earlier, they are in the order of guessing, and 0 is an
            abstention.
        epsilon: The true epsilon.
        delta: The true delta.
        n: The number of elements.
        pace: The share of the audits that the case gets; large cases get fewer.
        known: The bits that scores use besides the output: "nothing", "earlier" or "others".
        fair: Whether the bits are independent fair coins. If not, no auditor is to blame for false claims.
        listed: Whether the list is sorted by the bits, so that no auditor may use its order.
        audited: The kind of audit if it is not only of scores: "training", "black box" or "release".
        family: The family of claims to which the true one belongs, for auditors that assume it; else empty.

    Example:
        >>> import numpy as np
        >>> from canaria.lab.validity import CASES
        >>> case = CASES["rr-1"]
        >>> case.epsilon, case.delta, case.about
        (1.0, 0.0, 'randomized response')
        >>> case.draw((5, case.n), np.random.default_rng(0), 0.05).scores.shape
        (5, 100)
    """

    name: str
    about: str
    draw: Draw
    epsilon: float
    _: KW_ONLY
    delta: float = 0.0
    n: int = 100
    pace: float = 1.0
    known: Known = "nothing"
    fair: bool = True
    listed: bool = False
    audited: str = ""
    family: str = ""

    def withstood_by(self, auditor: Auditor) -> bool:
        """Whether the auditor must be valid in this case.

        Auditors of training runs, of planted canaries, or with a family of claims need cases of their kind,
        and such cases are only for them. If nothing is released, the claims of every family hold. An auditor
        that uses the list as the order of guessing cannot be given a list sorted by the bits.
        """
        if auditor.audited:
            return auditor.audited == self.audited
        if self.family != auditor.family and (self.family or not self._releases_nothing):
            return False
        allowed = KNOWN.index(self.known) <= KNOWN.index(auditor.known)
        return allowed and not (self.listed and auditor.reads_list)

    @property
    def _releases_nothing(self) -> bool:
        return self.epsilon == self.delta == 0 and self.fair


def drawing(
    play: Callable[Concatenate[Shape, np.random.Generator, float, Settings], Games],
) -> Callable[Settings, Draw]:
    """Turn a function that plays games into one of its settings that returns the `draw` of a case."""

    def of(*args: Settings.args, **kwargs: Settings.kwargs) -> Draw:
        return lambda shape, rng, level: play(shape, rng, level, *args, **kwargs)

    return of


def coins(shape: Shape, rng: np.random.Generator) -> Bits:
    """Independent fair bits."""
    return 2 * rng.integers(0, 2, shape, dtype=np.int8) - np.int8(1)


def tosses(shape: Shape, epsilon: float, rng: np.random.Generator) -> Hits:
    """Hits of randomized response: independent, right with probability p(epsilon)."""
    return np.asarray(rng.random(shape) < special.expit(epsilon))


def sizes(shape: Shape, epsilon: float, rng: np.random.Generator) -> Floats:
    """Absolute values of uninformative scores, weights and stakes in random order, above epsilon."""
    return epsilon + rng.exponential(size=shape)


def guessed(hits: Hits, size: Floats, rng: np.random.Generator) -> Games:
    """Fair bits, and scores whose signs are right for the given hits."""
    bits = coins((len(hits), hits.shape[1]), rng)
    return Games(np.where(hits, bits, -bits) * size, bits)
