"""Runs auditors of one peer in its environment, for `side_by_side`.

`python -m peers.worker NAME` (or `canaria`, for ours) reads tasks from standard input and writes answers to
standard output, one JSON object per line. A task names an auditor, a file of audits (scores and bits, one per
row), delta, confidence, the seconds that one call may take (`limit`) and after how many seconds to stop.
"""

import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from canaria import audit_scores
from canaria.lab.validity.invalid import best_k
from canaria.rules import Matched

from ._scores import Bits, Floats

Auditor = Callable[[Floats, Bits, float, float], float]
LARGEST = 1000.0


def ranked(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`canaria.audit_scores`, no tuning."""
    return audit_scores(scores, bits, delta, confidence, rng=0).epsilon


def matched(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`canaria.audit_scores` against Gaussian claims."""
    return audit_scores(scores, bits, delta, confidence, family="gaussian", rng=0).epsilon


def independent(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """The same for elements that do not influence each other."""
    rule = Matched("gaussian", confidence, independent=True)
    return audit_scores(scores, bits, delta, confidence, rule, rng=0).epsilon


OURS: Mapping[str, Auditor] = {
    "ranked": ranked,
    "best_k": best_k,
    "matched": matched,
    "independent": independent,
}


def late(*_: object) -> None:
    raise TimeoutError


def answered(auditor: Auditor, task: dict[str, Any], slow_from: dict[str, int]) -> dict[str, Any]:
    """A bound and its seconds for every audit of a file, until time is up or a call fails.

    An auditor that was too slow is not asked about as many elements or more again.
    """
    games = np.load(task["file"])
    bounds: list[float] = []
    seconds: list[float] = []
    error, elements = "", games["scores"].shape[1]
    if elements >= slow_from.get(task["auditor"], elements + 1):
        return {"bounds": [], "seconds": [], "error": f"over {task['limit']:g} s"}
    for scores, bits in zip(games["scores"], games["bits"], strict=True):
        signal.setitimer(signal.ITIMER_REAL, task["limit"])
        start = time.perf_counter()
        try:
            bounds.append(min(LARGEST, float(auditor(scores, bits, task["delta"], task["confidence"]))))
        except TimeoutError:
            error, slow_from[task["auditor"]] = f"over {task['limit']:g} s", elements
            break
        except Exception as wrong:
            error = f"{type(wrong).__name__}: {wrong}"[:200]
            break
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        seconds.append(time.perf_counter() - start)
        if sum(seconds) > task["seconds"]:
            break
    return {"bounds": bounds, "seconds": seconds, "error": error}


def main() -> None:
    """Answer until there are no more tasks."""
    name = sys.argv[1]
    auditors = OURS if name == "canaria" else import_module(f"peers.{name}").AUDITORS
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a peer prints is no answer
    signal.signal(signal.SIGALRM, late)
    warnings.simplefilter("ignore")
    slow_from: dict[str, int] = {}
    for line in sys.stdin:
        task = json.loads(line)
        print(json.dumps(answered(auditors[task["auditor"]], task, slow_from)), file=answers, flush=True)


if __name__ == "__main__":
    main()
