"""Outputs become numbers by name, and a sign among them is learned."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeRegressor

from canaria.game.release.learning import best_sign
from canaria.game.release.outputs import MOST, numbers_of


class Slotted:
    __slots__ = ("_hidden", "empty")

    def __init__(self) -> None:
        self._hidden = 4


def test_numbers_of_everything() -> None:
    found = numbers_of(
        {
            "array": np.array([[1, 2]]),
            "tensor": torch.tensor([0.5], requires_grad=True),
            "texts": ("a b", "a b"),
            "slots": Slotted(),
            "missing": math.nan,
            "complex": 1 + 2j,
            "huge": 10**400,
            "set": {"x"},
            "none": None,
            "date": np.array(["2020-01-01"], "datetime64[D]"),
            "frame": pd.DataFrame({"c": pd.Categorical(["u"], ["u", "v"])}),
        }
    )
    expected = {
        "['array'][0, 1]": 2.0,
        "['array'].shape[0]": 1,
        "['tensor'][0]": 0.5,
        "['texts'] has 'a b'": 2,
        "['slots']._hidden": 4.0,
        "['missing'] is nan": 1.0,
        "['complex'].imag": 2.0,
        "['huge']": math.inf,
        "['set'] has 'x'": 1,
        "['none'] is None": 1.0,
        "['date'][0]": 18262.0,
        "['frame']['c'].categories has 'v'": 1,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_generators_and_code_are_not_read() -> None:
    assert numbers_of([np.random.default_rng(0), len, np, np.random.RandomState(0)]) == {".size": 4}


def test_cycles_and_size_are_limited() -> None:
    inside: list[Any] = []
    inside.append(inside)
    assert numbers_of(inside) == {".size": 1}
    assert MOST <= len(numbers_of([list(range(1000))] * 10)) < MOST + 10
    assert (
        "['x'].max" in numbers_of({"x": np.arange(5000.0)})
        or numbers_of({"x": np.arange(5000.0)})["['x'].max"]
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_best_sign_is_that_of_brute_force(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 4, (8, 3)).astype(float)
    values[rng.random((8, 3)) < 0.2] = np.nan
    bits = np.append(rng.random(6) < 0.5, [True, False])
    cost = rng.random(3)

    def explained(part: np.ndarray) -> float:
        share = (part.sum() + 0.5) / (len(part) + 1)
        return float(part.sum() * np.log(share) + (~part).sum() * np.log1p(-share))

    def worth(column: int, threshold: float) -> float:
        above = ~np.isnan(values[:, column]) & ((values[:, column] > threshold) | (threshold == -math.inf))
        if above.all() or not above.any():
            return -math.inf
        return explained(bits[above]) + explained(bits[~above]) - cost[column]

    found = best_sign(values, bits, cost)
    assert found is not None
    column, threshold, _ = found
    best = max(worth(c, t) for c in range(3) for t in (-math.inf, 0.5, 1.5, 2.5))
    assert worth(column, threshold) == pytest.approx(best)


@pytest.mark.parametrize(
    ("output", "name", "value"),
    [
        ("the sum is 12.5, of 1e3 rows", ".number[0]", 12.5),
        ('{"sum":-7.25}', ".number[0]", -7.25),
        (["Thun", "Bern"], "[0] is 'Thun'", 1.0),
        (pd.Series({"sum": 3.5, "unit": "years"}, dtype=object), "[None].at['sum']", 3.5),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [0.5, 0.75]}), "['b'].at[1]", 0.75),
        (pd.Series(pd.to_timedelta([1, 3], "D")), "[None].max", 3 * 86400e6),
        (torch.tensor([1.5, 2.5], dtype=torch.bfloat16), "[1]", 2.5),
        (torch.eye(2).to_sparse(), "[1, 1]", 1.0),
    ],
)
def test_numbers_in_texts_objects_and_rare_types_are_read(output: Any, name: str, value: float) -> None:
    assert numbers_of(output)[name] == pytest.approx(value, rel=1e-3)


def test_trees_of_compiled_code_are_read_as_pickle_reads_them() -> None:
    found = numbers_of(DecisionTreeRegressor(random_state=0).fit([[0.0], [1.0]], [3.25, 9.5]))
    assert 9.5 in found.values()


def test_what_a_frame_and_a_masked_array_say_of_themselves_is_read() -> None:
    frame = pd.DataFrame({"a": [1]}, index=pd.Index([0], name="7.5"))
    frame.attrs["sum"] = 3.0
    masked = np.ma.array([1.0, 2.0], mask=[False, True], fill_value=9.0)
    found = numbers_of({"frame": frame, "masked": masked, "scalar": np.float32(1)})
    expected = {
        "['frame'].attrs['sum']": 3.0,
        "['frame'].index.names has '7.5'": 1,
        "['masked'].fill_value": 9.0,
        "['masked'].mask[1]": 1.0,
        "['scalar'].dtype is float32": 1.0,
    }
    assert {name: found.get(name) for name in expected} == expected


def test_many_numbers_have_a_mean() -> None:
    assert numbers_of([1.0, 2.0, 6.0])["mean of [*]"] == 3.0
    assert "mean of [*]" in numbers_of([1.0, math.inf])
