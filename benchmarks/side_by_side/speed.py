"""How fast: bounds from counts and from scores, growth, memory; ours and the peers' in one run."""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from peers import published

from canaria import Counts, lower_bound
from canaria._core.arrays import Bits, Floats
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.mechanisms import SubsampledGaussian, algorithm_3
from side_by_side.field import RANKED, Auditor, Field
from side_by_side.settings import DELTA, coins, gaussian

SIZES = (10**3, 10**4, 10**5, 10**6, 10**7)
LIMIT, LONG = 60.0, 3.0
"""What one call may take, and from how many seconds on a method is not asked about ten times as many."""
TRIES = 5
SHIFTS = (1.0, 2.0)
STEPS, RATE = 100, 0.1
JAX_COUNTS = """
import sys, time, numpy as np
from jax_privacy import auditing
guesses, best = int(sys.argv[1]), 1e9
members = np.ones(73 * guesses // 100)
peer = auditing.CanaryScoreAuditor(members, np.ones(guesses - len(members)))
for _ in range(4):
    start = time.perf_counter()
    peer.epsilon_one_run(0.05, 1e-5, threshold_strategy=auditing.Explicit(0.5))
    best = min(best, time.perf_counter() - start)
    if best > 2:
        break
print(best)
"""
"""JAX Privacy takes scores: 1 for everybody, of whom 73% are members, all above an explicit threshold."""
LARGE_AUDIT = """
import resource
import numpy as np
from canaria import audit_scores
rng = np.random.default_rng(0)
bits = rng.integers(0, 2, 10**7, dtype=np.int8)
audit_scores(rng.standard_normal(10**7) + bits, bits, 1e-5, rng=rng)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""

Times = dict[str, Any]


def times(what: str, seconds: dict[int, float], why: str = "") -> Times:
    """Seconds by size, with why there are no more; and the exponent of the growth from 10^4 on."""
    sizes = [size for size in seconds if size >= SIZES[1]]
    logs = np.log([seconds[size] for size in sizes])
    growth = float(np.polyfit(np.log(sizes), logs, 1)[0]) if len(sizes) > 1 else None
    return {"what": what, "seconds": seconds, "why": why, "growth": growth}


def shortest(work: Callable[[], object]) -> float:
    """The best of some runs after one that warms up; fewer where one takes long."""
    best = math.inf
    for _ in range(TRIES + 1):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
        if best > LONG:
            break
    return best


def from_counts(field: Field) -> list[Times]:
    """73% of so many guesses right, out of as many elements."""

    def ours(guesses: int) -> object:
        return lower_bound(Counts(73 * guesses // 100, guesses, guesses), DELTA)

    def loop(guesses: int) -> object:
        return published.lower_bound(guesses, guesses, 73 * guesses // 100, DELTA, 0.05)

    found = [
        times("canaria: `Counts`", {size: shortest(lambda size=size: ours(size)) for size in SIZES}),  # type: ignore[misc]
        times(
            "published loop",
            {size: shortest(lambda size=size: loop(size)) for size in SIZES[:3]},  # type: ignore[misc]
            "not asked for more",
        ),
    ]
    return [*found, _jax_counts(field)] if "jaxprivacy" in field.ready else found


def _jax_counts(field: Field) -> Times:
    seconds: dict[int, float] = {}
    for size in SIZES:
        if seconds and max(seconds.values()) > LONG:
            return times("jax-privacy: `epsilon_one_run`", seconds, "not asked for more")
        words = [field.python("jaxprivacy"), "-c", JAX_COUNTS, str(size)]
        seconds[size] = float(
            subprocess.check_output(words, text=True, stderr=subprocess.DEVNULL).split()[-1]
        )
    return times("jax-privacy: `epsilon_one_run`", seconds)


def from_scores(field: Field, peers: Iterable[Auditor]) -> dict[str, list[Times]]:
    """Normal scores that members shift, delta 1e-5, of ours and of peers, one after the other."""
    return {f"{shift:g}": _from_scores(field, [RANKED, *peers], shift) for shift in SHIFTS}


def _from_scores(field: Field, auditors: list[Auditor], shift: float) -> list[Times]:
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for size in SIZES:
            files[size] = str(Path(folder) / f"{size}.npz")
            scores, bits = gaussian(shift, size, 1, np.random.default_rng(size))
            tries = TRIES if size < 10**6 else 1
            np.savez(files[size], scores=np.repeat(scores, tries, 0), bits=np.repeat(bits, tries, 0))
        found = []
        for auditor in auditors:
            print(f"speed: {auditor}, shift {shift:g}", flush=True)
            found.append(_by_size(field, auditor, files))
        return found


def _by_size(field: Field, auditor: Auditor, files: dict[int, str]) -> Times:
    seconds: dict[int, float] = {}
    common = {"delta": DELTA, "confidence": 0.95, "limit": LIMIT, "seconds": LIMIT}
    for size, file in files.items():
        warm_up, answer = field.asked(auditor, [{"file": name, **common} for name in (files[SIZES[0]], file)])
        if not answer["seconds"]:
            return times(str(auditor), seconds, warm_up["error"] or answer["error"])
        seconds[size] = min(answer["seconds"])
        if seconds[size] > LONG and size < SIZES[-1]:
            return times(str(auditor), seconds, "not asked for more")
    return times(str(auditor), seconds)


def dpsgd() -> list[dict[str, Any]]:
    """Simulated DP-SGD, one canary per coordinate: Algorithm 3 written straightforwardly, and ours."""
    sigma, rng = dpsgd_noise_multiplier(2.0, DELTA, STEPS, RATE), np.random.default_rng(0)

    def compared(what: str, n: int, theirs: Callable[[Bits], object], score: str) -> dict[str, Any]:
        bits = coins(1, n, rng)
        mechanism = SubsampledGaussian(
            dimension=n, steps=STEPS, sample_rate=RATE, noise_multiplier=sigma, score=score
        )
        known = np.zeros_like(bits)
        ours = shortest(lambda: mechanism.loss(mechanism.sample(bits, rng), known))
        return {"what": what, "n": n, "theirs": shortest(lambda: theirs(bits)), "ours": ours}

    def all_weights(bits: Bits) -> object:
        return algorithm_3(np.diag((bits[0] > 0).astype(float)), STEPS, RATE, sigma, rng).sum(axis=0)

    def own_coordinates(bits: Bits) -> Floats:
        shape = (STEPS, bits.shape[1])
        return sigma * rng.standard_normal(shape) + ((rng.random(shape) < RATE) & (bits > 0))

    def likelihoods(bits: Bits) -> object:
        exponents = (2 * own_coordinates(bits) - 1) / (2 * sigma**2)
        return np.logaddexp(np.log1p(-RATE), np.log(RATE) + exponents).sum(axis=0)

    return [
        compared("sums, T steps over n gradients of n weights", 1000, all_weights, "sum"),
        compared("sums, T x n", 10**5, lambda bits: own_coordinates(bits).sum(axis=0), "sum"),
        compared("likelihoods, T x n", 10**5, likelihoods, "likelihood"),
    ]


def peak_memory() -> float:
    """GiB of a whole process that audits 10^7 scores."""
    return int(subprocess.check_output([sys.executable, "-c", LARGE_AUDIT], text=True)) / 2**20
