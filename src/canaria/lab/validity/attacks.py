"""Attacks with scores that use bits: those revealed before a guess, or all others.

Columns are in the order of guessing, and a score of 0 abstains.
"""

from functools import partial
from typing import Final

import numpy as np
from scipy import special

from canaria._core.arrays import Floats, Hits
from canaria.evidence import _walks
from canaria.lab.validity._games import Case, Draw, Games, Shape, drawing, guessed, sizes, tosses
from canaria.lab.validity.cases import all_or_nothing, halves

_FIRST: Final = 10
_PAUSE: Final = 3


@drawing
def stop_when_ahead(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """Randomized response that stops guessing once Clopper-Pearson would refute the truth."""
    hits = tosses(shape, epsilon, rng)
    limits = _walks.smallest_counts(np.arange(1, shape[1] + 1), level, epsilon)
    ahead = np.cumsum(hits, axis=1) >= limits
    before: Hits = np.cumsum(ahead, axis=1) - ahead == 0
    return guessed(hits, sizes(shape, epsilon, rng) * before, rng)


@drawing
def abstain_after_a_miss(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """Randomized response that skips the next three elements after a wrong guess."""
    hits, taken = tosses(shape, epsilon, rng), np.ones(shape, dtype=np.bool_)
    for place in range(1, shape[1]):
        recent = slice(max(0, place - _PAUSE), place)
        taken[:, place] = ~(taken[:, recent] & ~hits[:, recent]).any(axis=1)
    return guessed(hits, sizes(shape, epsilon, rng) * taken, rng)


@drawing
def follow_the_winner(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """Noisy XOR of pairs, in two groups. The next pair is from the group that has done better so far.

    The first element of a pair is uninformative and skipped. Once it is revealed, the second is guessed right
    with probability p(epsilon). Stakes grow with the lead of the group.
    """
    audits, n = shape
    rows, each = np.arange(audits), n // 4
    wins = np.where(tosses((audits, 2 * each), epsilon, rng), 1, -1).reshape(audits, 2, each)
    used, lead = (np.zeros((audits, 2), dtype=np.int64) for _ in range(2))
    hits, size = np.zeros(shape, dtype=np.bool_), np.zeros(shape)
    for place in range(1, 4 * each, 2):
        group = np.argmax(np.where(used < each, lead, -n), axis=1)
        size[:, place] = epsilon + np.logaddexp(0.0, lead[rows, group])
        won = wins[rows, group, used[rows, group]]
        hits[:, place] = won > 0
        lead[rows, group] += won
        used[rows, group] += 1
    return guessed(hits, size, rng)


def go_on_if_told(epsilon: float, delta: float) -> Draw:
    """All or nothing: ten guesses, and the rest only if all ten were right."""
    play = all_or_nothing(epsilon, delta)

    def draw(shape: Shape, rng: np.random.Generator, level: float) -> Games:
        games = play(shape, rng, level)
        right = np.sign(games.scores[:, :_FIRST]) == games.bits[:, :_FIRST]
        went_on = right.all(axis=1, keepdims=True) | (np.arange(shape[1]) < _FIRST)
        return Games(games.scores * went_on, games.bits)

    return draw


def count_cards(shape: Shape, rng: np.random.Generator, level: float) -> Games:
    """Exactly half of the bits are +1; each guess is the value that came up less often so far."""
    bits = halves(shape, rng)
    lead = np.cumsum(bits, axis=1) - bits
    behind = np.where(lead > 0, -1.0, 1.0)
    return Games(behind * (1 + np.abs(lead)), bits)


@drawing
def know_the_others(shape: Shape, rng: np.random.Generator, level: float, epsilon: float) -> Games:
    """Noisy XOR of all bits, each guessed with knowledge of all others: all are right, or all are wrong."""
    revealed: Hits = rng.random((shape[0], 1)) < special.expit(epsilon)
    size: Floats = sizes(shape, epsilon, rng)
    return guessed(np.repeat(revealed, shape[1], axis=1), size, rng)


_earlier = partial(Case, known="earlier")
ADAPTIVE: Final = (
    _earlier("stop-ahead-0", "stop when ahead", stop_when_ahead(0.0), 0.0),
    _earlier("stop-ahead-2", "stop when ahead", stop_when_ahead(2.0), 2.0),
    _earlier("stop-ahead-0-1000", "stop when ahead, 1,000", stop_when_ahead(0.0), 0.0, n=1000, pace=0.2),
    _earlier("skip-1", "abstain after a miss", abstain_after_a_miss(1.0), 1.0),
    _earlier("winner-1", "revealed bits choose the order", follow_the_winner(1.0), 1.0),
    _earlier("told-1", "all or nothing; go on only if it told", go_on_if_told(1.0, 0.01), 1.0, delta=0.01),
    _earlier("half-counted", "exactly half are +1; count them", count_cards, 0.0, fair=False),
    Case("xor-1", "noisy XOR, all other bits known", know_the_others(1.0), 1.0, known="others"),
)
