"""Speed of the games and the growth of their cost with n. Run by `make bench-games`.

Times are the best of several runs on this machine; read the ratios, not the milliseconds.
"""

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table

from canaria.game import play_many
from canaria.mechanisms import CountInSets, LocalLaplace, Mechanism, NoisyCountInSets
from canaria.rules import All, Bet, Surest


def best_time(work: Callable[[], object], runs: int = 3) -> float:
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def audits(mechanism: Mechanism, rule: object, n: int, trials: int, adaptive: bool = False) -> None:
    """Play, and find every bound."""
    rounds = mechanism.rounds(n) if adaptive else None
    for game in play_many(mechanism, None, rule, n, trials, rounds, rng=0):  # type: ignore[arg-type]
        game.bound()


def main() -> None:
    table = Table("200 audits with their bounds", "limit [s]", "best of 3 [s]")
    sets = CountInSets(10)
    one_run = best_time(lambda: audits(sets, Surest(50), 1000, 200))
    adaptive = best_time(lambda: audits(sets, Bet(), 1000, 200, adaptive=True))
    table.add_row("Count-in-Sets, 100 sets of 10, one-run", "", f"{one_run:.3f}")
    table.add_row("Count-in-Sets, 100 sets of 10, adaptive", "", f"{adaptive:.3f}")
    table.add_row("together", "0.3", f"{one_run + adaptive:.3f}")
    laplace = best_time(lambda: audits(LocalLaplace(2.0), All(), 10**5, 200), runs=2)
    table.add_row("local Laplace, n = 10^5", "3", f"{laplace:.3f}")
    Console().print(table)
    growth = Table("mechanism, rule (20 audits)", *(f"n = 10^{k}" for k in (3, 4, 5)), "exponent")
    sizes = [10**k for k in (3, 4, 5)]
    cases: list[tuple[str, Mechanism, object, bool]] = [
        ("local Laplace, all", LocalLaplace(2.0), All(), False),
        ("Count-in-Sets of 10, surest 50", sets, Surest(50), False),
        ("Count-in-Sets of 10, adaptive bets", sets, Bet(), True),
        ("noisy Count-in-Sets of 8, adaptive bets", NoisyCountInSets(8, 1.0), Bet(), True),
    ]
    for name, mechanism, rule, steps in cases:
        times = [best_time(lambda n=n: audits(mechanism, rule, n, 20, steps), runs=2) for n in sizes]  # noqa: B023
        exponent = np.polyfit(np.log(sizes[1:]), np.log(times[1:]), 1)[0]
        growth.add_row(name, *(f"{1000 * t:.0f} ms" for t in times), f"n^{exponent:.2f}")
    Console().print(growth)


if __name__ == "__main__":
    main()
