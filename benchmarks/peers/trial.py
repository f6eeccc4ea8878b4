"""Every auditor of a peer, tried in its environment: bounds, seconds for a call, false claims.

From the folder benchmarks: `../.venv-peers/NAME/bin/python -m peers.trial NAME` (or `canaria`, for ours).
"""

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from importlib import import_module

import numpy as np

from canaria import audit_scores

from ._scores import Bits, Floats

Auditor = Callable[[Floats, Bits, float, float], float]
DELTAS = (0.0, 1e-5)
SHIFTS = (0.0, 2.0)
CONFIDENCE = 0.95


def ranked(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`canaria.audit_scores`."""
    return audit_scores(scores, bits, delta, confidence).epsilon


def gaussians(elements: int, shift: float, rng: np.random.Generator) -> tuple[Floats, Bits]:
    """Fair bits, and normal scores that members shift."""
    bits = 2 * rng.integers(0, 2, elements, dtype=np.int8) - np.int8(1)
    return rng.normal(shift * (bits > 0)), bits


def tried(auditor: Auditor, elements: int) -> dict[str, float]:
    """One bound for each shift and delta, and the seconds of the slowest call but the first."""
    found, times = {}, []
    auditor(*gaussians(elements, 1.0, np.random.default_rng(1)), DELTAS[-1], CONFIDENCE)
    for shift in SHIFTS:
        for delta in DELTAS:
            scores, bits = gaussians(elements, shift, np.random.default_rng(0))
            start = time.perf_counter()
            found[f"shift {shift:g}, delta {delta:g}"] = auditor(scores, bits, delta, CONFIDENCE)
            times.append(time.perf_counter() - start)
    assert all(bound >= 0 and not math.isnan(bound) for bound in found.values()), found
    return {**found, "seconds": max(times)}


def false_claims(auditor: Auditor, elements: int, delta: float, audits: int) -> int:
    """How many audits of nothing claim that epsilon is above 0; the same audits for every auditor."""
    rngs = map(np.random.default_rng, np.random.SeedSequence(elements).spawn(audits))
    games = (gaussians(elements, 0.0, rng) for rng in rngs)
    return sum(auditor(*game, delta, CONFIDENCE) > 0 for game in games)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("peer", help="a file of this folder, or canaria")
    parser.add_argument("auditors", nargs="*", help="only these")
    parser.add_argument(
        "--audits", type=int, default=0, help="audits of nothing, for the rate of false claims"
    )
    parser.add_argument("--elements", type=int, default=1000)
    parser.add_argument("--delta", type=float, default=1e-5, help="for the rate of false claims")
    options = parser.parse_args()
    known = (
        {"ranked": ranked} if options.peer == "canaria" else import_module(f"peers.{options.peer}").AUDITORS
    )
    warnings.simplefilter("ignore")
    for name in options.auditors or known:
        row: dict[str, object] = {"peer": options.peer, "auditor": name, "elements": options.elements}
        if options.audits:
            claims = false_claims(known[name], options.elements, options.delta, options.audits)
            row |= {"delta": options.delta, "audits": options.audits, "false": claims}
        else:
            row |= tried(known[name], options.elements)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
