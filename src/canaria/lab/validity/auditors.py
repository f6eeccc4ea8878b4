"""Auditors: those of canaria, some that are known to be invalid, and any function of the right signature."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Final, Protocol

import numpy as np

from canaria._core.arrays import Bits, Floats, Hits
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
from canaria.game.play import Transcript, replay
from canaria.game.scores import audit_scores
from canaria.lab.validity import invalid
from canaria.lab.validity._games import KNOWN, Known
from canaria.rules import (
    AdaptiveRule,
    All,
    Around,
    Bet,
    Commitment,
    Matched,
    Online,
    Ranked,
    Rule,
    Soft,
    Surest,
    SurestFirst,
    Tails,
    Threshold,
    Top,
    UpTo,
)
from canaria.rules._guesses import Guesses, OneShot, falling
from canaria.rules.door import guess_once

_COMMITTED: Final = 50
_SHOWN_DELTA: Final = 1e-5
"""At delta = 0 most families have no epsilon."""

AuditFunction = Callable[[Any, Any, float, float], float]
"""`(scores, bits, delta, confidence) -> epsilon`; bits are -1 or +1, and a higher score says +1.

Unless scores may know bits, the order of the list may depend on the bits: break ties at random.
"""


@dataclass(frozen=True, eq=False)
class Game:
    """One audit of a case.

    Attributes:
        scores: The scores.
        bits: The hidden bits, -1 or +1.
        in_order: Whether the scores are in the order of guessing, each with sight of the bits before it.
        audit: For training runs and planted canaries, an object with `bound(delta, confidence)`; else None.

    """

    scores: Floats
    bits: Bits
    in_order: bool = False
    audit: Any = None


class Auditor(Protocol):
    """Anything that turns a game into a lower bound on epsilon, by `bound(game, delta, confidence, rng)`.

    Attributes:
        name: The name in tables.
        known: What the scores may know besides the output: "nothing", "earlier" or "others".
        audited: "training" or "black box" for audits of such a run; empty for audits of scores.
        family: The family of claims that the auditor assumes; empty if its bounds are for every mechanism.
        reads_list: Whether the order of the list is treated as the order of guessing.
        control: Whether the auditor is invalid on purpose, to show that the laboratory finds it.

    Example:
        >>> from canaria.lab.validity import AUDITORS
        >>> auditor = AUDITORS["ranked"]
        >>> auditor.name, auditor.known, auditor.control
        ('ranked', 'nothing', False)

    """

    @property
    def name(self) -> str: ...
    @property
    def known(self) -> Known: ...
    @property
    def audited(self) -> str: ...
    @property
    def family(self) -> str: ...
    @property
    def reads_list(self) -> bool: ...
    @property
    def control(self) -> bool: ...
    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float: ...


@dataclass(frozen=True)
class Foreign:
    """An auditor made of a function; a negative answer counts as 0.

    Attributes:
        name: The name in tables.
        audit: A function `(scores, bits, delta, confidence) -> epsilon`.
        known: What the scores may know besides the output: "nothing", "earlier" or "others".
        control: Whether the auditor is invalid on purpose.
        family: The family of claims that the auditor assumes; empty if its bounds are for every mechanism.

    Raises:
        InputError: If `audit` is not callable, or if `known` is none of these words.

    Example:
        >>> import math
        >>> from canaria.lab.validity import Foreign
        >>> def naive(scores, bits, delta, confidence):
        ...     right = ((scores > 0) == (bits > 0)).mean()
        ...     return math.log(right / (1 - right))  # no allowance for chance
        >>> Foreign("naive", naive).name
        'naive'

    """

    name: str
    audit: AuditFunction
    known: Known = "nothing"
    control: bool = False
    _: KW_ONLY
    family: str = ""
    audited: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.known not in KNOWN or not callable(self.audit):
            raise InputError(
                f"auditor {self.name} must be a function whose scores know one of {', '.join(KNOWN)}, "
                f"got {shown(self.audit)} and {shown(self.known)}"
            )

    @property
    def reads_list(self) -> bool:
        """True if scores may know bits: then the list must be the order of guessing."""
        return self.known != "nothing"

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """Call the function with its own copies of the arrays.

        Args:
            game: The scores and the bits.
            delta: The delta of the case.
            confidence: The confidence of the bound.
            rng: Not used.

        Returns:
            The answer of the function.

        """
        return self.audit(game.scores.copy(), game.bits.astype(np.int64), delta, confidence)


@dataclass(frozen=True)
class Ours:
    """A rule of canaria, through `audit_scores` or `replay`.

    It can also test the true claim alone, which is faster than a bound.

    Attributes:
        name: The name in tables.
        rule: The rule.
        ordered: For scores that come in the order of guessing, a rule that makes the same guesses in that
            order.
        pace: The share of the requested claims that the auditor gets; slow auditors get fewer.
        control: Whether the auditor is invalid on purpose.
        family: The family of claims that the auditor assumes; empty if its bounds are for every mechanism.

    Example:
        >>> from canaria.lab.validity import Ours
        >>> from canaria.rules import Tails
        >>> Ours("tails:20", Tails(20)).known
        'nothing'

    """

    name: str
    rule: Rule | AdaptiveRule
    _: KW_ONLY
    ordered: Rule | None = None
    pace: float = 1.0
    control: bool = False
    family: str = ""
    audited: ClassVar[str] = ""
    reads_list: ClassVar[bool] = False

    @property
    def known(self) -> Known:
        """What the scores may know: "earlier" with `ordered`, else "nothing"."""
        return "nothing" if self.ordered is None else "earlier"

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """The bound, all the way from scores to guesses, evidence and bound.

        Args:
            game: The scores and the bits.
            delta: The delta of the case.
            confidence: The confidence of the bound.
            rng: The generator that breaks ties.

        Returns:
            The bound; 0 if the bits are refused as unfair.

        """
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
        """Whether the first claim at or above the truth is refuted; if it is not, no bound exceeds the truth.

        Args:
            game: The scores and the bits.
            truth: The true epsilon.
            delta: The delta of the case.
            confidence: The confidence of the test.
            rng: The generator that breaks ties.

        Returns:
            Whether it is refuted; False if the bits are refused as unfair.

        """
        with suppress(UnfairCoinsError):
            return first_claim_refuted(self.evidence(game, rng), truth, delta, 1 - confidence)
        return False

    def evidence(self, game: Game, rng: np.random.Generator) -> Evidence:
        """The evidence that the rule gives for a game.

        Args:
            game: The scores and the bits.
            rng: The generator that breaks ties.

        Returns:
            The evidence.

        """
        if game.in_order:
            assert self.ordered is not None
            return self.ordered(game.scores, rng).reveal(game.bits)
        if isinstance(self.rule, AdaptiveRule):
            return _replayed(game, self.rule, rng).evidence
        if game.scores.max() == game.scores.min():
            return Counts(0, 0, len(game.bits))
        return guess_once(self.rule, game.scores, game.bits, rng)[1]


@dataclass(frozen=True)
class Several:
    """Several rules on the same scores, so that the audits depend on each other, through `combine`."""

    name: str
    rules: tuple[Rule, ...]
    pace: float = 1.0
    control: bool = False
    known: ClassVar[Known] = "nothing"
    audited: ClassVar[str] = ""
    family: ClassVar[str] = ""
    reads_list: ClassVar[bool] = False

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """All audits at once, each at its share of the error probability."""
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
class Attached:
    """An audit of a training run or of planted canaries, used as a user would."""

    name: str
    audited: str
    adaptive: bool = False
    control: bool = False
    known: ClassVar[Known] = "nothing"
    family: ClassVar[str] = ""
    reads_list: ClassVar[bool] = False

    def bound(self, game: Game, delta: float, confidence: float, rng: np.random.Generator) -> float:
        """The bound of the audit itself."""
        how = {"adaptive": True} if self.adaptive else {}
        with suppress(UnfairCoinsError):
            return float(game.audit.bound(delta=delta, confidence=confidence, rng=rng, **how).epsilon)
        return 0.0


def _replayed(game: Game, rule: AdaptiveRule, rng: np.random.Generator) -> Transcript:
    return replay(game.bits, game.scores, lambda output, known: output, rule, rng=rng)


@dataclass(frozen=True)
class As:
    """The guesses of a rule that commits to a number of guesses, weighed as another kind of evidence."""

    rule: Callable[[Floats, np.random.Generator], OneShot]
    weigh: Callable[[Hits, int], Evidence]

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit as the rule does."""
        return OneShot(self.rule(scores, rng).guesses, lambda hits: self.weigh(hits, len(scores)))


@dataclass(frozen=True)
class InOrder:
    """Guess the signs of scores that come in the order of guessing; 0 abstains.

    Each guess may have been chosen with sight of the bits before it.
    """

    weigh: Callable[[Hits, Floats, int], Evidence]

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Guess every element whose score is not 0."""
        taken = np.flatnonzero(scores)
        guesses = Guesses(taken, np.sign(scores[taken]).astype(np.int8))
        return OneShot(guesses, lambda hits: self.weigh(hits, scores[taken], len(scores)))


@dataclass(frozen=True)
class BySize:
    """Rank the signs by the absolute values of the scores, ties in random order: all of them, or a share."""

    share: float = 1.0

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit to signs and order."""
        order = falling(np.abs(scores), rng)[: max(1, int(self.share * len(scores)))]
        guesses = Guesses(order, np.where(scores[order] >= 0, 1, -1).astype(np.int8))
        return OneShot(guesses, lambda hits: Ranking(hits, len(scores), committed=len(hits)))


@dataclass(frozen=True)
class MatchedBySize:
    """Rank the signs by the absolute values of the scores, and weigh them as `Matched` does."""

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit to signs and order."""
        order = falling(np.abs(scores), rng)
        guesses = Guesses(order, np.where(scores[order] >= 0, 1, -1).astype(np.int8))
        return OneShot(guesses, lambda hits: MatchedCounts(families.Gaussian(), hits))


@dataclass(frozen=True)
class ProductTest:
    """Independent elements are assumed, and nothing that speaks against it is heard (Xiang et al. 2025)."""

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit as `MatchedBySize` does."""
        guesses = MatchedBySize()(scores, rng).guesses  # type: ignore[attr-defined]
        return OneShot(guesses, lambda hits: _Deaf(families.Gaussian(), hits, independent=True))


class _Deaf(MatchedCounts):
    @property
    def withdrawn(self) -> str | None:
        return None


@dataclass(frozen=True)
class EverySign:
    """Guess every element, +1 where the score is 0: only signs can adapt to revealed bits."""

    def __call__(self, scores: Floats, rng: np.random.Generator) -> Commitment:
        """Commit to every sign."""
        guesses = Guesses(np.arange(len(scores)), np.where(scores >= 0, 1, -1).astype(np.int8))
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), len(hits), len(hits)))


def _published(hits: Hits, elements: int) -> Evidence:
    return PublishedCounts(int(hits.sum()), len(hits), elements)


def _by_rank(hits: Hits, elements: int) -> Evidence:
    return Weighted(hits, weights=np.linspace(40, 0, len(hits)), elements=elements)


def _budget(hits: Hits, scores: Floats, elements: int) -> Evidence:
    within = hits[:_COMMITTED]
    return Budget(int(within.sum()), len(within), _COMMITTED, elements)


def _bets(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Bet().weigh(hits, scores, elements)


def _mixture(hits: Hits, scores: Floats, elements: int) -> Evidence:
    return Bets(None, hits, elements)


def _one_look(hits: Hits, scores: Floats, elements: int) -> Evidence:
    """A ranking, as if the number of guesses had been fixed in advance.

    Invalid if it was not: a mechanism can spend all of delta on outputs of a length where it counts most.
    """
    if len(hits) == 0:
        return Counts(0, 0, elements)
    return Ranking.of_counts([len(hits)], [int(hits.sum())], elements, len(hits))


OURS: Final = (
    Ours("ranked", Ranked()),
    Ours("ranking", BySize()),
    Ours("ranking of half", BySize(share=0.5)),
    Ours("around:50", Around(_COMMITTED)),
    Ours("tails:50", Tails(_COMMITTED)),
    Ours("top:20", Top(20)),
    Ours("surest:50", Surest(_COMMITTED)),
    Ours("published", As(Tails(_COMMITTED), _published)),
    Ours("threshold:2", Threshold(2.0)),
    Ours("soft", Soft()),
    Ours("by rank", As(Tails(_COMMITTED), _by_rank), pace=0.2),
    Ours("online", Online(), pace=0.02),
    Ours("all", All(), ordered=EverySign()),
    Ours("budget:50", UpTo(_COMMITTED), ordered=InOrder(_budget)),
    Ours("bets", Bet(), ordered=InOrder(_bets)),
    Ours("mixture", InOrder(_mixture), ordered=InOrder(_mixture)),
    Ours("surest first", SurestFirst(10), pace=0.2),
    Ours("matched", Matched("gaussian"), family="gaussian"),
    Ours("matched by size", MatchedBySize(), family="gaussian"),
    Several("together", (Ranked(), Surest(_COMMITTED), Soft()), pace=0.2),
    Attached("training", "training"),
    Attached("training, adaptive", "training", adaptive=True),
    Attached("black box", "black box"),
)
"""Every kind of evidence, by the rules that lead to it, and every kind of audit."""

INVALID: Final = (
    Foreign("best k", invalid.best_k, control=True),
    Foreign("list order", invalid.list_order, control=True),
    Foreign("bets in list order", invalid.bets_in_list_order, control=True),
    Foreign("best of five", invalid.best_of_five, control=True),
    Foreign("no delta", invalid.no_delta, control=True),
    Ours("product test", ProductTest(), control=True, family="gaussian"),
    Ours("length by output", InOrder(_one_look), control=True),
    Foreign("naive adaptive", invalid.clopper_pearson, "earlier", control=True),
    Foreign("full knowledge", invalid.clopper_pearson, "others", control=True),
)
"""Those that the laboratory must flag."""
