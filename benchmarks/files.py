"""Processor time to read score files of 10,000,000 rows. Run by `make bench-files`.

`--write` puts the table into RESULTS.md.
"""

import argparse
import gzip
import importlib.metadata
import os
import platform
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
from pyarrow import parquet
from sections import write

from canaria.game.score_files import read_scores

MARK = "<!-- files -->"
ROWS = 10_000_000


def table(yes: object, no: object) -> pa.Table:
    rng = np.random.default_rng(0)
    included = rng.integers(0, 2, ROWS)
    words = pa.array([no, yes]).take(pa.array(included))
    return pa.table({"score": rng.normal(size=ROWS), "included": words})


def text(yes: object, no: object, separator: str = ",") -> bytes:
    sink = pa.BufferOutputStream()
    pa.csv.write_csv(table(yes, no), sink, pa.csv.WriteOptions(delimiter=separator))
    return bytes(sink.getvalue())


def columns() -> bytes:
    sink = pa.BufferOutputStream()
    parquet.write_table(table(1, 0), sink)
    return bytes(sink.getvalue())


FILES: dict[str, Callable[[], bytes]] = {
    "commas, 0/1": lambda: text(1, 0),
    "commas, quoted words (yes/no)": lambda: text("yes", "no"),
    "semicolons, true/false": lambda: text(True, False, ";"),
    "commas, 0/1, gzip": lambda: gzip.compress(text(1, 0), 1),
    "Parquet": columns,
}


def seconds(path: Path) -> float:
    start = time.process_time()
    assert len(read_scores(path).scores) == ROWS
    return time.process_time() - start


def row(name: str, path: Path) -> str:
    path.write_bytes(FILES[name]())
    return f"| {name} | {path.stat().st_size / 1e6:.0f} MB | {seconds(path):.1f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = [row(name, Path(folder) / "scores") for name in FILES]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("numpy", "pyarrow"))
    lines = [
        "",
        "## Reading score files (`make bench-files`)",
        "",
        f"Processor time for {ROWS:,} rows ({datetime.now(UTC):%Y-%m-%d}, {platform.machine()} with "
        f"{os.cpu_count()} cores, {versions}).",
        "",
        "| file | size | time |",
        "| --- | --- | --- |",
        *rows,
        "",
    ]
    print("\n".join(lines))
    if options.write:
        write(MARK, lines)


if __name__ == "__main__":
    main()
