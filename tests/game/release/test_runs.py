"""What happens when a function hangs, fails, returns nan, or always tells the data apart."""

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from canaria import InputError, check_release
from canaria.claims import Claim, GaussianDP, RenyiDP, ZeroConcentratedDP
from canaria.game.release import trials

ROWS = np.random.default_rng(0).uniform(0, 1, (50, 2))


def test_a_function_that_never_ends_on_strange_rows_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It catches every error, as loops do that wait for a result. False-alarm rate 1e-2."""
    monkeypatch.setattr(trials, "_PATIENCE", 0.2)

    def until_large(data: np.ndarray, rng: np.random.Generator) -> float:
        while True:
            try:
                if (found := abs(data.clip(0, 1).sum() + rng.laplace(scale=4))) >= 0:
                    return float(found)
            except Exception:
                pass

    found = check_release(until_large, ROWS, epsilon=1.0, runs=100, rng=0)
    assert not found.alarming
    (note,) = [one for one in found.remarks if one.startswith("it takes more than 0.2 s")]
    assert "a row of missing numbers is added to all 50 rows" in note


def test_nan_that_is_always_there_hides_nothing() -> None:
    class Model:
        def __init__(self, data: np.ndarray) -> None:
            self.unused, self.largest = math.nan, float(np.nanmax(data, initial=0.0))

    found = check_release(lambda data, _: Model(data), ROWS, epsilon=1.0, rng=0)
    assert found.refuted
    assert "largest" in found.facts["told by"]


def test_the_error_of_a_function_is_shown() -> None:
    def broken(data: Any, rng: Any) -> None:
        raise KeyError("no column 'age'")

    with pytest.raises(InputError, match=r"it raises KeyError on the data themselves: .*'age'") as caught:
        check_release(broken, ROWS, epsilon=1.0)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_claim_beyond_the_reach_of_the_runs_is_said_to_be_so() -> None:
    """300 runs that are all told apart refute no epsilon of 8, and show at most 3.5."""
    found = check_release(lambda data, _: float(data.sum()), ROWS, epsilon=8.0, rng=0)
    assert not found.refuted
    assert 3.3 < found.bound.epsilon < 3.5
    assert "more runs show more" in found.remarks[0]


@pytest.mark.parametrize("claim", [ZeroConcentratedDP(0.005), RenyiDP(8, 0.05), GaussianDP(0.1)])
@pytest.mark.parametrize(("deviation", "answer"), [(1000.0, "not refuted"), (10.0, "refuted")])
def test_claims_of_other_kinds_are_tested_at_a_point(claim: Claim, deviation: float, answer: str) -> None:
    def total(ages: Any, rng: np.random.Generator) -> float:
        return float(np.clip(ages, 0, 100).sum() + rng.normal(scale=deviation))

    found = check_release(total, np.arange(20.0, 60.0), claim=claim, runs=150, rng=0)
    assert found.answer == answer
    assert found.claim == replace(claim, adjacency="add-remove")  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({}, "give one claim"),
        ({"epsilon": 1.0, "claim": GaussianDP(1.0)}, "give one claim"),
        ({"claim": GaussianDP(1.0), "adjacency": "replace"}, "not stated"),
        ({"claim": GaussianDP(1.0, "replace")}, "must be the same"),
    ],
)
def test_one_claim_with_the_adjacency_of_the_neighbours_is_needed(how: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_release(lambda rows, rng: 0.0, np.arange(9.0), **how)


@pytest.mark.parametrize("timing", [False, True])
def test_the_running_time_is_a_release_if_asked(timing: bool) -> None:
    """A loop that takes 5 ms more if a row is far away. False-alarm rate 1e-2."""

    def slow(data: np.ndarray, rng: np.random.Generator) -> float:
        if np.nan_to_num(np.abs(data), posinf=9).max(initial=0) > 2:
            time.sleep(0.005)
        return float(rng.normal())

    found = check_release(slow, ROWS, epsilon=1.0, timing=timing, rng=0)
    assert found.answer == ("refuted" if timing else "not refuted")
    assert found.tested["running time"] == ("" if timing else "not measured")
    assert not timing or "the running time in seconds is above 0.00" in found.facts["told by"]


def test_a_stored_shape_is_the_number_of_rows() -> None:
    """As models store it: in a tuple, a dict, or a list. False-alarm rate 1e-2."""

    def fit(data: np.ndarray, rng: np.random.Generator) -> Any:
        noisy = np.clip(np.nan_to_num(data), 0, 1).sum(axis=0) + rng.laplace(scale=2, size=2)
        return SimpleNamespace(
            shape_=np.shape(data), seen={"rows": len(data)}, history=[len(data), 2], sums=noisy
        )

    found = check_release(fit, ROWS, epsilon=1.0, rng=0)
    assert found.answer == "not refuted"
    assert "the exact number of rows, which was taken as public" in found.remarks[-1]
    assert check_release(lambda data, rng: {"rows": len(data)}, ROWS, epsilon=1.0, rng=0).answer == "refuted"


def test_a_stored_number_of_rows_hides_nothing_beside_it() -> None:
    """Two numbers with a lot of noise each, which is gone from their mean with the number of rows."""

    def fit(data: np.ndarray, rng: np.random.Generator) -> Any:
        noise = rng.laplace(scale=1000)
        return SimpleNamespace(info=[float(len(data)), float(np.nansum(data)) + noise, -noise])

    assert check_release(fit, ROWS, epsilon=1.0, rng=0).answer == "refuted"


@pytest.mark.parametrize("ordered", [False, True])
def test_categories_stay_categories(ordered: bool) -> None:
    """A histogram over the public categories of a type, at its exact epsilon. False-alarm rate 1e-2."""
    towns = pd.Categorical(np.resize(["Bern", "Genf", "Thun"], 90), ordered=ordered)

    def histogram(data: pd.DataFrame, rng: np.random.Generator) -> Any:
        counts = data["town"].cat.codes.value_counts().reindex(range(3)).fillna(0)
        return counts + rng.laplace(size=3)

    assert check_release(histogram, pd.DataFrame({"town": towns}), epsilon=1.0, rng=0).answer == "not refuted"
