"""Auditors that are known to over-claim, kept so that the laboratory proves its eyesight.

Each takes scores, bits, delta and confidence and returns "a lower bound on epsilon", as any auditor does.
"""

from typing import Any

import numpy as np
from scipy import special

from canaria.evidence import UncommittedCounts
from canaria.rules import Tails


def best_k(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    """The largest Clopper-Pearson bound over every number of guesses, chosen in hindsight.

    Invalid: the largest of many bounds that each err in 5 % of audits errs more often.
    """
    values = np.asarray(scores, dtype=np.float64)
    ties = np.random.default_rng(np.frombuffer(values.tobytes(), dtype=np.uint32))
    order = Tails(len(values))(values, ties).guesses
    right = np.cumsum(order.hits(np.asarray(bits)))
    taken = np.arange(1, len(right) + 1)
    seen = right > 0
    chance = special.betaincinv(right[seen], (taken - right)[seen] + 1, 1 - confidence)
    return max(0.0, float(special.logit(chance).max(initial=0.0)))


def clopper_pearson(scores: Any, bits: Any, delta: float, confidence: float) -> float:
    """Clopper-Pearson over the signs of all scores but 0, however many there are.

    Invalid where scores know bits. A guesser who has seen earlier bits can stop when ahead (the paper's
    proposition on adaptive auditing says otherwise); one who knows all other bits can be right or wrong
    with all guesses together. Invalid also where delta is not 0, which it ignores.
    """
    taken = np.flatnonzero(scores)
    right = int((np.sign(np.asarray(scores)[taken]) == np.asarray(bits)[taken]).sum())
    return UncommittedCounts(right, len(taken), len(bits)).ceiling(1 - confidence)
