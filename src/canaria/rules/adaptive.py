"""Rules that may abstain on what revealed bits tell, with evidence that allows it.

They are asked round by round. Scores must be privacy losses; in one round they are maximum-likelihood
guessers like any other.
"""

import math
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

import numpy as np
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Hits, Integers
from canaria.evidence import Bets, Budget, Counts, Evidence

_ROUNDING: Final = 1e-12


@runtime_checkable
class AdaptiveRule(Protocol):
    """Decides round by round, then weighs what was right.

    `decide` sees the losses of a round given the bits revealed before, and how many guesses were taken
    so far; it returns -1, +1, or 0 to abstain. `weigh` gets the losses that each guess was decided on.
    """

    def decide(self, losses: Floats, taken: int) -> Bits: ...
    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence: ...


@runtime_checkable
class ChoosingRule(AdaptiveRule, Protocol):
    """An adaptive rule that also chooses which of the hidden elements to guess next.

    `choose` sees the losses of the hidden elements given all revealed bits and returns positions among
    them; none ends the game.
    """

    def choose(self, losses: Floats) -> Integers: ...


@dataclass(frozen=True)
class Bet:
    """Guess every sign and bet on it with confidence p(|loss|); gives `Bets`.

    Losses are capped at ln(4 n): no bet stakes everything.
    """

    def decide(self, losses: Floats, taken: int) -> Bits:
        """Every element that says anything."""
        return np.sign(losses).astype(np.int8)

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The wealth of the bets; without any guess, that of one that was not worth a bet."""
        if len(hits) == 0:
            return Bets([0.5], [0], elements)
        capped = np.minimum(np.abs(losses), _largest_loss(elements))
        return Bets(special.expit(capped), hits, elements)

    def could_have_made(self, evidence: Evidence) -> bool:
        """Whether every guess was bet on by its own capped loss."""
        if not isinstance(evidence, Bets) or evidence.confidences is None:
            return False
        surest = float(special.expit(_largest_loss(evidence.elements)))
        stated = evidence.confidences
        return bool(stated.min() >= 0.5 and stated.max() <= surest * (1 + _ROUNDING))


@dataclass(frozen=True)
class SurestFirst:
    """Always guess next the `block` hidden elements of largest |loss|, and bet on them; gives `Bets`."""

    block: int = 1

    def __post_init__(self) -> None:
        checks.assign(self, block=checks.integer("block", self.block, 1))

    def choose(self, losses: Floats) -> Integers:
        """The surest hidden elements."""
        return np.argsort(-np.abs(losses), kind="stable")[: self.block]

    def decide(self, losses: Floats, taken: int) -> Bits:
        """Every element that says anything."""
        return Bet().decide(losses, taken)

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The wealth of the bets."""
        return Bet().weigh(hits, losses, elements)

    def could_have_made(self, evidence: Evidence) -> bool:
        """Whether every guess was bet on by its own capped loss."""
        return Bet().could_have_made(evidence)


@dataclass(frozen=True)
class UpTo:
    """Guess where |loss| is at least t, until `budget` guesses are taken; gives `Budget`.

    `budget` is fixed in advance. Within a round the surest elements come first.
    """

    budget: int
    t: float = 0.0

    def __post_init__(self) -> None:
        budget, t = checks.integer("budget", self.budget, 1), checks.nonnegative("t", self.t)
        checks.assign(self, budget=budget, t=t)

    def decide(self, losses: Floats, taken: int) -> Bits:
        """The surest elements above the threshold, while the budget lasts."""
        sizes = np.abs(losses)
        surest = np.argsort(-sizes, kind="stable")[: max(0, self.budget - taken)]
        chosen = surest[(sizes[surest] >= self.t) & (sizes[surest] > 0)]
        signs = np.zeros(len(losses), dtype=np.int8)
        signs[chosen] = np.sign(losses[chosen])
        return signs

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """What was right within the budget."""
        checks.integer("budget", self.budget, 1, elements, "elements")
        return Budget(int(hits.sum()), len(hits), self.budget, elements)

    def could_have_made(self, evidence: Evidence) -> bool:
        """Whether guessing was to stop at this budget."""
        return isinstance(evidence, Budget) and evidence.budget == self.budget


@dataclass(frozen=True)
class All:
    """Guess every element, +1 where the loss is 0; only signs adapt, so this gives `Counts`."""

    def decide(self, losses: Floats, taken: int) -> Bits:
        """Every element."""
        return np.where(losses >= 0, np.int8(1), np.int8(-1))

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The number of right guesses out of all."""
        return Counts(int(hits.sum()), len(hits), elements)

    def could_have_made(self, evidence: Evidence) -> bool:
        """Whether guesses were counted, as many as there were elements in the rounds."""
        return isinstance(evidence, Counts)


def _largest_loss(elements: int) -> float:
    """Losses are capped here: a guess beyond is as good as certain, and no bet stakes everything."""
    return math.log(4 * elements)
