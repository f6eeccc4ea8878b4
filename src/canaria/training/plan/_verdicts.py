"""Bounds of played audits of one design, by the p-values of their evidence.

`lower_bound` takes 20 to 150 ms for an audit, and a plan plays a thousand of them. Two things save most of
that time.

- Of the fixed grid of claims every eighth is tested. A bound is then known to 0.08, and put at random between
  the claims. Bounds differ by 0.2 or more by chance, so this adds less than a tenth to their spread.
- Verdicts on a claim are remembered. The p-value of a `Ranking` depends on the hits only through one number,
  its smallest score. What is no larger than a score that was refuted is refuted too, and what is no smaller
  than one that was kept is kept. So few audits need a p-value: a bound takes 1 to 2 ms.

Bounds of `Soft` come out 1% too large: among the claims that are left out may be one that ends the run.
"""

import bisect
import math
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from canaria.claims import ApproximateDP, Claim
from canaria.claims.families import Family, tested
from canaria.evidence import Evidence, Split
from canaria.evidence.inversion import EPSILON_GRID, last_refuted, stretches_refuted

_STRIDE: Final = 8
_CLAIMS: Final = EPSILON_GRID[::_STRIDE]
"""The claims that are tested."""


class _Part(NamedTuple):
    """A part of the evidence of an audit, and its share of the level; other evidence is its only part."""

    number: int
    seen: Evidence
    share: float


def _parts(seen: Evidence) -> list[_Part]:
    if not isinstance(seen, Split):
        return [_Part(0, seen, 1.0)]
    shares = zip(seen.parts, seen.shares, strict=True)
    return [_Part(number, part, share) for number, (part, share) in enumerate(shares)]


class Verdicts:
    """Whether audits of one design refute claims at a level."""

    def __init__(self, delta: float, level: float) -> None:
        self.delta, self.level = delta, level
        # For each part of the evidence and each claim: the largest number that was refuted, and the smallest
        # that was kept.
        self._known: dict[tuple[int, float], tuple[float, float]] = {}

    def bound(self, seen: Evidence, within: float) -> float:
        """The bound of an audit, at the share `within` of the way from its claim to the next one."""
        if seen.family is not None:
            return self._bound_of_family(seen, seen.family, within)
        run = self._claims_refuted(seen)
        place = min((run - 1) * _STRIDE + int(within * _STRIDE), len(EPSILON_GRID) - 1)
        return float(EPSILON_GRID[place]) if run > 0 else 0.0

    def above(self, claim: float, seen: Evidence) -> bool:
        """Whether the bound of an audit lies above a claim: whether the next claim of the grid is refuted."""
        if seen.family is not None:
            return seen.refutes(seen.family.at(claim, self.delta), self.level)
        following = int(np.searchsorted(EPSILON_GRID, claim, side="right"))
        if following == len(EPSILON_GRID):
            return False
        return any(self._refutes(part, EPSILON_GRID[following]) for part in _parts(seen))

    def _claims_refuted(self, seen: Evidence) -> int:
        """How many of the claims are refuted, from the first on."""
        if seen.weighs:
            # Weights change with the claim, and one far below others that are refuted may be kept: walk.
            last = last_refuted(seen, self.delta, self.level, claims=_CLAIMS)
            # It is 0 whether the first claim, 0, is refuted or not.
            any_refuted = last > 0 or self._refutes(_Part(0, seen, 1.0), 0.0)
            return int(np.searchsorted(_CLAIMS, last, side="right")) if any_refuted else 0
        # By bisection, as if p-values were monotone: bounds of rankings come out the same to 0.02.
        run = 0
        for part in _parts(seen):
            # Most parts do not refute more than those before, which one verdict shows.
            if run < len(_CLAIMS) and self._refutes(part, _CLAIMS[run]):
                run = bisect.bisect_left(
                    _CLAIMS, True, run + 1, key=lambda claim: not self._refutes(part, claim)
                )
        return run

    def _refutes(self, part: _Part, epsilon: float) -> bool:
        """Whether a part refutes a claim at its share of the level."""
        claim, level = ApproximateDP(float(epsilon), self.delta), self.level * part.share
        found = part.seen.extremeness(claim)
        if found is None:
            return part.seen.refutes(claim, level)
        refuted, kept = self._known.get((part.number, claim.epsilon), (-math.inf, math.inf))
        if refuted < found < kept:
            verdict = part.seen.refutes(claim, level)
            refuted, kept = (found, kept) if verdict else (refuted, found)
            self._known[part.number, claim.epsilon] = refuted, kept
        return found <= refuted

    def _bound_of_family(self, seen: Evidence, family: Family, within: float) -> float:
        """Between the ends of stretches alone.

        `lower_bound` also looks inside, at noise of its own for every audit, for which the accountant would
        take seconds. The ends are the same for all audits.
        """
        run = stretches_refuted(seen, family, self.level)
        if run == 0:
            return 0.0
        ends = tested(family, seen.elements)[run - 1 : run + 1].tolist()
        around = [_epsilon(family.claim(end), self.delta) for end in ends]
        return around[0] + within * (around[-1] - around[0])


@lru_cache(maxsize=256)
def _epsilon(claim: Claim, delta: float) -> float:
    return claim.least_epsilon_at(delta)
