"""The number of guesses that suits a training run, for the rule `Around`."""

from typing import Final

import numpy as np
from scipy import special

from canaria._core import binomial
from canaria._core.arrays import Floats, Integers
from canaria.training.plan._law import Law

_FEWEST: Final = 8
"""Fewer guesses can hardly refute anything at 95% confidence, even if all are right."""
_NUMBERS: Final = 200
"""Numbers of guesses that are tried: neighbours differ by 6% for a million canaries."""
_HALVINGS: Final = 40
"""Halvings of the range of epsilon, which leave 1e-11 of it."""
_NOTHING: Final = 1e-300


def suited(law: Law, canaries: int, delta: float, level: float) -> int:
    """The number of guesses whose usual count, had it alone been fixed, refutes the largest claim."""
    numbers = np.unique(np.rint(np.geomspace(min(_FEWEST, canaries), canaries, _NUMBERS)).astype(np.int64))
    right = _usually_right(law, canaries, numbers)
    # All numbers of guesses are bisected together, each towards the largest claim that it refutes. No audit
    # refutes more than about ln n.
    low, high = np.zeros(len(numbers)), np.full(len(numbers), np.log(canaries) + 3)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        refuted = _p_values(right, numbers, middle, canaries, delta) <= level
        low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
    return int(numbers[np.argmax(low)])


def _usually_right(law: Law, canaries: int, numbers: Integers) -> Floats:
    """The mean number of right guesses among this many of both tails; losses of the law rise."""
    included = 1 - law.below.mean(axis=0, dtype=np.float64)
    rows = np.arange(len(included) + 1) * (canaries / len(included))
    # From the highest losses down, where +1 is guessed; and from the lowest up, where -1 is.
    ends = (included[::-1], 1 - included)
    each = canaries / len(included)
    return np.asarray(sum(np.interp(numbers / 2, rows, np.append(0, np.cumsum(end)) * each) for end in ends))


def _p_values(right: Floats, numbers: Integers, epsilons: Floats, canaries: int, delta: float) -> Floats:
    """Nearly those of counts: the tail, and what delta may turn into hits over the excess that is needed."""
    chance = special.expit(epsilons)
    tails = special.betainc(right, numbers - right + 1, chance)
    excess = np.maximum(right - numbers * chance, _NOTHING)
    return np.asarray(tails + binomial.flip_budget(canaries, epsilons, delta) / excess)
