"""A kind of evidence that no file of canaria knows, and a rule that gives it."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from canaria import audit_scores
from canaria.claims import ApproximateDP
from canaria.evidence import Evidence, Tally


@dataclass(frozen=True)
class Streak(Evidence):
    """The surest guesses were all right, `length` of them; the next was wrong, or there was none."""

    length: int
    elements: int

    method: ClassVar[str] = "streak"
    assumptions: ClassVar[tuple[str, ...]] = ("the hidden bits are independent fair coins",)

    def p_value(self, claim: ApproximateDP) -> float:
        right = 1 / (1 + np.exp(-claim.epsilon))
        return float(min(1.0, right**self.length * (1 + 1e-12) + self.elements * claim.delta * (1 - right)))

    def tally(self, claim: ApproximateDP) -> Tally:
        return Tally(self.length, self.length)


@dataclass(frozen=True)
class Streaks:
    """Guess the signs of the scores, the surest first, until one is wrong."""

    def __call__(self, scores: Any, rng: np.random.Generator) -> "Ordered":
        return Ordered(np.argsort(-np.abs(scores)), np.where(scores >= 0, 1, -1))


@dataclass(frozen=True, eq=False)
class Ordered:
    order: Any
    signs: Any

    def reveal(self, bits: Any) -> Streak:
        hits = (bits == self.signs)[self.order]
        return Streak(len(hits) if hits.all() else int(np.argmin(hits)), len(bits))


def audit(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    """As the laboratory calls an auditor."""
    return audit_scores(scores, bits, delta, confidence, rule=Streaks(), rng=0).epsilon
