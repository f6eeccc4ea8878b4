"""Bounds of played audits of one design, by the p-values of their evidence.

`lower_bound` spends 20 to 150 ms on an audit, and a plan plays a thousand of them. Two things save most of it.

- Of the fixed grid of claims every eighth is tested. A bound is then known to 0.08, and put at random between
  the claims. Bounds differ by 0.2 or more by chance, so this adds less than a tenth to their spread.
- Verdicts on a claim are remembered. The p-value of a `Ranking` depends on the hits only through one number,
  its smallest score. What is no larger than a score that was refuted is refuted too, and what is no smaller
  than one that was kept is kept. So few audits need a p-value: a bound takes 1 to 2 ms.
"""

import bisect
import math
from functools import lru_cache
from typing import Final

import numpy as np

from canaria.claims import ApproximateDP, Claim
from canaria.claims.families import Family, tested
from canaria.evidence import Evidence, Split
from canaria.evidence.inversion import EPSILON_GRID, last_refuted, stretches_refuted

_STRIDE: Final = 8
_CLAIMS: Final = EPSILON_GRID[::_STRIDE]
"""The claims that are tested."""


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
        if seen.weighs:
            # Weights change with the claim: a claim below the bound may be kept, so all are walked.
            last = last_refuted(seen, self.delta, self.level, claims=_CLAIMS)
            run = int(np.searchsorted(_CLAIMS, last, side="right")) if last > 0 else 0
        else:
            # Not quite monotone either, but bounds by bisection were within 0.02 of all bounds of the library.
            run = bisect.bisect_left(_CLAIMS, True, key=lambda claim: not self._refutes(seen, float(claim)))
        place = min((run - 1) * _STRIDE + int(within * _STRIDE), len(EPSILON_GRID) - 1)
        return float(EPSILON_GRID[place]) if run > 0 else 0.0

    def above(self, claim: float, seen: Evidence) -> bool:
        """Whether the bound of an audit lies above a claim: whether the next claim of the grid is refuted."""
        if seen.family is not None:
            return seen.refutes(seen.family.at(claim, self.delta), self.level)
        following = np.searchsorted(EPSILON_GRID, claim, side="right")
        return following < len(EPSILON_GRID) and self._refutes(seen, float(EPSILON_GRID[following]))

    def _refutes(self, seen: Evidence, epsilon: float) -> bool:
        """Whether some part refutes a claim at its share of the level."""
        parts = zip(seen.parts, seen.shares, strict=True) if isinstance(seen, Split) else [(seen, 1.0)]
        claim = ApproximateDP(epsilon, self.delta)
        return any(self._part_refutes(number, part, claim, share) for number, (part, share) in enumerate(parts))

    def _part_refutes(self, number: int, part: Evidence, claim: ApproximateDP, share: float) -> bool:
        found = part.extremeness(claim)
        if found is None:
            return part.refutes(claim, self.level * share)
        refuted, kept = self._known.get((number, claim.epsilon), (-math.inf, math.inf))
        if refuted < found < kept:
            verdict = part.refutes(claim, self.level * share)
            refuted, kept = (found, kept) if verdict else (refuted, found)
            self._known[number, claim.epsilon] = refuted, kept
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
