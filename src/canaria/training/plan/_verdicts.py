"""Bounds of played audits of one design, by the p-values of their evidence.

`lower_bound` takes 20 to 150 ms for an audit, and a plan plays a thousand of them. Two things save most of
that time.

- Of the fixed grid of claims every eighth is tested. A bound is then known to 0.08, and put at random between
  the claims. Bounds differ by 0.2 or more by chance, so this adds less than a tenth to their spread.
- Verdicts on a claim are remembered. The p-value of a `Ranking` depends on the hits only through one number,
  its smallest score. A score at or below a refuted one is refuted too, and a score at or above one that was
  kept is kept. So few audits need a p-value: a bound takes 1 to 2 ms.

Bounds of `Soft` come out 1 to 2% too large: among the claims that are left out may be one that ends the run.
"""

import bisect
import math
from functools import lru_cache, partial
from typing import Final

import numpy as np

from canaria.claims import ApproximateDP, Claim
from canaria.claims.families import Family, tested
from canaria.evidence import Evidence
from canaria.evidence.inversion import EPSILON_GRID, last_refuted, parts_of, stretches_refuted

_STRIDE: Final = 8
_CLAIMS: Final = EPSILON_GRID[::_STRIDE]
"""The claims that are tested."""
_NEAR: Final = 4
"""Bounds of two audits mostly differ by no more than this many claims."""


class Verdicts:
    """Whether audits of one design refute claims at a level."""

    def __init__(self, delta: float, level: float) -> None:
        self.delta, self.level = delta, level
        # For each part of the evidence and each claim: the largest number that was refuted, and the smallest
        # that was kept.
        self._known: dict[tuple[int, float], tuple[float, float]] = {}
        self._last_run = 0

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
        parts = enumerate(parts_of(seen, self.level))
        return any(not self._kept(number, *part, EPSILON_GRID[following]) for number, part in parts)

    def _claims_refuted(self, seen: Evidence) -> int:
        """How many of the claims are refuted, from the first on."""
        if seen.weighs:
            # Weights change with the claim, and one far below others that are refuted may be kept: walk.
            last = last_refuted(seen, self.delta, self.level, claims=_CLAIMS)
            # It is 0 whether the first claim, 0, is refuted or not.
            any_refuted = last > 0 or not self._kept(0, seen, self.level, 0.0)
            return int(np.searchsorted(_CLAIMS, last, side="right")) if any_refuted else 0
        # By bisection, as if p-values were monotone: bounds of rankings come out the same to 0.02.
        run = 0
        for number, (part, level) in enumerate(parts_of(seen, self.level)):
            kept = partial(self._kept, number, part, level)
            low, high = run, len(_CLAIMS)
            # Most parts refute no more than those before, and most bounds are near that of the last audit.
            for place in (run, self._last_run - _NEAR, self._last_run + _NEAR):
                if low <= place < high:
                    low, high = (low, place) if kept(_CLAIMS[place]) else (place + 1, high)
            run = bisect.bisect_left(_CLAIMS, True, low, high, key=kept)
        self._last_run = run
        return run

    def _kept(self, number: int, part: Evidence, level: float, epsilon: float) -> bool:
        """Whether a part of the evidence does not refute a claim at its level."""
        claim = ApproximateDP(float(epsilon), self.delta)
        found = part.extremeness(claim)
        if found is None:
            return not part.refutes(claim, level)
        refuted, kept = self._known.get((number, claim.epsilon), (-math.inf, math.inf))
        if refuted < found < kept:
            refuted, kept = (found, kept) if part.refutes(claim, level) else (refuted, found)
            self._known[number, claim.epsilon] = refuted, kept
        return found > refuted

    def _bound_of_family(self, seen: Evidence, family: Family, within: float) -> float:
        """Between the ends of stretches alone.

        `lower_bound` also looks inside, at noise of its own for every audit, for which the accountant would
        take seconds. The ends are the same for all audits.
        """
        run = stretches_refuted(seen, family, self.level)
        if run == 0:
            return 0.0
        ends = tested(family, seen.elements)[run - 1 : run + 1].tolist()
        # Beyond the last stretch there is one end only, and both of these are it.
        around = [_epsilon(family.claim(end), self.delta) for end in ends]
        return around[0] + within * (around[-1] - around[0])


@lru_cache(maxsize=256)
def _epsilon(claim: Claim, delta: float) -> float:
    return claim.least_epsilon_at(delta)
