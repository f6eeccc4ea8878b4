"""Bounds and p-values of fuzzed evidence against exact arithmetic: no bound is too high, no p-value too low.

    python -m fuzz.against_oracle --inputs 10000

An input is evidence, a delta and a confidence, drawn from the bytes of its own seed; `--only SEED` shows one.
"""

import argparse
import bisect
import time
import warnings
from collections import Counter
from typing import NamedTuple

import numpy as np

from canaria.bounds import lower_bound
from canaria.claims import ApproximateDP
from canaria.evidence import EPSILON_GRID, Evidence, Inversion
from fuzz import draw, oracle

_SIZES = (draw.Sizes(200, 10**9, 60), draw.Sizes(40, 10**15, 20))
_BYTES = 2000


class Found(NamedTuple):
    """What was compared, and what is wrong."""

    kind: str
    bound: float
    claims: int
    faults: list[str]


def main() -> None:
    """Compare, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", type=int, help="one seed, shown in full")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.only is not None:
        evidence, delta, confidence, _ = drawn(options.only)
        print(
            repr(evidence), to_text(evidence), f"{delta=!r} {confidence=!r}", compared(options.only), sep="\n"
        )
        return
    started, faults = time.monotonic(), list[str]()
    inputs, claims, positive = Counter[str](), Counter[str](), Counter[str]()
    for seed in range(options.first, options.first + options.inputs):
        found = compared(seed)
        inputs[found.kind] += 1
        claims[found.kind] += found.claims
        positive[found.kind] += found.bound > 0
        faults += [f"seed {seed}: {found.kind}: {fault}" for fault in found.faults]
    print(f"{'kind':<20} {'inputs':>8} {'bounds > 0':>11} {'claims compared':>16}")
    for kind in sorted(inputs):
        print(f"{kind:<20} {inputs[kind]:>8} {positive[kind]:>11} {claims[kind]:>16}")
    total = f"{'all':<20} {inputs.total():>8} {positive.total():>11} {claims.total():>16}"
    print(f"{total}   in {time.monotonic() - started:.0f} s; too high: {len(faults)}")
    print("\n".join(faults), end="\n" if faults else "")
    raise SystemExit(bool(faults))


def to_text(evidence: Evidence) -> str:
    """The fields of evidence, to make it again."""
    return str(evidence.to_dict())


def drawn(seed: int) -> tuple[Evidence, float, float, float]:
    """The input of that seed: evidence, delta, confidence, and a claim of its own."""
    source = draw.Source(np.random.default_rng(seed).bytes(_BYTES))
    confidence, delta, claim = draw.confidence(source), draw.delta(source), draw.epsilon(source)
    return draw.evidence(source, source.PickValueInList(list(_SIZES))), delta, confidence, claim


def compared(seed: int) -> Found:
    """Hold the bound, the claims below it and one other claim against the oracle."""
    evidence, delta, confidence, claim = drawn(seed)
    level = 1 - confidence
    bound = lower_bound(evidence, delta, confidence).epsilon
    tested = below(evidence, bound, seed) if bound > 0 else []
    kept = [claim for claim in tested if not oracle.refuted(evidence, claim, delta, level)]
    faults = [f"bound {bound!r}, but the claim {one!r} is not refuted at level {level!r}" for one in kept]
    for tried in {min(claim, 750.0), bound}:
        p_value = evidence.p_value(ApproximateDP(tried, delta))
        if not 0 <= p_value <= 1:
            faults.append(f"p-value {p_value!r} at {tried!r}")
        elif p_value < 1 and not oracle.refuted(evidence, tried, delta, p_value):
            faults.append(f"p-value {p_value!r} at {tried!r} is below the exact one")
    return Found(type(evidence).__name__, bound, len(tested) + 2, faults)


def below(evidence: Evidence, bound: float, seed: int) -> list[float]:
    """The bound, and some claims below it that were walked over, the last and the first always."""
    walked = EPSILON_GRID[: bisect.bisect_left(EPSILON_GRID, bound)]
    if evidence.inversion is Inversion.PARTS or len(walked) == 0:
        return [bound]
    some = np.random.default_rng(seed).choice(walked, 2)
    return [bound, float(walked[-1]), float(walked[0]), *some.tolist()]


if __name__ == "__main__":
    main()
