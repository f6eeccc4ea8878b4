"""Rules that may abstain depending on revealed bits, and give evidence that allows this (Theorem 12).

They decide round by round. Scores must be privacy losses. In a single round these rules are
maximum-likelihood guessers like the others.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Hits, Integers
from canaria.evidence import Bets, Budget, Counts, Evidence


@runtime_checkable
class AdaptiveRule(Protocol):
    """A rule that decides round by round, and then weighs which guesses were right.

    `decide` sees the losses of a round, given the bits revealed before, and the number of guesses so far. It
    returns -1, +1, or 0 to abstain. `weigh` gets the hits, with the losses on which the guesses were based.

    Example:
        >>> from canaria.rules import AdaptiveRule, Bet, Tails
        >>> isinstance(Bet(), AdaptiveRule), isinstance(Tails(20), AdaptiveRule)
        (True, False)
    """

    def decide(self, losses: Floats, taken: int) -> Bits: ...
    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence: ...


@runtime_checkable
class ChoosingRule(AdaptiveRule, Protocol):
    """An adaptive rule that also chooses which of the hidden elements to guess next.

    `choose` sees the losses of the hidden elements, given all revealed bits, and returns positions among
    them. An empty choice ends the game.

    Example:
        >>> from canaria.rules import Bet, ChoosingRule, SurestFirst
        >>> isinstance(SurestFirst(), ChoosingRule), isinstance(Bet(), ChoosingRule)
        (True, False)
    """

    def choose(self, losses: Floats) -> Integers: ...


@dataclass(frozen=True)
class Bet:
    """Guess every sign and bet on it with confidence p(|loss|); gives `Bets`.

    Losses are capped at ln(4 n), so that no bet stakes everything.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import XorInPairs
        >>> from canaria.rules import Bet
        >>> pairs = XorInPairs()
        >>> print(play(pairs, rule=Bet(), n=200, rounds=pairs.rounds(200), rng=0).bound())
        ε ≥ 3.450 at δ = 0, with 95% confidence: 100 of 100 guesses right, 200 elements
        all of the 100 surest guesses are right: only more of them can show more
    """

    def decide(self, losses: Floats, taken: int) -> Bits:
        """Guess every element whose loss is not 0."""
        return np.sign(losses).astype(np.int8)

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The bets; if there was no guess, a single bet without a stake."""
        # Confidence 1/2 is skipped against every claim, so this evidence refutes nothing.
        if len(hits) == 0:
            return Bets([0.5], [0], elements)
        capped = np.minimum(np.abs(losses), math.log(4 * elements))
        return Bets(special.expit(capped), hits, elements)


@dataclass(frozen=True)
class SurestFirst:
    """Guess the hidden elements of largest |loss| next, and bet on them; gives `Bets`.

    Attributes:
        block: The number of elements that are guessed before their bits are revealed.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import CountInSets
        >>> from canaria.rules import SurestFirst
        >>> play(CountInSets(4), rule=SurestFirst(block=10), n=100, rng=0).bound().epsilon > 2
        True
    """

    block: int = 1

    def __post_init__(self) -> None:
        checks.assign(self, block=checks.integer("block", self.block, 1))

    def choose(self, losses: Floats) -> Integers:
        """The hidden elements of largest |loss|."""
        # Stable, so that ties keep the order in which they come, which is random (`canaria.rules.door`).
        return np.argsort(-np.abs(losses), kind="stable")[: self.block]

    def decide(self, losses: Floats, taken: int) -> Bits:
        """Guess every element whose loss is not 0."""
        return Bet().decide(losses, taken)

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The bets, as in `Bet`."""
        return Bet().weigh(hits, losses, elements)


@dataclass(frozen=True)
class UpTo:
    """Guess where |loss| is at least t, until `budget` guesses are taken; gives `Budget`.

    Within a round the elements of largest |loss| come first.

    Attributes:
        budget: The number of guesses at which guessing stops, fixed in advance.
        t: The smallest |loss| that is guessed.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import XorInPairs
        >>> from canaria.rules import UpTo
        >>> pairs = XorInPairs()
        >>> print(play(pairs, rule=UpTo(50), n=200, rounds=pairs.rounds(200), rng=0).bound())
        ε ≥ 2.780 at δ = 0, with 95% confidence: 50 of 50 guesses right, 200 elements
        all of the 50 surest guesses are right: only more of them can show more
    """

    budget: int
    t: float = 0.0

    def __post_init__(self) -> None:
        budget, t = checks.integer("budget", self.budget, 1), checks.nonnegative("t", self.t)
        checks.assign(self, budget=budget, t=t)

    def decide(self, losses: Floats, taken: int) -> Bits:
        """The elements of largest |loss| above the threshold, until the budget is spent."""
        sizes = np.abs(losses)
        surest = np.argsort(-sizes, kind="stable")[: max(0, self.budget - taken)]
        # A loss of 0 has no sign to guess, and abstaining leaves the guess for a later round.
        chosen = surest[(sizes[surest] >= self.t) & (sizes[surest] > 0)]
        signs = np.zeros(len(losses), dtype=np.int8)
        signs[chosen] = np.sign(losses[chosen])
        return signs

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The right guesses within the budget."""
        checks.integer("budget", self.budget, 1, elements, "elements")
        return Budget(int(hits.sum()), len(hits), self.budget, elements)


@dataclass(frozen=True)
class All:
    """Guess every element, +1 where the loss is 0; gives `Counts`.

    Only the signs depend on revealed bits, so counts are valid.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import XorInPairs
        >>> from canaria.rules import All
        >>> pairs = XorInPairs()
        >>> print(play(pairs, rule=All(), n=200, rounds=pairs.rounds(200), rng=0).bound())
        ε ≥ 0.724 at δ = 0, with 95% confidence: 146 of 200 guesses right, 200 elements
    """

    def decide(self, losses: Floats, taken: int) -> Bits:
        """Guess every element."""
        # An abstention where the loss is 0 would let revealed bits decide how many guesses are taken, and a
        # count needs a number that is fixed.
        return np.where(losses >= 0, np.int8(1), np.int8(-1))

    def weigh(self, hits: Hits, losses: Floats, elements: int) -> Evidence:
        """The number of right guesses out of all."""
        return Counts(int(hits.sum()), len(hits), elements)
