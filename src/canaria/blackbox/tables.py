"""Audits of released tables by canaries that have values of their own."""

from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.blackbox.plant import Planted

_OWN: Final = 0x6F776E


def own_values(frame: Any, column: Hashable, count: int, rng: Seed = None) -> Any:
    """Canaries for a table: copies of real rows, each with a value of its own in one column.

    Texts become "canary-" and random digits, whole numbers those that the column does not have, and decimal
    numbers and times are drawn from its range. A category is also new, so `plant` adds it for every coin.

    Args:
        frame: A data frame.
        column: The column of the own values.
        count: The number of canaries.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Returns:
        A data frame of canaries, to plant.

    Example:
        >>> import pandas as pd
        >>> from canaria.blackbox import own_values
        >>> people = pd.DataFrame({"town": ["Bern", "Genf"], "age": [30, 40]})
        >>> canaries = own_values(people, "town", 5, rng=0)
        >>> canaries["town"].nunique(), canaries["town"].str.startswith("canary-").all()
        (5, np.True_)
    """
    require_frame("frame", frame)
    if column not in frame.columns:
        raise InputError(f"column must be one of {list(frame.columns)}, got {shown(column)}")
    drawn = seeds.generator(rng, _OWN)
    canaries = frame.iloc[drawn.integers(0, len(frame), checks.integer("count", count, 1))]
    canaries, cells = canaries.reset_index(drop=True), frame[column].dropna()
    kind = cells.dtype
    values = _values_for(cells, count, drawn)
    if not values.is_unique or values.isin(cells).any():
        raise InputError(f"column {column!r} of type {kind} has no room for {count} values of their own")
    canaries[column] = values
    return canaries


def _values_for(cells: Any, count: int, drawn: np.random.Generator) -> Any:
    """A series of new values, of the type of a column."""
    import pandas as pd

    kind = cells.dtype
    if pd.api.types.is_bool_dtype(kind) or len(cells) == 0:
        raise InputError(f"a column of type {kind} has no room for values of their own; name another one")
    if pd.api.types.is_integer_dtype(kind):
        return pd.Series(_whole_numbers(cells, count, drawn)).astype(kind)
    if pd.api.types.is_float_dtype(kind) or pd.api.types.is_datetime64_any_dtype(kind):
        times = not pd.api.types.is_float_dtype(kind)
        numbers = cells.astype("int64" if times else "float64")
        finite = numbers[np.isfinite(numbers)]
        if len(finite) == 0:
            raise InputError(f"a column of type {kind} without finite numbers has no range for own values")
        # Half of each, as a difference may overflow.
        low, high = float(finite.min()) / 2, float(finite.max()) / 2
        own = 2 * (low + drawn.random(count) * (high - low))
        return pd.Series(own.astype(np.int64) if times else own).astype(kind)
    # 60 random bits are new, and differ from each other.
    texts = [f"canary-{number:015x}" for number in drawn.integers(0, 2**60, count)]
    return pd.Series(texts, dtype="category" if isinstance(kind, pd.CategoricalDtype) else None)


def _whole_numbers(cells: Any, count: int, drawn: np.random.Generator) -> Integers:
    """Numbers near those of a column that it does not have, in the range of its type."""
    type_ = np.iinfo(getattr(cells.dtype, "numpy_dtype", cells.dtype))
    low, most = int(cells.min()), int(type_.max)
    high = min(max(int(cells.max()), low + 10 * count) + count, most)
    low = max(min(low, high - 10 * count), int(type_.min))
    taken, found = set(cells.tolist()), dict[int, None]()
    for number in drawn.integers(low, high, 50 * count, endpoint=True, dtype=np.int64).tolist():
        if number not in taken and len(found) < count:
            found[number] = None
    if len(found) < count:
        raise InputError(
            f"a column of type {cells.dtype} from {low} to {high} has no room for {count} values"
        )
    return np.array(list(found), dtype=np.int64)


def table_scores(released: Any, planted: Planted, column: Hashable = None) -> Floats:
    """The score of each planted canary: how often its own value occurs in the released table.

    Args:
        released: The released data frame; or a series or dict of counts by value, if `column` is given.
        planted: What `plant` returned, for canaries of `own_values`.
        column: The column of the own values; by default every column in which each canary has a value that no
            other row has.

    Raises:
        InputError: If no column has own values, or if the column was not released.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from canaria import plant
        >>> from canaria.blackbox import own_values, table_scores
        >>> people = pd.DataFrame({"town": np.random.default_rng(0).choice(["Bern", "Genf"], 1000)})
        >>> planted = plant(people, own_values(people, "town", 200, rng=0), rng=0)
        >>> released = planted.dataset.sample(5000, replace=True, random_state=0)  # many more rows
        >>> print(planted.bound(table_scores(released, planted), rng=0).sentence)
        With 95% confidence ε is at least 3.460 at δ = 0.
    """
    canaries = planted.canaries
    require_frame("canaries", canaries)
    if column is None:
        others = np.ones(len(planted.dataset), dtype=bool)
        # Whatever the coins were: the places of canaries are left out, used or not.
        others[planted.indices] = False
        columns = [
            name
            for name in canaries.columns
            if canaries[name].is_unique and not canaries[name].isin(planted.dataset.loc[others, name]).any()
        ]
        if not columns:
            raise InputError("no column has values of the canaries' own; name one: table_scores(..., column)")
    else:
        columns = [column]
    counts = released if column is not None and not hasattr(released, "columns") else None
    scores = np.zeros(len(canaries))
    for name in columns:
        if counts is None and name not in released.columns:
            raise InputError(f"released has no column {shown(name)}")
        found = released[name].value_counts() if counts is None else counts
        try:
            known = {_key(value): float(number) for value, number in found.items()}
        except (TypeError, ValueError):
            raise InputError("released must be a frame, or counts by value: numbers") from None
        scores += [known.get(_key(value), 0.0) for value in canaries[name]]
    return scores


def _key(value: object) -> str:
    """A value as a text. It may come back from a file as another type: 7 as 7.0, or as a text."""
    try:
        return repr(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return str(value)


def require_frame(name: str, frame: Any) -> None:
    """Check that this is a data frame of at least one row."""
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns") or len(frame) == 0:
        raise InputError(f"{name} must be a data frame of at least one row, got {shown(frame)}")
    if not frame.columns.is_unique or len(frame.columns) == 0:
        raise InputError(f"{name} must have columns of different names, got {list(frame.columns)}")
