"""Evidence made to take long: long walks over claims, wide laws, many parts."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
)
from canaria.evidence.ranking import looks

_MOST_PARTS: Final = 9_900
_DEEPER: Final = 8
Rng = np.random.Generator


def _size(rng: Rng, least: float, most: float) -> int:
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def _right(rng: Rng, taken: int) -> int:
    """All, nearly all, some spreads above a half, or a share."""
    way = rng.integers(0, 4)
    if way == 0:
        return max(0, taken - int(rng.integers(0, 6)))
    if way == 1:
        return min(taken, round(taken / 2 + rng.uniform(-1, 8) * math.sqrt(taken) / 2))
    return round(taken * special.expit(rng.exponential(2.0)))


def _elements(rng: Rng, guesses: int) -> int:
    return min(10**15, guesses * int(rng.choice([1, 1, 10, 10**4])))


def _grid(rng: Rng, most_looks: int) -> npt.NDArray[np.int64]:
    """Looks spread by ratio or evenly, or few small ones and the rest crowded at the top."""
    top, number, way = _size(rng, 20, 1e10), int(rng.integers(1, most_looks + 1)), rng.integers(0, 4)
    if way == 0:
        return looks(top)
    if way == 1:
        spaced = np.geomspace(rng.integers(1, 20), top, number)
    elif way == 2:
        spaced = np.linspace(1, top, number)
    else:
        crowded = top * (1 - 10 ** -rng.uniform(0.1, 5) * np.linspace(1, 0, number))
        spaced = np.concatenate([rng.integers(1, 1000, 2), crowded])
    return np.unique(np.maximum(1, np.rint(spaced)).astype(np.int64))


def _ranking(rng: Rng, most_looks: int = 900) -> Ranking:
    grid = _grid(rng, most_looks)
    sure, after = special.expit(rng.exponential(3.0)), rng.choice([0.0, 0.5, 0.51, 0.7])
    half = grid[0] * 10 ** rng.uniform(-1, math.log10(grid[-1]) + 1)
    steps = np.diff(grid, prepend=0)
    chances = after + (sure - after) * np.exp(-np.asarray(grid / half))
    gained = np.rint(steps * np.clip(chances, 0, 1)).astype(np.int64)
    if rng.random() < 0.5:
        gained = rng.binomial(steps, np.clip(chances, 0, 1))
    if rng.random() < 0.3:
        first = int(rng.integers(0, len(gained) + 1))
        gained[:first] = steps[:first]
    elements = _elements(rng, int(grid[-1]))
    committed, one_sided = int(rng.integers(grid[-1], elements + 1)), bool(rng.random() < 0.3)
    return Ranking.of_counts(grid.tolist(), np.cumsum(gained).tolist(), elements, committed, one_sided)


def _counts(rng: Rng) -> Evidence:
    taken = _size(rng, 1, 1e15)
    fields = _right(rng, taken), taken, _elements(rng, taken)
    made = (Counts(*fields), PublishedCounts(*fields), UncommittedCounts(*fields))
    return made[rng.integers(0, len(made))]


def _budget(rng: Rng) -> Budget:
    budget = _size(rng, 10, 2000) if rng.random() < 0.7 else _size(rng, 2001, 1e15)
    taken = budget if rng.random() < 0.5 else int(rng.integers(1, budget + 1))
    return Budget(_right(rng, taken), taken, budget, _elements(rng, budget))


def _hits(rng: Rng, length: int) -> npt.NDArray[np.bool_]:
    """Right at first and wrong later, or ever less right, evenly (a bent path) or at random."""
    way, turn = rng.integers(0, 4), rng.uniform(0.05, 1.0)
    if way == 0:
        return np.arange(length) < turn * length
    chances = np.clip(np.linspace(1, rng.random(), length) ** (3 * turn), 0, 1)
    if way == 1:
        return np.diff(np.floor(np.concatenate([[0.0], np.cumsum(chances)]))) > 0
    return rng.random(length) < chances


def _bets(rng: Rng, most: float = 1.5e5) -> Bets:
    """Stakes about as high as the guesses deserve, so that the wealth hovers; lost in the end, often."""
    length = _size(rng, 10, most)
    stated = np.round(special.expit(np.abs(rng.normal(size=length)) * rng.exponential(2.0)), 3)
    stated = np.minimum(stated, 0.999)
    hits = rng.random(length) < np.clip(stated + rng.normal() * 0.02, 0, 1)
    if rng.random() < 0.6:
        hits[round(length * rng.random()) :] = False
    return Bets(stated, hits, _elements(rng, length))


def _mixture(rng: Rng, most: float = 9.5e5) -> Bets:
    hits = _hits(rng, _size(rng, 10, most))
    return Bets(None, hits, _elements(rng, len(hits)))


def _weighted(rng: Rng, most: float = 1.3e5) -> Weighted:
    """Guesses that deserve about their weight, so that claims stay near the level for long."""
    length = _size(rng, 10, most)
    elements = _elements(rng, length)
    if rng.random() < 0.3:
        weights = rng.integers(0, 10, length).astype(float)
        return Weighted(rng.random(length) < rng.uniform(0.5, 1), weights=weights, elements=elements)
    losses = np.round(rng.exponential(rng.exponential(3.0) + 0.1, length), 2)
    deserved = special.expit(losses * rng.uniform(0.2, 1.1) - rng.uniform(0, 1))
    return Weighted(rng.random(length) < deserved, losses=losses, elements=elements)


def _split(rng: Rng) -> Split:
    """Many parts: all equal, ever better ones, or of all kinds; at times nested."""
    number, way = _size(rng, 2, _MOST_PARTS), rng.integers(0, 4)
    fewer = max(3.0, 8e5 / number)
    makers: list[Callable[[Rng], Evidence]] = [
        _counts,
        _budget,
        lambda rng: _ranking(rng, max(2, round(fewer / 25))),
        lambda rng: _bets(rng, max(11, fewer / 8)),
        lambda rng: _mixture(rng, max(11, fewer)),
        lambda rng: _weighted(rng, max(11, fewer / 8)),
    ]
    chosen = makers[rng.integers(0, len(makers))]
    if way == 0:
        parts = [chosen(rng)] * number
    elif way == 1:
        one = chosen(rng)
        parts = [one] + [changed(one, rng) for _ in range(min(number, 60) - 1)]
    else:
        mixed = [
            makers[rng.integers(0, len(makers))] if way == 3 else chosen for _ in range(min(number, 200))
        ]
        parts = [make(rng) for make in mixed]
    return _joined(parts, rng)


def _joined(parts: list[Evidence], rng: Rng) -> Split:
    if len(parts) >= 4 and rng.random() < 0.3:
        half = len(parts) // 2
        parts = [
            Split(tuple(some), (0.999 / len(some),) * len(some)) for some in (parts[:half], parts[half:])
        ]
    for _ in range(int(rng.integers(0, _DEEPER)) if rng.random() < 0.1 else 0):
        parts = [Split(tuple(parts), (0.999 / len(parts),) * len(parts))]
    return Split(tuple(parts), (1 / len(parts) * (1 - 1e-12),) * len(parts))


def changed(evidence: Evidence, rng: Rng) -> Evidence:
    """Evidence like it: a few counts moved, or one part."""
    if isinstance(evidence, Split):
        parts = list(evidence.parts)
        place = int(rng.integers(0, len(parts)))
        parts[place] = changed(parts[place], rng)
        return Split(tuple(parts), evidence.shares)
    if isinstance(evidence, Ranking):
        steps, gained = np.diff(evidence.grid, prepend=0), np.diff(evidence.counts, prepend=0)
        some = slice(*sorted(rng.integers(0, len(steps) + 1, 2)))
        moved = gained[some] + np.rint(rng.normal() * np.sqrt(steps[some])).astype(np.int64)
        gained[some] = np.clip(moved, 0, steps[some])
        return Ranking.of_counts(**{**evidence.to_dict(), "counts": np.cumsum(gained).tolist()})
    if isinstance(evidence, Bets | Weighted):
        return _some_hits_changed(evidence, rng)
    fields = evidence.to_dict()
    moved = fields["correct"] + round(rng.normal() * math.sqrt(fields["taken"] + 1))
    return type(evidence)(**{**fields, "correct": int(np.clip(moved, 0, fields["taken"]))})


def _some_hits_changed(evidence: Bets | Weighted, rng: Rng) -> Evidence:
    hits = evidence.hits.copy()
    start, end = sorted(rng.integers(0, len(hits) + 1, 2))
    hits[start:end] = rng.random(end - start) < rng.random()
    if isinstance(evidence, Bets):
        return Bets(evidence.confidences, hits, evidence.elements)
    return Weighted(hits, weights=evidence.weights, losses=evidence.losses, elements=evidence.elements)


MAKERS: Final[dict[str, Callable[[Rng], Evidence]]] = {
    "counts": _counts,
    "budget": _budget,
    "ranking": _ranking,
    "bets": _bets,
    "mixture": _mixture,
    "weighted": _weighted,
    "split": _split,
    "more splits": _split,
    "more rankings": _ranking,
}
