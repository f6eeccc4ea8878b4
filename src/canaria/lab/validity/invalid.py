"""Auditors that are known to over-claim. The laboratory must flag them.

Each takes scores, bits, delta and confidence and returns "a lower bound on epsilon", as any auditor does.
"""

import numpy as np
from scipy import special

from canaria._core.arrays import Bits, Floats
from canaria.bounds.bound import lower_bound
from canaria.evidence import Ranking, Split, UncommittedCounts
from canaria.game.scores import audit_scores
from canaria.rules import Bet, Rule, Surest, Tails, Top


def best_k(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """The largest Clopper-Pearson bound over every number of guesses, chosen in hindsight.

    Invalid: if many bounds each err in 5% of audits, the largest of them errs more often.
    """
    values = np.asarray(scores, dtype=np.float64)
    ties = np.random.default_rng(np.frombuffer(values.tobytes(), dtype=np.uint32))
    order = Tails(len(values))(values, ties).guesses
    right = np.cumsum(order.hits(np.asarray(bits)))
    taken = np.arange(1, len(right) + 1)
    seen = right > 0
    chance = special.betaincinv(right[seen], (taken - right)[seen] + 1, 1 - confidence)
    return max(0.0, float(special.logit(chance).max(initial=0.0)))


def clopper_pearson(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """Clopper-Pearson over the signs of all nonzero scores, however many there are.

    Invalid if scores use bits. A guesser who has seen earlier bits can stop when ahead (the paper's
    proposition on adaptive auditing says otherwise). One who knows all other bits can be right, or wrong,
    with all guesses together. Also invalid if delta is not 0, because it ignores delta.
    """
    taken = np.flatnonzero(scores)
    right = int((np.sign(np.asarray(scores)[taken]) == np.asarray(bits)[taken]).sum())
    return UncommittedCounts(right, len(taken), len(bits)).ceiling(1 - confidence)


def list_order(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """Rank by score, with ties in the order of the list, from both ends of the list.

    Invalid if the list is sorted by the bits: then the order among ties reveals them.
    """
    values, hidden = np.asarray(scores), np.asarray(bits)
    forward, backward = np.argsort(-values, kind="stable"), np.argsort(values, kind="stable")[::-1]
    parts = [Ranking(hidden[order[::turn]] == turn) for order in (forward, backward) for turn in (1, -1)]
    return lower_bound(Split(tuple(parts), (0.25,) * 4), delta, confidence).epsilon


def bets_in_list_order(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """Bet on all signs in the order of the list, from both ends of the list.

    Invalid if the list is sorted by the bits, even without ties, because the p-value uses the largest wealth
    along the list.
    """
    values, hidden = np.asarray(scores, dtype=np.float64), np.asarray(bits)
    hits = np.sign(values) == hidden
    paths = [Bet().weigh(hits[::turn], values[::turn], len(hidden)) for turn in (1, -1)]
    return lower_bound(Split(tuple(paths), (0.5, 0.5)), delta, confidence).epsilon


def best_of_five(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """The largest of five bounds, each at the full confidence.

    Invalid: five chances to be wrong. `combine` splits the error probability.
    """
    values = np.asarray(scores, dtype=np.float64)
    rng = np.random.default_rng(np.frombuffer(values.tobytes(), dtype=np.uint32))
    rules: list[Rule] = [Top(13), Tails(30), Top(40), Surest(50), Tails(80)]
    return max(audit_scores(values, bits, delta, confidence, rule, rng).epsilon for rule in rules)


def no_delta(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """A bound at delta = 0, compared with a claim at any delta: invalid if delta is not 0."""
    values = np.asarray(scores, dtype=np.float64)
    rng = np.random.default_rng(np.frombuffer(values.tobytes(), dtype=np.uint32))
    return audit_scores(values, bits, 0.0, confidence, Surest(50), rng).epsilon
