"""A gate for releases: a table is split by coins, and what is made from one part is tested by all rows."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria._core.progress import tell
from canaria._core.seeds import Seed
from canaria.blackbox.tables import require_frame
from canaria.bounds import Result
from canaria.claims import ApproximateDP
from canaria.game.scores import result_of_scores

_SPLIT: Final = 0x73706C
_CELLS: Final = 2e6
"""The most distances in memory at once, so that they stay in the cache of a core."""
_TIES: Final = 1e-6
"""The weight of the distance to other private rows, which only orders units that are equal otherwise."""
_MISSING: Final = 1e9
"""The code of a missing number: far from all numbers, and equal to itself."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Gate:
    """A table that was split by coins, which tests what was made from one part of it.

    Keep it away from what makes the release. Printing it does not show the coins.

    Attributes:
        table: All rows.
        included: For each row, whether it was in the part that was released from.
        units: For each row, the number of its unit, which had one coin; by default rows are units.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from canaria.blackbox import split
        >>> split(pd.DataFrame({"height": np.arange(100.0)}), rng=0)[1]
        Gate(100 rows, 100 coins)
    """

    table: Any
    included: npt.NDArray[np.bool_]
    units: Integers

    def __repr__(self) -> str:
        return f"Gate({len(self.table)} rows, {len(np.unique(self.units))} coins)"

    def scores(self, released: Any) -> Floats:
        """How near each unit is to the released rows: minus the smallest distance of its rows.

        Numbers count by their range, other values as equal or not. Among units at the same distance, those
        that are far from all other private rows have the higher score: they are less likely near by chance.

        Args:
            released: A data frame with the columns of the table.
        """
        rows, other = _coded(self.table, released)
        near = -_distances(rows, other) + _TIES * _distances(rows, rows, own=True)
        best = np.full(int(self.units.max()) + 1, -np.inf)
        np.maximum.at(best, self.units, near)
        return best

    def bound(
        self,
        released: Any,
        *,
        epsilon: float | None = None,
        delta: float = 0.0,
        confidence: float = 0.95,
        rng: Seed = None,
    ) -> Result:
        """The bound of a release, beside its claim if there is one.

        Args:
            released: A data frame with the columns of the table, made from the included rows alone.
            epsilon: The claimed epsilon, for added and removed rows (or units); None for no claim.
            delta: The claimed delta.
            confidence: The confidence of the bound.
            rng: A seed for the order of equal scores.

        Returns:
            The result; print it.
        """
        claim = None if epsilon is None else ApproximateDP(epsilon, delta, "add-remove")
        coins = np.zeros(int(self.units.max()) + 1, dtype=bool)
        coins[self.units] = self.included
        return result_of_scores(
            self.scores(released),
            coins,
            claim,
            delta=delta,
            confidence=confidence,
            rng=rng,
            name="release gate",
        )


def split(table: Any, rng: Seed = None, *, unit: Hashable = None) -> tuple[Any, Gate]:
    """Split a table by independent fair coins: one part to release from, and a gate that tests the release.

    Do not use `train_test_split`: it includes a fixed number of rows, so rows are not independent.

    Args:
        table: A data frame of all private rows.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.
        unit: The column that names the user, whose rows share one coin; by default each row has its own.

    Returns:
        The included rows, with their types, numbered from 0; and the gate.

    Example:
        >>> import numpy as np, pandas as pd
        >>> from canaria.blackbox import split
        >>> table = pd.DataFrame({"height": np.random.default_rng(0).normal(size=1000)})
        >>> train, gate = split(table, rng=0)
        >>> released = train.sample(300, random_state=0)  # real rows, where noise was claimed
        >>> gate.bound(released, epsilon=1.0, rng=0).answer
        'refuted'
    """
    units = units_of(table, unit)
    if units.max() == 0:
        raise InputError("table must have at least two rows, or users, to be split")
    coins = seeds.generator(rng, _SPLIT).integers(0, 2, int(units.max()) + 1).astype(bool)
    included = coins[units]
    return table[included].reset_index(drop=True), Gate(table=table, included=included, units=units)


def units_of(table: Any, unit: Hashable) -> Integers:
    """The number of each row's unit, by the column that names it; without one, rows are units."""
    require_frame("table", table)
    if unit is None:
        return np.arange(len(table))
    if unit not in table.columns:
        raise InputError(f"unit must be one of {list(table.columns)}, got {shown(unit)}")
    return np.asarray(table.groupby(unit, sort=False, dropna=False).ngroup(), dtype=np.int64)


def _coded(table: Any, released: Any) -> tuple[Floats, Floats]:
    """Both tables as numbers whose cells are at most 1 apart: by the range, or 1 for values that differ."""
    import pandas as pd

    require_frame("released", released)
    if missing := [name for name in table.columns if name not in released.columns]:
        raise InputError(f"released must have the columns of the table; {missing} are not there")
    codes = []
    for name in table.columns:
        own, other = table[name], released[name]
        if pd.api.types.is_numeric_dtype(own) and not pd.api.types.is_bool_dtype(own):
            own, other = (pd.to_numeric(one, errors="coerce").astype("float64") for one in (own, other))
            finite = own[np.isfinite(own)]
            scale = (finite.max() - finite.min()) or 1.0 if len(finite) else 1.0
            codes.append(
                [np.nan_to_num(one / scale, nan=_MISSING).clip(-_MISSING, _MISSING) for one in (own, other)]
            )
        else:
            # By texts, since a value may come back from a file as another type.
            both = pd.concat([own.astype(str), other.astype(str)])
            coded = pd.factorize(both)[0].astype("float64")
            codes.append([coded[: len(own)], coded[len(own) :]])
    rows, others = zip(*codes, strict=True)
    return np.column_stack(rows), np.column_stack(others)


def _distances(rows: Floats, others: Floats, *, own: bool = False) -> Floats:
    """The distance of each row to the nearest other one; `own`: the others are the rows themselves."""
    found = np.empty(len(rows))
    block = max(1, int(_CELLS / len(others)))
    for start in range(0, len(rows), block):
        tell(f"row {start} of {len(rows)}")
        part = rows[start : start + block]
        apart = np.zeros((len(part), len(others)))
        for mine, theirs in zip(part.T, others.T, strict=True):
            apart += np.minimum(np.abs(mine[:, None] - theirs), 1.0)
        if own:
            apart[np.arange(len(part)), start + np.arange(len(part))] = np.inf
        found[start : start + block] = apart.min(axis=1)
    return found
