"""Bounds of many drawn audits by the rule `Ranked`, all at once.

The p-value of a `Ranking` depends on the hits only through a, the smallest of its binomial tails. So for
each claim there is one strictness a*(claim) below which the claim is refuted; it is found from `Ranking`
itself at a few claims and interpolated between them. A bound is then the largest claim whose critical count,
at some look, has been reached. Against `lower_bound` on the same hits the mean bound is off by 1% at most
where that was tried (tests/training/test_plan.py).
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
from canaria.evidence.inversion import EPSILON_GRID
from canaria.evidence.ranking import looks
from canaria.rules.ranked import SHARES
from canaria.training.plan._law import Coordinates, Law, draws

_FIRST_GUESS: Final = 8.0
_IMPOSSIBLE: Final = -1e4
_CLAIMS: Final = 60
_FIRST_DEVIATIONS: Final = 2.5
_MORE: Final = 1.25


@dataclass(frozen=True, eq=False)
class RankedAudits:
    """Right guesses at the looks, for each of the three orders: (audits, looks)."""

    canaries: int
    counts: tuple[Floats, ...]
    most_audits: ClassVar[int] = 10_000

    @classmethod
    def draw(cls, law: Law, canaries: int, audits: int, rng: np.random.Generator) -> "RankedAudits":
        """Audits drawn from the law."""
        grid = looks(canaries)
        coordinates = -(-canaries // law.per_coordinate)
        parts = [_counts(drawn, law, grid, rng) for drawn in draws(law, coordinates, audits, rng)]
        return cls(canaries, tuple(np.concatenate(column) for column in zip(*parts, strict=True)))

    def bounds(self, delta: float, level: float) -> Floats:
        """The bound of every audit."""
        knots: Floats = np.zeros(1)
        strict = np.log(level / _FIRST_GUESS * np.array(SHARES))[None]
        found = self._invert(knots, strict, math.log(self.canaries) + 2)
        asked: list[float] = []
        for quantiles in ((0.5,), (0.05, 0.95)):
            asked += np.round(np.quantile(found, quantiles), 2).tolist()
            knots = np.unique(asked)
            strict = np.stack([self._strict(claim, delta, level) for claim in knots.tolist()])
            found = self._invert(knots, strict, 1.3 * float(found.max()) + 0.3)
        return np.asarray(np.floor(found * 100 + 1e-6) / 100)

    def refuted(self, claim: float, delta: float, level: float) -> Hits:
        """Whether the bound of each audit lies above the claim."""
        verdict = np.zeros(len(self.counts[0]), dtype=np.bool_)
        if claim >= EPSILON_GRID[-1]:
            return verdict
        following = float(EPSILON_GRID[np.searchsorted(EPSILON_GRID, claim, side="right")])
        strict = self._strict(following, delta, level)
        for counts, own in zip(self.counts, strict, strict=True):
            critical = _critical_counts(looks(self.canaries), np.array([following]), own[None])[:, 0]
            verdict |= (counts >= critical - 1e-9).any(axis=1)
        return verdict

    def _strict(self, claim: float, delta: float, level: float) -> Floats:
        return _strictness(self.canaries, claim, delta, tuple(level * share for share in SHARES))

    def _invert(self, knots: Floats, strict: Floats, top: float) -> Floats:
        """For each audit the largest claim up to `top` with a critical count that was reached, else 0."""
        claims = np.linspace(0, top, _CLAIMS)
        best = np.zeros(len(self.counts[0]))
        grid = looks(self.canaries)
        critical: dict[float, Floats] = {}
        for counts, share, own in zip(self.counts, SHARES, strict.T, strict=True):
            if share not in critical:
                critical[share] = _critical_counts(grid, claims, np.interp(claims, knots, own))
            for column, rising in zip(counts.T, critical[share], strict=True):
                np.maximum(best, np.interp(column, rising, claims, left=0.0), out=best)
        return best


def _counts(drawn: Coordinates, law: Law, grid: Integers, rng: np.random.Generator) -> tuple[Floats, ...]:
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


def _critical_counts(grid: Integers, claims: Floats, strict: Floats) -> Floats:
    """The count c, as a real number, with Pr[Binomial(k, p(claim)) >= c] = e^strict: (looks, claims), rising.

    One above k where not even k right guesses are rare enough.
    """
    taken = grid[:, None].astype(np.float64)
    misses = special.bdtrik(
        np.broadcast_to(np.exp(strict), (len(grid), len(claims))), taken, special.expit(-claims)
    )
    possible = taken * -np.log1p(np.exp(-claims)) <= strict
    rising = np.where(possible & np.isfinite(misses), taken - misses, taken + 1)
    return np.asarray(np.maximum.accumulate(rising, axis=1))


class _PValues:
    """P-values of rankings with c right guesses in all, the wrong ones first: points of a curve over c."""

    def __init__(self, canaries: int, claim: float, delta: float) -> None:
        chance = float(special.expit(claim))
        self.canaries, self.claim, self.delta = canaries, claim, delta
        self.mean, self.spread = canaries * chance, math.sqrt(canaries * chance * (1 - chance))
        self.points = [(0.0, 0.0, 0.0)]

    def ask(self, deviations: float) -> bool:
        """Add a point: deviations of c from its mean, ln of the smallest tail, ln p; whether c can grow."""
        grid = looks(self.canaries)
        right = min(self.canaries, math.ceil(self.mean + deviations * self.spread))
        counts = np.maximum(0, right - (self.canaries - grid))
        p_value = Ranking.of_counts(grid, counts, self.canaries).p_value(
            ApproximateDP(self.claim, self.delta)
        )
        smallest = float(binomial.tail(counts, grid, self.claim).min())
        self.points.append((deviations, math.log(smallest), math.log(max(p_value, 1e-300))))
        return right < self.canaries

    def where(self, log_level: float) -> tuple[float, float]:
        """Deviations and ln of the smallest tail at which ln p is that, by interpolation."""
        deviations, smallest, logs = np.array(sorted(self.points, key=lambda point: -point[2])).T
        return (
            float(np.interp(-log_level, -logs, deviations)),
            float(np.interp(-log_level, -logs, smallest, right=_IMPOSSIBLE)),
        )


@lru_cache(maxsize=1024)
def _strictness(canaries: int, claim: float, delta: float, levels: tuple[float, ...]) -> Floats:
    """Ln a* for each level: how small the smallest tail must be for the p-value to be at most that level.

    `Ranking` computes the p-value for more and more right guesses, and once more near each level.
    """
    curve = _PValues(canaries, claim, delta)
    deviations, growing = _FIRST_DEVIATIONS, True
    while growing and curve.points[-1][2] > math.log(min(levels)):
        growing = curve.ask(deviations)
        deviations *= _MORE
    for level in set(levels):
        curve.ask(curve.where(math.log(level))[0])
    return np.array([curve.where(math.log(level))[1] for level in levels])
