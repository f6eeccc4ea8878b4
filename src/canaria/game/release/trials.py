"""The trials of a check: a look at each pair of neighbours, then runs whose data set is guessed."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np

from canaria._core.errors import InputError
from canaria._core.progress import tell
from canaria.bounds import Bound, lower_bound
from canaria.claims import Claim
from canaria.evidence import Bets
from canaria.game.release.learning import Learner
from canaria.game.release.look import Numbers, moved, promised, row_counts
from canaria.game.release.neighbours import DataSet, Pair, copied
from canaria.game.release.runs import RAISES, SECONDS, WARNS, Runner, refusal

_BASE_RUNS: Final = 4
"""Runs of each first data set that show how much each number moves by itself."""
_LOOKING: Final = 1 / 3
"""The share of all runs that may only look."""
_PATIENCE: Final = 10.0
_TIMES: Final = 20
"""A run that looks is given up after 10 seconds, or 20 times the time that runs on the data take."""
_BLOCK: Final = 8
"""Runs of a pair before another one is considered."""
_ENOUGH: Final = 3
"""After this many right guesses in a row, no other pair can be better."""


@dataclass(kw_only=True)
class Trial:
    """A pair of neighbours with what its runs have shown.

    Attributes:
        pair: The pair.
        hint: What the look promises, in nats for each guess.
        learner: What its runs taught.
        gained: The nats that its guesses have shown against a coin.
        guesses: The number of guesses.
        in_a_row: The number of last guesses that were right.

    """

    pair: Pair
    hint: float
    learner: Learner
    gained: float = 0.0
    guesses: int = 0
    in_a_row: int = 0

    @property
    def promise(self) -> float:
        """What the next guess is expected to show: at first the hint, then what the guesses have shown."""
        return (self.gained + _BLOCK * self.hint) / (self.guesses + _BLOCK)

    def count(self, confidence: float, *, right: bool) -> None:
        """Add a guess with this confidence."""
        self.guesses += 1
        self.gained += math.log(2 * (confidence if right else 1 - confidence))
        self.in_a_row = self.in_a_row + 1 if right else 0


@dataclass(kw_only=True)
class Check:
    """All runs of a check.

    Attributes:
        run: Runs the function.
        claim: The claim.
        confidence: The confidence of the bound.
        most: The most runs.
        until: The time when no further run begins.
        coins: Tosses the coins.
        seeds: Draws the seed of each run. The function sees it, so it must not come from the coins' stream.

    """

    run: Runner
    claim: Claim
    confidence: float
    most: int
    until: float
    coins: np.random.Generator
    seeds: np.random.Generator
    runs: int = 0
    skipped: int = 0
    tried: list[Trial] = field(default_factory=list)
    best: Trial | None = None
    refused: dict[str, list[str]] = field(default_factory=dict)
    sizes: set[str] = field(default_factory=set)
    _not_sizes: set[str] = field(default_factory=set)
    _confidences: list[float] = field(default_factory=list)
    _hits: list[bool] = field(default_factory=list)

    def look(self, pairs: Sequence[Pair], data: DataSet) -> None:
        """Run both data sets of each pair with the same seed, and note what moves."""
        seeds = [self._seed() for _ in range(_BASE_RUNS)]
        self._require_working(partial(copied, data), seeds)
        # Strange data may make a function loop for ever. In the runs that count, there is no limit: whether
        # it was reached would depend on the data.
        self.run.limit = max(_PATIENCE, _TIMES * self.run.longest)
        bases: dict[str, list[Numbers]] = {}
        repeats: bool | None = None
        for pair in pairs:
            if self.sizes and len(pair.first()) < len(data):
                continue  # of few rows, their number shows in too many ways
            if self._over or self.runs > self.most * _LOOKING:
                self.skipped += 1
                continue
            if pair.base not in bases:
                bases[pair.base] = [self._one(pair.first, seed) for seed in seeds]
            base, other = bases[pair.base], self._one(pair.second, seeds[0])
            if repeats is None:  # whether a seed fixes the randomness, so that only data move the output
                repeats = _but_time(self._one(pair.first, seeds[0])) == _but_time(base[0])
            if answer := refusal(base, other):
                # A function may refuse what is no data of its kind. Its user must know, and decide.
                self.refused.setdefault(answer, []).append(pair.words)
                continue
            if len(pair.first()) >= len(data):  # among few rows, other numbers equal their number by chance
                self._note_sizes(base, other, len(pair.first()), len(pair.second()))
            ratio, ranks = moved([self._counted(pair, one) for one in base], self._counted(pair, other))
            hint = promised(ratio, same_randomness=repeats)
            self.tried.append(Trial(pair=pair, hint=hint, learner=Learner(ranks=ranks)))
        self.run.limit = math.inf

    def _note_sizes(self, base: list[Numbers], other: Numbers, first: int, second: int) -> None:
        """Note the numbers that are the number of rows. A mean must be so beside every neighbour."""
        if first == second:
            return
        found = row_counts(base, other, first, second)
        self._not_sizes |= {name for name in other if name.startswith("mean of ")} - found
        self.sizes = (self.sizes | found) - self._not_sizes

    def _require_working(self, data: Callable[[], Any], seeds: Sequence[np.random.SeedSequence]) -> None:
        """Check that the function does not always raise an error on the data themselves."""
        for seed in seeds:
            errors = [name for name in self._one(data, seed) if name.startswith(RAISES)]
            if not errors:
                return
        error = self.run.error
        raise InputError(f"fit cannot be checked: {errors[0]} on the data themselves: {error}") from error

    def play(self) -> None:
        """Guess where it promises most, until the claim is refuted or the runs are over."""
        while self.tried and not self._over:
            now = max(self.tried, key=lambda one: one.promise)
            left = _BLOCK
            while left > 0 or now.in_a_row >= _ENOUGH:
                self._guess(now)
                left -= 1
                if self.refuted:
                    self.best = now
                    return
                if self._over:
                    break
        guessed = [one for one in self.tried if one.guesses]
        self.best = max(guessed, key=lambda one: one.gained / one.guesses, default=None)

    @property
    def bound(self) -> Bound:
        """The bound by all guesses so far. Each run is one hidden bit; their most is fixed before any."""
        # Without a guess there is a bet of 1/2, which no claim takes.
        evidence = Bets(self._confidences or [0.5], self._hits or [False], self.most)
        delta = self.claim.point(self.most).delta
        return lower_bound(evidence, delta, self.confidence, adjacency=self.claim.adjacency)

    @property
    def unread(self) -> str:
        """The type of an output of which nothing but the type is known; empty if more is."""
        names = [name for one in self.tried for name in one.learner.names]
        return ", ".join(sorted(set(names))) if names and all(" is " in name for name in names) else ""

    @property
    def refuted(self) -> bool:
        """Whether the bound is above the claim, as the result will say."""
        if not self._hits or not self._hits[-1]:
            return False
        p_value = Bets(self._confidences, self._hits, self.most).p_value(self.claim)
        return p_value <= 1 - self.confidence and self.bound.refutes(self.claim)

    @property
    def _over(self) -> bool:
        return self.runs >= self.most or time.perf_counter() > self.until

    def _seed(self) -> np.random.SeedSequence:
        return np.random.SeedSequence(int(self.seeds.integers(2**63)))

    def _counted(self, pair: Pair, numbers: Numbers) -> Numbers:
        """The numbers that count as released. On strange data, a warning may be right."""
        return {
            name: value
            for name, value in numbers.items()
            if name not in self.sizes and (pair.usual or not name.startswith(WARNS))
        }

    def _one(self, make: Callable[[], Any], seed: np.random.SeedSequence) -> Numbers:
        self.runs += 1
        if self.runs % 20 == 0:
            tell(f"run {self.runs} of at most {self.most}")
        return self.run(make(), seed)

    def _guess(self, now: Trial) -> None:
        """Toss a coin, run, guess the coin, and learn from it."""
        bit = bool(self.coins.integers(2))
        # Every run gets a seed of its own, whatever the coin shows: the coin reaches `fit` by the data alone.
        numbers = self._one(now.pair.second if bit else now.pair.first, self._seed())
        numbers = self._counted(now.pair, numbers)
        guess = now.learner.guess(numbers)
        if guess is not None:
            guessed, confidence = guess
            self._confidences.append(confidence)
            self._hits.append(guessed == bit)
            now.count(confidence, right=guessed == bit)
        now.learner.add(numbers, bit)


def _but_time(numbers: Numbers) -> Numbers:
    """The numbers that the same seed repeats."""
    return {name: value for name, value in numbers.items() if name != SECONDS}
