"""Planting canaries: what trains on the data cannot tell the coins from anything but the canaries."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from torch.utils.data import DataLoader, TensorDataset
from transformers import GPT2Config, GPT2LMHeadModel

from canaria import InputError, plant
from canaria.blackbox.canaries import (
    blank,
    mislabelled,
    noise,
    random_tokens,
    sampled_texts,
    unlikely_endings,
)
from canaria.blackbox.scores import difference_scores, loss_scores, margin_scores
from canaria.rules import Online

ROWS, COUNT = 60, 25


def as_arrays(start: int, count: int) -> Any:
    return np.arange(start, start + count)


def as_tuple(start: int, count: int) -> Any:
    numbers = np.arange(start, start + count)
    return np.stack([numbers, -numbers], axis=1).astype(float), numbers


def as_frame(start: int, count: int) -> Any:
    numbers = np.arange(start, start + count)
    return pd.DataFrame({"number": numbers, "name": [f"row {k}" for k in numbers]})


def as_tensor(start: int, count: int) -> Any:
    return torch.arange(start, start + count)


def as_list(start: int, count: int) -> Any:
    return [{"number": k} for k in range(start, start + count)]


def as_dict(start: int, count: int) -> Any:
    return {
        "number": np.arange(start, start + count),
        "text": pd.Series([str(k) for k in range(start, start + count)]),
    }


def as_dataset(start: int, count: int) -> Any:
    return TensorDataset(torch.arange(start, start + count))


def numbers_of(data: Any) -> list[int]:
    """Which rows a data set of any kind holds."""
    if isinstance(data, tuple):
        assert (data[0][:, 0] == data[1]).all()
        return [int(k) for k in data[1]]
    if isinstance(data, pd.DataFrame):
        assert list(data.index) == list(range(len(data)))
        assert [f"row {k}" for k in data.number] == list(data.name)
        return [int(k) for k in data.number]
    if isinstance(data, dict):
        assert [str(k) for k in data["number"]] == list(data["text"])
        return [int(k) for k in data["number"]]
    if isinstance(data, list):
        return [row["number"] for row in data]
    if isinstance(data, np.ndarray | torch.Tensor):
        return [int(k) for k in data]
    return [int(data[k][0]) for k in range(len(data))]


kinds = pytest.mark.parametrize(
    "kind", [as_arrays, as_tuple, as_frame, as_tensor, as_list, as_dict, as_dataset]
)


@kinds
def test_replace_puts_the_canary_or_leaves_the_row(kind: Any) -> None:
    planted = plant(kind(0, ROWS), kind(1000, COUNT), rng=3)
    rows = numbers_of(planted.dataset)
    expected = list(range(ROWS))
    for canary, (place, bit) in enumerate(zip(planted.indices, planted.bits, strict=True)):
        if bit > 0:
            expected[place] = 1000 + canary
    assert rows == expected
    assert planted.adjacency == "replace"
    assert len(set(planted.indices)) == COUNT


@kinds
def test_stand_ins_take_the_places_of_excluded_canaries(kind: Any) -> None:
    planted = plant(kind(0, ROWS), kind(1000, COUNT), rng=3, stand_ins=kind(2000, COUNT))
    included = planted.bits > 0
    tail = np.where(included, 1000, 2000) + np.arange(COUNT)
    assert numbers_of(planted.dataset) == [*range(ROWS), *tail]
    assert (planted.indices == ROWS + np.arange(COUNT)).all()


@kinds
def test_zero_out_keeps_every_canary_and_weighs_it(kind: Any) -> None:
    planted = plant(kind(0, ROWS), kind(1000, COUNT), rng=3, form="zero-out")
    assert numbers_of(planted.dataset) == [*range(ROWS), *range(1000, 1000 + COUNT)]
    assert planted.adjacency == "add-remove"
    assert (planted.weights[:ROWS] == 1).all()
    assert (planted.weights[planted.indices] == (planted.bits > 0)).all()


def test_length_and_places_never_tell_the_bits() -> None:
    """Over seeds: coins are fair and independent of where a canary sits (false-alarm rate 1e-4 each)."""
    runs = [plant(np.arange(40), np.arange(1000, 1010), rng=seed) for seed in range(2000)]
    assert {len(run.dataset) for run in runs} == {40}
    bits = np.array([run.bits for run in runs])
    early = np.array([run.indices for run in runs]) < 20
    assert stats.binomtest(int((bits > 0).sum()), bits.size).pvalue >= 1e-4
    table = [
        [int(((bits > 0) & (early == side)).sum()), int(((bits < 0) & (early == side)).sum())]
        for side in (0, 1)
    ]
    assert stats.fisher_exact(table).pvalue >= 1e-4


def test_torch_loads_a_planted_data_set() -> None:
    planted = plant(as_dataset(0, ROWS), [(torch.tensor(7),)] * COUNT, rng=0)
    batches = list(DataLoader(planted.dataset, batch_size=16))
    assert sum(len(batch[0]) for batch in batches) == ROWS
    with pytest.raises(IndexError):
        planted.dataset[ROWS]


def test_bound_takes_the_adjacency_along() -> None:
    planted = plant(np.zeros((800, 2)), np.ones((400, 2)), rng=5)
    scores = planted.bits + np.random.default_rng(0).normal(scale=0.5, size=400)
    for rule in ({}, {"rule": Online()}):
        bound = planted.bound(scores, rng=1, **rule)
        assert bound.adjacency == "replace"
        assert bound.epsilon > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "drop"}, "the length of the data set would reveal the bits"),
        ({"form": "other"}, "form must be 'replace' or 'zero-out'"),
        ({"form": "zero-out", "stand_ins": np.arange(5)}, "stand_ins go with form='replace'"),
        ({"stand_ins": np.arange(4)}, "stand_ins must be as long as canaries"),
        ({"canaries": np.arange(30)}, "at most the 20 rows that they may replace"),
        ({"canaries": [1, 2]}, "must be of one kind, got ndarray, list"),
        ({"canaries": np.arange(0)}, "canaries must hold at least one row"),
        ({"dataset": (np.arange(20), np.arange(19))}, "parts of one length"),
        ({"dataset": 5}, "dataset must have a length"),
        ({"dataset": "abcdef"}, "dataset must hold at least one row"),
        (
            {"dataset": pd.DataFrame({"a": range(20)}), "canaries": pd.DataFrame({"b": range(5)})},
            "do not fit: .*columns differ",
        ),
        ({"dataset": {"a": np.arange(20)}, "canaries": {"b": np.arange(5)}}, "the same keys"),
        ({"dataset": (np.arange(20),) * 2, "canaries": (np.arange(5),)}, "same number of parts"),
        ({"dataset": np.zeros((20, 3)), "canaries": np.zeros((5, 2))}, "do not fit"),
        ({"dataset": torch.zeros(20, 3), "canaries": torch.zeros(5, 2)}, "do not fit"),
    ],
    ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
)
def test_misuse_is_one_line(options: dict[str, Any], message: str) -> None:
    arguments = {"dataset": np.arange(20), "canaries": np.arange(5), "rng": 0, **options}
    with pytest.raises(InputError, match=message) as error:
        plant(**arguments)
    assert "\n" not in str(error.value)


def test_mislabelled_rows_are_real_with_wrong_labels() -> None:
    features = np.arange(200.0).reshape(100, 2)
    labels = np.array(["a", "b", "c", "d"])[np.arange(100) % 4]
    rows, wrong = mislabelled(features, labels, 100, rng=0)
    assert sorted(rows[:, 0]) == sorted(features[:, 0])
    truth = labels[(rows[:, 0] / 2).astype(int)]
    assert (truth != wrong).all()
    assert set(wrong) == set("abcd")


def test_mislabelled_rows_of_a_frame_fit_into_it() -> None:
    frame = pd.DataFrame({"age": [20, 30, 40, 50], "town": pd.Categorical(["a", "b", "a", "c"])})
    answers = pd.Series(["yes", "no", "no", "yes"], name="answer")
    planted = plant((frame, answers), mislabelled(frame, answers, 3, rng=0), rng=0)
    assert (planted.dataset[0].dtypes == frame.dtypes).all()
    assert planted.dataset[1].name == "answer"


def test_rows_of_a_unit_share_a_coin() -> None:
    rng = np.random.default_rng(0)
    users = rng.permutation(np.repeat(np.arange(200), 3))
    data, canaries = np.zeros((50, 600)), np.eye(600)
    planted = plant(data, canaries, rng=0, form="zero-out", unit=users)
    included = planted.weights[planted.indices] > 0
    assert len(planted.bits) == 200
    for place, user in enumerate(dict.fromkeys(users.tolist())):
        assert (included[users == user] == (planted.bits[place] > 0)).all()
    scores = included + rng.normal(scale=0.3, size=600)
    added = {user: scores[users == user].sum() for user in range(199, -1, -1)}
    bounds = [planted.bound(one, rng=0) for one in (scores, added, pd.Series(added))]
    assert bounds[0].epsilon == pytest.approx(bounds[1].epsilon) == bounds[2].epsilon > 3
    with pytest.raises(InputError, match="family is about single rows"):
        planted.bound(scores, 1e-5, family="gaussian")
    with pytest.raises(InputError, match="unit goes with form='zero-out' or with stand_ins"):
        plant(np.zeros((700, 600)), canaries, unit=users)
    with pytest.raises(InputError, match="unit must be as long as canaries"):
        plant(data, canaries, form="zero-out", unit=users[:5])


def test_what_names_no_unit_is_refused() -> None:
    planted = plant(np.zeros((5, 2)), np.ones((6, 2)), rng=0, form="zero-out", unit=[2, 1, 0, 2, 1, 0])
    by_row = pd.Series([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert np.array_equal(planted._by_coin(by_row), [5.0, 7.0, 9.0])
    assert np.array_equal(planted._by_coin(by_row[:3]), [3.0, 2.0, 1.0])  # by name
    with pytest.raises(InputError, match="scores must be as long as rows of canaries"):
        planted._by_coin(by_row[:4])
    assert planted.bound(by_row, rng=0).about == "units of up to 2 rows"
    for missing in (None, float("nan")):
        with pytest.raises(InputError, match="unit must name the unit of each row, got a missing value"):
            plant(np.zeros((5, 2)), np.ones((2, 2)), form="zero-out", unit=["a", missing])


def test_names_of_rows_join_scores_in_any_order() -> None:
    names = [f"canary {place}" for place in range(100)]
    planted = plant(np.zeros((5, 2)), np.ones((100, 2)), rng=0, form="zero-out", unit=names)
    scores = {name: float(bit) for name, bit in zip(names, planted.bits, strict=True)}
    shuffled = pd.Series(scores).sample(frac=1, random_state=0)
    assert planted.bound(shuffled, rng=0).epsilon == planted.bound(planted.bits, rng=0).epsilon > 2


def test_canaries_of_text() -> None:
    texts = np.arange(60).reshape(10, 6)
    ended = unlikely_endings(texts, 5, 1000, kept=0.5, rng=0)
    assert {tuple(row) for row in ended[:, :3]} <= {tuple(row) for row in texts[:, :3]}
    assert len(np.unique(ended[:, 3:])) > 10
    assert np.array_equal(texts.ravel(), np.arange(60))  # the data stay as they were
    with pytest.raises(InputError, match="kept must be at least 0 and below 1, got 1"):
        unlikely_endings(texts, 5, 1000, kept=1)
    with pytest.raises(InputError, match="texts must be whole numbers"):
        unlikely_endings(np.zeros(5), 2, 10)


def test_texts_are_drawn_as_the_model_says() -> None:
    """At temperature 1, by chi-squared at 1e-4; at a high one, nearly evenly."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=5, n_embd=8, n_layer=1, n_head=1)).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
        expected = torch.softmax(model(input_ids=torch.arange(5)[:, None]).logits[:, -1], -1).numpy()
    texts = sampled_texts(model, 4000, 2, temperature=1.0, rng=0)
    seen = np.bincount(5 * texts[:, 0] + texts[:, 1], minlength=25).reshape(5, 5)
    often = expected * seen.sum(axis=1, keepdims=True)
    kept = often > 5
    assert stats.chi2.sf(((seen - often)[kept] ** 2 / often[kept]).sum(), kept.sum()) > 1e-4
    even = sampled_texts(model, 4000, 2, temperature=1000.0, rng=0)
    assert stats.chisquare(np.bincount(even[:, 1])).pvalue > 1e-4


def test_other_canaries() -> None:
    features, labels = np.random.default_rng(0).normal(size=(50, 2, 3)), np.arange(50) % 5
    rows, classes = noise(features, labels, 40, rng=0)
    assert rows.shape == (40, 2, 3)
    assert (rows >= features.min(axis=0)).all()
    assert set(classes) <= set(range(5))
    binary, _ = noise(np.arange(40).reshape(20, 2) % 2, np.zeros(20), 200, rng=0)
    assert set(binary[:, 1]) == {1}
    assert set(noise(np.array([[0], [1]]), [0, 1], 200, rng=0)[0].ravel()) == {0, 1}
    rows, _ = blank(features, labels, 6, rng=0)
    assert ((rows != 0).reshape(6, -1).sum(axis=1) == 1).all()
    assert len(np.unique(rows.reshape(6, -1), axis=0)) == 6
    tokens = random_tokens(30, 8, 50, rng=0)
    assert tokens.min() >= 0
    assert tokens.max() < 50
    with pytest.raises(InputError, match="two classes"):
        mislabelled(features, np.zeros(50), 5)


def test_scores_of_membership() -> None:
    logits = np.array([[2.0, 1.0, 0.0], [0.0, 4.0, 1.0]])
    likelihood = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert np.allclose(loss_scores(logits, [1, 1], logits=True), loss_scores(likelihood, [1, 1]))
    assert margin_scores(logits, [1, 1]).tolist() == [-1.0, 3.0]
    assert difference_scores([3.0], [1.0]).tolist() == [2.0]
    assert np.isfinite(loss_scores([[1.0, 0.0]], [1])).all()
    with pytest.raises(InputError, match="say logits=True"):
        loss_scores(logits, [0, 0])
    with pytest.raises(InputError, match="columns of answers, 0 to 2"):
        margin_scores(logits, [0, 3])


def test_our_own_coins_are_never_doubted() -> None:
    """However they fall: eleven that were all included are neither refused nor warned about."""
    for seed in range(3000):
        planted = plant(np.zeros((20, 1)), np.ones((11, 1)), rng=seed)
        if abs(int(planted.bits.sum())) == 11:
            assert planted.bound(np.arange(11.0), rng=0).evidence.elements == 11
            return
    raise AssertionError("no such seed")


def planted_in_place(kind: str, seed: int) -> tuple[Any, np.ndarray]:
    """Canaries as they are after training that subtracts 3 from its rows in place, and the bits."""
    rng = np.random.default_rng(seed)
    rows, canaries = ([rng.normal(size=2) for _ in range(count)] for count in (80, 60))
    wrap: dict[str, Any] = {
        "arrays": list,
        "dicts": lambda some: [{"x": row} for row in some],
        "objects": lambda some: np.array([[row.tolist()] for row in some] + [[None]], dtype=object)[:-1],
        "frame": lambda some: pd.DataFrame({"x": [[*row] for row in some]}),
        "data set": lambda some: TensorDataset(torch.tensor(np.array(some))),
    }
    planted = plant(wrap[kind](rows), wrap[kind](canaries), rng=seed)
    data = planted.dataset
    cells = {
        "arrays": lambda row: row,
        "dicts": lambda row: row["x"],
        "objects": lambda row: row[0],
        "data set": lambda row: row[0],
    }
    for index in range(len(data)):
        row = data["x"].iloc[index] if kind == "frame" else cells[kind](data[index])
        if isinstance(row, list):
            row[:] = [value - 3.0 for value in row]
        else:
            row -= 3.0
    kept = planted.canaries
    seen = [kept["x"].iloc[k] if kind == "frame" else cells[kind](kept[k]) for k in range(60)]
    return np.array([np.mean(np.asarray(row)) for row in seen]), planted.bits


@pytest.mark.parametrize("kind", ["arrays", "dicts", "objects", "frame", "data set"])
def test_training_that_changes_its_data_in_place_does_not_mark_the_canaries(kind: str) -> None:
    """They would be lower by 3 if they were included."""
    scores, bits = planted_in_place(kind, 0)
    assert abs(scores[bits > 0].mean() - scores[bits < 0].mean()) < 1


def test_real_rows_that_canaries_replace_are_not_marked_either() -> None:
    rows = [np.zeros(1) for _ in range(50)]
    planted = plant(rows, [np.ones(1) for _ in range(20)], rng=0)
    for row in planted.dataset:
        row[:] = -3.0
    assert {float(rows[index][0]) for index in planted.indices} == {0.0}
