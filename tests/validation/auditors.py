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
