"""Audits of released tables by canaries that have values of their own."""

from collections.abc import Hashable
from typing import Any, Final

import numpy as np

from canaria._core import checks, seeds
from canaria._core.arrays import Floats
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed
from canaria.blackbox.plant import Planted

_OWN: Final = 0x6F776E


def own_values(frame: Any, column: Hashable, count: int, rng: Seed = None) -> Any:
    """Canaries for a table: copies of real rows, each with a value of its own in one column.

    Texts become "canary-" and random digits, whole numbers those that the column does not have, and decimal
    numbers are drawn from its range. A category is also new, so `plant` adds it for every coin.

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
    import pandas as pd

    require_frame("frame", frame)
    if column not in frame.columns:
        raise InputError(f"column must be one of {list(frame.columns)}, got {shown(column)}")
    drawn = seeds.generator(rng, _OWN)
    canaries = frame.iloc[drawn.integers(0, len(frame), checks.integer("count", count, 1))]
    canaries, cells = canaries.reset_index(drop=True), frame[column]
    if not pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_bool_dtype(cells):
        # 60 random bits are new, and differ from each other.
        texts = [f"canary-{number:015x}" for number in drawn.integers(0, 2**60, count)]
        values = pd.Series(texts, dtype="category" if isinstance(cells.dtype, pd.CategoricalDtype) else None)
    elif pd.api.types.is_integer_dtype(cells):
        low = int(cells.min())
        free = np.setdiff1d(np.arange(low, max(int(cells.max()), low + 10 * count) + count), cells)
        values = pd.Series(drawn.choice(free, count, replace=False)).astype(cells.dtype)
    else:
        values = pd.Series(drawn.uniform(cells.min(), cells.max(), count)).astype(cells.dtype)
    canaries[column] = values
    return canaries


def table_scores(released: Any, planted: Planted, column: Hashable = None) -> Floats:
    """The score of each planted canary: how often its own value occurs in the released table.

    Args:
        released: The released data frame; or a series or dict of counts by value, if `column` is given.
        planted: What `plant` returned, for canaries of `own_values`.
        column: The column of the own values; by default every column in which each canary has a value that no
            other row has.

    Raises:
        InputError: If no column has own values.

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
        found = released[name].value_counts() if counts is None else counts
        # By texts, since a value may come back from a file as another type.
        known = {str(value): float(number) for value, number in found.items()}
        scores += [known.get(str(value), 0.0) for value in canaries[name]]
    return scores


def require_frame(name: str, frame: Any) -> None:
    """Check that this is a data frame of at least one row."""
    if not hasattr(frame, "iloc") or not hasattr(frame, "columns") or len(frame) == 0:
        raise InputError(f"{name} must be a data frame of at least one row, got {shown(frame)}")
