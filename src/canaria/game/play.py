"""One-run auditing and its adaptive form.

A score sees the bit of an element only after the element's round; before that, the bit is 0 in `known`.
"""

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, coins, markup, seeds
from canaria._core.arrays import Bits, Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.bounds.bound import Bound, delta_of, lower_bound
from canaria.bounds.parts import Histogram
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.claims.families import Family
from canaria.evidence import Evidence
from canaria.mechanisms import Function
from canaria.mechanisms._protocol import Output
from canaria.rules import (
    AdaptiveRule,
    Bet,
    ChoosingRule,
    Guesses,
    Ranked,
    Rule,
    Threshold,
    written,
)
from canaria.rules.door import Guessed, Losses, guess_by_choice, guess_in_rounds, guess_once

LARGEST_EXPLAINED: Final = 5000
"""Losses of more elements are not shown: they take long, and a histogram of fewer looks the same."""
_BLOCK: Final = 4_000_000
_GAME: Final = 0x67616D65
_ORDER: Final = 0x6F726465

Score = Callable[[Any, Bits], Any]


@dataclass(frozen=True, eq=False, repr=False)
class Transcript:
    """The record of one game.

    Attributes:
        bits: The hidden bits, -1 or +1.
        output: The output of the mechanism.
        guesses: The guesses in the order in which they were made; None if a user's rule does not show them.
        evidence: The evidence that the guesses give.
        adjacency: The adjacency that the game tests: "add-remove", "replace" or "unspecified".
        rule: The rule, as text.
        about: Which release is audited, if that needs saying.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import RandomizedResponse
        >>> game = play(RandomizedResponse(2.0), n=1000, rng=0)
        >>> game.bits[:5].tolist(), game.output[:5].tolist()
        ([-1, -1, 1, -1, -1], [-1, -1, 1, -1, -1])
        >>> print(game.bound())
        ε ≥ 1.650 at δ = 0, with 95% confidence: 424 of 476 guesses right, 1000 elements

    """

    bits: Bits
    output: Any
    guesses: Guesses | None
    evidence: Evidence
    _: KW_ONLY
    adjacency: str
    rule: str
    about: str | None = None

    def bound(self, delta: float = 0.0, confidence: float = 0.95, *, family: Family | None = None) -> Bound:
        """The lower bound on epsilon that the game proves.

        Args:
            delta: The delta at which epsilon is bounded.
            confidence: The confidence of the bound, strictly between 0 and 1.
            family: The family of claims to test, instead of epsilon at delta; by default that of the rule.

        Returns:
            The bound, with the evidence, the adjacency and the rule of the game.

        Raises:
            InputError: If delta or confidence is out of range.

        """
        return lower_bound(
            self.evidence,
            delta,
            confidence,
            adjacency=self.adjacency,
            rule=self.rule,
            about=self.about,
            family=family,
        )

    def result(
        self,
        claim: Claim | None = None,
        *,
        delta: float | None = None,
        confidence: float = 0.95,
        mechanism: Any = None,
        name: str = "game",
    ) -> Result:
        """The bound with a claim, to be saved and reported.

        Args:
            claim: What was promised; the bound is at its delta.
            delta: The delta of the bound where there is no claim, or a curve; 0 by default.
            confidence: The confidence of the bound, strictly between 0 and 1.
            mechanism: The mechanism, if its privacy loss is known: then the histogram of the losses is shown.
            name: What was audited.

        Returns:
            The result; of a known mechanism of moderate size also how far apart the losses are.

        """
        made = self.bound(delta_of(claim, delta), confidence).result(claim, name=name)
        if not hasattr(mechanism, "loss") or len(self.bits) > LARGEST_EXPLAINED:
            return made
        losses = mechanism.loss(self.output[None], np.zeros_like(self.bits)[None])[0]
        return replace(made, histogram=Histogram.of(losses, self.bits))

    def __repr__(self) -> str:
        return f"<Transcript: {self}>"

    def __str__(self) -> str:
        """How the guesses went; the bound depends on delta and confidence."""
        right, taken = self.evidence.tally(0.0)
        return f"{right} of {taken} guesses right, {len(self.bits)} elements; ask for bound(delta)"

    def _repr_html_(self) -> str:
        right, taken = self.evidence.tally(0.0)
        rows = [
            ("right guesses", f"{right} of {taken}"),
            ("elements", str(len(self.bits))),
            ("rule", self.rule),
            ("adjacency", self.adjacency),
            ("about", self.about or ""),
            ("next", "bound(delta) gives the lower bound on ε"),
        ]
        return markup.described((name, value) for name, value in rows if value)


def play(
    mechanism: Any,
    score: Score | None = None,
    rule: Rule | AdaptiveRule | None = None,
    n: int | None = None,
    rounds: Sequence[Any] | None = None,
    rng: Seed = None,
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
) -> Transcript:
    """Play one game against a mechanism.

    Args:
        mechanism: A mechanism of `canaria.mechanisms`, an object with the same methods, or a function
            `(data, rng) -> output`.
        score: A function `(output, known)` that returns one number per element, higher meaning "+1 more
            likely". None uses the mechanism's own privacy loss; a function as mechanism needs a score.
        rule: How scores become guesses. By default `Ranked()`, or `Bet()` if `rounds` is given.
        n: The number of elements; by default the number of pairs.
        rounds: A sequence of index sets for adaptive auditing: the bits of a round are revealed after it.
            None for one-run auditing.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.
        pairs: The two candidate elements of each place (replace-one), for a function as mechanism. Without
            pairs, each element is either included or not (add-remove).

    Returns:
        The transcript of the game.

    Raises:
        InputError: If an argument is not usable, if `rule` is not valid in an adaptive game, or if the given
            function or score raises an exception.

    Example:
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
    rng: Seed = None,
    *,
    pairs: Sequence[tuple[Any, Any]] | None = None,
) -> list[Transcript]:
    """Play independent games; outputs and privacy losses are computed in large blocks.

    Args:
        mechanism: As in `play`.
        score: As in `play`.
        rule: As in `play`.
        n: As in `play`.
        trials: The number of games.
        rounds: As in `play`.
        rng: As in `play`.
        pairs: As in `play`.

    Returns:
        One transcript per game.

    Raises:
        InputError: As in `play`, or if `trials` is not a positive integer.

    Example:
        >>> from canaria.game import play_many
        >>> from canaria.mechanisms import RandomizedResponse
        >>> games = play_many(RandomizedResponse(2.0), n=200, trials=10, rng=0)
        >>> sum(game.bound().epsilon > 2.0 for game in games)  # of 10 bounds, as many are too high
        0

    """
    checks.integer("trials", trials, 1)
    audited = _as_mechanism(mechanism, pairs)
    size = checks.integer("n", len(pairs) if n is None and pairs is not None else n, 1)
    chosen = rule if rule is not None else (Ranked() if rounds is None else Bet())
    order = None if rounds is None else _checked_rounds(rounds, size)
    _require_valid(chosen, order)
    streams = seeds.generator(rng, _GAME).spawn(3)
    losses = _scorer(audited, score)
    block = max(1, _BLOCK // size)
    games: list[Transcript] = []
    while len(games) < trials:
        games += _play_block(audited, losses, chosen, order, (min(block, trials - len(games)), size), streams)
    for game in games:
        _require_evidence(game.evidence, chosen, order)
    return games


def replay(
    bits: npt.ArrayLike,
    output: object,
    score: Score,
    rule: Rule | AdaptiveRule | None = None,
    rounds: Sequence[Any] | None = None,
    rng: Seed = None,
    *,
    adjacency: str = "unspecified",
    about: str | None = None,
) -> Transcript:
    """Guess the bits of a run that has already happened, such as a training run.

    As in `play`, the score sees the bits of a round only after it. The elements of a round are put in random
    order before the rule sees them, so neither ties nor bets depend on the order of the list. The list may
    therefore be sorted by the bits. `rounds` must be made without sight of the bits. If the list is sorted by
    the bits, the score of a hidden element must not depend on revealed bits.

    Args:
        bits: The hidden bits, by independent fair coins (booleans, 0/1 or -1/+1).
        output: What the score sees.
        score: A function `(output, known)` that returns one number per element, higher meaning "+1 more
            likely". `known` holds -1 or +1 for revealed bits and 0 for hidden ones.
        rule: How scores become guesses. By default `Ranked()`, or `Bet()` if `rounds` is given.
        rounds: A sequence of index sets for adaptive auditing; None for one-run auditing.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.
        adjacency: "add-remove", "replace" or "unspecified".
        about: Which release is audited, if that needs saying.

    Returns:
        The transcript of the game.

    Raises:
        InputError: If an argument is not usable, if the bits are practically impossible for fair coins, or if
            the order of the rounds is practically impossible for an order made without sight of the bits.

    Warns:
        CoinWarning: If the bits are unlikely for fair coins.

    Example:
        >>> import numpy as np
        >>> from canaria.game import replay
        >>> bits = np.random.default_rng(0).integers(0, 2, 500)
        >>> output = 3 * bits + np.random.default_rng(1).normal(size=500)
        >>> replay(bits, output, lambda output, known: output, rng=2).bound().epsilon > 3
        True

    """
    hidden, losses = coins.checked_bits(bits), batched(score)
    if rounds is not None:
        rounds, stream = _checked_rounds(rounds, len(hidden)), seeds.generator(rng, _ORDER)
        coins.require_fair_rounds(hidden[np.concatenate([stream.permutation(block) for block in rounds])])
    if coins.sorted_by_bits(hidden):
        losses = _unmoved(losses)
    return replay_own(hidden, output, losses, rule, rounds, rng, adjacency=adjacency, about=about)


def replay_own(
    hidden: Bits,
    output: object,
    losses: Losses,
    rule: Rule | AdaptiveRule | None,
    rounds: Sequence[Any] | None,
    rng: Seed,
    *,
    adjacency: str,
    about: str | None,
) -> Transcript:
    """Like `replay`, for coins (-1 or +1) that canaria tossed itself; their fairness is not checked."""
    hidden = hidden.copy()
    hidden.flags.writeable = False
    chosen = rule if rule is not None else (Ranked() if rounds is None else Bet())
    order = None if rounds is None else _checked_rounds(rounds, len(hidden))
    _require_valid(chosen, order)
    stream = seeds.generator(rng, _GAME)
    ((guesses, evidence),) = _guess(losses, chosen, [output], hidden[None], order, stream)
    _require_evidence(evidence, chosen, order)
    return Transcript(
        hidden,
        output,
        guesses,
        evidence,
        adjacency=checks.adjacency(adjacency),
        rule=written(chosen),
        about=about,
    )


def _require_evidence(
    evidence: Evidence, rule: Rule | AdaptiveRule, order: tuple[Integers, ...] | None
) -> None:
    if order is not None or isinstance(rule, ChoosingRule):
        _require_adaptive_evidence(evidence, None if order is None else sum(map(len, order)))


def _require_adaptive_evidence(evidence: Evidence, guessed: int | None) -> None:
    """If revealed bits may decide how many guesses are taken, counts prove nothing."""
    if not evidence.holds_adaptively(guessed):
        raise InputError(
            f"evidence of an adaptive game must be Bets, Budget, or Counts of all, got {evidence!r}; "
            "with a number of guesses that revealed bits decide, Clopper-Pearson is invalid (stop when ahead)"
        )


def _play_block(
    mechanism: Any,
    losses: Losses,
    rule: Rule | AdaptiveRule,
    order: tuple[Integers, ...] | None,
    shape: tuple[int, int],
    streams: list[np.random.Generator],
) -> list[Transcript]:
    """Games that are sampled together; bits, mechanism and guesses each have their own stream."""
    bit_rng, run_rng, guess_rng = streams
    bits = 2 * bit_rng.integers(0, 2, shape, dtype=np.int8) - np.int8(1)
    bits.flags.writeable = False
    outputs = mechanism.sample(bits, run_rng)
    return [
        Transcript(
            bits[trial], outputs[trial], guesses, evidence, adjacency=mechanism.adjacency, rule=written(rule)
        )
        for trial, (guesses, evidence) in enumerate(_guess(losses, rule, outputs, bits, order, guess_rng))
    ]


def _guess(
    losses: Losses,
    rule: Rule | AdaptiveRule,
    outputs: Sequence[Any] | Output,
    bits: Bits,
    order: tuple[Integers, ...] | None,
    rng: np.random.Generator,
) -> list[Guessed]:
    """Let the rule guess the bits of every trial from its output."""
    if isinstance(rule, ChoosingRule) and order is None:
        return [guess_by_choice(rule, losses, outputs[t : t + 1], bits[t], rng) for t in range(len(bits))]
    if isinstance(rule, AdaptiveRule):
        return guess_in_rounds(rule, losses, outputs, bits, order or (np.arange(bits.shape[1]),), rng)
    scores = losses(outputs, np.zeros_like(bits))
    return [guess_once(rule, row, bits[trial], rng) for trial, row in enumerate(scores)]


def _as_mechanism(mechanism: Any, pairs: Sequence[tuple[Any, Any]] | None) -> Any:
    """A mechanism as it is, or a function as a mechanism."""
    if hasattr(mechanism, "sample"):
        if pairs is not None:
            raise InputError("pairs go with a function as mechanism; ours have their elements built in")
        return mechanism
    return Function(mechanism, pairs)


def _require_valid(rule: Rule | AdaptiveRule, order: tuple[Integers, ...] | None) -> None:
    if isinstance(rule, type) or not (callable(rule) or isinstance(rule, AdaptiveRule)):
        raise InputError(f"rule must be a rule such as Ranked() or Bet(), got {shown(rule)}")
    if order is None or isinstance(rule, AdaptiveRule):
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


def _checked_rounds(rounds: Sequence[Any], n: int) -> tuple[Integers, ...]:
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


def _scorer(mechanism: Any, score: Score | None) -> Losses:
    """The scores of a whole batch, checked."""
    if score is None:
        if not hasattr(mechanism, "loss"):
            raise InputError("score must be given for a function: (output, known) -> one number per element")
        return mechanism.loss  # type: ignore[no-any-return]
    return batched(score)


def batched(score: Score) -> Losses:
    """Apply the score of one run to every run of a batch."""

    def scored(outputs: Sequence[Any] | Output, known: Bits) -> Floats:
        return np.stack([_scores_of(score, output, row) for output, row in zip(outputs, known, strict=True)])

    return scored


def _unmoved(losses: Losses) -> Losses:
    """The same scores; an error if a revealed bit changes the score of a hidden element."""
    first: Floats | None = None

    def scored(outputs: Sequence[Any] | Output, known: Bits) -> Floats:
        nonlocal first
        scores = losses(outputs, known)
        first = scores if first is None else first
        if (scores != first)[known == 0].any():
            raise InputError(
                "score must not use revealed bits where the list is sorted by the bits: neighbours tell each "
                "other; shuffle the elements before the audit"
            )
        return scores

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
