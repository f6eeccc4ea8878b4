"""Every number that an output holds, by name: what a score can be learned from.

Whatever a release returns is taken apart: arrays into their elements, tables into their cells and counts,
objects into their attributes, private ones too, since a pickled model publishes them. A text, a category or a
type that occurs becomes a number as well. A number that is absent is `nan` in the columns of `table`.

Nothing here decides about privacy: names and values only have to be the same for the same output.
"""

import enum
import itertools
import math
import numbers
import random
import re
import types
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats

MOST: Final = 4000
"""Numbers that are taken from one output, in the order in which it holds them."""
_MOST_ELEMENTS: Final = 1000
"""Elements of an array or a list that are taken one by one."""
_MOST_CELLS: Final = 100
"""Rows of a table whose cells are taken one by one, by their labels."""
_MOST_KINDS: Final = 300
"""Different values of a column that are counted each."""
_LONGEST: Final = 60
"""Letters of a text that are part of a name."""
_DEEPEST: Final = 20
_MOST_IN_TEXT: Final = 50
"""Numbers in a text, and texts in a list, that are taken in their order."""
_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_PLACE: Final = re.compile(r"\[\d[\d, ]*\]")
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")
_UNREAD: Final = (
    np.random.Generator,
    np.random.RandomState,
    np.random.BitGenerator,
    random.Random,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodType,
    type,
)
"""Code and generators of randomness are no part of a release."""


def numbers_of(output: Any) -> dict[str, float]:
    """Take an output apart into numbers, by name.

    There are at most 4,000, and ends and mean of those whose names differ in a place only.

    Args:
        output: Anything that a function returned.

    Returns:
        The numbers. A name is how Python would reach the number from the output, or says what occurs there.

    Example:
        >>> numbers_of({"mean": 0.5, "seen": ["a"]})
        {'.size': 2, "['mean']": 0.5, "['seen'].size": 1, "['seen'] has 'a'": 1, "['seen'][0] is 'a'": 1.0}

    """
    found: dict[str, float] = {}
    _Reader(found).read("", output)
    alike = defaultdict(list)
    for name, value in found.items():
        if _PLACE.search(name) and ".shape[" not in name:
            alike[any_place(name)].append(value)
    for name, values in alike.items():
        if len(values) > 1:
            found |= {f"max of {name}": max(values), f"min of {name}": min(values)}
            if math.isfinite(total := math.fsum(filter(math.isfinite, values))):
                # Many numbers may each have their noise, and their mean too little.
                found[f"mean of {name}"] = total / len(values)
    return found


def any_place(name: str) -> str:
    """The name that numbers have in common which differ in their place only."""
    return _PLACE.sub("[*]", name)


def table(runs: Sequence[Mapping[str, float]], names: Sequence[str]) -> Floats:
    """One row for each run and one column for each name; `nan` where a run has no such number."""
    return np.array([[run.get(name, math.nan) for name in names] for run in runs]).reshape(
        len(runs), len(names)
    )


class _Reader:
    """Takes an output apart. `path` is how Python would reach a part, from the output itself."""

    def __init__(self, found: dict[str, float]) -> None:
        self._found = found
        self._inside: list[int] = []

    def read(self, path: str, value: Any) -> None:
        """Add the numbers of a value, unless it is part of itself, too deep, or there are enough."""
        if len(self._found) >= MOST or len(self._inside) > _DEEPEST or id(value) in self._inside:
            return
        self._inside.append(id(value))
        try:
            self._read(path, value)
        except Exception:  # an object of the user's that cannot be read is no fault of the release
            self._put(f"{path} is {type(value).__name__}", 1.0)
        self._inside.pop()

    def _put(self, name: str, value: float) -> None:
        # A nan is a value of its own: without this, it would look like a number that is absent.
        if math.isnan(value):
            name, value = f"{name} is nan", 1.0
        if len(self._found) < MOST:
            self._found[name] = value

    def _read(self, path: str, value: Any) -> None:
        if value is None or isinstance(value, enum.Enum):
            self._put(f"{path} is {value}", 1.0)
        elif isinstance(value, _UNREAD):
            self._found |= {} if path else {f" is {type(value).__name__}": 1.0}
        elif isinstance(value, str | bytes):
            self._text(path, value)
        elif isinstance(value, numbers.Number):
            self._number(path, value)
        elif isinstance(value, Mapping):
            self._put(f"{path}.size", len(value))
            for key, inner in value.items():
                self.read(f"{path}[{_shown(key)}]", inner)
        elif hasattr(value, "iloc") and hasattr(value, "items"):
            self._frame(path, value)
        elif hasattr(value, "__array__"):
            self._array(path, value)
        elif isinstance(value, Sequence | Set | Iterator | MappingView):
            held: Any = value
            self._list(path, list(itertools.islice(held, _MOST_ELEMENTS)))
        else:
            self._object(path, value)

    def _number(self, path: str, value: Any) -> None:
        # Python's own numbers and these three are mixed freely, as by `counts.get(name, 0)`.
        if isinstance(value, np.generic) and value.dtype not in (np.float64, np.int64, np.bool_):
            self._put(f"{path}.dtype is {value.dtype}", 1.0)
        try:
            parts = {"": float(value)}
        except TypeError:
            parts = {".real": float(value.real), ".imag": float(value.imag)}
        except OverflowError:
            parts = {"": math.inf if value > 0 else -math.inf}
        for name, part in parts.items():
            self._put(path + name, part)

    def _text(self, path: str, value: str | bytes) -> None:
        self._put(f"{path}.size", len(value))
        words = value.split()
        self._kinds(path, [value] if len(words) <= 1 else words)
        if isinstance(value, str):
            for place, number in enumerate(itertools.islice(_NUMBER.finditer(value), _MOST_IN_TEXT)):
                self._put(f"{path}.number[{place}]", float(number[0]))

    def _kinds(self, path: str, values: Iterable[Any]) -> None:
        """How often each value occurs, or how many there are if they are too many."""
        counts = Counter(map(_shown, values))
        if len(counts) > _MOST_KINDS:
            self._put(f"{path}.different", len(counts))
            return
        for kind, count in counts.items():
            self._put(f"{path} has {kind}", count)

    def _list(self, path: str, values: list[Any]) -> None:
        self._put(f"{path}.size", len(values))
        if all(isinstance(value, str | bytes) for value in values):
            self._kinds(path, values)
            for place, value in enumerate(values[:_MOST_IN_TEXT]):  # a ranking is in their order
                self._put(f"{path}[{place}] is {_shown(value)}", 1.0)
            return
        for place, value in enumerate(values[:_MOST_ELEMENTS]):
            self.read(f"{path}[{place}]", value)

    def _array(self, path: str, value: Any) -> None:
        held = getattr(value, "detach", lambda: value)()  # of torch, which refuses arrays with gradients
        held = held.to_dense() if "sparse" in str(getattr(held, "layout", "")) else held
        held = held.float() if "bfloat16" in str(held.dtype) and hasattr(held, "float") else held
        values = np.asarray(getattr(held, "cpu", lambda: held)())
        if isinstance(value, np.ma.MaskedArray):
            self.read(f"{path}.mask", np.asarray(value.mask))
            self.read(f"{path}.fill_value", value.fill_value)
        for axis, size in enumerate(values.shape):
            self._put(f"{path}.shape[{axis}]", size)
        self._put(f"{path}.dtype is {values.dtype}", 1.0)
        if values.dtype.kind in "mM":
            values = values.astype(np.int64)
        if values.dtype.kind not in "biufc":
            self._list(path, values.ravel().tolist())
            return
        flat = values.ravel()
        places = itertools.islice(np.ndindex(values.shape), _MOST_ELEMENTS)
        for place, element in zip(places, flat[:_MOST_ELEMENTS].tolist(), strict=True):
            self._number(f"{path}[{', '.join(map(str, place))}]" if place else path, element)
        if len(flat) > _MOST_ELEMENTS:
            self._summary(path, flat)

    def _summary(self, path: str, values: npt.NDArray[Any]) -> None:
        """What many numbers show of one of them."""
        finite = values[np.isfinite(values)]
        self._put(f"{path}.finite", len(finite))
        if len(finite) and finite.dtype.kind != "c":
            for name in ("min", "max", "mean", "std"):
                self._put(f"{path}.{name}", float(getattr(finite.astype(np.float64), name)()))

    def _frame(self, path: str, value: Any) -> None:
        """A frame or a series: its size, its types, its index, and each of its columns."""
        columns = list(value.items()) if hasattr(value, "columns") else [(value.name, value)]
        self._about(path, value)
        self._put(f"{path}.rows", len(value))
        labels = list(map(_shown, value.index))
        if type(value.index).__name__ == "RangeIndex":  # it holds the number of rows, and nothing else
            pass
        elif value.index.dtype.kind in "iufM" and labels:
            self._summary(f"{path}.index", value.index.to_numpy().astype(np.float64))
        else:
            self._kinds(f"{path}.index", labels)
        for name, column in columns:
            place = f"{path}[{_shown(name)}]"
            self._put(f"{place}.dtype is {column.dtype}", 1.0)
            known = column.dropna()
            self._put(f"{place}.missing", len(column) - len(known))
            kind = getattr(column.dtype, "kind", "O")
            if kind in "biufmM":
                self._summary(place, known.to_numpy().astype(np.float64))
            if len(labels) <= _MOST_CELLS:
                for label, cell in zip(labels, column.tolist(), strict=True):
                    # Columns of objects may hold numbers, and columns of numbers a missing value of its own.
                    if isinstance(cell, numbers.Number):
                        self._number(f"{place}.at[{label}]", cell)
            if hasattr(column, "cat"):
                self._kinds(f"{place}.categories", column.cat.categories)
            if kind != "f":
                self._kinds(place, known.tolist())

    def _about(self, path: str, value: Any) -> None:
        """What a frame says of itself besides its cells."""
        axes = {"index": value.index, "columns": getattr(value, "columns", None)}
        named = {f"{axis}.names": list(getattr(held, "names", ())) for axis, held in axes.items()}
        for name, held in {"attrs": value.attrs, **named}.items():
            if any(one is not None for one in held):
                self.read(f"{path}.{name}", held)

    def _object(self, path: str, value: Any) -> None:
        """An object: its type, and all that it stores; one that stores nothing by the text that shows it."""
        self._put(f"{path} is {type(value).__name__}", 1.0)
        held = dict(getattr(value, "__dict__", {}))
        for base in type(value).__mro__:
            slots = getattr(base, "__slots__", ())
            for name in [slots] if isinstance(slots, str) else slots:
                if hasattr(value, name):
                    held[name] = getattr(value, name)
        for name, inner in held.items():
            self.read(f"{path}.{name}", inner)
        if not held and (state := getattr(value, "__getstate__", lambda: None)()) is not None:
            # Objects of compiled code, such as trees of scikit-learn, show only to pickle what they hold.
            self.read(f"{path}.__getstate__()", state)
        if not held and not repr(value).startswith("<"):
            self._kinds(path, [value])


def _shown(value: object) -> str:
    """A key or a value as part of a name."""
    text = _ADDRESS.sub("", repr(value.item() if isinstance(value, np.generic) else value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
