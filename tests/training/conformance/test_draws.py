"""What a sampler drew: uniform p-values where it is Poisson's, and small ones where it is not."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy import stats

from canaria.bounds.conformance import OPEN, SAFE
from canaria.training.conformance.draws import Batches, Drawn, part_of

ROWS, RATE, STEPS = 400, 0.1, 100
Sampler = Callable[[np.random.Generator], Iterator[np.ndarray]]


def poisson(rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in range(STEPS):
        yield np.flatnonzero(rng.random(ROWS) < RATE)


def shuffled(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Every row once in a pass, in batches of one size."""
    for _ in range(STEPS // 10):
        yield from np.split(rng.permutation(ROWS), 10)


def shuffled_in_random_sizes(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The sizes are right, but every row is drawn once in a pass."""
    for _ in range(STEPS // 10):
        sizes = rng.multinomial(ROWS, np.full(10, 0.1))
        yield from np.split(rng.permutation(ROWS), np.cumsum(sizes)[:-1])


def one_size(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Batches of one size, each drawn anew without replacement."""
    for _ in range(STEPS):
        yield rng.choice(ROWS, ROWS // 10, replace=False)


def in_pairs(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Every batch is used twice."""
    for batch in list(poisson(rng))[: STEPS // 2]:
        yield batch
        yield batch


def every_pass_alike(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The generator begins anew in every pass."""
    first = list(poisson(rng))[:10]
    for _ in range(STEPS // 10):
        yield from first


def too_often(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """At a rate that is a sixth higher."""
    for _ in range(STEPS):
        yield np.flatnonzero(rng.random(ROWS) < RATE * 7 / 6)


def unevenly(rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Half of the rows at a rate half as high, the others higher."""
    rates = np.repeat([RATE / 2, RATE * 3 / 2], ROWS // 2)
    for _ in range(STEPS):
        yield np.flatnonzero(rng.random(ROWS) < rates)


def seen(sampler: Sampler, seed: int) -> Drawn:
    batches = Batches(ROWS)
    for batch in sampler(np.random.default_rng(seed)):
        batches.add(batch.tolist(), batches.begin())
    assert not batches.twice
    return batches.drawn()


def p_value(drawn: Drawn) -> float:
    found = part_of(drawn, RATE, np.random.default_rng(len(drawn.sizes)))
    assert found is not None
    return found.p_value


def test_small_batches_with_a_row_in_each_are_not_safe() -> None:
    """Smaller batches than stated cost accuracy; a row that is in all of them leaks."""

    def small(rng: np.random.Generator) -> Iterator[np.ndarray]:
        for _ in range(STEPS):
            yield np.flatnonzero(rng.random(ROWS) < RATE / 2)

    def with_one(rng: np.random.Generator) -> Iterator[np.ndarray]:
        for batch in small(rng):
            yield np.union1d(batch, [0])

    for sampler, effect in ((small, SAFE), (with_one, OPEN)):
        found = part_of(seen(sampler, 0), RATE, np.random.default_rng(0))
        assert found is not None
        assert found.p_value < 1e-6
        assert found.effect == effect


def test_poisson_sampling_is_uniform() -> None:
    """200 samplers; false-alarm rate 1e-4."""
    found = [p_value(seen(poisson, seed)) for seed in range(200)]
    assert stats.kstest(found, "uniform").pvalue >= 1e-4


@pytest.mark.parametrize(
    ("sampler", "said"),
    [
        (shuffled, "rows take part too evenly"),
        (shuffled_in_random_sizes, "rows take part too evenly"),
        (one_size, "the sizes of batches vary too little"),
        (in_pairs, "the rows that batches have in common vary too much"),
        (every_pass_alike, "the sampler draws some rows too often"),
        (too_often, "where the stated rate gives"),
        (unevenly, "the sampler draws some rows too often"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_other_samplers_are_found(sampler: Sampler, said: str) -> None:
    for seed in range(20):
        found = part_of(seen(sampler, seed), RATE, np.random.default_rng(seed))
        assert found is not None
        assert found.p_value <= 1e-6
        assert said in found.cause


def test_a_row_twice_in_a_batch() -> None:
    batches = Batches(10)
    batches.add([1, 2, 3], batches.begin())
    assert not batches.twice
    batches.add([4, 4], batches.begin())
    assert batches.twice


@pytest.mark.parametrize("batch", [["a", "b"], [(1, 2)], [0, 10], [-1], [0.5]], ids=str)
def test_what_is_not_a_row_is_not_followed(batch: list[object]) -> None:
    """Sizes are, and training goes on."""
    batches = Batches(10)
    for rows in ([1, 2], batch, [3], [], [4]):
        batches.add(rows, batches.begin())
    drawn = batches.drawn()
    assert drawn.sizes.tolist() == [2, len(batch), 1, 0, 1]
    assert len(drawn.taking) == len(drawn.overlaps) == 0
    assert part_of(drawn, 0.1, np.random.default_rng(0)) is not None


def test_too_little_to_tell() -> None:
    batches = Batches(10)
    for _ in range(3):
        batches.add([1, 2], batches.begin())
    assert part_of(batches.drawn(), 0.1, np.random.default_rng(0)) is None
    for _ in range(3):
        batches.add(range(10), batches.begin())
    assert part_of(batches.drawn(), 1.0, np.random.default_rng(0)) is None
