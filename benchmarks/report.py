"""Processor time of `canaria report` for three results. Run by `make bench-report`.

The whole command in a process of its own, and of that what numpy, scipy and Jinja2 take to load, which is not
ours. `--write` puts the table into RESULTS.md.
"""

import argparse
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from sections import write

from canaria import Counts, Result, lower_bound
from canaria.claims import ApproximateDP
from canaria.game import result_of_scores

MARK = "<!-- report -->"
LIMIT = 1.5
TIMES = 5


def results(folder: Path) -> list[str]:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, 1000)
    scores = rng.normal(2.0 * bits)
    made = [
        result_of_scores(scores, bits, ApproximateDP(2.0, delta=1e-5), rng=0, name="refuted"),
        result_of_scores(scores, bits, ApproximateDP(4.0, delta=1e-5), rng=0, name="not refuted"),
        Result(lower_bound(Counts(73, 100, 1000), 1e-5), name="counts"),
    ]
    return [str(result.save(folder / f"{place}.json")) for place, result in enumerate(made)]


def seconds(command: Sequence[str]) -> float:
    """Processor time, user and system, of a command: the median of a few."""
    taken = []
    for _ in range(TIMES):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = results(Path(folder))
        out = str(Path(folder) / "report.html")
        whole = seconds([sys.executable, "-m", "canaria", "report", *files, "-o", out])
    loading = seconds([sys.executable, "-c", "import jinja2, numpy, scipy.optimize, scipy.special"])
    lines = [
        "",
        "## A report (`make bench-report`)",
        "",
        f"Processor time of `canaria report` for three results, as an HTML page "
        f"({datetime.now(UTC):%Y-%m-%d}, {platform.machine()}); the target is {LIMIT:g} s.",
        "",
        "| what | seconds |",
        "| --- | --- |",
        f"| the whole command | {whole:.2f} |",
        f"| of that, to load numpy, scipy and Jinja2 | {loading:.2f} |",
        "",
    ]
    print("\n".join(lines))
    if options.write:
        write(MARK, lines)


if __name__ == "__main__":
    main()
