"""Samplers of several processes: the same draws are found whatever the rows, and independent ones never."""

import numpy as np
import pytest

from canaria.training.conformance.processes import (
    COMPARED,
    Stretches,
    compared_rows,
    most_in_common,
    same_draws,
    shared_rows,
    stretch_of,
)


def told(seeds: list[int], rows: list[int], rate: float, batches: int = 30) -> np.ndarray:
    """What processes tell each other whose samplers have these seeds and numbers of rows."""
    length = stretch_of(rate, max(rows))
    every = []
    for seed, own in zip(seeds, rows, strict=True):
        stretches, rng = Stretches(own, length), np.random.default_rng(seed)
        for _ in range(batches):
            stretches.add(np.flatnonzero(rng.random(own) < rate))
        every.append(stretches.fingerprints())
    return np.stack(every)


def test_independent_draws_are_never_alike() -> None:
    """1,000 pairs of processes; false-alarm rate 1e-15."""
    for seed in range(0, 2000, 2):
        rate = (0.01, 0.1, 0.5, 0.99)[seed // 2 % 4]
        assert same_draws(told([seed, seed + 1], [200, 200], rate)) == ()


@pytest.mark.parametrize("rate", [0.005, 0.1, 0.9])
@pytest.mark.parametrize("rows", [(200, 200), (201, 200), (3000, 2999)])
def test_the_same_coins_are_found_whatever_the_number_of_rows(rate: float, rows: tuple[int, int]) -> None:
    """Batches of 201 and of 200 rows differ, though their coins are the same."""
    (said,) = same_draws(told([3, 3], list(rows), rate, batches=60))
    assert said.startswith("ranks 0 and 1 drew the same positions in ")


def test_the_ranks_that_share_a_seed_are_counted() -> None:
    (said,) = same_draws(told([1, 2, 3, 2, 2], [200] * 5, 0.2))
    assert said.startswith("ranks 1 and 3 drew the same positions in 30 of 30 comparisons (3 of 5 ranks drew")
    assert same_draws(told([1, 2, 3, 2, 2], [200] * 5, 0.2, batches=0)) == ()


def test_stretches_are_long_enough_and_no_more_than_are_compared_are_kept() -> None:
    """Independent coins agree in a whole stretch with a probability of at most exp(-50)."""
    for rate in (1e-6, 0.01, 0.5, 0.999):
        assert stretch_of(rate, 1) * np.log1p(-2 * rate * (1 - rate)) <= -50
    assert stretch_of(0.5, 10_000) == 10_000
    assert stretch_of(1.0, 100) == 0
    whole, *prints = told([0], [200], 0.5, batches=100)[0]
    assert whole == len(prints) == COMPARED


def test_rows_are_shared_only_if_the_data_are_the_same() -> None:
    every, even = np.ones(8, dtype=bool), np.arange(8) % 2 == 0
    prints = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [2, 3, 4, 9]])
    assert (
        "3 ranks draw from the same rows" in shared_rows([every, even, every], prints[[0, 0, 0]], [9] * 3)[0]
    )
    assert shared_rows([even, ~even], prints[[0, 0]], [9] * 2) == ()
    assert shared_rows([every, every], prints[[0, 1]], [9] * 2) == ()
    assert shared_rows([every, every], np.zeros((2, 4), int), [9] * 2) == ()
    assert shared_rows([every, every], prints[[0, 2]], [9, 8]) == ()  # different people may be equal
    assert most_in_common(prints) == 3
    many = np.array([np.arange(1, 101), np.arange(71, 171)])
    assert "30 of the rows that were compared" in shared_rows([every, every], many, [100, 100])[0]


def test_rows_to_compare_are_of_the_data_set() -> None:
    assert compared_rows(3).tolist() == [0, 1, 2]
    assert len(compared_rows(10**6)) == COMPARED
    assert compared_rows(10**6)[-1] == 10**6 - 1
