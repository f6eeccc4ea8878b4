"""The delta rule of bets: no way to spend delta beats the p-value."""

import itertools
from collections.abc import Callable, Sequence
from functools import cache, partial

import numpy as np
import pytest

from canaria.claims import ApproximateDP
from canaria.evidence import Bets
from tests import oracles
from tests.evidence.programs import (
    SOLVER,
    State,
    levels_of,
    p_values,
    worst,
)

PRICES = np.r_[0.0, np.geomspace(1e-4, 1, 120)]


def worst_spending(
    moves: Callable[[State], Sequence[tuple[State, State]]],
    p_value: Callable[[State], float],
    level: float,
    start: State,
    claim: tuple[float, float],
) -> float:
    """The largest Pr[p-value <= level] of an adaptive adversary who can make n delta guesses sure on average.

    The others are right with probability p. For every price of a sure guess, the value less prices paid, plus
    that of n delta, is an upper bound; the least of them is the truth, but for the grid of prices.
    """
    epsilon, spent = claim
    p = oracles.success(epsilon)

    @cache
    def value(state: State) -> np.ndarray:
        if p_value(state) <= level:
            return np.ones(len(PRICES))
        best = np.zeros(len(PRICES))
        for hit, miss in moves(state):
            right, wrong = value(hit), value(miss)
            best = np.maximum.reduce([best, p * right + (1 - p) * wrong, right - PRICES])
        return np.asarray(best)

    return float((value(start) + PRICES * spent).min())


@pytest.mark.parametrize("confidence", [None, 0.65, 0.9, 0.97])
@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.3), (0.0, 0.05), (0.5, 1.0), (2.0, 0.3)])
def test_no_spending_beats_bets_of_one_confidence(
    confidence: float | None, epsilon: float, spent: float
) -> None:
    """Forty guesses; only the numbers of hits and misses count, and a path with its hits last peaks there."""
    length = 40
    claim = ApproximateDP(epsilon, spent / length)

    @cache
    def p_value(state: State) -> float:
        hits = [0] * state[1] + [1] * state[0]
        stated = None if confidence is None else [confidence] * len(hits)
        return Bets(stated, hits, length).p_value(claim) if hits else 1.0

    attained = {p_value(state) for state in [(2, 0), (5, 0), (10, 0), (20, 0), (20, 2)]}
    for level in sorted((attained | {0.05}) - {1.0}):
        reached = worst_spending(
            lambda s: [((s[0] + 1, s[1]), (s[0], s[1] + 1))] if sum(s) < length else [],
            p_value,
            level,
            (0, 0),
            (epsilon, spent),
        )
        assert reached <= level + SOLVER, level


@pytest.mark.parametrize(
    ("epsilon", "spent", "stated", "pinned"), [(0.5, 0.3, 0.97, 0.0476), (2.0, 1.0, 0.994, 0.0498)]
)
def test_no_spending_beats_many_bets_and_some_comes_close(
    epsilon: float, spent: float, stated: float, pinned: float
) -> None:
    """Three hundred guesses at a level of 0.05; the fewest hits that reject, for so many misses, by steps."""
    level, length, p = 0.05, 300, oracles.success(epsilon)
    claim = ApproximateDP(epsilon, spent / length)
    least, right = np.full(length + 1, length + 1), 1
    for wrong in range(length):
        while right + wrong <= length:
            hits = [0] * wrong + [1] * right
            if Bets([stated] * len(hits), hits, length).p_value(claim) <= level:
                least[wrong] = right
                break
            right += 1
    value = np.zeros((length + 2, len(PRICES)))
    for taken in range(length, -1, -1):
        rights = np.arange(taken + 1)
        on, off = value[1 : taken + 2], value[: taken + 1]
        value = np.maximum(p * on + (1 - p) * off, on - PRICES)
        value = np.where((rights >= least[taken - rights])[:, None], 1.0, np.maximum(value, 0.0))
    reached = float((value[0] + PRICES * spent).min())
    assert reached <= level + SOLVER
    assert reached == pytest.approx(pinned, abs=2e-4)


@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.3), (0.0, 0.02), (0.7, 0.1), (1.5, 0.7)])
def test_no_spending_beats_bets(epsilon: float, spent: float) -> None:
    """Seven guesses at most, and the adversary chooses among three confidences after every hit or miss."""
    length, stated = 7, (0.6, 0.85, 0.99)
    claim = ApproximateDP(epsilon, spent / length)

    @cache
    def p_value(state: State) -> float:
        """Of so many misses and hits at each confidence, the misses first: these paths peak at their end."""
        outcomes = [
            (q, hit)
            for hit in (0, 1)
            for q, k in zip(stated, state[3 * hit :], strict=False)
            for _ in range(k)
        ]
        return (
            Bets([q for q, _ in outcomes], [hit for _, hit in outcomes], length).p_value(claim)
            if outcomes
            else 1.0
        )

    def more(state: State, place: int) -> State:
        return (*state[:place], state[place] + 1, *state[place + 1 :])

    ends = [
        (0, 0, 0, 0, 0, 7),
        (0, 0, 0, 0, 5, 0),
        (0, 0, 0, 0, 0, 3),
        (0, 0, 0, 4, 0, 0),
        (1, 0, 0, 0, 4, 2),
    ]
    for level in sorted({p_value(end) for end in ends} - {1.0}):
        reached = worst_spending(
            lambda s: [(more(s, 3 + k), more(s, k)) for k in range(3)] if sum(s) < length else [],
            p_value,
            level,
            (0,) * 6,
            (epsilon, spent),
        )
        assert reached <= level + SOLVER, level


@pytest.mark.parametrize("confidences", [None, [0.6, 0.99, 0.8, 0.55, 0.9, 0.97, 0.7, 0.95]])
@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.2), (0.8, 0.05), (0.8, 1.0)])
def test_no_spending_beats_bets_along_every_path(
    confidences: list[float] | None, epsilon: float, spent: float
) -> None:
    claim = ApproximateDP(epsilon, spent / 8)
    found = p_values(lambda hits: Bets(confidences, hits), 8, claim)
    every = levels_of(found)
    for level in every[:: max(1, len(every) // 8)]:
        reached = worst_spending(
            lambda s: [((*s, 1), (*s, 0))] if len(s) < 8 else [],
            lambda s: found.get(s, 1.0),
            level,
            (),
            (epsilon, spent),
        )
        assert reached <= level + SOLVER, level


@pytest.mark.parametrize(("epsilon", "spent"), [(0.0, 0.1), (0.5, 0.6), (1.5, 0.3)])
def test_no_mechanism_beats_bets(epsilon: float, spent: float) -> None:
    """Three elements: every guesser that takes elements, signs, stakes and its leave by revealed bits."""
    claim = ApproximateDP(epsilon, spent / 3)

    @cache
    def p_value(history: oracles.History) -> float:
        stated = [float(str(q)) for q, _ in history]
        return Bets(stated, [hit for _, hit in history], 3).p_value(claim) if history else 1.0

    def won(level: float, history: oracles.History) -> int:
        return int(p_value(history) <= level)

    choices = (0.7, 0.95)
    paths = [
        tuple(zip(q, x, strict=True))
        for q in itertools.product(choices, repeat=3)
        for x in itertools.product((0, 1), repeat=3)
    ]
    for level in sorted({p for path in paths if (p := p_value(path)) < 1})[:4]:
        trees = oracles.guessers(3, partial(won, level), choices)
        rewards = oracles.up_to_symmetry(trees, 3)
        assert worst(rewards, 3, epsilon, spent) <= level + SOLVER
