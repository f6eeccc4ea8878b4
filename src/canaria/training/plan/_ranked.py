"""Bounds of many drawn audits by the rules `Ranked` and `Around`, all at once.

The p-value of a `Ranking` depends on the hits only through the smallest of the scores of its looks. So for
each claim there is one strictness below which the claim is refuted; it is found from `Ranking` itself at a
few claims and interpolated between them. A bound is then the largest claim whose critical count,
at some look, has been reached. Against `lower_bound` on the same hits the mean bound is off by 1% at most
where that was tried (tests/training/plan/test_plan.py).
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import binomial
from canaria._core.arrays import Floats, Hits, Integers
from canaria.claims import ApproximateDP
from canaria.evidence import Ranking
from canaria.evidence.boundaries import PER_EXCESS, scores
from canaria.evidence.inversion import EPSILON_GRID
from canaria.rules import Around, Ranked
from canaria.training.plan._law import Coordinates, Law, draws

_FIRST_GUESS: Final = 8.0
_IMPOSSIBLE: Final = -1e4
_TINY: Final = 1e-300
_CLAIMS: Final = 60
_FIRST_DEVIATIONS: Final = 2.5
_MORE: Final = 1.25
_HALVINGS: Final = 12
_CLOSE_ENOUGH: Final = 1.02


@dataclass(frozen=True, eq=False)
class RankedAudits:
    """Right guesses at the looks, for each order of the rule: (audits, looks)."""

    rule: Ranked | Around
    canaries: int
    counts: tuple[Floats, ...]
    most_audits: ClassVar[int] = 10_000

    @classmethod
    def draw(
        cls, law: Law, canaries: int, audits: int, rng: np.random.Generator, rule: Ranked | Around
    ) -> "RankedAudits":
        """Audits drawn from the law."""
        grid, orders = rule.looks(canaries), len(rule.orders)
        coordinates = -(-canaries // law.per_coordinate)
        parts = [counts_at(drawn, law, grid, rng)[:orders] for drawn in draws(law, coordinates, audits, rng)]
        return cls(rule, canaries, tuple(np.concatenate(column) for column in zip(*parts, strict=True)))

    def bounds(self, delta: float, level: float) -> Floats:
        """The bound of every audit."""
        knots: Floats = np.zeros(1)
        strict = np.log([[level / _FIRST_GUESS * share for share, _ in self.rule.orders]])
        found = self._invert(knots, strict, math.log(self.canaries) + 2, delta)
        asked: list[float] = []
        for quantiles in ((0.5,), (0.05, 0.95)):
            asked += np.round(np.quantile(found, quantiles), 2).tolist()
            knots = np.unique(asked)
            strict = np.stack([self._strict(claim, delta, level) for claim in knots.tolist()])
            found = self._invert(knots, strict, 1.3 * float(found.max()) + 0.3, delta)
        return np.asarray(np.floor(found * 100 + 1e-6) / 100)

    def refuted(self, claim: float, delta: float, level: float) -> Hits:
        """Whether the bound of each audit lies above the claim."""
        verdict = np.zeros(len(self.counts[0]), dtype=np.bool_)
        if claim >= EPSILON_GRID[-1]:
            return verdict
        following = float(EPSILON_GRID[np.searchsorted(EPSILON_GRID, claim, side="right")])
        strict = self._strict(following, delta, level)
        grid = self.rule.looks(self.canaries)
        for counts, own, (_, one_sided) in zip(self.counts, strict, self.rule.orders, strict=True):
            budget = self._budget(np.array([following]), delta, one_sided)
            critical = _critical_counts(grid, np.array([following]), own[None], budget)[:, 0]
            verdict |= (counts >= critical - 1e-9).any(axis=1)
        return verdict

    def _strict(self, claim: float, delta: float, level: float) -> Floats:
        return np.array(
            [
                _strictness(self.rule, self.canaries, claim, delta, level * share, one_sided)
                for share, one_sided in self.rule.orders
            ]
        )

    def _budget(self, claims: Floats, delta: float, one_sided: bool) -> Floats:
        charged = self.canaries / 2 if one_sided else self.canaries
        return np.asarray(binomial.flip_budget(charged, claims, delta))

    def _invert(self, knots: Floats, strict: Floats, top: float, delta: float) -> Floats:
        """For each audit the largest claim up to `top` with a critical count that was reached, else 0."""
        claims = np.linspace(0, top, _CLAIMS)
        best = np.zeros(len(self.counts[0]))
        grid = self.rule.looks(self.canaries)
        critical: dict[bool, Floats] = {}
        for counts, own, (_, one_sided) in zip(self.counts, strict.T, self.rule.orders, strict=True):
            if one_sided not in critical:
                budget = self._budget(claims, delta, one_sided)
                critical[one_sided] = _critical_counts(grid, claims, np.interp(claims, knots, own), budget)
            for column, rising in zip(counts.T, critical[one_sided], strict=True):
                np.maximum(best, np.interp(column, rising, claims, left=0.0), out=best)
        return best


def counts_at(drawn: Coordinates, law: Law, grid: Integers, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Right guesses among the first k of both tails, of the top, of the bottom."""
    bits = _in_random_order(drawn.included, law.per_coordinate, rng)
    start = np.zeros((len(bits), 1), dtype=np.int32)
    top = np.hstack([start, np.cumsum(bits[:, ::-1], axis=1, dtype=np.int32)])
    bottom = np.hstack([start, np.cumsum(~bits, axis=1, dtype=np.int32)])
    both = top[:, (grid + 1) // 2] + bottom[:, grid // 2]
    return tuple(part.astype(np.float64) for part in (both, top[:, grid], bottom[:, grid]))


def _in_random_order(included: npt.NDArray[np.int16], size: int, rng: np.random.Generator) -> Hits:
    """Which canaries are included, coordinate after coordinate; equal losses are in random order."""
    if size == 1:
        return np.asarray(included > 0)
    bits = np.empty((*included.shape, size), dtype=np.bool_)
    left = included.astype(np.float32)
    for place in range(size):
        bits[..., place] = rng.random(left.shape, dtype=np.float32) * (size - place) < left
        left -= bits[..., place]
    return bits.reshape(len(included), -1)


def _critical_counts(grid: Integers, claims: Floats, strict: Floats, budget: Floats) -> Floats:
    """The count c, as a real number, whose score is e^strict: (looks, claims), rising with the claims.

    One above k where not even k right guesses have so small a score.
    """
    taken, level = grid[:, None].astype(np.float64), np.maximum(np.exp(strict), _TINY)
    mean = taken * special.expit(claims)

    def by_parts(share: float) -> Floats:
        misses = special.bdtrik(
            np.broadcast_to(share * level, (len(grid), len(claims))), taken, special.expit(-claims)
        )
        possible = (taken * -np.log1p(np.exp(-claims)) <= strict + math.log(share)) & np.isfinite(misses)
        counts = np.where(possible, taken - misses, taken + 1)
        return np.clip(mean + budget / (PER_EXCESS * share * level), counts, taken + 1)

    low = by_parts(1.0)
    if budget.any():
        high = by_parts(0.5)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            tails = special.betainc(
                np.minimum(middle, taken), np.maximum(taken - middle, 0.0) + 1, mean / taken
            )
            excess = np.maximum(middle - mean, _TINY)
            fine = tails + budget / (PER_EXCESS * excess) <= level
            low, high = np.where(fine, low, middle), np.where(fine, middle, high)
        low = high
    return np.asarray(np.maximum.accumulate(low, axis=1))


class _PValues:
    """P-values of rankings with c right guesses in all, the wrong ones first: points of a curve over c."""

    def __init__(self, grid: Integers, canaries: int, claim: ApproximateDP, one_sided: bool) -> None:
        self.grid, self.canaries, self.claim, self.one_sided = grid, canaries, claim, one_sided
        self.taken, chance = int(grid[-1]), float(special.expit(claim.epsilon))
        self.mean, self.spread = self.taken * chance, math.sqrt(self.taken * chance * (1 - chance))
        self.points = [(0.0, 0.0, 0.0)]

    def ask(self, deviations: float) -> bool:
        """Add a point: deviations of c from its mean, ln of the smallest score, ln p; whether c can grow."""
        grid, taken = self.grid, self.taken
        right = min(taken, math.ceil(self.mean + deviations * self.spread))
        counts = np.maximum(0, right - (taken - grid))
        ranking = Ranking.of_counts(grid, counts, self.canaries, taken, self.one_sided)
        bounds = ranking.closer(self.claim)
        low, high = next((low, high) for low, high in bounds if high <= low * _CLOSE_ENOUGH)
        epsilon, p_value = self.claim.epsilon, math.sqrt(low * high)
        budget = binomial.flip_budget(ranking.charged, epsilon, self.claim.delta)
        smallest = float(scores(counts, grid, epsilon, budget).min())
        if math.isfinite(smallest):
            self.points.append((deviations, math.log(smallest), math.log(max(p_value, 1e-300))))
        return right < taken

    def where(self, log_level: float) -> tuple[float, float]:
        """Deviations and ln of the smallest score at which ln p is that, by interpolation."""
        deviations, smallest, logs = np.array(sorted(self.points, key=lambda point: -point[2])).T
        return (
            float(np.interp(-log_level, -logs, deviations)),
            float(np.interp(-log_level, -logs, smallest, right=_IMPOSSIBLE)),
        )


@lru_cache(maxsize=1024)
def _strictness(
    rule: Ranked | Around, canaries: int, claim: float, delta: float, level: float, one_sided: bool
) -> float:
    """Ln of how small the smallest score must be for the p-value to be at most the level.

    `Ranking` computes the p-value for more and more right guesses, and twice more near the level.
    """
    curve = _PValues(rule.looks(canaries), canaries, ApproximateDP(claim, delta), one_sided)
    deviations, growing = _FIRST_DEVIATIONS, True
    while growing and curve.points[-1][2] > math.log(level):
        growing = curve.ask(deviations)
        deviations *= _MORE
    for _ in range(2):
        curve.ask(curve.where(math.log(level))[0])
    return curve.where(math.log(level))[1]
