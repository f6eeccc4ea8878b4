"""Canaries with values of their own, and scores of released tables."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from canaria import InputError, plant
from canaria.blackbox import Planted, own_values, table_scores

ROWS = 400
KINDS: dict[str, Any] = {
    "text": np.resize(["a", "b", None], ROWS),
    "category": pd.Categorical(np.resize(["a", "b", "c"], ROWS)),
    "whole": np.resize(np.arange(5), ROWS),
    "small": np.resize(np.arange(5), ROWS).astype(np.int16),
    "tiny": np.resize(np.arange(100), ROWS).astype(np.uint8),
    "id": np.arange(ROWS),
    "phone": np.random.default_rng(1).integers(10**9, 10**10, ROWS),
    "nullable": pd.array(np.resize([1, 2, None], ROWS), dtype="Int64"),
    "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.resize(np.arange(50), ROWS), "D"),
    "decimal": np.random.default_rng(0).normal(size=ROWS),
}


def table() -> pd.DataFrame:
    return pd.DataFrame({"other": np.resize(np.arange(7.0), ROWS), **KINDS})


def planted_in(column: str, seed: int) -> tuple[Planted, Any]:
    canaries = own_values(table(), column, 60, rng=0)
    return plant(table(), canaries, rng=seed), canaries


@pytest.mark.parametrize("column", KINDS)
def test_own_values_are_own_and_keep_the_rest_of_a_row(column: str) -> None:
    _, canaries = planted_in(column, 0)
    assert canaries[column].is_unique
    assert not canaries[column].isin(table()[column]).any()
    rest = [name for name in table() if name != column]
    known = set(table()[rest].astype(str).apply(tuple, axis=1))
    assert set(canaries[rest].astype(str).apply(tuple, axis=1)) <= known
    assert canaries.equals(own_values(table(), column, 60, rng=0))


@pytest.mark.parametrize("column", KINDS)
def test_types_and_categories_do_not_depend_on_coins(column: str) -> None:
    several = [planted_in(column, seed)[0].dataset for seed in range(3)]
    for one in several[1:]:
        assert one.dtypes.equals(several[0].dtypes)
    assert several[0][column].dtype.name == table()[column].dtype.name


@pytest.mark.parametrize("column", KINDS)
def test_scores_are_how_often_a_value_occurs(column: str) -> None:
    planted, _ = planted_in(column, 1)
    released = planted.dataset.sample(3000, replace=True, random_state=0)
    scores = table_scores(released, planted)
    assert scores.tolist() == [float((released[column] == own).sum()) for own in planted.canaries[column]]
    assert (scores[planted.bits < 0] == 0).all()
    counts = released[column].value_counts()
    assert table_scores(counts, planted, column).tolist() == scores.tolist()
    assert table_scores(counts.to_dict(), planted, column).tolist() == scores.tolist()


@pytest.mark.parametrize("column", ["decimal", "id", "tiny"])
def test_scores_survive_a_file(column: str, tmp_path: Any) -> None:
    planted, _ = planted_in(column, 2)
    planted.dataset.to_csv(tmp_path / "released.csv", index=False)
    released = pd.read_csv(tmp_path / "released.csv")
    released[column] = released[column].astype("float64")
    scores = table_scores(released, planted, column)
    assert np.array_equal(scores > 0, planted.bits > 0)


def test_a_synthesizer_that_adds_enough_noise_is_not_refuted() -> None:
    """Counts with noise for 1-DP over replaced rows (each moves two counts). False-alarm rate 0.05 in all."""
    keys = pd.DataFrame({"key": np.resize([f"k{one}" for one in range(10)], ROWS)})
    canaries = own_values(keys, "key", 100, rng=0)
    base = pd.concat([keys, *[canaries] * 30], ignore_index=True)
    refuted = 0
    for seed in range(20):
        planted = plant(base, canaries, rng=seed, stand_ins=keys.sample(100, random_state=0))
        noise = np.random.default_rng(seed).laplace(scale=2.0, size=110)
        released = planted.dataset["key"].value_counts().sort_index() + noise
        refuted += planted.bound(table_scores(released, planted, "key"), rng=0).epsilon > 1.0
    assert refuted <= 3  # of 20 at 5%: more with probability 0.016


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: own_values(np.zeros((3, 2)), "x", 5), "frame must be a data frame"),
        (lambda: own_values(table(), "nowhere", 5), "column must be one of"),
        (lambda: own_values(table(), "text", 0), "count must be"),
        (lambda: own_values(table().assign(b=True), "b", 5), "no room for values"),
        (lambda: own_values(table(), "tiny", 200), "no room for 200 values"),
        (lambda: own_values(table().assign(x=np.nan), "x", 5), "no room for values"),
        (lambda: own_values(table()[["id", "id"]], "id", 5), "columns of different names"),
        (lambda: table_scores(table(), planted_in("id", 0)[0], "nowhere"), "released has no column"),
        (lambda: table_scores(pd.Series(["a"]), planted_in("id", 0)[0], "id"), "counts by value"),
        (lambda: table_scores(table(), plant(table(), table()[:5])), "no column has values"),
        (lambda: table_scores(table(), plant(np.zeros((9, 2)), np.ones((2, 2)))), "canaries must be a data"),
    ],
)
def test_what_cannot_be_used_is_named(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
