"""Isolation, asked of sums with known influence between rows."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from canaria import InputError
from canaria._core.arrays import Floats
from canaria.preflight.isolation import Isolation, Sums, isolation_of

ROWS, WEIGHTS = 10, 200
GRADIENTS = np.random.default_rng(0).normal(size=(ROWS, WEIGHTS)) * np.linspace(0.3, 3, ROWS)[:, None] / 14


def clip(gradients: Floats, norm: float = 1.0) -> Floats:
    lengths = np.linalg.norm(gradients, axis=1, keepdims=True)
    return gradients * np.minimum(1.0, norm / lengths)


def scaled(factor: Callable[[Sequence[int]], float]) -> Callable[[float], Sums]:
    """Sums of gradients that are multiplied by a factor of the batch before clipping."""
    return lambda norm: lambda rows: clip(GRADIENTS[list(rows)] * factor(rows), norm).sum(0)


def asked(
    sums: Callable[[float], Sums],
    *,
    raw: bool = True,
    rows: int = 8,
    norm: float = 1.0,
    rounding: float = 1e-7,
) -> Isolation:
    return isolation_of(
        sums(norm),
        sums(1e12) if raw else None,
        count=ROWS,
        rows=rows,
        rng=np.random.default_rng(0),
        clip_norm=norm,
        rounding=rounding,
        cause_in_model=lambda rows, dropped: "",
    )


@pytest.mark.parametrize("raw", [True, False])
def test_rows_with_gradients_of_their_own_are_isolated(raw: bool) -> None:
    found = asked(scaled(lambda rows: 1.0), raw=raw)
    assert found.holds
    assert found.cause == ""
    assert found.sensitivity == pytest.approx(1.0)
    assert "Rows are isolated" in str(found)


def test_influence_is_what_brute_force_finds() -> None:
    """Each entry: the contribution of one row to the rows that are dropped, with and without the other."""
    sums = scaled(lambda rows: ROWS / len(rows))
    found, own = asked(sums), sums(1.0)
    for i, one in enumerate(found.rows):
        for k, other in enumerate(found.rows):
            if one == other:
                continue
            rest = [row for row in found.rows if row not in (one, other)]
            with_other = own(found.rows) - own(sorted([*rest, other]))
            alone = own(sorted([*rest, one])) - own(rest)
            assert found.influence[i, k] == pytest.approx(np.linalg.norm(with_other - alone), abs=1e-12)
        batches = (range(ROWS), found.rows)
        moved = [own(batch) - own([row for row in batch if row != one]) for batch in batches]
        assert found.moved[i] == pytest.approx(max(map(np.linalg.norm, moved)))


def test_a_loss_scaled_by_the_number_of_rows_is_named_with_its_factor() -> None:
    found = asked(scaled(len))
    assert not found.holds
    assert "by the number of rows" in found.cause
    assert "0.87 times" in found.cause or "0.88 times" in found.cause  # 7 of 8, up to rounding


def test_a_loss_divided_by_tokens_is_named_with_its_factors() -> None:
    tokens = np.arange(1, ROWS + 1)
    found = asked(scaled(lambda rows: tokens.sum() / tokens[list(rows)].sum()))
    assert not found.holds
    assert "number of tokens" in found.cause
    one = next(row for row in found.rows if f"without row {row} all" in found.cause)
    held = tokens[list(found.rows)].sum()
    assert f"{held / (held - tokens[one]):.2f} times" in found.cause


def test_what_clipping_hides_in_this_batch_is_found_before_it() -> None:
    found = asked(scaled(len), norm=1e-3)
    assert found.influence.max() < 1e-9
    assert not found.holds
    assert "before clipping" in str(found)


def test_without_raw_sums_what_clipping_hides_stays_hidden() -> None:
    assert asked(scaled(len), raw=False, norm=1e-3).holds


def test_rows_that_are_not_clipped_are_named() -> None:
    found = asked(lambda norm: lambda rows: 5.0 * GRADIENTS[list(rows)].sum(0))
    assert found.sensitivity > 4
    assert "not clipped one by one" in str(found)


def test_a_clipped_mean_bounds_no_row() -> None:
    def clipped_mean(norm: float) -> Sums:
        return lambda rows: clip(GRADIENTS[list(rows)].mean(0)[None], norm)[0] * len(rows)

    found = asked(clipped_mean, norm=0.1)
    assert not found.holds
    assert "not clipped one by one" in found.cause


def test_a_neighbour_in_the_batch_is_found() -> None:

    def with_the_next(norm: float) -> Sums:
        return lambda rows: clip(
            GRADIENTS[list(rows)] + 0.1 * np.roll(GRADIENTS[list(rows)], 1, 0), norm
        ).sum(0)

    assert not asked(with_the_next).holds


@pytest.mark.parametrize("count", [100, 10_000])
def test_large_batches_hide_nothing(count: int) -> None:
    """What one of n rows does to another shrinks as 1 / n, what it does to all together does not."""
    gradients = np.random.default_rng(0).normal(size=(count, 20)) / 40
    tokens = np.random.default_rng(1).integers(1, 100, count)

    def divided(norm: float) -> Sums:
        def sums(rows: Sequence[int]) -> Floats:
            held = list(rows)
            return clip(gradients[held] * (50 / tokens[held].mean()), norm).sum(0)

        return sums

    found = isolation_of(
        divided(1.0),
        divided(1e12),
        count=count,
        rows=8,
        rng=np.random.default_rng(0),
        clip_norm=1.0,
        rounding=1e-7,
        cause_in_model=lambda rows, dropped: "",
    )
    assert found.influence.max() > 0.01
    assert "number of tokens" in found.cause


@pytest.mark.parametrize("epsilon", [1e-7, 1e-3])
def test_rounding_accuses_nobody(epsilon: float) -> None:
    """An error of this size in every weight of every gradient, other in every batch: of 100 none accused."""
    rng = np.random.default_rng(1)

    def rough(norm: float) -> Sums:
        def sums(rows: Sequence[int]) -> Floats:
            noise = 1.0 + epsilon * rng.normal(size=(len(rows), WEIGHTS))
            return clip(GRADIENTS[list(rows)] * noise, norm).sum(0)

        return sums

    assert all(asked(rough, rounding=epsilon).holds for _ in range(100))


def test_a_cause_in_the_model_comes_first() -> None:
    found = isolation_of(
        scaled(len)(1.0),
        scaled(len)(1e12),
        count=ROWS,
        rows=4,
        rng=np.random.default_rng(0),
        clip_norm=1.0,
        rounding=1e-7,
        cause_in_model=lambda rows, dropped: f"Likely cause: row {dropped}.",
    )
    assert found.cause.startswith("Likely cause: row")


def test_rows_that_move_the_sum_farthest_are_dropped_and_others() -> None:
    assert {8, 9} < set(asked(scaled(lambda rows: 1.0), rows=4).rows)


def test_two_rows_are_too_few() -> None:
    with pytest.raises(InputError, match="at least 3 rows"):
        isolation_of(
            lambda rows: np.zeros(3),
            None,
            count=2,
            rows=2,
            rng=np.random.default_rng(0),
            clip_norm=1.0,
            rounding=1e-7,
            cause_in_model=lambda rows, dropped: "",
        )


def test_rows_without_a_gradient_show_nothing() -> None:
    with pytest.raises(InputError, match="no row of this batch has a gradient"):
        asked(lambda norm: lambda rows: np.zeros(3))


def test_gradients_that_are_not_finite_are_an_error() -> None:
    with pytest.raises(InputError, match="not finite"):
        asked(lambda norm: lambda rows: np.full(3, np.nan))
