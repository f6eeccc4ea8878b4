"""Bounds of many drawn audits by the rule `Soft`, all at once.

Losses are sorted into narrow bins. The tail of the total weight, which `Weighted` computes exactly, is taken
from the saddle-point formula of Lugannani and Rice for lattice laws. The cap of the losses and the sway of
delta are those of an average audit, at some claims and totals, interpolated between them. Against
`lower_bound` on the same hits the mean bound is off by 1% at most where that was tried, by 2% where delta
sways the verdict (tests/training/plan/test_plan.py).
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from scipy import special

from canaria._core import binomial
from canaria._core.arrays import Floats, Hits, Integers
from canaria.claims import ApproximateDP
from canaria.evidence import Weighted, _sway
from canaria.evidence._caps import LATTICE
from canaria.evidence.inversion import EPSILON_GRID
from canaria.training.plan._law import Coordinates, Law, draws

_BINS: Final = 64
_NEWTON: Final = 40
_PROBES: Final = 24
_CLAIMS: Final = 40
_DEVIATIONS: Final = np.geomspace(1.5, 50.0, 8)
_COLUMNS: Final = np.arange(8.0)
_SETTLED: Final = 4e-4
_TINY: Final = 1e-12


@dataclass(frozen=True, eq=False)
class SoftAudits:
    """Guesses and right guesses by size of the loss, (audits, bins)."""

    canaries: int
    sizes: Floats
    taken: Floats
    right: Floats
    most_audits: ClassVar[int] = 4000

    @classmethod
    def draw(cls, law: Law, canaries: int, audits: int, rng: np.random.Generator) -> "SoftAudits":
        """Audits drawn from the law."""
        sizes = np.minimum(np.abs(law.losses), math.log(4 * canaries))
        bins = np.minimum((sizes / max(float(sizes.max()), _TINY) * _BINS).astype(np.int64), _BINS - 1)
        centres = np.bincount(bins, sizes, _BINS) / np.maximum(np.bincount(bins, minlength=_BINS), 1)
        coordinates = -(-canaries // law.per_coordinate)
        parts = [_counted(drawn, law, bins) for drawn in draws(law, coordinates, audits, rng)]
        taken, right = (np.concatenate(column) for column in zip(*parts, strict=True))
        return cls(canaries, centres, taken, right)

    def bounds(self, delta: float, level: float) -> Floats:
        """The bound of every audit: bisection, after a look at some claims below that may break the run."""
        end = int(np.searchsorted(EPSILON_GRID, self.sizes.max())) + 1
        charge = _Charge.at(np.linspace(0, EPSILON_GRID[end - 1], _CLAIMS), self, delta)
        first = np.zeros(len(self.taken), dtype=np.int64)
        begun = self._refuted(first, charge, level)
        last = self._bisect(first, np.full_like(first, end), charge, level)
        low, high, whole = first, last + 1, np.ones(len(first), dtype=np.bool_)
        for part in np.arange(1, _PROBES) / _PROBES:
            probe = np.maximum(np.rint(part * last).astype(np.int64), low)
            refuted = self._refuted(probe, charge, level)
            low = np.where(whole & refuted, probe, low)
            high = np.where(whole & ~refuted & (probe > 0), probe, high)
            whole &= refuted
        found = np.where(whole, last, self._bisect(low, np.where(whole, low + 1, high), charge, level))
        return np.where(begun, EPSILON_GRID[found], 0.0)

    def refuted(self, claim: float, delta: float, level: float) -> Hits:
        """Whether the bound of each audit lies above the claim."""
        following = int(np.searchsorted(EPSILON_GRID, claim, side="right"))
        if following >= len(EPSILON_GRID):
            return np.zeros(len(self.taken), dtype=np.bool_)
        charge = _Charge.at(EPSILON_GRID[[following]], self, delta)
        return self._refuted(np.full(len(self.taken), following), charge, level)

    def _bisect(self, low: Integers, high: Integers, charge: "_Charge", level: float) -> Integers:
        while (high - low).max() > 1:
            middle = (low + high) // 2
            refuted = self._refuted(middle, charge, level)
            low, high = np.where(refuted, middle, low), np.where(refuted, high, middle)
        return low

    def _refuted(self, places: Integers, charge: "_Charge", level: float) -> Hits:
        claims = EPSILON_GRID[places]
        tails, deviations = self._tails(claims, charge.caps(claims))
        return np.asarray(charge.p_values(tails, deviations, claims) <= level)

    def _tails(self, claims: Floats, caps: Floats) -> tuple[Floats, Floats]:
        """The chance of as much right weight, each audit at its own claim, and its deviations."""
        room = caps * (np.where(self.taken > 0, self.sizes, 0).max(axis=1) - claims)
        weights = _weights(self.sizes, claims[:, None], room[:, None])
        total = (weights * self.right).sum(axis=1)
        most = (weights * self.taken).sum(axis=1)
        chances = special.expit(claims)
        spread = np.sqrt(chances * (1 - chances) * (weights**2 * self.taken).sum(axis=1))
        usual = total <= most * chances
        heavy = (self.taken * (weights > 0)).sum(axis=1)
        tails = np.where(usual, 1.0, np.exp(-heavy * np.log1p(np.exp(-claims))))
        inside = np.flatnonzero(~usual & (total < most))
        tails[inside] = _saddle_point(weights[inside], self.taken[inside], claims[inside], total[inside])
        return tails, (total - most * chances) / np.maximum(spread, _TINY)


@dataclass(frozen=True, eq=False, kw_only=True)
class _Charge:
    """What delta costs an average audit: the cap of the losses and the sway, at some claims."""

    canaries: int
    delta: float
    claims: Floats
    shares: Floats
    log_sways: Floats

    @classmethod
    def at(cls, claims: Floats, audits: SoftAudits, delta: float) -> "_Charge":
        """The charge at the claims, and between them."""
        shares, sways = np.ones(len(claims)), np.zeros((len(claims), len(_DEVIATIONS)))
        taken = np.rint(audits.taken.mean(axis=0)).astype(np.int64)
        if delta > 0 and taken.any():
            losses = np.repeat(audits.sizes, taken)
            average = Weighted(
                np.ones(len(losses)), losses=losses, elements=max(audits.canaries, len(losses))
            )
            largest = float(losses.max())
            for place, claim in enumerate(claims.tolist()):
                if claim < largest:
                    top = average.top(ApproximateDP(claim, delta))
                    shares[place] = (top - claim) / (largest - claim)
                    weights = _weights(audits.sizes, claim, top - claim).astype(np.int64)
                    sways[place] = _log_sways(np.bincount(weights, taken).astype(np.int64), claim)
        return cls(canaries=audits.canaries, delta=delta, claims=claims, shares=shares, log_sways=sways)

    def caps(self, claims: Floats) -> Floats:
        """The cap, as a share of what the largest loss exceeds the claim by."""
        return np.asarray(self.shares[self._nearest(claims)])

    def _nearest(self, claims: Floats) -> Integers:
        return np.rint(np.interp(claims, self.claims, np.arange(len(self.claims)))).astype(np.int64)

    def p_values(self, tails: Floats, deviations: Floats, claims: Floats) -> Floats:
        """The p-values of audits by their tails, and by how far their weight lies from its mean."""
        if self.delta == 0:
            return tails
        budget = binomial.flip_budget(self.canaries, claims, self.delta)
        place, nearest = np.interp(claims, self.claims, np.arange(len(self.claims))), self._nearest(claims)
        before, after = (
            np.where(self.shares[row] == self.shares[nearest], row, nearest)
            for row in (np.floor(place).astype(np.int64), np.ceil(place).astype(np.int64))
        )
        column = np.interp(np.log(np.maximum(deviations, _TINY)), np.log(_DEVIATIONS), _COLUMNS)
        left, part = np.minimum(column.astype(np.int64), len(_DEVIATIONS) - 2), place % 1
        inner = column - left
        rows = [
            self.log_sways[row, left] * (1 - inner) + self.log_sways[row, left + 1] * inner
            for row in (before, after)
        ]
        sways = np.exp(rows[0] * (1 - part) + rows[1] * part)
        split = np.maximum(tails / (1 - _sway.MOST), budget * sways / _sway.MOST)
        return np.asarray(np.where(split <= budget / _sway.MOST, split, tails + budget))


def _weights(sizes: Floats, claims: Floats | float, room: Floats | float) -> Floats:
    """The integer weights of the bins."""
    scaled = (sizes - claims) / np.maximum(room, _TINY)
    return np.asarray(np.floor(np.clip(scaled, 0, 1) * LATTICE + 0.5))


def _log_sways(groups: Integers, claim: float) -> Floats:
    """Ln of the sway at each number of deviations above the mean."""
    weights, chance = np.arange(len(groups)), float(special.expit(claim))
    mean = chance * float(groups @ weights)
    spread = math.sqrt(chance * (1 - chance) * float(groups @ weights**2))
    totals = np.ceil(mean + _DEVIATIONS * spread).astype(np.int64)
    reachable = totals <= int(groups @ weights)
    sways = [
        _sway.of_weights(groups, int(total), claim) if can else 1.0
        for total, can in zip(totals, reachable, strict=True)
    ]
    return np.log(np.maximum(sways, _TINY))


def _saddle_point(weights: Floats, taken: Floats, claims: Floats, totals: Floats) -> Floats:
    """Pr[sum over bins of weight * Binomial(taken, p(claim)) >= total], for totals above the mean."""
    tilts = np.full(len(claims), _TINY)
    active = np.arange(len(claims))
    for _ in range(_NEWTON):
        slope, curve = _derivatives(weights[active], taken[active], claims[active], tilts[active])
        step = (totals[active] - slope) / np.maximum(curve, _TINY)
        tilts[active] = np.maximum(tilts[active] + np.clip(step, -0.3, 0.3), _TINY)
        active = active[step**2 * curve > _SETTLED]
        if len(active) == 0:
            break
    odds = claims[:, None]
    tilted = np.logaddexp(0.0, odds + tilts[:, None] * weights) - np.logaddexp(0.0, odds)
    cumulant = (taken * tilted).sum(axis=1)
    curve = _derivatives(weights, taken, claims, tilts)[1]
    root = np.sqrt(np.maximum(2 * (tilts * totals - cumulant), _TINY))
    lattice = np.maximum(-np.expm1(-tilts) * np.sqrt(curve), _TINY)
    density = np.exp(-0.5 * root**2) / math.sqrt(2 * math.pi)
    return np.asarray(np.clip(special.ndtr(-root) + density * (1 / lattice - 1 / root), 0.0, 1.0))


def _derivatives(weights: Floats, taken: Floats, claims: Floats, tilts: Floats) -> tuple[Floats, Floats]:
    """Of the cumulant generating function at the tilts: first and second."""
    chances = special.expit(claims[:, None] + tilts[:, None] * weights)
    first = taken * weights * chances
    return first.sum(axis=1), (first * weights * (1 - chances)).sum(axis=1)


def _counted(drawn: Coordinates, law: Law, bins: Integers) -> tuple[Floats, Floats]:
    audits, size = len(drawn.rows), law.per_coordinate
    places = (bins[drawn.rows] + _BINS * np.arange(audits)[:, None]).ravel()
    right = np.where(law.losses[drawn.rows] > 0, drawn.included, size - drawn.included)
    taken = size * np.bincount(places, minlength=audits * _BINS).astype(np.float64)
    hits = np.bincount(places, right.ravel().astype(np.float64), audits * _BINS)
    return taken.reshape(audits, _BINS), np.asarray(hits.reshape(audits, _BINS), dtype=np.float64)
