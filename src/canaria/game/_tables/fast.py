"""Plain text through pyarrow: 10,000,000 rows in 2 seconds, where the csv module takes 15.

Both must read the same. So pyarrow gets only blocks without quotes, and it refuses rows of another length and
scores that are not numbers. The csv module then reads the block, and its errors name the row.
"""

from functools import cache
from typing import Any

import numpy as np

from canaria._core.membership import Membership, UnknownWordError
from canaria.game._tables.cells import Scores
from canaria.game._tables.columns import Columns


@cache
def _pyarrow() -> Any:
    """The package, or None if it is not installed."""
    try:
        import pyarrow.compute
        import pyarrow.csv
    except ImportError:
        return None
    return pyarrow


def parse(block: str, separator: str, columns: Columns, width: int, way: Membership) -> Scores | None:
    """Read complete lines, or nothing if any of them is unusual."""
    if '"' in block or (pyarrow := _pyarrow()) is None:
        return None
    try:
        table = _read(pyarrow, block, separator, columns, width)
        scores, words = table[0].to_numpy(), table[1]
        kinds = words.unique()
        # Membership is read last: the csv module goes over a refused block again with the same `way`.
        if not np.isfinite(scores).all():
            return None
        known = np.array([way.read(kind) for kind in kinds.to_pylist()], np.bool_)
    except (pyarrow.ArrowException, UnknownWordError):
        return None
    return Scores(scores, known[pyarrow.compute.index_in(words, value_set=kinds).to_numpy()])


def _read(pyarrow: Any, block: str, separator: str, columns: Columns, width: int) -> Any:
    csv, score, included = pyarrow.csv, f"c{columns.score}", f"c{columns.included}"
    return csv.read_csv(
        pyarrow.BufferReader(block.encode()),
        csv.ReadOptions(column_names=[f"c{place}" for place in range(width)]),
        csv.ParseOptions(delimiter=separator, quote_char=False),
        csv.ConvertOptions(
            column_types={score: pyarrow.float64(), included: pyarrow.string()},
            include_columns=[score, included],
            null_values=[],  # "NA" is a word like any other, and no word for membership
        ),
    )
