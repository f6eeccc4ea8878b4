"""What the adapters share: groups, guesses and seeds that do not look at the bits."""

import math
import zlib

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bits = npt.NDArray[np.int8]
Mask = npt.NDArray[np.bool_]

SMALLEST_GROUP = 2
"""Peers refuse an empty group, and those that split a group in two refuse a group of one."""


def groups(scores: Floats, bits: Bits) -> tuple[Floats, Floats] | None:
    """The scores of members and of the others; None where there are too few of either to ask a peer."""
    members, others = scores[bits > 0], scores[bits < 0]
    return (members, others) if min(len(members), len(others)) >= SMALLEST_GROUP else None


def rising(scores: Floats) -> npt.NDArray[np.intp]:
    """The elements from the lowest score to the highest.

    Ties are broken at random: in the order given they would tell bits if members were listed first.
    """
    return np.lexsort((np.random.default_rng(seed(scores)).random(len(scores)), scores))


def upper_half(scores: Floats) -> Mask:
    """Which elements have a score in the upper half."""
    found = np.zeros(len(scores), dtype=np.bool_)
    found[rising(scores)[len(scores) // 2 :]] = True
    return found


def right_guesses(scores: Floats, bits: Bits, taken: int) -> int:
    """How many guesses are right: the highest scores as members, as many of the lowest as others."""
    order, low = rising(scores), taken // 2
    lowest, highest = order[:low], order[len(order) - (taken - low) :]
    return int((bits[lowest] < 0).sum() + (bits[highest] > 0).sum())


def seed(scores: Floats) -> int:
    """A seed that repeats with the scores and knows nothing of the bits."""
    return zlib.crc32(np.ascontiguousarray(scores).tobytes())


def claim(answer: float) -> float:
    """What an answer claims: a negative number or NaN claims nothing."""
    return 0.0 if math.isnan(answer) else max(0.0, float(answer))
