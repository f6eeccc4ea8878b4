"""Auditors: ours, those known to be wrong, and any function of scores, bits, delta and confidence."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from canaria._validate import Bits, Floats, Hits, InputError, shown
from canaria.audit import audit_scores
from canaria.bound import first_claim_refuted
from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Tradeoff,
    Weighted,
)
from canaria.rules import Bet, Commitment, Online, Ranked, Rule, Soft, Surest, Tails, Threshold, Top
from canaria.rules._guesses import Guesses, OneShot, falling
from canaria.validation import invalid
from canaria.validation._games import KNOWN, Known

_COMMITTED: Final = 50

Audit = Callable[[Any, Any, float, float], float]
"""`(scores, bits, delta, confidence) -> epsilon`; bits are -1 or +1, and a higher score says +1.

Unless scores may know bits, the order of the list may depend on the bits: break ties at random.
"""


class Auditor(Protocol):
    """Somebody who turns scores and bits into a lower bound on epsilon.

    `known` says what the scores may know besides the output. A `control` is there because it
    over-claims, to show that the laboratory sees.
    """

    @property
    def name(self) -> str: ...
    @property
    def known(self) -> Known: ...
    @property
    def control(self) -> bool: ...
    def bound(
        self, scores: Floats, bits: Bits, delta: float, confidence: float, rng: np.random.Generator
    ) -> float: ...


@dataclass(frozen=True)
class Foreign:
    """A function of scores, bits, delta and confidence; what it says below 0 is 0, that is, nothing."""

    name: str
    audit: Audit
    known: Known = "nothing"
    control: bool = False

    def __post_init__(self) -> None:
        if self.known not in KNOWN or not callable(self.audit):
            raise InputError(
                f"auditor {self.name} must be a function whose scores know one of {', '.join(KNOWN)}, "
                f"got {shown(self.audit)} and {shown(self.known)}"
            )

    def bound(
        self, scores: Floats, bits: Bits, delta: float, confidence: float, rng: np.random.Generator
    ) -> float:
        """What the function says, which gets arrays of its own."""
        return self.audit(scores.copy(), bits.astype(np.int64), delta, confidence)


@dataclass(frozen=True)
class Ours:
    """A rule of ours, through `audit_scores`; it can also test the true claim alone, which is faster.

    `pace` slows down what is costly: it gets that share of the claims asked for.
    """

    name: str
    rule: Rule
    known: Known = "nothing"
    pace: float = 1.0
    control: bool = False

    def bound(
        self, scores: Floats, bits: Bits, delta: float, confidence: float, rng: np.random.Generator
    ) -> float:
        """The whole way: scores, guesses, evidence, bound."""
        return audit_scores(scores, bits, delta, confidence, self.rule, rng).epsilon

    def refutes(
        self,
        scores: Floats,
        bits: Bits,
        truth: float,
        delta: float,
        confidence: float,
        rng: np.random.Generator,
    ) -> bool:
        """Whether the first claim at or above the truth is refuted: without that, no bound exceeds it."""
        if scores.max() == scores.min():
            return False
        return first_claim_refuted(self.rule(scores, rng).reveal(bits), truth, delta, 1 - confidence)


@dataclass(frozen=True)
class As:
    """The guesses of a rule that commits to so many, weighed as another kind of evidence."""

    rule: Callable[[Floats, np.random.Generator], OneShot]
    weigh: Callable[[Hits, int], Evidence]

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit as the rule does."""
        return OneShot(self.rule(scores, rng).guesses, lambda hits: self.weigh(hits, len(scores)))


@dataclass(frozen=True)
class InOrder:
    """Guess the signs of scores that come in the order of guessing; 0 abstains.

    Each may have been chosen with sight of the bits before it.
    """

    weigh: Callable[[Hits, Floats, int], Evidence]

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Guess what is not passed over."""
        taken = np.flatnonzero(scores)
        guesses = Guesses(taken, np.sign(scores[taken]).astype(np.int8))
        return OneShot(guesses, lambda hits: self.weigh(hits, scores[taken], len(scores)))


@dataclass(frozen=True)
class BySize:
    """Guess every sign, and rank the guesses by the sizes of the scores, ties in random order."""

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit to signs and order."""
        order = falling(np.abs(scores), rng)
        return OneShot(Guesses(order, np.where(scores[order] >= 0, 1, -1).astype(np.int8)), Ranking)


@dataclass(frozen=True)
class EverySign:
    """Guess every element, +1 where the score is 0: only signs can adapt to revealed bits."""

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit to every sign."""
        guesses = Guesses(np.arange(len(scores)), np.where(scores >= 0, 1, -1).astype(np.int8))
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), len(hits), len(hits)))


def _published(hits: Hits, elements: int) -> Evidence:
    return PublishedCounts(int(hits.sum()), len(hits), elements)


def _tradeoff(hits: Hits, elements: int) -> Evidence:
    return Tradeoff(int(hits.sum()), len(hits), elements)


def _by_rank(hits: Hits, elements: int) -> Evidence:
    return Weighted(hits, weights=np.linspace(40, 0, len(hits)), elements=elements)


def _budget(hits: Hits, scores: Floats, elements: int) -> Evidence:
    within = hits[:_COMMITTED]
    return Budget(int(within.sum()), len(within), _COMMITTED, elements)


def _bets(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Bet().weigh(hits, scores, elements)


def _mixture(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Bets(None, hits, elements)


OURS: Final = (
    Ours("ranked", Ranked()),
    Ours("ranking", BySize()),
    Ours("tails:50", Tails(_COMMITTED)),
    Ours("top:20", Top(20)),
    Ours("surest:50", Surest(_COMMITTED)),
    Ours("published", As(Tails(_COMMITTED), _published)),
    Ours("trade-off", As(Tails(_COMMITTED), _tradeoff)),
    Ours("threshold:2", Threshold(2.0)),
    Ours("soft", Soft()),
    Ours("by rank", As(Tails(_COMMITTED), _by_rank), pace=0.2),
    Ours("online", Online(), pace=0.02),
    Ours("all", EverySign(), "earlier"),
    Ours("budget:50", InOrder(_budget), "earlier"),
    Ours("bets", InOrder(_bets), "earlier"),
    Ours("mixture", InOrder(_mixture), "earlier"),
)
"""Every kind of evidence, by the rules that lead to it."""

INVALID: Final = (
    Foreign("best k", invalid.best_k, control=True),
    Foreign("naive adaptive", invalid.clopper_pearson, "earlier", control=True),
    Foreign("full knowledge", invalid.clopper_pearson, "others", control=True),
)
"""Those that the laboratory must flag."""
