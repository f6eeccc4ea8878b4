"""Auditors that a user might bring."""

from typing import Any

import numpy as np


def timid(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    return 0.0


def boastful(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    return 50.0


def broken(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    if scores[0] > 0:
        raise ZeroDivisionError("no non-members below the threshold")
    return 0.0


def not_a_number(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    return float("nan")


def meddling(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    scores[:] = bits
    bits[:] = 1
    return 0.0


def unlimited(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    return float("inf")


def careless(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    """Ties in the order of the input."""
    from canaria import Counts, lower_bound

    top = np.argsort(-scores, kind="stable")[: len(scores) // 4]
    right = int((bits[top] > 0).sum())
    return lower_bound(Counts(right, len(top), len(bits)), delta, confidence).epsilon


def nothing(scores: Any, bits: Any, delta: float, confidence: float) -> Any:
    return None


def text(scores: Any, bits: Any, delta: float, confidence: float) -> Any:
    return "9"


def two(scores: Any, bits: Any, delta: float, confidence: float) -> Any:
    return 1.0, 2.0


def of_less(scores: Any, bits: Any) -> float:
    return 0.0


def leaving(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    raise SystemExit(3)


def whole(scores: Any, bits: Any, delta: float, confidence: float) -> Any:
    return 9


def boxed(scores: Any, bits: Any, delta: float, confidence: float) -> Any:
    return np.array([9.0], dtype=np.float32)


def negative(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    return -0.5


def no_delta(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    from canaria import audit_scores

    return audit_scores(scores, bits, 0.0, confidence, rng=0).epsilon


def no_delta_surest(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    from canaria import audit_scores
    from canaria.rules import Surest

    return audit_scores(scores, bits, 0.0, confidence, Surest(50), rng=0).epsilon
