"""Result files made to be slow: what `canaria verify` accepts must take less than ten seconds.

python -m fuzz.slow_files --files 100000 --run 200
python -m fuzz.slow_files --own 400

Files of every kind, under a megabyte, go through the estimate; the dearest that it accepts are recomputed,
and then changed again and again towards more processor time. `--own` does the reverse: what canaria's own
rules write must be accepted, and hold.
"""

import argparse
import heapq
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from canaria._core.errors import InputError
from canaria._core.files import checksum
from canaria.bounds.bound import Bound, lower_bound
from canaria.bounds.limits import ALLOWED
from canaria.bounds.result import Result
from canaria.evidence import Counts, Evidence, to_dict
from canaria.files.read import read_result
from canaria.files.verify import check
from fuzz import own_files, slow_evidence

LIMIT: Final = 10.0
"""Seconds of processor time, of a process of its own."""
_LARGEST: Final = 10**6
_FRESH: Final = 10
_BASE: Final = Result(lower_bound(Counts(1, 1, 1)))


@dataclass(frozen=True)
class Made:
    """What goes into a file, and what it is likely to take."""

    maker: str
    evidence: Evidence
    delta: float
    confidence: float
    epsilon: float

    @property
    def likely(self) -> float:
        """The estimate, in seconds."""
        return self.evidence.effort(self.delta).bound

    def write(self, path: Path) -> int:
        """Write the file; returns its size."""
        bound = Bound(self.epsilon, self.delta, self.confidence, self.evidence)
        told = {"evidence": to_dict(self.evidence), "elements": self.evidence.elements}
        for name in ("epsilon", "delta", "confidence"):
            told[name] = getattr(bound, name)
        record = {**_BASE.to_dict(), **told}
        return path.write_text(json.dumps({**record, "checksum": checksum(record)}))


def made(rng: np.random.Generator) -> Made:
    """A file made to be slow."""
    maker = str(rng.choice(list(slow_evidence.MAKERS)))
    delta = float(
        rng.choice([0.0, 1e-9, 1e-7, 1e-5, 1e-3, 10 ** -rng.uniform(0, 20), 10 ** -rng.uniform(0, 300)])
    )
    return Made(maker, slow_evidence.MAKERS[maker](rng), delta, _confidence(rng), _epsilon(rng))


def changed(one: Made, rng: np.random.Generator) -> Made:
    """The same with something changed."""
    way = rng.integers(0, 5)
    if way == 0:
        return replace(one, confidence=_confidence(rng))
    if way == 1:
        return replace(one, delta=one.delta * 10 ** rng.normal() if 0 < one.delta < 0.1 else 1e-9)
    if way == 2:
        return replace(one, epsilon=_epsilon(rng))
    return replace(one, evidence=slow_evidence.changed(one.evidence, rng))


def _confidence(rng: np.random.Generator) -> float:
    usual = [0.5, 0.95, 0.99, 0.9999999, 0.1, 0.01, 1e-6, 2.0**-52]
    return float(rng.choice(usual)) if rng.random() < 0.7 else float(np.clip(rng.random(), 1e-9, 1 - 1e-9))


def _epsilon(rng: np.random.Generator) -> float:
    return float(rng.choice([0.0, 0.01, 1.0, round(rng.uniform(0, 12), 2), 700.0]))


def seconds(one: Made, path: Path) -> float:
    """Processor time to verify a file; 0 if it is too large to count, or refused unread."""
    if one.write(path) >= _LARGEST:
        return 0.0
    started = time.process_time()
    try:
        check(read_result(path))
    except InputError as error:
        if "\n" in str(error):
            raise
    return time.process_time() - started


def attack(files: int, run: int, climb: int, seed: int) -> float:
    """Make files, recompute the dearest that are accepted, go on from the slowest; the most seconds."""
    dearest: list[tuple[float, int, Made]] = []
    refused = 0
    for number in range(files):
        one = made(np.random.default_rng([seed, number]))
        if (likely := one.likely) > ALLOWED:
            refused += 1
            continue
        (heapq.heappush if len(dearest) < run else heapq.heappushpop)(dearest, (likely, number, one))
        if (number + 1) % 10_000 == 0:
            print(f"{number + 1} files, {refused} refused by the estimate", flush=True)
    print(
        f"{len(dearest)} dearest accepted: {dearest[0][0]:.2f} to {max(dearest)[0]:.2f} s expected",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        timed = [(seconds(one, path), one) for _, _, one in dearest]
        timed.sort(key=lambda pair: -pair[0])
        print(f"slowest of them {timed[0][0]:.2f} s ({timed[0][1].maker})", flush=True)
        timed = _climb(timed[: max(1, climb // 10)], climb, seed, path)
        return max(timed[0][0], *(_fresh(one, path) for _, one in timed[:_FRESH]))


def _climb(slowest: list[tuple[float, Made]], steps: int, seed: int, path: Path) -> list[tuple[float, Made]]:
    """Change the slowest, one after the other; what got slower takes the place of what it came from."""
    for step in range(steps):
        place = step % len(slowest)
        other = changed(slowest[place][1], np.random.default_rng([seed, step, 1]))
        if (took := seconds(other, path)) > slowest[place][0]:
            slowest[place] = (took, other)
        if (step + 1) % 100 == 0:
            print(
                f"{step + 1} changes, slowest {max(slowest, key=lambda pair: pair[0])[0]:.2f} s", flush=True
            )
    return sorted(slowest, key=lambda pair: -pair[0])


def _fresh(one: Made, path: Path) -> float:
    """Processor time of `canaria verify` in a process of its own."""
    one.write(path)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", "from canaria.cli import main; main()", "verify", str(path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = (done.stdout + done.stderr).splitlines() or ["nothing"]
    print(f"{took:.2f} s, {after.ru_maxrss / 1024:.0f} MB: {one.maker}: {lines[0][:120]}", flush=True)
    return took


def main() -> None:
    """Attack, or read what canaria writes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--run", type=int, default=200)
    parser.add_argument("--climb", type=int, default=300)
    parser.add_argument("--own", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    if asked.own:
        wrong = own_files.run(asked.own, asked.seed)
        print(f"{asked.own} files of canaria's own: {len(wrong)} refused or not holding")
        raise SystemExit(bool(wrong))
    most = attack(asked.files, asked.run, asked.climb, asked.seed)
    print(
        f"{asked.files} files, {asked.run} run: at most {most:.2f} s of processor time, {LIMIT:g} s allowed"
    )
    raise SystemExit(not most < LIMIT or math.isnan(most))


if __name__ == "__main__":
    main()
