"""Speed and memory of the bounds, and the growth of their cost. Run by `make bench-bounds`.

Times are the best of several runs on this machine; read the ratios, not the milliseconds.
"""

import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from canaria import Counts, audit_scores, lower_bound
from canaria.claims import GaussianDP
from canaria.evidence import Bets, PublishedCounts, Ranking, UncommittedCounts, Weighted
from canaria.rules import Matched, Online, Ranked, Rule

DELTA = 1e-5


def best_time(work: Callable[[], object], runs: int = 5) -> float:
    """The shortest of several runs, in seconds, after one that warms up."""
    work()
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def growth(sizes: list[int], times: list[float]) -> float:
    """The exponent that the cost grows with, between the smallest and the largest size."""
    return math.log(times[-1] / times[0]) / math.log(sizes[-1] / sizes[0])


def ranked_hits(size: int) -> np.ndarray:
    """Hits whose accuracy falls from 0.95 to 0.5 along the ranking."""
    return np.random.default_rng(0).random(size) < np.linspace(0.95, 0.5, size)


def gaussian_scores(size: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2, size)
    return rng.normal(2.0 * bits), bits


class Case(NamedTuple):
    """What is timed, at which sizes, with which limits in milliseconds; `prepare` is not timed."""

    name: str
    sizes: list[int]
    limits: dict[int, int]
    prepare: Callable[[int], Callable[[], object]]


def losses_and_hits(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The privacy losses of normal scores that are shifted by 2, and whether their signs are right."""
    scores, bits = gaussian_scores(size)
    losses = 2.0 * scores - 2.0
    return losses, (losses > 0) == (bits > 0)


def bound_of_counts(
    kind: type[Counts] | type[PublishedCounts] | type[UncommittedCounts], size: int
) -> Callable[[], object]:
    return lambda: lower_bound(kind(73 * size // 100, size, size), DELTA)


def bound_of_ranking(delta: float, size: int) -> Callable[[], object]:
    hits = ranked_hits(size)
    return lambda: lower_bound(Ranking(hits), delta)


def bound_of_weights(size: int) -> Callable[[], object]:
    losses, hits = losses_and_hits(size)
    return lambda: lower_bound(Weighted(hits, losses=losses), DELTA)


def bound_of_bets(size: int, mixture: bool) -> Callable[[], object]:
    losses, hits = losses_and_hits(size)
    stated = None if mixture else 1 / (1 + np.exp(-np.minimum(np.abs(losses), 30.0)))
    return lambda: lower_bound(Bets(stated, hits), DELTA)


def audit(rule: Rule, delta: float, size: int) -> Callable[[], object]:
    scores, bits = gaussian_scores(size)
    return lambda: audit_scores(scores, bits, delta, rule=rule, rng=0)


def p_value_of_curve(size: int) -> Callable[[], object]:
    """The slowest of the pinned counts, 700 of 1,000, and a tenth of it; each curve is a new one."""
    evidence, mus = Counts(7 * size // 10, size, size), iter(np.linspace(0.3, 0.31, 1000).tolist())
    return lambda: evidence.p_value(GaussianDP(next(mus)))


CASES = [
    Case("Counts, delta 1e-5", [10**3, 10**5, 10**7, 10**9], {10**7: 5}, partial(bound_of_counts, Counts)),
    Case("PublishedCounts, delta 1e-5", [10**3, 10**5, 10**7], {}, partial(bound_of_counts, PublishedCounts)),
    Case("Ranking", [10**3, 10**4, 10**5, 10**6, 10**7], {10**3: 100}, partial(bound_of_ranking, 0.0)),
    Case(
        "Ranking, delta 1e-5",
        [10**3, 10**4, 10**5, 10**6],
        {10**3: 100, 10**6: 1000},
        partial(bound_of_ranking, DELTA),
    ),
    Case(
        "UncommittedCounts, delta 1e-5",
        [10**3, 10**5, 10**6],
        {10**6: 1000},
        partial(bound_of_counts, UncommittedCounts),
    ),
    Case("Weighted, delta 1e-5", [10**3, 10**4, 10**5, 10**6], {10**6: 1000}, bound_of_weights),
    Case(
        "Bets, delta 1e-5", [10**3, 10**4, 10**5, 10**6], {10**6: 300}, partial(bound_of_bets, mixture=False)
    ),
    Case(
        "mixture Bets, delta 1e-5",
        [10**3, 10**4, 10**5, 10**6],
        {10**6: 300},
        partial(bound_of_bets, mixture=True),
    ),
    Case("scores, Ranked", [10**3, 10**4, 10**5, 10**6], {}, partial(audit, Ranked(), 0.0)),
    Case("scores, Ranked, delta 1e-5", [10**3, 10**4, 10**5, 10**6], {}, partial(audit, Ranked(), DELTA)),
    Case(
        "scores, Matched, Gaussian claims, delta 1e-5",
        [10**3, 10**4, 10**5],
        {10**3: 50, 10**5: 500},
        partial(audit, Matched("gaussian"), DELTA),
    ),
    Case("p-value against a curve", [10**2, 10**3], {10**3: 5}, p_value_of_curve),
    Case("scores, Online", [10**3, 10**4, 10**5], {}, partial(audit, Online(), 0.0)),
    Case("scores, Online, delta 1e-5", [10**3, 10**4, 10**5], {}, partial(audit, Online(), DELTA)),
]


def speed() -> Table:
    table = Table("bound from", "size", "limit [ms]", "best of 5 [ms]")
    for name, sizes, limits, prepare in CASES:
        times = [best_time(prepare(size)) for size in sizes]
        for size, seconds in zip(sizes, times, strict=True):
            limit = limits.get(size)
            late = " LATE" if limit is not None and 1000 * seconds > limit else ""
            table.add_row(name, f"{size:.0e}", str(limit or ""), f"{1000 * seconds:.2f}{late}")
        table.add_row(name, "growth", "", f"n^{growth(sizes, times):.2f}", end_section=True)
    return table


def startup() -> str:
    """`canaria --version` against `import numpy`, each in a process of its own."""
    command = [str(Path(sys.executable).with_name("canaria")), "--version"]
    numpy_import = [sys.executable, "-c", "import numpy"]
    shown = best_time(lambda: subprocess.run(command, check=True, capture_output=True))
    imported = best_time(lambda: subprocess.run(numpy_import, check=True))
    return f"start-up: canaria --version takes {shown / imported:.2f} times `import numpy` (limit 2.5)"


def peak_memory() -> str:
    """The whole process that audits 10^7 scores."""
    code = (
        "import numpy as np; from canaria import audit_scores; rng = np.random.default_rng(0); "
        "bits = rng.integers(0, 2, 10**7, dtype=np.int8); scores = rng.standard_normal(10**7); "
        "scores += bits; print(audit_scores(scores, bits, 1e-5, rng=rng).epsilon)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return f"memory: auditing 10^7 scores peaks at {peak:.2f} GiB (limit 0.93 GiB = 1 GB)"


def main() -> None:
    console = Console()
    console.print(startup())
    console.print(peak_memory())
    console.print(speed())


if __name__ == "__main__":
    main()
