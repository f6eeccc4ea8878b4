"""How often honest coins are refused: every outcome, where fewer runs than 41 are enough to be suspected."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

from canaria._core import coins

PRIMES = (2, 3, 5, 7, 11, 13)
GROUPS = [
    (2,) * 8,
    (4, 4, 4, 4, 4),
    (3, 3, 3, 3, 3, 3),
    (1, 2, 3, 4, 5, 1),
    (6, 6, 6, 6),
    (4, 2, 4, 2, 4, 2),
    (5, 4, 3, 4),
]


def refusal(included: np.ndarray) -> str:
    """Why coins of their own are doubted: shared divisors, repeated blocks, or not at all."""
    try:
        coins._require_coins_of_their_own(included)
    except coins.UnfairCoinsError as error:
        return "multiples" if "multiples" in str(error) else "repeat"
    return ""


def listed_by_groups(groups: tuple[int, ...]) -> dict[str, float]:
    """The probability of each refusal for a list by groups, members first in each."""
    found: Counter[str] = Counter()
    for members in itertools.product(*(range(size + 1) for size in groups)):
        listed = [n < m for size, m in zip(groups, members, strict=True) for n in range(size)]
        ways = math.prod(math.comb(size, m) for size, m in zip(groups, members, strict=True))
        found[refusal(np.array(listed))] += ways
    return {why: ways / 2 ** sum(groups) for why, ways in found.items()}


@pytest.mark.parametrize("length", [6, 11, 12, 14])
@pytest.mark.parametrize("fewest", [3, 5, 7])
def test_coins_as_tossed_are_refused_no_more_often_than_proved(
    fewest: int, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theorem 23 (d) and (f) for every list of so many tosses, with another number of runs."""
    monkeypatch.setattr(coins, "_FEWEST_RUNS", fewest)
    found = Counter(refusal(np.array(bits)) for bits in itertools.product((False, True), repeat=length))
    shared = sum((2**prime - 1) ** -(fewest - 1) for prime in PRIMES) / 2
    repeated = sum(2 ** (length // k - length) for k in range(2, length + 1) if length % k == 0)
    assert found["multiples"] / 2**length <= shared
    assert found["repeat"] / 2**length <= repeated
    assert (found["multiples"] > 0) == (length % 2 == 0 and length // 2 >= fewest)


@pytest.mark.parametrize("groups", GROUPS, ids=str)
@pytest.mark.parametrize("fewest", [3, 5, 7])
def test_lists_by_groups_are_refused_no_more_often_than_proved(
    fewest: int, groups: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Theorem 23 (e) and (f) for every number of members of every group, with another number of runs."""
    monkeypatch.setattr(coins, "_FEWEST_RUNS", fewest)
    found = listed_by_groups(groups)
    cells = (fewest - 1) // 2 + 1
    odd = sum(sum(groups) % prime == 0 for prime in PRIMES[1:])
    assert found.get("multiples", 0.0) <= 2.0**-cells + odd * (3 / 8) ** cells
    blocks = [k for k in range(2, sum(groups) + 1) if sum(groups) % k == 0]
    assert found.get("repeat", 0.0) <= sum(2.0 ** (-(k - 1) * (cells - 1)) for k in blocks)


def test_some_lists_by_groups_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: three groups of two must be MM, NN, MM or NN, MM, NN to show three runs of even length."""
    monkeypatch.setattr(coins, "_FEWEST_RUNS", 3)
    assert listed_by_groups((2, 2, 2))["multiples"] == 2 / 4**3
