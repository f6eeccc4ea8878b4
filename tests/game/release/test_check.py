"""Checks of releases: plain faults are found and named, correct releases are not refuted."""

import itertools
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from canaria import InputError, check_release
from canaria._core.seeds import generator
from canaria.claims import ApproximateDP
from canaria.evidence import Bets
from canaria.game.release import neighbours_of
from canaria.game.release.check import _PURPOSE
from canaria.testing import assert_private_release
from tests.game.release.faulty import (
    CORRECT,
    FAULTS,
    FRAME,
    Release,
    counted,
    noisy_count,
    refusing,
    regression,
)

pytestmark = pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")


@pytest.mark.parametrize(("release", "words"), FAULTS.values(), ids=FAULTS)
def test_faults_are_found_and_named(release: Release, words: str) -> None:
    """In 300 runs, without a neighbour, a score or a row being given."""
    found = check_release(release, FRAME, epsilon=1.0, rng=0)
    assert found.alarming
    assert words in found.facts["told by"]
    assert "epsilon" not in found.facts["neighbours"]


@pytest.mark.slow
def test_the_regression_of_diffprivlib_is_found() -> None:
    """Version 0.6.6, in fewer than 300 runs, without anything being known of the fault."""
    found = check_release(regression, FRAME, epsilon=1.0, rng=0)
    assert found.alarming
    assert "_obj_coefs[2][0, 0] is above" in found.facts["told by"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["histogram", "mean", "GaussianNB", "StandardScaler"])
def test_correct_releases_of_diffprivlib_are_not_refuted(name: str) -> None:
    """False-alarm rate 1e-3 each."""
    import diffprivlib
    from diffprivlib import models, tools

    how: dict[str, dict[str, Any]] = {
        "histogram": {"bins": 10, "range": (0, 100)},
        "mean": {"bounds": (0, 100)},
        "GaussianNB": {"bounds": (0, 100)},
        "StandardScaler": {"bounds": (0, 100)},
    }

    def release(data: pd.DataFrame, rng: np.random.Generator) -> Any:
        drawn = {"random_state": int(rng.integers(2**31)), "accountant": diffprivlib.BudgetAccountant()}
        given = {"epsilon": 1.0, **how[name], **drawn}
        if hasattr(tools, name):
            return getattr(tools, name)(data["income"].to_numpy(), **given)
        rows = data[["income", "age"]].to_numpy()
        made = getattr(models, name)(**given)
        return made.fit(rows, rows[:, 1] > 50) if name == "GaussianNB" else made.fit(rows)

    assert not check_release(release, FRAME, epsilon=1.0, confidence=0.999, rng=0).alarming


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 20))])
@pytest.mark.parametrize("release", CORRECT.values(), ids=CORRECT)
def test_correct_releases_are_not_refuted(release: Release, seed: int) -> None:
    """False-alarm rate 1e-3 each."""
    assert not check_release(release, FRAME, epsilon=1.0, confidence=0.999, rng=seed).alarming


EXACT: dict[str, Callable[[Any, np.random.Generator], Any]] = {
    "Laplace": lambda data, rng: len(data) + rng.laplace(scale=1 / 0.7),
    "many numbers": lambda data, rng: [len(data) + rng.laplace(scale=1 / 0.7), *rng.normal(size=30)],
    "randomised response": lambda data, rng: (len(data) % 2 == 1) ^ (rng.random() < 1 / (1 + np.exp(0.7))),
    "error": lambda data, rng: 1 // ((len(data) % 2 == 0) ^ (rng.random() < 1 / (1 + np.exp(0.7)))),
}
"""Mechanisms whose epsilon, 0.7, is reached by all pairs that have one row more."""


@pytest.mark.parametrize("checks", [5, pytest.param(500, marks=pytest.mark.full)])
@pytest.mark.parametrize("mechanism", EXACT.values(), ids=EXACT)
def test_exact_mechanisms_are_never_over_claimed(mechanism: Any, checks: int) -> None:
    """Bounds at 99% lie above the truth in at most 1% of checks; false-alarm rate 1e-4 each."""
    data = np.arange(40)  # integers: no pair of missing values, on which the error would be a refusal
    bounds = [check_release(mechanism, data, epsilon=0.7, runs=150, rng=seed) for seed in range(checks)]
    above = sum(one.bound.epsilon > 0.7 for one in bounds)
    assert stats.binom.sf(above - 1, checks, 0.01) >= 1e-4


@pytest.mark.parametrize("delta", [0.0, 0.02])
def test_no_check_of_randomised_response_wins_more_than_it_stakes(delta: float) -> None:
    """All coins and outputs of three runs, for a rule that learns: no p-value is too small."""
    epsilon, runs = 0.8, 3
    p = 1 / (1 + np.exp(-epsilon))
    # With probability delta the output tells the coin; otherwise it is the coin with probability p.
    law = {
        ("surely", True): delta,
        ("perhaps", True): (1 - delta) * p,
        ("perhaps", False): (1 - delta) * (1 - p),
    }
    reached: Counter[float] = Counter()
    for path in itertools.product(law, repeat=runs):
        chance, confidences, hits = 1.0, [], []
        for kind, right in path:
            chance *= law[kind, right]
            if kind == "surely":
                confidences.append(0.99)
            else:
                confidences.append(0.95 if all(hits) else 0.6 + 0.1 * len(hits))
            hits.append(right)
        reached[Bets(confidences, hits, runs).p_value(ApproximateDP(epsilon, delta))] += chance
    assert sum(reached.values()) == pytest.approx(1)
    total = 0.0
    for value in sorted(reached):
        total += reached[value]
        assert total <= value + 1e-12


def test_neighbours_differ_in_their_rows_alone() -> None:
    """Types, categories, columns, index and memory order are the same, so they carry no coin."""
    frame = FRAME.assign(kind=pd.Categorical(FRAME["town"]), left=FRAME["town"].where(FRAME["age"] > 30))
    pairs, _ = neighbours_of(frame, rng=0)
    assert len(pairs) > 20
    for pair in pairs:
        first, second = pair.first(), pair.second()
        assert len(second) == len(first) + 1
        assert _chunks(first) == _chunks(second)
        assert (first.dtypes == second.dtypes).all()
        assert type(first.index) is type(second.index)
        assert first.attrs == second.attrs
        pd.testing.assert_frame_equal(first, second.iloc[:-1])
    for pair in neighbours_of(np.arange(60).reshape(20, 3), rng=0)[0]:
        first, second = pair.first(), pair.second()
        assert first.dtype == second.dtype
        assert (first == second[:-1]).all()
        assert first.flags.c_contiguous == second.flags.c_contiguous
        assert first.flags.owndata == second.flags.owndata


def test_a_replaced_row_leaves_no_gap_in_the_index() -> None:
    named = FRAME.set_index(pd.Index([f"p{place}" for place in range(200)]))
    for frame in (FRAME, named):
        for pair in neighbours_of(frame, adjacency="replace", rng=0)[0]:
            assert pair.first().index.equals(pair.second().index)


def test_seeds_do_not_come_from_the_stream_of_the_coins() -> None:
    """The function sees its seed; who knows some of a stream may know what follows."""
    seen: list[int] = []

    def release(data: pd.DataFrame, rng: np.random.Generator) -> float:
        seen.append(int(rng.bit_generator.seed_seq.entropy))
        return noisy_count(data, rng)

    check_release(release, FRAME, epsilon=1.0, runs=60, rng=0)
    coins = generator(0, _PURPOSE)
    assert set(seen).isdisjoint(coins.integers(2**63, size=500).tolist())


def _chunks(frame: pd.DataFrame) -> list[int]:
    return [
        frame[name].array.__arrow_array__().num_chunks
        for name in ("town", "left")
        if hasattr(frame[name].array.__arrow_array__(), "num_chunks")
    ]


def test_rows_are_copies_of_their_own() -> None:
    """A function may change its rows; neither another row nor the user's data may change with them."""
    data: list[Any] = [[float(place), {"x": place}] for place in range(10)]
    frame = pd.DataFrame({"kind": list("abcdefghij"), "cells": [[place] for place in range(10)]})
    for pair in neighbours_of(data, rng=0)[0]:
        rows = pair.second()
        assert len({id(row) for row in rows}) == len(rows)
        assert len({id(row[1]) for row in rows}) == len(rows)
    for pair in neighbours_of(frame, rng=0)[0]:
        for cell in pair.second()["cells"]:
            cell.append(0)
        assert all(len(cell) == 1 for cell in pair.first()["cells"])
    assert all(len(cell) == 1 for cell in frame["cells"])


def test_an_added_unit_is_a_new_one() -> None:
    users = FRAME.assign(user=np.arange(200) % 50)
    for pair in neighbours_of(users, unit="user", rng=0)[0]:
        first, second = pair.first(), pair.second()
        assert set(second["user"][len(first) :]).isdisjoint(first["user"])


@pytest.mark.parametrize(
    "column",
    [
        [True, False] * 10,
        pd.date_range("2020-01-01", periods=20),
        [None, "a"] * 10,
        [1.5, None] * 10,
        [[1, 2]] * 20,
        pd.array([1, None] * 10, dtype="Int64"),
        pd.Categorical(["u", "v"] * 10),
        np.arange(20, dtype=np.float32),
        [b"x"] * 20,
    ],
    ids=str,
)
def test_columns_of_all_kinds_have_neighbours(column: Any) -> None:
    """They keep their types, and a correct release of their number is not refuted."""
    frame = pd.DataFrame({"x": np.arange(20.0), "column": column})
    for pair in neighbours_of(frame, rng=0)[0]:
        assert (pair.first().dtypes == pair.second().dtypes).all()
        assert len(pair.second()) == len(pair.first()) + 1
    assert not check_release(noisy_count, frame, epsilon=1.0, runs=60, rng=0).alarming


def test_arrays_keep_their_type() -> None:
    for kind in (np.float32, np.float64, np.int8, np.uint16):
        for pair in neighbours_of(np.arange(20, dtype=kind), rng=0)[0]:
            assert pair.second().dtype == kind


@pytest.mark.parametrize(
    "release",
    [
        lambda data, _: data,
        lambda data, _: list(data),
        lambda data, _: {"rows": [{"x": float(value)} for value in data]},
        lambda data, _: (float(value) for value in data),
        lambda data, _: pd.Series([float(data.sum())], index=["sum"]),
        lambda data, _: pd.DataFrame({"n": [1.0]}, index=[float(data.sum())]),
    ],
    ids=["array", "list", "records", "generator", "series", "index"],
)
def test_raw_data_are_found_in_any_form(release: Any) -> None:
    """Also where the number of rows is taken as public."""
    assert check_release(release, np.random.default_rng(0).normal(size=40), epsilon=1.0, rng=0).alarming


@pytest.mark.parametrize(
    "data", [[np.arange(3.0)] * 5, [{"a": 1.0, "v": [1.0, 2.0]}] * 5, [("a", [1, 2]), ("b", [3])]], ids=str
)
def test_rows_of_vectors_keep_them(data: Any) -> None:
    for pair in neighbours_of(data, rng=0)[0]:
        assert {type(row) for row in pair.second()} == {type(data[0])}
        assert all(np.ndim(row) == np.ndim(data[0]) for row in pair.second() if isinstance(row, np.ndarray))


def test_a_refused_row_is_a_remark_and_a_warning_on_strange_data_is_none() -> None:
    found = check_release(refusing, FRAME, epsilon=1.0, rng=0)
    assert not found.alarming
    assert any("it raises ValueError" in one and "the largest numbers" in one for one in found.remarks)

    def strange(data: pd.DataFrame, rng: np.random.Generator) -> float:
        return 0 * float(np.isfinite(np.exp(data["income"].abs().max()))) + noisy_count(data, rng)

    assert not check_release(strange, FRAME, epsilon=1.0, rng=0).alarming


def test_what_cannot_be_read_is_said() -> None:
    found = check_release(lambda data, _: object(), FRAME, epsilon=1.0, rng=0)
    assert any("nothing in the output could be read" in one for one in found.remarks)


def test_kinds_that_led_to_no_release_are_not_called_tested() -> None:
    found = check_release(noisy_count, FRAME, epsilon=1.0, seconds=0, rng=0)
    assert all(found.tested.values())


@pytest.mark.parametrize(
    "data",
    [
        [3.0, 4.0, 8.0],
        [("a", 1.0), ("b", 2.0), ("a", 5.0)],
        [{"town": "a", "age": 30}, {"town": "b", "age": 50}],
        ["one text", "another text"],
        np.array(["a", "b", "a"]),
        FRAME["income"].to_frame(),
    ],
    ids=["numbers", "tuples", "dicts", "texts", "array of texts", "frame"],
)
def test_lists_arrays_and_frames_have_neighbours(data: Any) -> None:
    pairs, _ = neighbours_of(data, rng=0)
    assert {len(pair.second()) - len(pair.first()) for pair in pairs} == {1}
    assert {type(pair.second()) for pair in pairs} == {type(data)}


def test_global_generators_are_left_as_they_were() -> None:
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    expected = np.random.random(), random.random()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    check_release(lambda data, _: len(data) + np.random.laplace(), FRAME, epsilon=1.0, runs=60, rng=0)  # noqa: NPY002
    assert (np.random.random(), random.random()) == expected  # noqa: NPY002


def test_one_seed_gives_one_result() -> None:
    one, other = (check_release(noisy_count, FRAME, epsilon=1.0, rng=3) for _ in range(2))
    assert one.bound.to_dict() == other.bound.to_dict()
    assert one.facts == other.facts


def test_the_script_shows_it_once_more(capsys: pytest.CaptureFixture[str]) -> None:
    script = check_release(counted, FRAME, epsilon=1.0, rng=4).facts["once more"]
    exec(script, {"data": FRAME})
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert set(lines) == {"[200.0, 201.0]"}


def test_what_is_refused_is_said() -> None:
    found = check_release(CORRECT["refuses missing values"], FRAME, epsilon=1.0, rng=0)
    assert any("it raises ZeroDivisionError" in one and "missing numbers" in one for one in found.remarks)


@pytest.mark.parametrize(
    "synthesize",
    [
        lambda count, rng: pd.DataFrame({"age": rng.integers(18, 90, count)}),
        lambda count, rng: rng.normal(size=count),
        lambda count, rng: rng.normal(size=(count, 2)),
        lambda count, rng: rng.normal(size=(count, 2)).tolist(),
        lambda count, rng: [{"age": age} for age in rng.integers(18, 90, count).tolist()],
        lambda count, rng: {"town": ["abc"[kind] for kind in rng.integers(0, 3, count)]},
    ],
    ids=["frame", "vector", "array", "lists", "records", "texts"],
)
def test_a_stored_number_of_rows_is_a_remark(synthesize: Any) -> None:
    """As many rows as there were, of which none depends on the data; false-alarm rate 1e-3."""
    found = check_release(
        lambda data, rng: synthesize(len(data), rng), FRAME, epsilon=1.0, confidence=0.999, rng=0
    )
    assert not found.alarming
    assert any("the exact number of rows" in one for one in found.remarks)


def test_the_rows_of_a_user_are_protected_together() -> None:
    users = FRAME.assign(user=np.arange(200) % 50)
    assert not check_release(noisy_count, users, epsilon=1.0, rng=0).alarming
    found = check_release(noisy_count, users, epsilon=1.0, unit="user", rng=0)
    assert found.alarming
    assert "a user with 50 rows" in found.facts["neighbours"]


def test_replaced_rows_do_not_change_the_count() -> None:
    assert not check_release(counted, FRAME, epsilon=1.0, adjacency="replace", rng=0).alarming
    found = check_release(FAULTS["largest"][0], FRAME, epsilon=1.0, adjacency="replace", rng=0)
    assert found.alarming
    assert found.bound.adjacency == "replace"


def test_pairs_of_ones_own_come_first() -> None:
    pair = (FRAME, FRAME.assign(age=FRAME["age"].mask(FRAME.index == 7, 40)))
    found = check_release(lambda data, _: data["age"][7], FRAME, epsilon=1.0, neighbours=[pair], rng=0)
    assert found.facts["neighbours"] == "pair 1 of your own"


def test_time_and_runs_are_limits() -> None:
    assert check_release(noisy_count, FRAME, epsilon=1.0, seconds=0, rng=0).bound.tally.taken == 0
    assert "50 of at most 50" in check_release(noisy_count, FRAME, epsilon=5.0, runs=50, rng=0).facts["runs"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"fit": 3}, "fit must be a function"),
        ({"data": {"a": 1}}, "data must be a data frame"),
        ({"data": [1]}, "data must have at least 2 rows"),
        ({"data": np.zeros(5, [("a", "f8")])}, "data must be a data frame"),
        ({"unit": "nobody"}, "unit must be a column"),
        ({"runs": 10}, "runs must be"),
        ({"fit": lambda data, rng: 1 / 0}, "it raises ZeroDivisionError on the data themselves"),
        ({"epsilon": -1}, "epsilon"),
        ({"adjacency": "near"}, "adjacency"),
        ({"adjacency": "unspecified"}, "adjacency must be"),
        ({"neighbours": [FRAME]}, "neighbours must be a list of pairs"),
    ],
)
def test_unusable_arguments_are_explained(changed: dict[str, Any], message: str) -> None:
    given = {"fit": noisy_count, "data": FRAME, "epsilon": 1.0} | changed
    with pytest.raises(InputError, match=message):
        check_release(given.pop("fit"), given.pop("data"), **given)


def test_an_assertion_fails_with_the_whole_story() -> None:
    with pytest.raises(AssertionError, match=r"(?s)the claim ε = 1 is refuted.*'canaria'"):
        assert_private_release(FAULTS["categories from the data"][0], FRAME, epsilon=1.0)
    assert not assert_private_release(noisy_count, FRAME, epsilon=1.0).alarming
