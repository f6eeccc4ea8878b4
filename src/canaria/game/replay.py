"""Guess the bits of a run that has already happened.

Here the software has not tossed the coins, so it checks what it can: that bits and rounds are possible for
fair coins (Theorem 23), and that a score does not learn bits from the order of the list (Theorem 22).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, coins, seeds
from canaria._core.arrays import Bits, Floats
from canaria._core.errors import InputError
from canaria._core.seeds import Seed
from canaria.game.guesser import Guesser, Score, batched, checked_rounds
from canaria.game.play import GAME
from canaria.game.transcript import Transcript
from canaria.mechanisms._protocol import Output
from canaria.rules import AdaptiveRule, Rule
from canaria.rules.door import Losses

_ORDER: Final = 0x6F726465
"""Separates the random order within rounds from the other random numbers of a game."""


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

    Raises:
        InputError: If the bits are practically impossible for fair coins, or if the order of the rounds is
            practically impossible for an order made without sight of the bits.

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
        # Rounds made without the bits leave them fair coins in any order, so their changes are coins too.
        rounds, stream = checked_rounds(rounds, len(hidden)), seeds.generator(rng, _ORDER)
        coins.require_fair_rounds(hidden[np.concatenate([stream.permutation(block) for block in rounds])])
    if coins.sorted_by_bits(hidden):
        # In such a list a revealed bit tells the bits of its neighbours, to a score that uses positions.
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
    guesser = Guesser(rule, rounds, len(hidden))
    ((guesses, evidence),) = guesser.guess(losses, [output], hidden[None], seeds.generator(rng, GAME))
    guesser.require_valid(evidence)
    return Transcript(
        hidden,
        output,
        guesses,
        evidence,
        adjacency=checks.adjacency(adjacency),
        rule=guesser.name,
        about=about,
    )


def _unmoved(losses: Losses) -> Losses:
    """The same scores; an error if a revealed bit changes the score of a hidden element."""
    first: Floats | None = None

    def scored(outputs: Sequence[Any] | Output, known: Bits) -> Floats:
        nonlocal first
        scores = losses(outputs, known)
        first = scores if first is None else first
        if (scores != first)[known == 0].any():
            raise InputError(
                "score must not use revealed bits if the list is sorted by the bits, because a bit then "
                "tells those of its neighbours; shuffle the elements before the audit"
            )
        return scores

    return scored
