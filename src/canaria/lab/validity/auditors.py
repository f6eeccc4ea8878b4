"""Auditors: canaria's own, some that are known to be invalid, and any function with this signature."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np

from canaria import rules
from canaria._core.arrays import Floats, Hits
from canaria._core.coins import UnfairCoinsError
from canaria._core.errors import InputError, shown
from canaria.bounds.bound import lower_bound
from canaria.bounds.combine import combine
from canaria.claims import families
from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    MatchedCounts,
    PublishedCounts,
    Ranking,
    Split,
    Weighted,
)
from canaria.evidence.inversion import first_claim_refuted
from canaria.game.replay import replay
from canaria.game.scores import audit_scores
from canaria.game.transcript import Transcript
from canaria.lab.validity import invalid
from canaria.lab.validity._games import KNOWN, Auditor, Game
from canaria.rules import AdaptiveRule, Commitment, Rule
from canaria.rules._guesses import Guesses, OneShot, falling
from canaria.rules.door import guess_once

_COMMITTED: Final = 50
_SHOWN_DELTA: Final = 1e-5
"""Most families have no finite epsilon at delta = 0."""

AuditFunction = Callable[[Any, Any, float, float], float]
"""`(scores, bits, delta, confidence) -> epsilon`; bits are -1 or +1, and a higher score says +1.

Unless scores may use bits, the order of the list may depend on the bits: break ties at random.
"""


@dataclass(frozen=True)
class Foreign(Auditor):
    """An auditor made from a function. A negative answer counts as 0.

    Attributes:
        audit: A function `(scores, bits, delta, confidence) -> epsilon`.

    Example:
        >>> import math
        >>> from canaria.lab.validity import Foreign
        >>> def naive(scores, bits, delta, confidence):
        ...     right = ((scores > 0) == (bits > 0)).mean()
        ...     return math.log(right / (1 - right))  # no allowance for chance
        >>> Foreign("naive", naive).name
        'naive'
    """

    audit: AuditFunction

    def __post_init__(self) -> None:
        if self.known not in KNOWN or not callable(self.audit):
            raise InputError(
                f"auditor {self.name} must be a function whose scores know one of {', '.join(KNOWN)}, "
                f"got {shown(self.audit)} and {shown(self.known)}"
            )

    @property
    def reads_list(self) -> bool:
        """True if scores may use bits: then the list must be in the order of guessing."""
        return self.known != "nothing"

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """Call the function with its own copies of the arrays."""
        return self.audit(game.scores.copy(), game.bits.astype(np.int64), delta, confidence)


@dataclass(frozen=True)
class Ours(Auditor):
    """A rule of canaria, through `audit_scores` or `replay`.

    It can also test the true claim alone, which is faster than a bound.

    Attributes:
        rule: The rule.
        ordered: For scores in the order of guessing, a rule that makes the same guesses in that order.

    Example:
        >>> from canaria.lab.validity import Ours
        >>> from canaria.rules import Tails
        >>> Ours("tails:20", Tails(20)).known
        'nothing'
    """

    rule: Rule | AdaptiveRule
    ordered: Rule | None = None

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """The bound computed from scores; 0 if the bits are refused as unfair."""
        with suppress(UnfairCoinsError):
            if game.in_order:
                return lower_bound(self.evidence(game, rng), delta, confidence).epsilon
            if isinstance(self.rule, AdaptiveRule):
                return _replayed(game, self.rule, rng).bound(delta, confidence).epsilon
            shown = delta or (_SHOWN_DELTA if self.family else 0.0)
            return audit_scores(game.scores, game.bits, shown, confidence, self.rule, rng).epsilon
        return 0.0

    def refutes(
        self, game: Game, truth: float, delta: float, confidence: float, rng: np.random.Generator
    ) -> bool:
        """Whether the first claim at or above the truth is refuted. If not, no bound exceeds the truth."""
        with suppress(UnfairCoinsError):
            return first_claim_refuted(self.evidence(game, rng), truth, delta, 1 - confidence)
        return False

    def evidence(self, game: Game, rng: np.random.Generator) -> Evidence:
        """The evidence from the rule for a game."""
        if game.in_order:
            assert self.ordered is not None
            return self.ordered(game.scores, rng).reveal(game.bits)
        if isinstance(self.rule, AdaptiveRule):
            return _replayed(game, self.rule, rng).evidence
        if game.scores.max() == game.scores.min():
            return Counts(0, 0, len(game.bits))
        return guess_once(self.rule, game.scores, game.bits, rng)[1]


@dataclass(frozen=True)
class Several(Auditor):
    """Several rules on the same scores, joined by `combine`: the audits depend on each other."""

    rules: tuple[Rule, ...]

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """The bound of all audits together, each with its share of the error probability."""
        with suppress(UnfairCoinsError):
            made = {
                repr(rule): audit_scores(game.scores, game.bits, delta, rule=rule, rng=rng)
                for rule in self.rules
            }
            return combine(made, delta, confidence).bound.epsilon
        return 0.0

    def refutes(
        self, game: Game, truth: float, delta: float, confidence: float, rng: np.random.Generator
    ) -> bool:
        """Whether any of them refutes the first claim at or above the truth, at its share."""
        parts = tuple(Ours("", rule).evidence(game, rng) for rule in self.rules)
        evidence = Split(parts, (1 / len(parts),) * len(parts))
        return first_claim_refuted(evidence, truth, delta, 1 - confidence)


@dataclass(frozen=True)
class Attached(Auditor):
    """An audit of a training run, of planted canaries or of a release, used as a user would."""

    adaptive: bool = False

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """The bound of the audit object."""
        how = {"adaptive": True} if self.adaptive else {}
        with suppress(UnfairCoinsError):
            return float(game.audit.bound(delta=delta, confidence=confidence, rng=rng, **how).epsilon)
        return 0.0


def _replayed(game: Game, rule: AdaptiveRule, rng: np.random.Generator) -> Transcript:
    return replay(game.bits, game.scores, lambda output, known: output, rule, rng=rng)


Select = Callable[[Floats, np.random.Generator], Guesses]
Weigh = Callable[[Hits, Floats, int], Evidence]
"""`(hits, scores of the guessed elements, number of elements) -> evidence`."""


@dataclass(frozen=True)
class As:
    """A rule that commits to some guesses, and weighs them as a given kind of evidence."""

    select: Select
    weigh: Weigh

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit to the guesses."""
        guesses = self.select(scores, rng)
        return OneShot(guesses, lambda hits: self.weigh(hits, scores[guesses.order], len(scores)))


def _in_order(scores: Floats, rng: np.random.Generator) -> Guesses:
    """The signs of scores that are in the order of guessing; 0 abstains."""
    taken = np.flatnonzero(scores)
    return Guesses(taken, np.sign(scores[taken]).astype(np.int8))


def _by_size(scores: Floats, rng: np.random.Generator, share: float = 1.0) -> Guesses:
    """The signs of the largest absolute values of the scores, ties in random order."""
    order = falling(np.abs(scores), rng)[: max(1, int(share * len(scores)))]
    return Guesses(order, np.where(scores[order] >= 0, 1, -1).astype(np.int8))


def _every_sign(scores: Floats, rng: np.random.Generator) -> Guesses:
    """Every element, +1 where the score is 0: only signs can adapt to revealed bits."""
    return Guesses(np.arange(len(scores)), np.where(scores >= 0, 1, -1).astype(np.int8))


def _tails(scores: Floats, rng: np.random.Generator) -> Guesses:
    return rules.Tails(_COMMITTED)(scores, rng).guesses


def _counts(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Counts(int(hits.sum()), len(hits), elements)


def _published(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return PublishedCounts(int(hits.sum()), len(hits), elements)


def _by_rank(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Weighted(hits, weights=np.linspace(40, 0, len(hits)), elements=elements)


def _ranking(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Ranking(hits, elements, committed=len(hits))


def _matched(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return MatchedCounts(families.Gaussian(), hits)


def _product(hits: Hits, scores: Floats, elements: int) -> Evidence:
    """The test that assumes independent elements (Xiang et al. 2025)."""
    return _NeverWithdrawn(families.Gaussian(), hits, independent=True)


class _NeverWithdrawn(MatchedCounts):
    """Ignores all signs that elements depend on each other."""

    @property
    def withdrawn(self) -> str | None:
        return None


def _budget(hits: Hits, scores: Floats, elements: int) -> Evidence:
    within = hits[:_COMMITTED]
    return Budget(int(within.sum()), len(within), _COMMITTED, elements)


def _bets(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return rules.Bet().weigh(hits, scores, elements)


def _mixture(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Bets(None, hits, elements)


def _one_look(hits: Hits, scores: Floats, elements: int) -> Evidence:
    """A ranking, treated as if the number of guesses had been fixed in advance.

    This is invalid if it was not: a mechanism can spend all of delta on outputs of the most useful length.
    """
    if len(hits) == 0:
        return Counts(0, 0, elements)
    return Ranking.of_counts([len(hits)], [int(hits.sum())], elements, len(hits))


def _adaptive(name: str, rule: Rule | AdaptiveRule, ordered: Rule) -> Ours:
    """A rule that is also valid for scores that use the bits before each guess."""
    return Ours(name, rule, ordered, known="earlier")


OURS: Final = (
    Ours("ranked", rules.Ranked()),
    Ours("ranking", As(_by_size, _ranking)),
    Ours("ranking of half", As(partial(_by_size, share=0.5), _ranking)),
    Ours("around:50", rules.Around(_COMMITTED)),
    Ours("tails:50", rules.Tails(_COMMITTED)),
    Ours("top:20", rules.Top(20)),
    Ours("surest:50", rules.Surest(_COMMITTED)),
    Ours("published", As(_tails, _published)),
    Ours("threshold:2", rules.Threshold(2.0)),
    Ours("soft", rules.Soft()),
    Ours("by rank", As(_tails, _by_rank), pace=0.2),
    Ours("online", rules.Online(), pace=0.02),
    _adaptive("all", rules.All(), As(_every_sign, _counts)),
    _adaptive("budget:50", rules.UpTo(_COMMITTED), As(_in_order, _budget)),
    _adaptive("bets", rules.Bet(), As(_in_order, _bets)),
    _adaptive("mixture", As(_in_order, _mixture), As(_in_order, _mixture)),
    Ours("surest first", rules.SurestFirst(10), pace=0.2),
    Ours("matched", rules.Matched("gaussian"), family="gaussian"),
    Ours("matched by size", As(_by_size, _matched), family="gaussian"),
    Several("together", (rules.Ranked(), rules.Surest(_COMMITTED), rules.Soft()), pace=0.2),
    Attached("training", audited="training"),
    Attached("training, adaptive", adaptive=True, audited="training"),
    Attached("black box", audited="black box"),
    Attached("check of a release", audited="release"),
)
"""All kinds of evidence, by the rules that lead to them, and all kinds of audits."""

INVALID: Final = (
    Foreign("best k", invalid.best_k, control=True),
    Foreign("list order", invalid.list_order, control=True),
    Foreign("bets in list order", invalid.bets_in_list_order, control=True),
    Foreign("best of five", invalid.best_of_five, control=True),
    Foreign("no delta", invalid.no_delta, control=True),
    Ours("product test", As(_by_size, _product), control=True, family="gaussian"),
    Ours("length by output", As(_in_order, _one_look), control=True),
    Foreign("naive adaptive", invalid.clopper_pearson, known="earlier", control=True),
    Foreign("full knowledge", invalid.clopper_pearson, known="others", control=True),
)
"""The auditors that the laboratory must flag."""
