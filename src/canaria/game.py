"""The games: one-run auditing and its adaptive form.

The bits of an element are handed to a score only after its round: in `known` they are 0 before.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from canaria import _validate
from canaria._validate import Bits, Floats, InputError, Integers, shown
from canaria.bound import Bound, lower_bound
from canaria.evidence import Bets, Budget, Counts, Evidence
from canaria.mechanisms import Function
from canaria.rules import (
    AdaptiveRule,
    Bet,
    ChoosingRule,
    Guesses,
    OnlineRounds,
    Ranked,
    Rule,
    Threshold,
)

_BLOCK: Final = 4_000_000
_GAME: Final = 0x67616D65

Score = Callable[[Any, Bits], Any]
Seen = tuple[Guesses | None, Evidence]


@dataclass(frozen=True, eq=False)
class Transcript:
    """One game: the hidden bits, the output, the guesses in order, and what they amount to."""

    bits: Bits
    output: Any
    guesses: Guesses | None
    evidence: Evidence
    adjacency: str
    rule: str
    about: str | None = None

    def bound(self, delta: float = 0.0, confidence: float = 0.95) -> Bound:
        """The lower bound on epsilon that the game proves."""
        return lower_bound(
            self.evidence, delta, confidence, adjacency=self.adjacency, rule=self.rule, about=self.about
        )


def play(
    mechanism: Any,
    score: Score | None = None,
    rule: Rule | AdaptiveRule | None = None,
    n: int | None = None,
    rounds: Sequence[Any] | None = None,
    rng: Any = None,
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
) -> Transcript:
    """Play one game against a mechanism.

    `mechanism` is one of ours or a function `(data, rng) -> output`. `score(output, known)` returns
    one number per element, higher meaning "+1 more likely"; None takes the mechanism's own privacy
    loss. `rounds=None` is one-run auditing; a sequence of index sets is adaptive auditing, where
    the bits of a round are revealed after it. `pairs` gives the two candidate elements of each
    place (replace-one); without, elements are included or not (add-remove).

    >>> from canaria import play
    >>> from canaria.mechanisms import XorInPairs
    >>> blind, seeing = XorInPairs(), XorInPairs().rounds(200)
    >>> play(blind, n=200, rng=0).bound().epsilon
    0.0
    >>> play(blind, n=200, rounds=seeing, rng=0).bound().epsilon > 3
    True
    """
    return play_many(mechanism, score, rule, n, 1, rounds, rng, pairs=pairs)[0]


def play_many(
    mechanism: Any,
    score: Score | None = None,
    rule: Rule | AdaptiveRule | None = None,
    n: int | None = None,
    trials: int = 1,
    rounds: Sequence[Any] | None = None,
    rng: Any = None,
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
) -> list[Transcript]:
    """Play `trials` independent games; sampling and losses are computed for all at once."""
    _validate.integer("trials", trials, 1)
    audited = _as_mechanism(mechanism, pairs)
    size = _validate.integer("n", len(pairs) if n is None and pairs is not None else n, 1)
    chosen = rule if rule is not None else (Ranked() if rounds is None else Bet())
    order = None if rounds is None else _checked_rounds(rounds, size)
    _require_valid(chosen, order)
    streams = _validate.generator(rng, _GAME).spawn(3)
    losses = _scorer(audited, score)
    block = max(1, _BLOCK // size)
    games: list[Transcript] = []
    while len(games) < trials:
        games += _play_block(audited, losses, chosen, order, (min(block, trials - len(games)), size), streams)
    for game in games:
        _require_evidence(game.evidence, chosen, order, size)
    return games


def replay(
    bits: Any,
    output: Any,
    score: Score,
    rule: Rule | AdaptiveRule | None = None,
    rounds: Sequence[Any] | None = None,
    rng: Any = None,
    *,
    adjacency: str = "unspecified",
    about: str | None = None,
) -> Transcript:
    """Guess the bits of a run that has already happened, such as a training run.

    As in `play`, the score sees the bits of a round only after it, and `rng` breaks ties.

    >>> import numpy as np
    >>> from canaria import replay
    >>> bits = np.random.default_rng(0).integers(0, 2, 500)
    >>> output = 3 * bits + np.random.default_rng(1).normal(size=500)
    >>> replay(bits, output, lambda output, known: output, rng=2).bound().epsilon > 3
    True
    """
    hidden = _validate.bits(bits)
    hidden.flags.writeable = False
    chosen = rule if rule is not None else (Ranked() if rounds is None else Bet())
    order = None if rounds is None else _checked_rounds(rounds, len(hidden))
    _require_valid(chosen, order)
    stream = _validate.generator(rng, _GAME)
    ((guesses, evidence),) = _guess(_batched(score), chosen, [output], hidden[None], order, stream)
    _require_evidence(evidence, chosen, order, len(hidden))
    return Transcript(hidden, output, guesses, evidence, _validate.adjacency(adjacency), repr(chosen), about)


def _require_evidence(evidence: Evidence, rule: Any, order: tuple[Integers, ...] | None, size: int) -> None:
    if order is not None or isinstance(rule, ChoosingRule):
        _require_adaptive_evidence(evidence, size if order is None else sum(map(len, order)))


def _require_adaptive_evidence(evidence: Evidence, guessed: int) -> None:
    """Where revealed bits may decide how many guesses are taken, counts prove nothing."""
    committed = isinstance(evidence, Counts) and evidence.taken == guessed
    if not (committed or isinstance(evidence, Bets | Budget)):
        raise InputError(
            f"evidence of an adaptive game must be Bets, Budget, or Counts of all, got {evidence!r}; "
            "with a number of guesses that revealed bits decide, Clopper-Pearson is invalid (stop when ahead)"
        )


def _play_block(
    mechanism: Any,
    losses: Callable[[Any, Bits], Floats],
    rule: Any,
    order: tuple[Integers, ...] | None,
    shape: tuple[int, int],
    streams: list[np.random.Generator],
) -> list[Transcript]:
    """Games that are sampled together; bits, mechanism and tie-breaks each have their own stream."""
    bit_rng, run_rng, tie_rng = streams
    bits = 2 * bit_rng.integers(0, 2, shape, dtype=np.int8) - np.int8(1)
    bits.flags.writeable = False
    outputs = mechanism.sample(bits, run_rng)
    return [
        Transcript(bits[trial], outputs[trial], guesses, evidence, mechanism.adjacency, repr(rule))
        for trial, (guesses, evidence) in enumerate(_guess(losses, rule, outputs, bits, order, tie_rng))
    ]


def _guess(
    losses: Callable[[Any, Bits], Floats],
    rule: Any,
    outputs: Any,
    bits: Bits,
    order: tuple[Integers, ...] | None,
    tie_rng: np.random.Generator,
) -> list[Seen]:
    """Let the rule guess the bits of every trial from its output."""
    if isinstance(rule, ChoosingRule) and order is None:
        return [_play_choosing(losses, rule, outputs[t : t + 1], bits[t]) for t in range(len(bits))]
    if isinstance(rule, AdaptiveRule):
        return _play_rounds(losses, rule, outputs, bits, order or (np.arange(bits.shape[1]),))
    scores = losses(outputs, np.zeros_like(bits))
    return [_play_once(rule, row, bits[trial], tie_rng) for trial, row in enumerate(scores)]


def _as_mechanism(mechanism: Any, pairs: Sequence[tuple[Any, Any]] | None) -> Any:
    """One of ours, anything with their methods, or a function."""
    if hasattr(mechanism, "sample"):
        if pairs is not None:
            raise InputError("pairs go with a function as mechanism; ours have their elements built in")
        return mechanism
    return Function(mechanism, pairs)


def _require_valid(rule: Any, order: tuple[Integers, ...] | None) -> None:
    if not callable(rule) and not isinstance(rule, AdaptiveRule):
        raise InputError(f"rule must be a rule such as Ranked() or Bet(), got {shown(rule)}")
    if order is None or isinstance(rule, AdaptiveRule):
        return
    if isinstance(rule, Threshold):
        raise InputError(
            f"rule {rule!r} takes a number of guesses that, in an adaptive game, revealed bits decide; "
            "Clopper-Pearson is then invalid (stop when ahead): use Bet(), UpTo(budget, t) or All()"
        )
    raise InputError(f"rule must be Bet(), UpTo(budget, t) or All() when rounds are given, got {rule!r}")


def _checked_rounds(rounds: Sequence[Any], n: int) -> tuple[Integers, ...]:
    try:
        order = tuple(np.asarray(block, dtype=np.int64).ravel() for block in rounds)
        together = np.concatenate(order) if order else np.empty(0, dtype=np.int64)
    except (TypeError, ValueError):
        raise InputError(f"rounds must hold sets of indices, got {shown(rounds)}") from None
    inside = len(together) > 0 and together.min() >= 0 and together.max() < n
    if not inside or len(np.unique(together)) < len(together):
        raise InputError(f"rounds must hold different indices below n = {n}, got {shown(rounds)}")
    return order


def _scorer(mechanism: Any, score: Score | None) -> Callable[[Any, Bits], Floats]:
    """Scores of a whole batch, checked."""
    if score is None:
        if not hasattr(mechanism, "loss"):
            raise InputError("score must be given for a function: (output, known) -> one number per element")
        return mechanism.loss  # type: ignore[no-any-return]
    return _batched(score)


def _batched(score: Score) -> Callable[[Any, Bits], Floats]:
    """A score of one run, for every run of a batch."""

    def scored(outputs: Any, known: Bits) -> Floats:
        return np.stack([_scores_of(score, output, row) for output, row in zip(outputs, known, strict=True)])

    return scored


def _scores_of(score: Score, output: Any, known: Bits) -> Floats:
    try:
        scores = np.asarray(score(output, known.copy()), dtype=np.float64)
    except Exception as error:
        told = " ".join(str(error).split())
        raise InputError(f"score raised {type(error).__name__}: {told}") from error
    if scores.shape != known.shape:
        raise InputError(f"score must return {len(known)} numbers, one per element, got shape {scores.shape}")
    return _validate.vector("scores", scores, infinite=True)


def _play_once(rule: Rule, scores: Floats, bits: Bits, rng: np.random.Generator) -> Seen:
    commitment = rule(scores, rng)
    if isinstance(commitment, OnlineRounds):
        return commitment.play(bits)
    return getattr(commitment, "guesses", None), commitment.reveal(bits)


def _play_rounds(
    losses: Callable[[Any, Bits], Floats],
    rule: AdaptiveRule,
    outputs: Any,
    bits: Bits,
    order: tuple[Integers, ...],
) -> list[Seen]:
    """Guess a round in every trial, reveal it, and go on."""
    trials = len(bits)
    known = np.zeros_like(bits)
    taken = np.zeros(trials, dtype=np.int64)
    seen: list[list[tuple[Integers, Bits, Floats]]] = [[] for _ in range(trials)]
    for block in order:
        scores = losses(outputs, _read_only(known))[:, block]
        for trial in range(trials):
            signs = rule.decide(scores[trial], int(taken[trial]))
            guessed = np.flatnonzero(signs)
            seen[trial].append((block[guessed], signs[guessed], scores[trial, guessed]))
            taken[trial] += len(guessed)
        known[:, block] = bits[:, block]
    return [_weighed(rule, parts, bits[trial]) for trial, parts in enumerate(seen)]


def _play_choosing(
    losses: Callable[[Any, Bits], Floats], rule: ChoosingRule, output: Any, bits: Bits
) -> Seen:
    """Let the rule choose what to guess next, reveal it, and go on until it chooses nothing."""
    known = np.zeros((1, len(bits)), dtype=np.int8)
    parts: list[tuple[Integers, Bits, Floats]] = []
    taken = 0
    while True:
        scores = losses(output, _read_only(known))[0]
        hidden = np.flatnonzero(known[0] == 0)
        block = hidden[rule.choose(scores[hidden])] if len(hidden) else hidden
        if len(block) == 0:
            return _weighed(rule, parts, bits)
        signs = rule.decide(scores[block], taken)
        guessed = np.flatnonzero(signs)
        parts.append((block[guessed], signs[guessed], scores[block[guessed]]))
        taken += len(guessed)
        known[0, block] = bits[block]


def _read_only(known: Bits) -> Bits:
    view = known.view()
    view.flags.writeable = False
    return view


def _weighed(rule: AdaptiveRule, parts: list[tuple[Integers, Bits, Floats]], bits: Bits) -> Seen:
    order, signs, losses = (np.concatenate(column) for column in zip(*parts, strict=True))
    guesses = Guesses(order, signs)
    return guesses, rule.weigh(guesses.hits(bits), losses, len(bits))
