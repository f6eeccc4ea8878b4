"""A result explained: everything that a page, a terminal or a program shows of it, as plain data."""

import math
import warnings
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from canaria.bound import Bound, lower_bound, plain
from canaria.evidence import Counts, Explained
from canaria.report import words
from canaria.results import Ladder, Result

_CONFIDENCES: Final = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
_PROJECTED: Final = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)


@dataclass(frozen=True)
class Drop:
    """One step of the ladder: what is lost between two values of epsilon, and how to lose less."""

    gap: str
    start: float
    end: float
    advice: str


@dataclass(frozen=True)
class Section:
    """One result, and what is worked out from it for the reader.

    `by_confidence` holds the bound that the same evidence gives at other confidences, `by_guesses` what each
    number of guesses would have shown had it alone been fixed in advance. Both explain; neither is a choice
    that may be made after the fact.
    """

    result: Result
    by_confidence: tuple[tuple[float, float], ...]
    by_guesses: tuple[tuple[int, int, float], ...]
    projected: bool
    drops: tuple[Drop, ...]
    fixed: str | None

    @property
    def meaning(self) -> str:
        """What the verdict means."""
        return words.MEANING[self.result.refuted]

    @property
    def adjacency(self) -> str:
        """What the adjacency means."""
        return words.ADJACENCY[self.result.bound.adjacency]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data for JSON."""
        return {
            "result": self.result.to_dict(),
            "verdict": self.result.verdict,
            "meaning": self.meaning,
            "adjacency": self.adjacency,
            "fixed": self.fixed,
            "by_confidence": [{"confidence": c, "epsilon": plain(e)} for c, e in self.by_confidence],
            "by_guesses": [{"guesses": k, "right": v, "epsilon": plain(e)} for k, v, e in self.by_guesses],
            "projected": self.projected,
            "drops": [vars(drop) for drop in self.drops],
        }


def explain(result: Result) -> Section:
    """Work out what the reader is shown."""
    bound = result.bound
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_confidence = _by_confidence(bound)
        by_guesses, projected = _by_guesses(bound)
    fixed = bound.evidence.fixed if isinstance(bound.evidence, Explained) else None
    return Section(result, by_confidence, by_guesses, projected, _drops(result.ladder), fixed)


def rounded_down(value: float, digits: int = 3) -> str:
    """A number to so many decimals, never rounded up."""
    if not math.isfinite(value):
        return "inf"
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"


def _by_confidence(bound: Bound) -> tuple[tuple[float, float], ...]:
    confidences = sorted({*_CONFIDENCES, bound.confidence})
    return tuple(
        (
            confidence,
            bound.epsilon
            if confidence == bound.confidence
            else lower_bound(bound.evidence, bound.delta, confidence).epsilon,
        )
        for confidence in confidences
    )


def _by_guesses(bound: Bound) -> tuple[tuple[tuple[int, int, float], ...], bool]:
    """Guesses, right ones, and the exact bound of that count; one count is projected to other sizes."""
    right, taken = bound.tally
    counts = [(taken, right)]
    if isinstance(bound.evidence, Explained):
        progress = bound.evidence.progress(bound.epsilon)
        counts = list(zip(progress.taken.tolist(), progress.correct.tolist(), strict=True))
    projected = len(counts) == 1
    if projected:
        sizes = sorted({round(taken * factor) for factor in _PROJECTED} - {0})
        counts = [(size, int(np.floor(right * size / taken))) for size in sizes]
    curve = []
    for size, hits in counts:
        evidence = Counts(hits, size, max(bound.evidence.elements, size))
        curve.append((size, hits, lower_bound(evidence, bound.delta, bound.confidence).epsilon))
    return tuple(curve), projected


def _drops(ladder: Ladder | None) -> tuple[Drop, ...]:
    if ladder is None:
        return ()
    starts = [ladder.epsilon, *(step.epsilon for step in ladder.steps)]
    return tuple(
        Drop(step.gap, start, step.epsilon, words.GAPS.get(step.gap, ""))
        for start, step in zip(starts, ladder.steps, strict=False)
    )
