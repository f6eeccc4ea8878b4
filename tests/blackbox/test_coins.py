"""Coins decide about the rows of canaries and nothing else: data sets of many kinds, compared bit by bit."""

import pickle
import secrets
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

from canaria import InputError, plant
from canaria._core import seeds
from canaria.blackbox._joins import PlantedRows
from canaria.blackbox.plant import Planted

ROWS, COUNT = 12, 4
COINS = ([0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 0])


class Rigged:
    """A generator whose coins fall as told, and whose places do not depend on them."""

    def __init__(self, coins: list[int]) -> None:
        self.coins = coins

    def integers(self, *_: Any, **__: Any) -> Any:
        return np.array(self.coins, dtype=np.int8)

    def choice(self, *arguments: Any, **named: Any) -> Any:
        return np.random.default_rng(1).choice(*arguments, **named)


@pytest.fixture(params=["replace", "stand-ins", "zero-out"])
def planted(request: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """How to plant with given coins; every random name is the same."""
    monkeypatch.setattr(secrets, "token_hex", lambda _: "name")

    def by(coins: list[int], data: Any, canaries: Any, stand_ins: Any) -> Planted:
        monkeypatch.setattr(seeds, "generator", lambda *_: Rigged(coins))
        if request.param == "stand-ins":
            return plant(data, canaries, stand_ins=stand_ins)
        return plant(data, canaries, form=request.param)

    return by


def frame(cells: list[Any], odd: list[Any], dtype: Any = None, odd_dtype: Any = None) -> Any:
    """Frames of data, canaries and stand-ins with one column that is hard to keep, between ordinary ones."""

    def of(values: list[Any], kind: Any) -> pd.DataFrame:
        made = pd.DataFrame({"n": range(len(values)), "x": pd.Series(values, dtype=kind), "y": 0.5})
        made.attrs["from"] = "a survey"
        return made

    data = (cells * ROWS)[:ROWS]
    return of(data, dtype), of((odd * COUNT)[:COUNT], odd_dtype or dtype), of(data[:COUNT], dtype)


def indexed(index: Any) -> Any:
    data, canaries, stand_ins = frame([1], [2])
    return data.set_index(index[:ROWS]), canaries.set_index(index[-COUNT:]), stand_ins


def arrays(data: Any, canaries: Any) -> Any:
    """The first rows of the data stand in."""
    return data, canaries, data[:COUNT]


def named(name: str, **extra: Any) -> pd.DataFrame:
    made = pd.DataFrame(np.zeros((extra.pop("rows", ROWS), 3)), columns=pd.Index(["a", "b", "a"], name=name))
    return made.set_flags(allows_duplicate_labels=True)


NUMBERS = np.arange(ROWS * 6.0).reshape(ROWS, 6)
PAIR = np.dtype([("a", "i4"), ("b", "O"), ("c", "f8")], align=True)
Labelled = namedtuple("Labelled", "rows labels")
zoned = [pd.Timestamp("2026-01-01", tz="UTC")]
FRAMES = {
    "None in objects of whole numbers": frame([1, 2], [None, 5], object),
    "whole numbers, None": frame([1, 2], [None, 5]),
    "text and numbers in objects": frame(["a"], [1, 2.5], object),
    "whole numbers and floats in objects": frame([1], [2.5, 3], object),
    "truth values and None": frame([True, False], [None, True], object),
    "nullable whole numbers": frame([1, 2], [None, 7], "Int64"),
    "nullable and plain whole numbers": frame([1, 2], [7, 8], "int64", "Int64"),
    "nullable truth values": frame([True], [None, False], "boolean"),
    "small and large whole numbers": frame([1], [300, 2], "int8", "int64"),
    "nullable text": frame(["a"], [None, "bc"], "string"),
    "text": frame(["a"], [None, "b" * 99], "str"),
    "Arrow's text": frame(["a"], [None, "bc"], "string[pyarrow]"),
    "Arrow's numbers": frame([1], [None, 3], "int64[pyarrow]"),
    "text in objects": frame(["a"], ["b", None], object),
    "equal categories": frame(["u", "v"], ["v", None], pd.CategoricalDtype(["u", "v"])),
    "categories that nothing has": frame(["u"], ["v"], pd.CategoricalDtype(["u", "v", "w"])),
    "different categories": frame(["u"], ["w"], "category", "category"),
    "ordered categories": frame(["u"], ["v"], pd.CategoricalDtype(["v", "u"], ordered=True)),
    "ordered and other categories": frame(
        ["u"], ["v"], pd.CategoricalDtype(["v", "u"], ordered=True), pd.CategoricalDtype(["u", "v"])
    ),
    "times with a zone": frame(zoned, [pd.NaT], "datetime64[ns, UTC]"),
    "times of two zones": frame(zoned, [pd.Timestamp("2026-01-01", tz="Asia/Tokyo")]),
    "times in objects": frame(zoned, [pd.Timestamp("2026-01-01")], object),
    "times of two units": frame([0], [1], "datetime64[s]", "datetime64[ns]"),
    "spans of time": frame([pd.Timedelta(1)], [None], "timedelta64[ns]"),
    "periods": frame([pd.Period("2026-01")], [pd.NaT], "period[M]"),
    "intervals": frame([pd.Interval(0, 1)], [pd.Interval(1, 2)], "interval[int64]"),
    "sparse": frame([0.0, 1.0], [5.0, 6.0], pd.SparseDtype("float64", 0.0)),
    "complex numbers": frame([1.0], [1j]),
    "lists": frame([[1]], [[2, 3], None], object),
    "all missing": frame([None], [1, 2], object),
    "labels of text": indexed(pd.Index([f"row {k}" for k in range(40)], name="label")),
    "labels of two levels": indexed(pd.MultiIndex.from_product([range(20), ["a", "b"]])),
    "names twice": (named("c"), named("c", rows=COUNT), named("c", rows=COUNT)),
    "a series of objects": tuple(made["x"] for made in frame([1, 2], [None, 5], object)),
    "a series of categories": tuple(made["x"] for made in frame(["u"], ["w"], "category", "category")),
}
ARRAYS = {
    "in rows": arrays(NUMBERS, -NUMBERS[:COUNT]),
    "in columns": arrays(np.asfortranarray(NUMBERS), -NUMBERS[:COUNT]),
    "every other column": arrays(NUMBERS[:, ::2], np.asfortranarray(-NUMBERS[:COUNT, ::2])),
    "bytes and whole numbers": arrays(np.arange(ROWS, dtype=np.int8), np.arange(300, 300 + COUNT)),
    "texts of two lengths": arrays(np.array(["a"] * ROWS), np.array(["bcd"] * COUNT)),
    "objects": arrays(np.array([1] * ROWS, dtype=object), np.array([None, [2], "a", 2.5], dtype=object)),
    "records": arrays(np.zeros(ROWS, PAIR), np.ones(COUNT, PAIR)),
    "an array of records": arrays(np.zeros(ROWS, PAIR).view(np.recarray), np.ones(COUNT, PAIR)),
    "masked": arrays(np.ma.array(NUMBERS), np.ma.array(-NUMBERS[:COUNT], mask=NUMBERS[:COUNT] % 2 == 0)),
    "masked rows": arrays(
        np.ma.array(NUMBERS, mask=NUMBERS > 9, fill_value=-1), np.ma.array(NUMBERS[:COUNT])
    ),
    "times": arrays(np.zeros(ROWS, "datetime64[s]"), np.full(COUNT, "NaT", "datetime64[ns]")),
    "matrix": arrays(np.matrix(NUMBERS), np.matrix(-NUMBERS[:COUNT])),
    "read-only": arrays(np.broadcast_to(NUMBERS[0], (ROWS, 6)), NUMBERS[:COUNT]),
}
TENSOR = torch.arange(ROWS * 6.0).reshape(ROWS, 3, 2, 1)
TENSORS = {
    "plain": arrays(TENSOR, -TENSOR[:COUNT]),
    "two types": arrays(TENSOR.to(torch.int8), TENSOR[:COUNT].to(torch.bfloat16)),
    "with gradient": arrays(TENSOR.clone().requires_grad_(), TENSOR[:COUNT] * 2),
    "channels last": arrays(TENSOR.to(memory_format=torch.channels_last), TENSOR[:COUNT]),
    "views": arrays(TENSOR[:, 1:], TENSOR.flip(0)[:COUNT, 1:]),
}
TABLE = {"x": list(range(ROWS)), "t": ["a", None] * (ROWS // 2)}
HELD = datasets.Dataset.from_dict(TABLE)
ODD = [{"x": None, "t": "b" * 50}, {"x": 7, "t": None}, {"x": 8, "t": ""}, {"x": 9, "t": "c"}]
LABELS = datasets.Features(x=datasets.Value("int64"), t=datasets.ClassLabel(names=["a", "b"]))


class Noisy(Dataset[Any]):
    """Rows that are augmented while they are read."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, place: int) -> Any:
        return {"x": TENSOR[place], "noise": torch.rand(2), "label": np.float32(place)}


ITEMS = [{"x": -TENSOR[0], "noise": torch.zeros(2), "label": 1.0}] * COUNT
SETS = {
    "Hugging Face": (HELD, datasets.Dataset.from_list(ODD), HELD.select(range(COUNT))),
    "Hugging Face, items": (HELD.shuffle(seed=0), ODD, ODD[::-1]),
    "Hugging Face, formatted": (HELD.with_format("numpy", columns=["x"]), ODD, ODD),
    "Hugging Face, nothing but None": (
        HELD,
        datasets.Dataset.from_dict({"x": [None] * COUNT, "t": [None] * COUNT}),
        ODD,
    ),
    "Hugging Face, labels": tuple(
        datasets.Dataset.from_dict({"x": [0] * k, "t": [0, 1] * (k // 2)}, features=LABELS)
        for k in (ROWS, COUNT, COUNT)
    ),
    "TensorDataset": (
        TensorDataset(TENSOR, TENSOR[:, 0, 0, 0].long()),
        TensorDataset(-TENSOR[:COUNT], torch.zeros(COUNT)),
        TensorDataset(TENSOR[:COUNT], torch.zeros(COUNT)),
    ),
    "TensorDataset, items": (TensorDataset(TENSOR), [(TENSOR[1].double(),)] * COUNT, [(TENSOR[0],)] * COUNT),
    "another Dataset": (Noisy(), ITEMS, ITEMS),
    "list of views": (list(TENSOR), list(-TENSOR[:COUNT]), list(TENSOR[:COUNT])),
    "list of rows": ([{"x": 1}] * ROWS, [{"x": None, "z": "a"}] * COUNT, [{"y": 2}] * COUNT),
    "tuple": tuple(zip(FRAMES["None in objects of whole numbers"], ARRAYS["objects"], strict=True)),
    "named tuple": tuple(map(Labelled, ARRAYS["in columns"], TENSORS["two types"])),
    "dict": tuple(
        {"x": x, "y": y} for x, y in zip(ARRAYS["masked"], FRAMES["truth values and None"], strict=True)
    ),
}
KINDS = {
    f"{group}: {name}": given
    for group, kinds in (("frame", FRAMES), ("array", ARRAYS), ("tensor", TENSORS), ("set", SETS))
    for name, given in kinds.items()
}


def described(data: Any, others: list[int]) -> Iterator[Any]:
    """All that can be seen of a data set, but the cells of the rows that are not among `others`."""
    yield type(data), len(data)
    if isinstance(data, dict | tuple):
        for name, part in data.items() if isinstance(data, dict) else enumerate(data):
            yield name
            yield from described(part, others)
    elif isinstance(data, pd.DataFrame | pd.Series):
        yield from described_frame(data, others)
    elif isinstance(data, np.ndarray):
        mask = getattr(data, "_mask", None)
        yield data.dtype, data.dtype.descr if data.dtype.names is None else data.dtype.fields, data.shape
        yield data.strides, str(data.flags), data.nbytes, data.base is None or data.base.nbytes == data.nbytes
        yield getattr(data, "fill_value", None), np.shape(mask), None if mask is None else mask.dtype
        yield pickle.dumps(data[:0]), data[others].tolist()
        yield None if mask is None else np.ma.getmaskarray(data)[others].tobytes()
    elif isinstance(data, torch.Tensor):
        yield data.dtype, data.shape, data.stride(), data.storage_offset(), data.layout, data.device
        yield data.requires_grad, data.grad_fn, data.is_leaf, data.untyped_storage().nbytes(), vars(data)
        yield data.untyped_storage().nbytes() == data.numel() * data.element_size()
        yield data[others].tolist()
    elif isinstance(data, TensorDataset):
        yield set(vars(data))
        yield from described(data.tensors, others)
    elif isinstance(data, datasets.Dataset):
        table = data.data.table
        yield data.features, table.schema.to_string(), [field.nullable for field in table.schema]
        yield table.schema.metadata, data.format, data._fingerprint, vars(data.info), data.split
        yield (
            data._indices,
            data.cache_files,
            [column.num_chunks for column in table.columns],
            set(vars(data)),
        )
        yield [column.chunk(0).offset for column in table.columns]
        yield data.with_format(None).select(others).to_list()
    elif isinstance(data, PlantedRows):
        yield list(data._own), data._rows, data._length, set(vars(data))
        torch.manual_seed(0)
        yield [str(row) for place, row in enumerate(data) if place in others]
    else:
        yield [str(data[place]) for place in others]


def described_frame(data: Any, others: list[int]) -> Iterator[Any]:
    yield type(data.index), data.index.equals(pd.RangeIndex(len(data))), data.index.names, data.attrs
    yield (
        data.flags.allows_duplicate_labels,
        pickle.dumps(data.iloc[:0]),
    )  # the schema, as it would be released
    columns = [data] if isinstance(data, pd.Series) else [data.iloc[:, k] for k in range(data.shape[1])]
    yield [(column.name, column.dtype, str(column.dtype)) for column in columns]
    yield [pickle.dumps(column.cat.categories) for column in columns if hasattr(column, "cat")]
    yield [column.array._pa_array.num_chunks for column in columns if hasattr(column.array, "_pa_array")]
    for block in data._mgr.blocks:
        yield block.mgr_locs.as_array.tolist(), type(block.values), getattr(block.values, "strides", None)
        base = getattr(block.values, "base", None)
        yield base is None or getattr(base, "nbytes", 0) <= block.values.nbytes
    yield [str(column.iloc[others].to_list()) for column in columns]


@pytest.mark.filterwarnings("ignore:.*matrix:PendingDeprecationWarning")
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_but_the_cells_of_the_canaries_depends_on_the_coins(kind: str, planted: Any) -> None:
    seen = []
    for coins in (COINS[-1], *COINS):  # the first time, packages fill caches that pickles show
        torch.manual_seed(0)
        made = planted(coins, *KINDS[kind])
        others = sorted(set(range(ROWS)) - set(made.indices.tolist()))
        drawn = torch.get_rng_state().numpy().tobytes()
        seen.append([drawn, made.indices.tolist(), *map(str, described(made.dataset, others))])
    for other in seen[2:]:
        assert [(here, there) for here, there in zip(other, seen[1], strict=True) if here != there] == []


def test_printing_what_was_planted_does_not_show_the_bits(planted: Any) -> None:
    assert {repr(planted(coins, *KINDS["array: in rows"])) for coins in COINS[1:]} == {
        f"Planted({COUNT} canaries, adjacency={planted(COINS[0], *KINDS['array: in rows']).adjacency!r})"
    }


def test_rows_bring_no_other_rows_along(planted: Any) -> None:
    """The row of a tensor is a view of all rows: its copy must not be."""
    for kind in ("set: list of views", "set: another Dataset"):
        made = planted([0, 1, 1, 0], *KINDS[kind])
        rows = [made.dataset[place] for place in made.indices.tolist()]
        cells = [row["x"] if isinstance(row, dict) else row for row in rows]
        assert {cell.untyped_storage().nbytes() for cell in cells} == {TENSOR[0].nbytes}


@pytest.mark.parametrize("coin", [0, 1])
def test_whether_plant_fails_does_not_depend_on_the_coins(coin: int, planted: Any) -> None:
    """Whoever tries again after an error would otherwise choose the coins."""
    uncopied = (k for k in "abcd")
    for data, canaries in (
        ([0] * ROWS, [uncopied] * COUNT),
        (np.zeros(ROWS, object), np.array([uncopied] * COUNT, object)),
        (pd.Series([0] * ROWS, dtype=object), pd.Series([uncopied] * COUNT, dtype=object)),
        (Noisy(), [uncopied] * COUNT),
    ):
        with pytest.raises(InputError, match="canaries must hold elements that can be copied"):
            planted([coin] * COUNT, data, canaries, data[:COUNT] if not isinstance(data, Noisy) else ITEMS)


def test_two_data_sets_never_share_a_fingerprint() -> None:
    """Results of `map` are cached by fingerprint; other coins must not find them."""
    first, again = (plant(HELD, ODD, rng=0).dataset for _ in range(2))
    assert first._fingerprint != again._fingerprint
    assert first.map(lambda row: {"x": 1})["x"][:] == [1] * ROWS


@pytest.mark.parametrize(
    ("data", "canaries", "message"),
    [
        (HELD, [{"x": "many", "t": "a"}], "do not fit: .*invalid literal"),
        (HELD, HELD.remove_columns("t"), "columns differ"),
        (HELD, datasets.Dataset.from_dict({"x": ["a"], "t": ["a"]}), "features can"),
        (TensorDataset(TENSOR), [(TENSOR[0], 1)], "do not fit"),
        (TensorDataset(TENSOR), TensorDataset(TENSOR[:2, :1]), "do not fit"),
        ({1, 2, 3}, {4}, "dataset of type set cannot be planted"),
        (Noisy(), pd.DataFrame({"a": [1, 2]}), "do not fit"),
    ],
)
def test_what_does_not_fit_is_one_line(data: Any, canaries: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        plant(data, canaries, rng=0)
    assert "\n" not in str(error.value)


def test_releasing_the_schema_shows_nothing() -> None:
    """It was ε ≥ 3.99: a canary's None made its column a float, if the canary was included."""
    guesses = []
    for seed in range(200):
        data = pd.DataFrame({f"c{k}": pd.Series([1] * 10, dtype=object) for k in range(3)})
        canaries = pd.DataFrame(
            {f"c{k}": [None if k == j else 1 for j in range(3)] for k in range(3)}, dtype=object
        )
        made = plant(data, canaries, rng=seed)
        guesses.append([str(kind) for kind in made.dataset.dtypes])
    assert {kind for row in guesses for kind in row} == {"object"}
