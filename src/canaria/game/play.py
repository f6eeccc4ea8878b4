"""One-run auditing and its adaptive form: toss the bits, run the mechanism, guess, reveal.

A score sees the bit of an element only after the element's round; before that, the bit is 0 in `known`.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from canaria._core import checks, seeds
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.game.guesser import Guesser, Score, batched
from canaria.game.transcript import Transcript
from canaria.mechanisms import Function
from canaria.rules import AdaptiveRule, Rule
from canaria.rules.door import Losses

_BLOCK: Final = 4_000_000
"""Bits of the games that are sampled together: a bound on memory."""
GAME: Final = 0x67616D65
"""Separates the random numbers of games from those of other uses of a seed."""


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

    Raises:
        InputError: If `rule` is not valid in an adaptive game, or if the given function or score raises an
            exception.

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

    Example:
        >>> from canaria.game import play_many
        >>> from canaria.mechanisms import RandomizedResponse
        >>> games = play_many(RandomizedResponse(2.0), n=200, trials=10, rng=0)
        >>> sum(game.bound().epsilon > 2.0 for game in games)  # how many bounds are too high
        0
    """
    checks.integer("trials", trials, 1)
    audited = _as_mechanism(mechanism, pairs)
    size = checks.integer("n", len(pairs) if n is None and pairs is not None else n, 1)
    guesser = Guesser(rule, rounds, size)
    # Bits, mechanism and guesses each have their own stream, so that a change of one leaves the others.
    streams = seeds.generator(rng, GAME).spawn(3)
    losses = _scorer(audited, score)
    block = max(1, _BLOCK // size)
    games: list[Transcript] = []
    while len(games) < trials:
        games += _play_block(audited, losses, guesser, (min(block, trials - len(games)), size), streams)
    for game in games:
        guesser.require_valid(game.evidence)
    return games


def _play_block(
    mechanism: Any,
    losses: Losses,
    guesser: Guesser,
    shape: tuple[int, int],
    streams: list[np.random.Generator],
) -> list[Transcript]:
    """Games that are sampled together."""
    bit_rng, run_rng, guess_rng = streams
    bits = 2 * bit_rng.integers(0, 2, shape, dtype=np.int8) - np.int8(1)
    bits.flags.writeable = False
    outputs = mechanism.sample(bits, run_rng)
    return [
        Transcript(hidden, output, guesses, evidence, adjacency=mechanism.adjacency, rule=guesser.name)
        for hidden, output, (guesses, evidence) in zip(
            bits, outputs, guesser.guess(losses, outputs, bits, guess_rng), strict=True
        )
    ]


def _as_mechanism(mechanism: Any, pairs: Sequence[tuple[Any, Any]] | None) -> Any:
    """A mechanism as it is, or a function as a mechanism."""
    if hasattr(mechanism, "sample"):
        if pairs is not None:
            raise InputError("pairs go with a function as mechanism; this mechanism has elements of its own")
        return mechanism
    return Function(mechanism, pairs)


def _scorer(mechanism: Any, score: Score | None) -> Losses:
    """The scores of a whole batch, checked."""
    if score is None:
        if not hasattr(mechanism, "loss"):
            raise InputError("score must be given for a function: (output, known) -> one number per element")
        return mechanism.loss  # type: ignore[no-any-return]
    return batched(score)
