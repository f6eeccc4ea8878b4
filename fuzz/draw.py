"""Structured inputs out of bytes: evidence, deltas and confidences, with the nasty corners drawn often."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import atheris
import numpy as np

from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    Inversion,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
)

Source: TypeAlias = atheris.FuzzedDataProvider

ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    "",
    "1",
    b"1",
    -1,
    0,
    0.5,
    -0.0,
    5e-324,
    1e308,
    math.inf,
    -math.inf,
    math.nan,
    10**15,
    10**15 + 1,
    2**63,
    10**400,
    1 + 2j,
    [],
    [1],
    [[1]],
    {},
    "inf",
    np.float32(0.1),
    np.int64(3),
    np.bool_(True),
    np.array([1.0]),
    np.array(2),
    object(),
)
"""What an argument should not be, and what it just may be."""


def share(source: Source) -> float:
    """A number in [0, 1], its ends and what is near them often."""
    way = source.ConsumeIntInRange(0, 7)
    if way == 0:
        return source.PickValueInList([0.0, 1.0, 0.5, 5e-324, 2.0**-1022, 2.0**-53, 1 - 2.0**-53])
    if way <= 2:
        return 10.0 ** -source.ConsumeFloatInRange(0.0, 20.0)
    if way == 3:
        return 1 - 10.0 ** -source.ConsumeFloatInRange(0.0, 16.0)
    if way == 4:
        return 10.0 ** -source.ConsumeFloatInRange(0.0, 323.0)
    return source.ConsumeProbability()


def delta(source: Source) -> float:
    """A delta; half of them are 0 or usual."""
    if source.ConsumeBool():
        return source.PickValueInList([0.0, 0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2])
    return share(source)


def confidence(source: Source) -> float:
    """A confidence, mostly a usual one."""
    if source.ConsumeBool():
        return source.PickValueInList([0.95, 0.9, 0.5, 0.99, 0.999, 0.1])
    return min(max(share(source), 2.0**-52), 1 - 2.0**-53)


def patient(evidence: Evidence, asked: Any) -> Any:
    """The confidence, where a grid is walked at least 0.05: below, the walk is long, and nobody asks."""
    walked = evidence.inversion is not Inversion.BISECTION and isinstance(asked, float)
    return max(asked, 0.05) if walked else asked


def epsilon(source: Source) -> float:
    """A claim; 0, tiny, usual and huge."""
    way = source.ConsumeIntInRange(0, 7)
    if way == 0:
        return source.PickValueInList([0.0, 5e-324, 1e-16, 20.0, 700.0, 745.0, 750.0, 1e6, math.inf])
    if way == 1:
        return source.ConsumeFloatInRange(0.0, 800.0)
    if way == 2:
        return 10.0 ** -source.ConsumeFloatInRange(0.0, 18.0)
    return source.ConsumeFloatInRange(0.0, 6.0)


def size(source: Source, largest: int, skew: int = 1) -> int:
    """A size from 1, log-uniform, or the smaller the likelier."""
    return min(largest, max(1, round(math.exp(source.ConsumeProbability() ** skew * math.log(largest)))))


def right(source: Source, taken: int) -> int:
    """How many of so many guesses are right: all, nearly all, a clear half, or any number."""
    way = source.ConsumeIntInRange(0, 5)
    if way == 0:
        return taken
    if way == 1:
        return max(0, taken - source.ConsumeIntInRange(0, 5))
    if way <= 3:
        above = source.ConsumeFloatInRange(0.0, 9.0) * math.sqrt(taken) / 2
        return min(taken, round(taken / 2 + above))
    if way == 4:
        return min(taken, round(taken * (1 - share(source) / 2)))
    return source.ConsumeIntInRange(0, taken)


def counts(source: Source, largest: int) -> tuple[int, int, int]:
    """Right guesses, guesses, elements."""
    taken = size(source, largest)
    elements = taken if source.ConsumeBool() else min(largest, taken * size(source, 1000))
    return right(source, taken), taken, max(taken, elements)


def hits(source: Source, largest: int) -> Any:
    """Right and wrong guesses: bit by bit, or many at once, the surest first."""
    if source.ConsumeIntInRange(0, 3) == 0:
        return np.frombuffer(source.ConsumeBytes(min(largest, 64)) or b"\1", dtype=np.uint8) % 2 == 1
    length = size(source, largest, skew=2)
    best, worst = 1 - share(source) / 2, 0.5
    rng = np.random.default_rng(source.ConsumeIntInRange(0, 2**32 - 1))
    return rng.random(length) < np.linspace(best, worst if source.ConsumeBool() else best, length)


def numbers(source: Source, length: int) -> Any:
    """So many numbers of at least 0: all equal, few values, or spread over a range of sizes."""
    rng = np.random.default_rng(source.ConsumeIntInRange(0, 2**32 - 1))
    way = source.ConsumeIntInRange(0, 5)
    if way == 0:
        return np.full(length, 10.0 ** source.ConsumeFloatInRange(-323.0, 308.0))
    if way == 1:
        return rng.integers(0, 41, length).astype(float)
    if way == 2:
        return np.abs(rng.normal(size=length)) * source.PickValueInList([0.01, 0.3, 1.0, 3.0, 10.0])
    if way == 3:
        return 10.0 ** rng.uniform(-8, 3, length)
    if way == 4:
        return 10.0 ** rng.uniform(-320, 308, length)
    return rng.choice([0.0, 5e-324, 0.5, 1.0, 2.0, 40.0, 41.0, 700.0, 1e300], length)


@dataclass(frozen=True)
class Sizes:
    """How large evidence may get: hits, counts, budgets that are hedged."""

    hits: int = 300
    counts: int = 10**9
    hedged: int = 300


def _elements(source: Source, length: int) -> int:
    return length if source.ConsumeBool() else length * size(source, 10**6)


def _budget(source: Source, sizes: Sizes) -> Budget:
    correct, taken, elements = counts(source, sizes.hedged if source.ConsumeBool() else sizes.counts)
    most = min(elements, max(taken, sizes.hedged)) if taken <= sizes.hedged else elements
    budget = source.ConsumeIntInRange(taken, most)
    return Budget(correct, taken, budget if sizes.hedged < 2000 < budget else min(budget, most), elements)


def _ranking(source: Source, sizes: Sizes) -> Ranking:
    seen = hits(source, sizes.hits)
    elements = _elements(source, len(seen))
    committed = min(elements, len(seen) + source.ConsumeIntInRange(0, 5))
    return Ranking(seen, elements, committed=committed, one_sided=source.ConsumeBool())


def _looks(source: Source, sizes: Sizes) -> Ranking:
    """A ranking from its counts, on looks of its own."""
    steps = [size(source, max(1, sizes.hits // 4)) for _ in range(source.ConsumeIntInRange(1, 8))]
    gained = [right(source, step) for step in steps]
    looks = np.cumsum(steps)
    last = int(looks[-1])
    return Ranking.of_counts(
        looks.tolist(), np.cumsum(gained).tolist(), _elements(source, last), last, source.ConsumeBool()
    )


def _weights(source: Source, sizes: Sizes) -> Weighted:
    seen = hits(source, sizes.hits)
    values = numbers(source, len(seen))
    return Weighted(seen, weights=values, elements=_elements(source, len(seen)))


def _losses(source: Source, sizes: Sizes) -> Weighted:
    seen = hits(source, sizes.hits)
    values = numbers(source, len(seen)) * np.where(np.arange(len(seen)) % 2, 1.0, -1.0)
    if source.ConsumeBool():
        values[np.abs(values) > 100] *= math.inf
    return Weighted(seen, losses=values, elements=_elements(source, len(seen)))


def _bets(source: Source, sizes: Sizes) -> Bets:
    seen = hits(source, sizes.hits)
    rng = np.random.default_rng(source.ConsumeIntInRange(0, 2**32 - 1))
    low, high = sorted((source.ConsumeProbability(), 1 - share(source)))
    stated = np.clip(rng.uniform(low, high, len(seen)), 0.0, 1 - 2.0**-53)
    return Bets(stated, seen, _elements(source, len(seen)))


def _mixture(source: Source, sizes: Sizes) -> Bets:
    seen = hits(source, sizes.hits)
    return Bets(None, seen, _elements(source, len(seen)))


def _split(source: Source, sizes: Sizes) -> Split:
    smaller = replace(sizes, hits=sizes.hits // 3, hedged=sizes.hedged // 3)
    makers = [make for make in KINDS.values() if make is not _split]
    parts = [source.PickValueInList(makers)(source, smaller) for _ in range(source.ConsumeIntInRange(1, 4))]
    shares = [share(source) + 1e-12 for _ in parts]
    return Split(tuple(parts), tuple(one / math.fsum(shares) * (1 - 2.0**-50) for one in shares))


KINDS: Final[dict[str, Callable[[Source, Sizes], Evidence]]] = {
    "Counts": lambda source, sizes: Counts(*counts(source, sizes.counts), source.ConsumeBool()),
    "PublishedCounts": lambda source, sizes: PublishedCounts(*counts(source, sizes.counts)),
    "UncommittedCounts": lambda source, sizes: UncommittedCounts(*counts(source, sizes.counts)),
    "Budget": _budget,
    "Ranking": _ranking,
    "looks": _looks,
    "weights": _weights,
    "losses": _losses,
    "Bets": _bets,
    "mixture": _mixture,
    "Split": _split,
}


def evidence(source: Source, sizes: Sizes) -> Evidence:
    """Evidence of any kind."""
    return KINDS[source.PickValueInList(list(KINDS))](source, sizes)
