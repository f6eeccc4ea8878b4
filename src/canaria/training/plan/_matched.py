"""Bounds of many drawn audits by the rule `Matched`, all at once, by the critical count of each look."""

import bisect
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from canaria._core.arrays import Floats, Hits, Integers
from canaria.claims import Claim
from canaria.claims.families import Family
from canaria.evidence import _curve_count
from canaria.evidence._lines import lines_of
from canaria.evidence._looks import Look, planned
from canaria.rules import Matched
from canaria.training.plan._law import Law, draws
from canaria.training.plan._ranked import counts_at

_RECURSION: Final = 1.17
"""The recursion's p-value over the exact one, in the median."""


@dataclass(frozen=True, eq=False)
class MatchedAudits:
    """Right guesses among the first k of both tails, at all looks: (audits, looks)."""

    canaries: int
    rule: Matched
    taken: Integers
    counts: Floats
    most_audits: ClassVar[int] = 10_000

    @classmethod
    def draw(
        cls, law: Law, canaries: int, audits: int, rng: np.random.Generator, rule: Matched
    ) -> "MatchedAudits":
        """Audits drawn from the law."""
        plan = planned(_family(rule), canaries, rule.confidence)
        taken = np.unique([look.taken for stretch in plan for look in stretch.looks])
        coordinates = -(-canaries // law.per_coordinate)
        parts = [counts_at(drawn, law, taken, rng)[0] for drawn in draws(law, coordinates, audits, rng)]
        return cls(canaries, rule, taken, np.concatenate(parts))

    def bounds(self, delta: float, level: float) -> Floats:
        """The epsilon of the last claim of each audit's run of refuted ones, at the ends of stretches."""
        family = _family(self.rule)
        plan = planned(family, self.canaries, self.rule.confidence)
        running = np.ones(len(self.counts), dtype=np.bool_)
        runs = np.zeros(len(self.counts), dtype=np.int64)
        for stretch in plan:
            running &= self._reached(family.claim(stretch.last), stretch.looks, level)
            if not running.any():
                break
            runs += running
        epsilons = {0: 0.0}
        for run in np.unique(runs[runs > 0]).tolist():
            epsilons[run] = family.claim(plan[run - 1].last).least_epsilon_at(delta)
        return np.array([epsilons[run] for run in runs.tolist()])

    def refuted(self, claim: float, delta: float, level: float) -> Hits:
        """Whether each audit refutes the claim of the family with this epsilon."""
        family = _family(self.rule)
        promised = family.at(claim, delta)
        plan = planned(family, self.canaries, self.rule.confidence)
        parameter = family.parameter(promised)
        looks = next((stretch.looks for stretch in plan if parameter <= stretch.last), ())
        return self._reached(promised, looks, level)

    def _reached(self, claim: Claim, looks: tuple[Look, ...], level: float) -> Hits:
        """Whether some look has as many right guesses as refute the claim."""
        reached = np.zeros(len(self.counts), dtype=np.bool_)
        for look in looks:
            column = self.counts[:, int(np.searchsorted(self.taken, look.taken))]
            reached |= column >= _critical(claim, self.canaries, look, level)
        return reached


@lru_cache(maxsize=4096)
def _critical(claim: Claim, elements: int, look: Look, level: float) -> int:
    """The least number of right guesses that refutes the claim at a look; above all of them if none does.

    By the recursion, whose p-values are about a sixth too large; the certificate takes much longer.
    """
    asked = level * look.share * _RECURSION
    return bisect.bisect_left(
        range(look.taken + 1),
        True,
        key=lambda right: _curve_count.excludes(elements, look.taken, right, lines_of(claim), asked),
    )


def _family(rule: Matched) -> Family:
    assert isinstance(rule.family, Family)
    return rule.family
