"""Result files as canaria's own rules write them, at every size, delta and confidence that people use."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
from scipy import special

from canaria._core.errors import InputError
from canaria.bounds.bound import lower_bound
from canaria.bounds.combine import combine
from canaria.bounds.result import Result
from canaria.evidence import Bets, Budget, Counts, Evidence, Ranking, Split, UncommittedCounts, Weighted
from canaria.evidence.ranking import looks
from canaria.files.read import read_result
from canaria.files.verify import check
from canaria.rules.ranked import ONE_SIDED, SHARES

Rng = np.random.Generator
_DELTAS: Final = (0.0, 1e-9, 1e-5, 1e-3)
_CONFIDENCES: Final = (0.5, 0.9, 0.95, 0.99, 0.9999999)
_LISTED: Final = 10**6
"""Guesses that a file can list one by one: a million losses are 20 MB."""


def _size(rng: Rng, most: int) -> int:
    """Half of them as large as they get."""
    return most if rng.random() < 0.5 else round(10 ** rng.uniform(1, np.log10(most)))


def _accuracy(rng: Rng, ranks: np.ndarray) -> np.ndarray:
    """How often the guess of each rank, from 0 (surest) to 1, is right: no leak, of all, or of the surest."""
    way = rng.integers(0, 4)
    if way == 0:
        return np.full(len(ranks), 0.5)
    if way == 1:
        return special.expit(10 ** rng.uniform(-2, 0.7) * -special.ndtri(np.clip(ranks / 2, 1e-12, 0.5)))
    return np.where(ranks < 10 ** rng.uniform(-6, 0), special.expit(rng.exponential(5.0)), 0.5)


def _ranked(rng: Rng, size: int) -> Evidence:
    grid = looks(size)
    steps = np.diff(grid, prepend=0)
    parts = []
    for one_sided in ONE_SIDED:
        accuracy = _accuracy(rng, (grid - steps / 2) / size)
        right = np.cumsum(rng.binomial(steps, accuracy))
        parts.append(Ranking.of_counts(grid.tolist(), right.tolist(), size, size, one_sided))
    return Split(tuple(parts), SHARES)


def _losses(rng: Rng, size: int) -> tuple[np.ndarray, np.ndarray]:
    losses = rng.normal(size=size) * 10 ** rng.uniform(-2, 0.8)
    return losses, rng.random(size) < special.expit(np.abs(losses) * rng.choice([0.0, 0.5, 1.0]))


def _soft(rng: Rng, size: int) -> Evidence:
    losses, hits = _losses(rng, size)
    return Weighted(hits, losses=losses)


def _bet(rng: Rng, size: int) -> Evidence:
    losses, hits = _losses(rng, size)
    return Bets(np.minimum(special.expit(np.abs(losses)), 1 - 1 / (2 * size)), hits)


def _mixture(rng: Rng, size: int) -> Evidence:
    return Bets(None, _losses(rng, size)[1])


def _threshold(rng: Rng, size: int) -> Evidence:
    taken = int(rng.integers(1, size + 1))
    return UncommittedCounts(int(rng.binomial(taken, special.expit(rng.exponential(1.0)))), taken, size)


def _committed(rng: Rng, size: int) -> Evidence:
    taken = int(rng.integers(1, size + 1))
    return Counts(int(rng.binomial(taken, special.expit(rng.exponential(1.0)))), taken, size)


def _up_to(rng: Rng, size: int) -> Evidence:
    budget = min(size, int(rng.choice([2000, 1000, 100, 2001, size, int(rng.integers(1, size + 1))])))
    taken = budget if rng.random() < 0.7 else int(rng.integers(0, budget + 1))
    return Budget(int(rng.binomial(taken, special.expit(rng.exponential(1.0)))), taken, budget, size)


RULES: Final[dict[str, tuple[Callable[[Rng, int], Evidence], int, bool]]] = {
    "Ranked": (_ranked, 10**8, False),
    "Soft": (_soft, _LISTED, True),
    "Bet": (_bet, _LISTED, True),
    "mixture": (_mixture, _LISTED, True),
    "Threshold": (_threshold, 10**6, False),
    "Top": (_committed, 10**8, False),
    "UpTo": (_up_to, 10**8, False),
}
"""What a rule writes, for how many elements, and whether guesses are listed one by one."""


def _audit(rng: Rng, number: int, rule: str | None) -> Evidence:
    make, most, listed = RULES[rule or str(rng.choice(list(RULES)))]
    return make(rng, max(10, _size(rng, most) // (number if listed else 1)))


def _result(rng: Rng) -> Result:
    """One audit, or up to 20 together, of one rule or of several."""
    delta, confidence = float(rng.choice(_DELTAS)), float(rng.choice(_CONFIDENCES))
    if rng.random() < 0.5:
        return Result(lower_bound(_audit(rng, 1, None), delta, confidence))
    number = 20 if rng.random() < 0.5 else int(rng.integers(2, 21))
    rule = str(rng.choice(list(RULES))) if rng.random() < 0.7 else None
    audits = {f"audit {place}": _audit(rng, number, rule) for place in range(number)}
    return Result(combine(audits, delta, confidence).bound)


def run(number: int, seed: int) -> list[str]:
    """Write so many files and verify them; what is refused, or does not hold, in words."""
    wrong, slowest = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        for place in range(number):
            result = _result(np.random.default_rng([seed, place, 2]))
            result.save(path)
            started = time.process_time()
            try:
                faults = check(read_result(path)).faults
            except InputError as error:
                faults = (str(error),)
            slowest = max(slowest, time.process_time() - started)
            if faults:
                wrong.append(f"{place}: {result.bound.method}: {faults[0]}")
                print(wrong[-1], flush=True)
            if (place + 1) % 50 == 0:
                print(f"{place + 1} files of canaria's own, slowest {slowest:.2f} s", flush=True)
    return wrong
