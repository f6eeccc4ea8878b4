"""A rule with the rounds in which it is played, and the scores that it is given."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.evidence import Evidence
from canaria.mechanisms._protocol import Output
from canaria.rules import AdaptiveRule, Bet, ChoosingRule, Ranked, Rule, Threshold, written
from canaria.rules.door import Guessed, Losses, guess_by_choice, guess_in_rounds, guess_once

Score = Callable[[Any, Bits], Any]


class Guesser:
    """A rule, checked to be valid in the rounds in which it is played.

    Three kinds of games differ in when bits are revealed: at the end, after each of some fixed rounds, or
    after each set of elements that the rule chooses. In the last two, revealed bits may decide how many
    guesses are taken, so only some rules and some kinds of evidence are valid (Theorem 12).
    """

    def __init__(self, rule: Rule | AdaptiveRule | None, rounds: Sequence[Any] | None, elements: int) -> None:
        self.rule = rule if rule is not None else (Ranked() if rounds is None else Bet())
        self.rounds = None if rounds is None else checked_rounds(rounds, elements)
        self._require_valid()

    @property
    def name(self) -> str:
        """The rule, as text."""
        return written(self.rule)

    def guess(
        self, losses: Losses, outputs: Sequence[Any] | Output, bits: Bits, rng: np.random.Generator
    ) -> list[Guessed]:
        """Let the rule guess the bits of every trial from its output."""
        rule, rounds = self.rule, self.rounds
        if isinstance(rule, ChoosingRule) and rounds is None:
            return [guess_by_choice(rule, losses, outputs[t : t + 1], bits[t], rng) for t in range(len(bits))]
        if isinstance(rule, AdaptiveRule):
            # Without rounds all elements are in one: nothing is revealed before the last guess.
            return guess_in_rounds(rule, losses, outputs, bits, rounds or (np.arange(bits.shape[1]),), rng)
        scores = losses(outputs, np.zeros_like(bits))
        return [guess_once(rule, row, bits[trial], rng) for trial, row in enumerate(scores)]

    def require_valid(self, evidence: Evidence) -> None:
        """If revealed bits may decide how many guesses are taken, counts prove nothing."""
        if self.rounds is None and not isinstance(self.rule, ChoosingRule):
            return
        if not evidence.holds_adaptively(None if self.rounds is None else sum(map(len, self.rounds))):
            raise InputError(
                f"evidence of an adaptive game must be Bets, Budget, or Counts of all, got {evidence!r}; "
                "with a number of guesses that revealed bits decide, Clopper-Pearson is invalid (stop when "
                "ahead)"
            )

    def _require_valid(self) -> None:
        rule = self.rule
        if isinstance(rule, type) or not (callable(rule) or isinstance(rule, AdaptiveRule)):
            raise InputError(f"rule must be a rule such as Ranked() or Bet(), got {shown(rule)}")
        if self.rounds is None or isinstance(rule, AdaptiveRule):
            return
        if isinstance(rule, Threshold):
            raise InputError(
                f"rule {rule!r} takes a number of guesses that, in an adaptive game, revealed bits decide; "
                "Clopper-Pearson is then invalid (stop when ahead): use Bet(), UpTo(budget, t) or All()"
            )
        raise InputError(
            "in an adaptive game rule must be Bet(), UpTo(budget, t) or All() (in the command line: bet, "
            f"budget:K:T or all), got {rule!r}"
        )


def checked_rounds(rounds: Sequence[Any], n: int) -> tuple[Integers, ...]:
    """Rounds as arrays of indices, each index at most once: a bit that is guessed twice counts twice."""
    try:
        order = tuple(_indices(block) for block in rounds)
        together = np.concatenate(order) if order else np.empty(0, dtype=np.int64)
    except (TypeError, ValueError):
        raise InputError(f"rounds must hold sets of indices, got {shown(rounds)}") from None
    inside = len(together) > 0 and together.min() >= 0 and together.max() < n
    if not inside or len(np.unique(together)) < len(together):
        raise InputError(f"rounds must hold different indices below n = {n}, got {shown(rounds)}")
    return order


def _indices(block: npt.ArrayLike) -> Integers:
    found = np.asarray(block).ravel()
    if len(found) and found.dtype.kind not in "iu":
        raise TypeError
    return found.astype(np.int64)


def batched(score: Score) -> Losses:
    """Apply the score of one run to every run of a batch."""

    def scored(outputs: Sequence[Any] | Output, known: Bits) -> Floats:
        return np.stack([_scores_of(score, output, row) for output, row in zip(outputs, known, strict=True)])

    return scored


def _scores_of(score: Score, output: object, known: Bits) -> Floats:
    try:
        scores = np.asarray(score(output, known.copy()), dtype=np.float64)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        message = " ".join(str(error).split())
        raise InputError(f"score raised {type(error).__name__}: {message}") from error
    if scores.shape != known.shape:
        raise InputError(f"score must return {len(known)} numbers, one per element, got shape {scores.shape}")
    return checks.vector("scores", scores, infinite=True)
