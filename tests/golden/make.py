"""Make the golden files: inputs of every kind, rule and delta, and recorded trainings, with their numbers.

    python -m tests.golden.make evidence rules trainings

Inputs are kept in full beside the numbers, so that nothing depends on how they were drawn. Run it only when a
bound is meant to move, for the kinds that the change names, and say so in the changelog.
"""

import json
import math
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from canaria import lower_bound
from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    Tradeoff,
    UncommittedCounts,
    Weighted,
    to_dict,
)
from tests.golden.numbers import FOLDER, of_evidence, of_recording, of_scores, recorded

DELTAS = (0.0, 0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 0.02)
CONFIDENCES = (0.5, 0.9, 0.95, 0.95, 0.99, 0.9999)
RULES = ("ranked", "soft", "online", "top:K", "tails:K", "surest:K", "threshold:0.7")
ADAPTIVE = ("bet", "all", "budget:K", "budget:K:0.5")
Rng = np.random.Generator


def size(rng: Rng, least: int, most: int) -> int:
    """A number between two others, even in its logarithm."""
    return round(math.exp(rng.uniform(math.log(least), math.log(most))))


def counted(rng: Rng, most: int = 10**6) -> tuple[int, int, int]:
    """Right guesses, guesses, elements: at times nearly all right, or nearly half."""
    taken = size(rng, 1, most)
    share = rng.choice([0.5, 1.0, rng.uniform(0.5, 1)])
    correct = int(rng.binomial(taken, share))
    return correct, taken, taken * int(rng.choice([1, 1, 3, 100]))


def hits_of(rng: Rng, losses: Any) -> Any:
    return rng.random(len(losses)) < 1 / (1 + np.exp(-np.abs(losses) * rng.uniform(0.3, 1.2)))


def ranking(rng: Rng) -> Evidence:
    length = size(rng, 2, 400)
    hits = rng.random(length) < np.linspace(rng.uniform(0.6, 1), 0.5, length)
    return Ranking(hits, length * int(rng.choice([1, 1, 5])))


def weighted(rng: Rng) -> Evidence:
    length = size(rng, 1, 60)
    losses = np.round(rng.normal(scale=rng.uniform(0.2, 4), size=length), 3)
    if rng.random() < 0.3:
        return Weighted(
            hits_of(rng, losses), weights=rng.integers(0, 60, length), elements=length + size(rng, 1, 500)
        )
    return Weighted(hits_of(rng, losses), losses=losses, elements=length + size(rng, 1, 500))


def bets(rng: Rng) -> Evidence:
    length = size(rng, 1, 60)
    hits = rng.random(length) < rng.uniform(0.5, 1)
    confidences = None if rng.random() < 0.4 else np.round(rng.uniform(0.5, 0.999, length), 3)
    return Bets(confidences, hits, length + size(rng, 1, 500))


def budget(rng: Rng) -> Evidence:
    correct, taken, elements = counted(rng, 3000)
    return Budget(correct, taken, taken + int(rng.integers(0, 30)), elements + 30)


def split(rng: Rng) -> Evidence:
    makers = [ranking, weighted, bets, budget, lambda rng: Counts(*counted(rng))]
    parts = [makers[rng.integers(len(makers))](rng) for _ in range(rng.integers(1, 4))]
    shares = rng.dirichlet(np.ones(len(parts))) * 0.999 + 1e-6
    return Split(tuple(parts), tuple(np.round(shares / shares.sum() * 0.999, 6).tolist()))


KINDS: dict[str, Callable[[Rng], Evidence]] = {
    "Counts": lambda rng: Counts(*counted(rng)),
    "PublishedCounts": lambda rng: PublishedCounts(*counted(rng, 30_000)),
    "UncommittedCounts": lambda rng: UncommittedCounts(*counted(rng)),
    "Tradeoff": lambda rng: Tradeoff(*counted(rng, 30_000)),
    "Ranking": ranking,
    "Weighted": weighted,
    "Bets": bets,
    "Budget": budget,
    "Split": split,
}


def evidence() -> Iterator[dict[str, Any]]:
    for number in range(1400):
        rng = np.random.default_rng([18, number])
        seen = list(KINDS.values())[number % len(KINDS)](rng)
        delta, confidence = float(rng.choice(DELTAS)), float(rng.choice(CONFIDENCES))
        bound = lower_bound(seen, delta, confidence).epsilon
        claims = [0.0, bound, bound + 0.05, round(float(rng.exponential(2.0)), 3)]
        inputs = {"evidence": to_dict(seen), "delta": delta, "confidence": confidence, "claims": claims}
        yield {**inputs, "numbers": of_evidence(inputs)}


def rules() -> Iterator[dict[str, Any]]:
    for number in range(600):
        rng = np.random.default_rng([19, number])
        names = RULES + ADAPTIVE
        length = size(rng, 2, 120)
        rule = names[number % len(names)].replace("K", str(rng.integers(1, length + 1)))
        bits = rng.integers(0, 2, length)
        if abs(2 * int(bits.sum()) - length) > 2.5 * math.sqrt(length):
            bits = rng.permutation(np.arange(length) % 2)
        scores = np.round(
            rng.uniform(0, 4) * (2 * bits - 1) / 2 + rng.normal(size=length), int(rng.integers(0, 4))
        )
        inputs = {
            "rule": rule,
            "rounds": int(rng.integers(1, 5)) if rule.startswith(("bet", "all", "budget")) else None,
            "scores": scores.tolist(),
            "bits": "".join(map(str, bits.astype(int))),
            "delta": float(rng.choice(DELTAS)),
            "confidence": float(rng.choice(CONFIDENCES)),
            "seed": number,
        }
        yield {**inputs, "numbers": of_scores(inputs)}


def trainings() -> Iterator[dict[str, Any]]:
    """Real trainings: twelve with Opacus, eight with JAX Privacy."""
    from tests.golden.trainings import trained

    for name, recording in trained():
        inputs = {"name": name, "recording": recorded(recording)}
        yield {**inputs, "numbers": of_recording(inputs)}


def main() -> None:
    warnings.simplefilter("ignore")
    for name in sys.argv[1:]:
        lines = [json.dumps(case, allow_nan=False) for case in globals()[name]()]
        path = Path(FOLDER) / f"{name}.jsonl"
        path.write_text("\n".join(lines) + "\n")
        sys.stdout.write(f"{path.name}: {len(lines)} cases, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
