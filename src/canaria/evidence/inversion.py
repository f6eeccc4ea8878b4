"""The last refuted claim: one search for every kind of evidence.

Claims are nested: an (epsilon, delta)-DP mechanism is (epsilon', delta)-DP for every epsilon' above. If the
p-value is monotone, bisection finds the last refuted claim (Theorem 16). If it is not, a grid that was fixed
in advance is walked upward, and the last point of the initial run of refuted claims is reported (Theorem 17).
Why the initial run, and not the largest refuted claim? Let e be the first point of the grid at or above the
truth. A bound above the truth has e in its run, so e must be refuted, which for this one true claim has
probability at most beta. The largest refuted claim could be any of the many true claims above e.
"""

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from scipy import optimize

from canaria._core.arrays import Floats
from canaria._core.binomial import NOT_ZERO
from canaria._core.rounding import significant
from canaria.claims import ApproximateDP, Claim
from canaria.claims.families import Family, tested
from canaria.evidence._looks import around
from canaria.evidence.base import Evidence, Inversion, Tally, lines_of
from canaria.evidence.split import Split

EPSILON_GRID: Final[Floats] = np.concatenate(
    [np.arange(2001) / 100, 20 + np.arange(1, 301) / 10, 50 + np.arange(1.0, 651.0)]
)
"""The fixed grid of claims: steps of 0.01 from 0 to 20, of 0.1 to 50, of 1 to 700."""
EPSILON_GRID.flags.writeable = False
GRID_IN_WORDS: Final = "0 to 20 in steps of 0.01, to 50 in 0.1, to 700 in 1"
_WITHIN: Final = 1.001
"""The factor within which the parameter of the last refuted claim of a family is found."""
_BELOW_CEILING: Final = 1e-8
"""How far below its ceiling a bound is tried, relative to it: the closed form may be rounded."""
_PART_LEVEL: Final = 1 - 2.0**-48
"""The level of a part over level times share: then p-value / share <= level in floating point too."""


def last_refuted(
    evidence: Evidence, delta: float, level: float, beat: float = -1.0, claims: Floats = EPSILON_GRID
) -> float:
    """The bound; a smaller value may be returned if the bound does not exceed `beat`.

    The bound of a split is the largest of its parts' bounds, so a part matters only if it beats those before.
    `claims` are walked where the p-value is not monotone. Any grid that was fixed in advance is valid.
    """
    if isinstance(evidence, Split):
        best = beat
        for part, share in parts_of(evidence, level):
            best = max(best, last_refuted(part, delta, share, best, claims))
        return best
    if evidence.inversion is Inversion.BISECTION:
        # By monotony: if `beat` itself is not refuted, neither is any claim above it.
        if beat >= 0 and not _refutes(evidence, beat, delta, level):
            return 0.0
        return _bisect(evidence, delta, level)
    return _walk(evidence, delta, level, beat, claims)


def weakest_refuted(evidence: Evidence, family: Family, level: float) -> Claim | None:
    """The last claim of the initial run of refuted ones; None if the first is not refuted.

    The ends of the stretches are walked upward. Within the first stretch whose end is not refuted, claims are
    bisected if the p-value is monotone there: a refuted claim then refutes all stronger ones of the stretch.
    For a split, it is the weakest claim that a part refutes at its share.
    """
    if isinstance(evidence, Split):
        found = [weakest_refuted(part, family, share) for part, share in parts_of(evidence, level)]
        return max((one for one in found if one is not None), key=family.parameter, default=None)
    ends = tested(family, evidence.elements).tolist()
    run = stretches_refuted(evidence, family, level)
    if run == 0:
        return None
    last = ends[run - 1]
    monotone = evidence.inversion in (Inversion.BISECTION, Inversion.STRETCHES)
    if run < len(ends) and monotone:
        kept = ends[run]
        # By ratios, as parameters range over several powers of ten.
        while kept > last * _WITHIN:
            middle = math.sqrt(last * kept)
            if evidence.refutes(family.claim(middle), level):
                last = middle
            else:
                kept = middle
        # A short number is printed as it is. It is rounded down, to a stronger claim, which is refuted too.
        last = max(ends[run - 1], significant(last))
    return family.claim(last)


def stretches_refuted(evidence: Evidence, family: Family, level: float) -> int:
    """How many stretches are refuted to their end, from the strongest claims on."""
    ends = tested(family, evidence.elements).tolist()
    return next(
        (i for i, end in enumerate(ends) if not evidence.refutes(family.claim(end), level)), len(ends)
    )


def parts_of(evidence: Evidence, level: float) -> Iterator[tuple[Evidence, float]]:
    """The parts of a split, each with its share of the level; other evidence is its own only part."""
    if not isinstance(evidence, Split):
        yield evidence, level
        return
    for part, share in zip(evidence.parts, evidence.shares, strict=True):
        yield part, level * share * _PART_LEVEL


def expected_at(family: Family, elements: int, seen: Tally) -> Claim | None:
    """The first tested claim that allows this many right guesses on average; None if no claim does."""
    if seen.taken == 0:
        return None
    *_, after = around(family, elements, seen)
    share = seen.taken / elements
    return after if float(lines_of(after).mean_accuracy(share)) >= seen.correct / seen.taken else None


def first_claim_refuted(evidence: Evidence, truth: float, delta: float, level: float) -> bool:
    """Whether the first claim at or above `truth` that `lower_bound` would ever try is refuted.

    If it is not, the bound is at most `truth`. This costs one p-value; a bound costs many.
    """
    if evidence.family is not None:
        return evidence.refutes(_first_claim(evidence.family, evidence.elements, truth, delta), level)
    if isinstance(evidence, Split):
        parts = zip(evidence.parts, evidence.shares, strict=True)
        return any(first_claim_refuted(part, truth, delta, level * share) for part, share in parts)
    if evidence.inversion is Inversion.BISECTION:
        return _refutes(evidence, truth, delta, level)
    tried = EPSILON_GRID[np.searchsorted(EPSILON_GRID, truth) :][:1]
    if len(tried) == 0:
        return False
    settled = int(evidence.screen(tried, delta, level)[0])
    return settled > 0 or (settled == 0 and _refutes(evidence, float(tried[0]), delta, level))


def _first_claim(family: Family, elements: int, truth: float, delta: float) -> Claim:
    """The claim with this epsilon; for epsilon = 0, the first that is tested."""
    if truth == 0:
        return family.claim(float(tested(family, elements)[0]))
    return family.at(truth, delta)


def _refutes(evidence: Evidence, epsilon: float, delta: float, level: float) -> bool:
    return evidence.refutes(ApproximateDP(epsilon, delta), level)


def _bisect(evidence: Evidence, delta: float, level: float) -> float:
    """The largest refuted claim of a monotone p-value, rounded down."""

    def p_value(epsilon: float) -> float:
        return evidence.p_value(ApproximateDP(epsilon, delta))

    if p_value(0.0) > level:
        return 0.0
    high = evidence.ceiling(level)
    # Without delta the ceiling, that of Clopper and Pearson, is the bound itself, up to rounding.
    for epsilon in (high, max(0.0, high - _BELOW_CEILING * max(1.0, high))):
        if p_value(epsilon) <= level:
            return epsilon

    def excess(epsilon: float) -> float:
        return math.log(max(p_value(epsilon), NOT_ZERO) / level)

    found, step = float(optimize.brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-13)), 1e-13
    # Only this makes the bound valid, and nothing is assumed about how it was found (Theorem 16).
    while p_value(found) > level:
        found, step = max(0.0, found - step), 2 * step
    return found


def _walk(evidence: Evidence, delta: float, level: float, beat: float, claims: Floats) -> float:
    """The last point of the initial run of refuted claims on a fixed grid.

    A run that reaches above `beat` holds the first claim above it, which is therefore tried first.
    """
    beyond = int(np.searchsorted(claims, beat, side="right"))
    if 0 < beyond < len(claims) and not _refutes(evidence, float(claims[beyond]), delta, level):
        return 0.0
    settled = evidence.screen(claims, delta, level)
    run, walked = int(np.argmax(np.append(settled, 0) != 1)), False
    while run < len(claims) and settled[run] >= 0:
        if settled[run] == 0 and not _refutes(evidence, float(claims[run]), delta, level):
            break
        run, walked = run + 1, settled[run] == 0
    # If a screen settled the last claim of the run, its own p-value must agree with what is reported.
    while run > 0 and not walked and not _refutes(evidence, float(claims[run - 1]), delta, level):
        run -= 1
    return float(claims[run - 1]) if run > 0 else 0.0
