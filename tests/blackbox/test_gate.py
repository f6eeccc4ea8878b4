"""A gate refutes releases that contain their rows, and no others."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from canaria import InputError
from canaria.blackbox import split
from tests.cli.command import canaria

ROWS = 1200


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "height": rng.normal(size=ROWS),
            "age": rng.integers(18, 90, ROWS),
            "town": pd.Categorical(rng.choice(["Bern", "Genf", "Thun"], ROWS)),
            "note": rng.choice(np.array(["x", None], dtype=object), ROWS),
            "wage": np.where(rng.random(ROWS) < 0.2, np.nan, rng.random(ROWS)),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 999, ROWS), "D"),
            "user": rng.integers(0, 300, ROWS),
        }
    )


@pytest.mark.parametrize("unit", [None, "user"])
def test_real_rows_are_refuted_and_rows_of_others_are_not(unit: str | None) -> None:
    train, gate = split(table(), rng=0, unit=unit)
    assert gate.bound(train.sample(frac=0.5, random_state=0), epsilon=1.0, rng=0).answer == "refuted"
    assert gate.bound(table(1), epsilon=1.0, rng=0).bound.epsilon == 0
    assert "coins" in repr(gate)
    assert "True" not in repr(gate)


def test_the_part_keeps_types_and_says_nothing_else() -> None:
    train, gate = split(table(), rng=0)
    assert train.dtypes.equals(table().dtypes)
    assert list(train.index) == list(range(len(train)))
    assert train.equals(table()[gate.included].reset_index(drop=True))
    assert 500 < len(train) < 700
    assert not np.array_equal(gate.included, split(table(), rng=1)[1].included)


def test_a_unit_has_one_coin() -> None:
    train, gate = split(table(), rng=0, unit="user")
    assert not set(train["user"]) & set(table()["user"][~gate.included])
    assert gate.bound(table(1), rng=0).bound.evidence.elements == table()["user"].nunique()


def test_scores_are_distances_by_brute_force() -> None:
    train, gate = split(table(), rng=0)
    released = train[:40].sample(frac=1, random_state=0)
    scores = gate.scores(released)
    numbers = ["height", "age", "wage", "user"]
    scale = {name: table()[name].max() - table()[name].min() for name in numbers}

    def apart(one: Any, other: Any) -> float:
        found = 0.0
        for name in table().columns:
            a, b = one[name], other[name]
            if name in numbers and not (pd.isna(a) or pd.isna(b)):
                found += min(abs(a - b) / scale[name], 1.0)
            else:
                found += str(a) != str(b)
        return found

    for place in range(0, ROWS, 100):
        row = table().iloc[place]
        nearest = min(apart(row, released.iloc[other]) for other in range(40))
        assert scores[place] == pytest.approx(-nearest, abs=1e-5)


def test_a_release_with_enough_noise_is_rarely_refuted() -> None:
    """Randomized response on one bit for each row, at its exact epsilon. 20 runs at 5%."""
    rng, refuted = np.random.default_rng(0), 0
    for _ in range(20):
        rows = pd.DataFrame({"row": np.arange(400), "bit": rng.integers(0, 2, 400)})
        train, gate = split(rows, rng=rng)
        # Each of the 400 names is released with probability e / (1 + e) if included, else 1 / (1 + e).
        kept = np.isin(rows["row"], train["row"])
        shown = rng.random(400) < np.where(kept, np.e, 1.0) / (1 + np.e)
        refuted += gate.bound(rows[shown], epsilon=1.0, rng=0).answer == "refuted"
    assert refuted <= 3  # more with probability 0.016


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: split([1, 2]), "table must be a data frame"),
        (lambda: split(table(), unit="nobody"), "unit must be one of"),
        (lambda: split(table(), rng=0)[1].bound(table()[["age"]]), "released must have the columns"),
        (lambda: split(table(), rng=0)[1].bound(table()[:0]), "released must be a data frame"),
    ],
)
def test_what_cannot_be_used_is_named(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_command_line(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table().to_csv("all.csv", index=False)
    parts = ["--train", f"train.{kind}", "--coins", "coins.csv"]
    assert canaria("split", "all.csv", *parts, "--unit", "user").code == 0
    again = canaria("split", "all.csv", *parts)
    assert again.code == 2
    test = ["gate", "--table", "all.csv", "--coins", "coins.csv", "--released"]
    refuted = canaria(*test, f"train.{kind}", "--unit", "user", "--epsilon", "1")
    assert refuted.code == 1
    assert "the claim ε = 1 is refuted" in refuted.out
    table(1).to_csv("other.csv", index=False)
    assert canaria(*test, "other.csv", "--unit", "user", "--epsilon", "1").code == 0
    for wrong in (["other.csv", "--table", "coins.csv"], ["nowhere.csv"]):
        assert canaria(*test, *wrong).code == 2
    pd.DataFrame({"included": np.arange(ROWS) % 2}).to_csv("coins.csv", index=False)
    assert canaria(*test, "other.csv", "--unit", "user").code == 2
