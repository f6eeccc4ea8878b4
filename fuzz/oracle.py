"""Every p-value once more, from its definition: 60 digits by mpmath, laws in exact integers.

`refuted(evidence, epsilon, delta, level)` says whether the exact p-value of that kind of evidence is at
most `level`. Nothing of the implementation is used but the fields of the evidence; of weighted evidence
also the cap of its losses and its rounding to the lattice, checked here up to ties; of mixtures, where along
the path they are about largest. The sway of several weights is held against a lower bound of it.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

import mpmath
import numpy as np
from mpmath import mpf
from scipy import special

from canaria.claims import ApproximateDP
from canaria.evidence import (
    Bets,
    Budget,
    Counts,
    Evidence,
    PublishedCounts,
    Ranking,
    Split,
    UncommittedCounts,
    Weighted,
    _mixture,
)

mpmath.mp.dps = 60
_SUMMED: Final = 20_000
_SPARE_BITS: Final = 220
_LATTICE: Final = 40
_PER_EXCESS: Final = 10
_MOST: Final = mpf(6) / 10
_GAIN: Final = mpf(1) / 10
_SLACK: Final = 1 + mpf(10) ** -30
_HEDGED: Final = 2000
_NEAR: Final = (mpf(1), mpf(0.9), mpf(0.7))


def refuted(evidence: Evidence, epsilon: float, delta: float, level: Any) -> bool:
    """Whether the exact p-value against the claim is at most `level`."""
    return _TESTS[type(evidence)](evidence, mpf(epsilon), mpf(delta), mpf(level))


def flips(elements: float, epsilon: mpf, delta: mpf) -> mpf:
    """N delta / (1 + e^epsilon)."""
    return elements * delta / (1 + mpmath.exp(epsilon))


def pmf(correct: int, taken: int, epsilon: mpf) -> mpf:
    """Pr[Binomial(taken, p(epsilon)) = correct]."""
    logs = mpmath.loggamma(taken + 1) - mpmath.loggamma(correct + 1) - mpmath.loggamma(taken - correct + 1)
    return mpmath.exp(logs + (correct - taken) * epsilon - taken * mpmath.log1p(mpmath.exp(-epsilon)))


@lru_cache(maxsize=4096)
def tail(correct: int, taken: int, epsilon: mpf) -> mpf:
    """Pr[Binomial(taken, p(epsilon)) >= correct]: a sum from its largest term, or an integral."""
    if correct <= 0 or correct > taken:
        return mpf(correct <= 0)
    right = 1 / (1 + mpmath.exp(-epsilon))
    above = correct > taken * right
    if taken > _SUMMED:
        return _integrated(correct, taken, epsilon, above)
    start = correct if above else correct - 1
    part = _summed(start, taken, epsilon, 1 if above else -1)
    return part if above else 1 - part


def _summed(start: int, taken: int, epsilon: mpf, step: int) -> mpf:
    """The sum of the law from `start` away from its mean."""
    term, total, count, odds = pmf(start, taken, epsilon), mpf(0), start, mpmath.exp(epsilon)
    while 0 <= count <= taken and term > total * mpf(10) ** -45:
        total += term
        term *= odds * (taken - count) / (count + 1) if step > 0 else count / (odds * (taken - count + 1))
        count += step
    return total


def _integrated(correct: int, taken: int, epsilon: mpf, above: bool) -> mpf:
    """The incomplete beta integral over the failure probability, in pieces as long as it decays."""
    right, wrong = mpf(correct), mpf(taken - correct + 1)
    edge = 1 / (1 + mpmath.exp(epsilon))
    scale = mpmath.loggamma(right + wrong) - mpmath.loggamma(right) - mpmath.loggamma(wrong)

    def density(q: mpf) -> mpf:
        return mpmath.exp(scale + (right - 1) * mpmath.log1p(-q) + (wrong - 1) * mpmath.log(q))

    slope = abs((wrong - 1) / edge - (right - 1) / (1 - edge))
    spread = mpmath.sqrt(right * wrong / (right + wrong) ** 3)
    reach = min(spread, 1 / slope) if slope > 0 else spread
    way = 1 if above else -1
    ends = [edge + way * reach * length for length in (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)]
    inside = [end for end in ends if 0 < end < 1] + ([] if 0 < ends[-1] < 1 else [mpf(above)])
    with mpmath.workdps(40):
        part = abs(mpmath.quad(density, inside))
    return part if above else 1 - part


def _counts(evidence: Counts, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    right, taken = evidence.correct, evidence.taken
    if right == 0:
        return level >= 1
    upper = tail(right, taken, epsilon)
    return (
        upper + mpf(evidence.charged) * delta * upper * (1 - upper) / (right * pmf(right, taken, epsilon))
        <= level
    )


def _published(evidence: PublishedCounts, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    right, taken = evidence.correct, evidence.taken
    if right == 0:
        return level >= 1
    upper = tail(right, taken, epsilon)
    lowered = range(1, right + 1) if right <= 400 else [_steepest(right, taken, float(epsilon))]
    best = max((tail(right - i, taken, epsilon) - upper) / i for i in lowered)
    return upper + 2 * evidence.elements * delta * best <= level


def _steepest(right: int, taken: int, epsilon: float) -> int:
    """About where the published average is largest; any other place gives a smaller p-value."""
    p, spots = float(special.expit(epsilon)), np.unique(np.geomspace(1, right, 4000).astype(np.int64))
    reached = special.betainc(np.maximum(right - spots, 1), taken - right + spots + 1, p)
    return int(spots[np.argmax((reached - special.betainc(right, taken - right + 1, p)) / spots)])


def _uncommitted(evidence: UncommittedCounts, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    right, taken = evidence.correct, evidence.taken
    if right == 0:
        return level >= 1
    upper = tail(right, taken, epsilon)
    return _shared(upper, _sway(right, taken, epsilon), flips(evidence.elements, epsilon, delta), level)


def _sway(right: int, taken: int, epsilon: mpf) -> mpf:
    """A (1 - A) / (q v b)."""
    upper, wrong = tail(right, taken, epsilon), 1 / (1 + mpmath.exp(epsilon))
    return upper * (1 - upper) / (wrong * right * pmf(right, taken, epsilon))


def _shared(upper: mpf, sway: mpf, budget: mpf, level: mpf) -> bool:
    """Whether A and B D keep to their shares of a level."""
    if level >= 1:
        return True
    share = min(budget / level, _MOST) if level > 0 else mpf(0)
    kept = upper <= level * (1 - share) * _SLACK
    return bool(kept and budget * min(sway, 1) <= level * share * _SLACK)


def _budget(evidence: Budget, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    """By the greedy rule, or by the hedge at some price: every price is valid."""
    right, budget = evidence.correct, evidence.budget
    force = flips(evidence.elements, epsilon, delta)
    if level >= 1 or tail(right, budget, epsilon) > level:
        return level >= 1
    if force == 0:
        return True
    greedy, price = _greedy_binomial(right, budget, epsilon, force)
    if greedy <= level or budget > _HEDGED:
        return bool(greedy <= level)
    with mpmath.workprec(_bits(level)):
        near = (_at_price(right, budget, epsilon, force, share * price, _bits(level)) for share in _NEAR)
        return any(cost.value <= level for cost in near) or _hedged(right, budget, epsilon, force, level)


def _greedy_binomial(right: int, taken: int, epsilon: mpf, force: mpf) -> tuple[mpf, mpf]:
    """(q_0 + ... + q_j + B) / (j + 1) and 1 / (j + 1) at about the best j: any j gives a valid p-value.

    q_i = Pr[W >= v - i], so the sum is E[(W - v + j + 1)_+] - E[(W - v)_+].
    """
    p, low, high = float(special.expit(float(epsilon))), 0, right
    while low < high:
        middle = (low + high) // 2
        reached = special.betainc(max(right - middle - 1, 1), taken - right + middle + 2, p)
        summed = _excess(right - middle - 1, taken, epsilon) - _excess(right, taken, epsilon)
        low, high = (low, middle) if reached * (middle + 1) >= summed + force else (middle + 1, high)
    summed = _excess(right - low - 1, taken, epsilon) - _excess(right, taken, epsilon)
    return (summed + force) / (low + 1), 1 / mpf(low + 1)


def _excess(start: int, taken: int, epsilon: mpf) -> mpf:
    """E[(W - start)_+] for W ~ Binomial(taken, p(epsilon))."""
    mean = taken / (1 + mpmath.exp(-epsilon))
    return mean * tail(start, taken - 1, epsilon) - start * tail(start + 1, taken, epsilon)


def _hedged(right: int, budget: int, epsilon: mpf, force: mpf, level: mpf) -> bool:
    """Tangents of the convex cost close in on its minimum, and prove it where no price is low enough."""
    bits = _bits(level)
    low, high = (
        _at_price(right, budget, epsilon, force, mpf(0), bits),
        _at_price(right, budget, epsilon, force, mpf(1), bits),
    )
    while high.slope > 0 and min(low.value, high.value) > level:
        meet = (low.value - high.value + high.slope * high.price - low.slope * low.price) / (
            high.slope - low.slope
        )
        if low.value + low.slope * (meet - low.price) > level:
            return False
        new = _at_price(right, budget, epsilon, force, meet, bits)
        low, high = (new, high) if new.slope < 0 else (low, new)
    return min(low.value, high.value) <= level


class _Cost(NamedTuple):
    price: mpf
    value: mpf
    slope: mpf


def _at_price(right: int, budget: int, epsilon: mpf, force: mpf, price: mpf, bits: int) -> _Cost:
    """The total price B + W and its slope; W = max(p W_hit + (1 - p) W_miss, W_hit - price (1 - p))."""
    one = 1 << bits
    wrong = _fixed(1 / (1 + mpmath.exp(epsilon)), bits)
    cost = _fixed(price / (1 + mpmath.exp(epsilon)), bits)
    value = np.array([one] + [0] * right, dtype=object)
    slope = np.array([0] * (right + 1), dtype=object)
    for _ in range(budget):
        hit, miss, hit_slope, miss_slope = value[:-1], value[1:], slope[:-1], slope[1:]
        chance, bought = hit - ((hit - miss) * wrong >> bits), hit - cost
        mixed = hit_slope - ((hit_slope - miss_slope) * wrong >> bits)
        forced = (bought > chance).astype(bool)
        slope[1:] = np.where(forced, hit_slope - wrong, mixed)
        value[1:] = np.where(forced, bought, chance)
    won, rate = mpf(int(value[-1])) / one, mpf(int(slope[-1])) / one
    return _Cost(price, price * force + won, force + rate)


def _fixed(value: mpf, bits: int) -> int:
    return int(mpmath.floor(mpmath.ldexp(value, bits)))


def _bits(level: mpf) -> int:
    return _SPARE_BITS + max(0, -int(mpmath.floor(mpmath.log(level, 2)))) if level > 0 else _SPARE_BITS


def _ranking(evidence: Ranking, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    looks, counts = evidence.grid.tolist(), evidence.counts.tolist()
    if level >= 1:
        return True
    budget = flips(evidence.charged, epsilon, delta)
    smallest = min(_score(v, k, epsilon, budget) for v, k in zip(counts, looks, strict=True))
    if not mpmath.isfinite(smallest):
        return False
    boundary = [_first_count(k, smallest, epsilon, budget) for k in looks]
    reachable = [(k, c) for k, c in zip(looks, boundary, strict=True) if c <= k]
    bits = _bits(level)

    def reached(lowered: int) -> mpf:
        return crossing([k for k, _ in reachable], [c - lowered for _, c in reachable], epsilon, bits)

    upper = reached(0)
    if budget == 0 or upper > level:
        return bool(upper <= level)
    mean = 1 - upper
    for lowered in range(1, min(c for _, c in reachable) + 1):
        if mean > 0 and upper + (1 - upper) * budget / mean <= level:
            return True
        mean += 1 - reached(lowered)
    return False


def _score(count: int, taken: int, epsilon: mpf, budget: mpf) -> mpf:
    """The tail, and what delta is charged for the excess over the mean."""
    excess = count - taken / (1 + mpmath.exp(-epsilon))
    if budget == 0:
        return tail(count, taken, epsilon)
    return tail(count, taken, epsilon) + budget / (_PER_EXCESS * excess) if excess > 0 else mpf("inf")


def _first_count(taken: int, level: mpf, epsilon: mpf, budget: mpf) -> int:
    low, high = -1, taken + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _score(middle, taken, epsilon, budget) <= level else (middle, high)
    return high


def crossing(looks: Sequence[int], boundary: Sequence[int], epsilon: mpf, bits: int) -> mpf:
    """Pr[a walk of Bernoulli(p) steps reaches c by step k, for some look (k, c)], one step at a time."""
    if min(boundary) <= 0:
        return mpf(1)
    one = 1 << bits
    wrong = _fixed(1 / (1 + mpmath.exp(epsilon)), bits)
    limits = dict(zip(looks, boundary, strict=True))
    alive, crossed = np.array([one], dtype=object), 0
    for step in range(1, looks[-1] + 1):
        missed = alive * wrong >> bits
        alive = np.append(missed, 0) + np.append(0, alive - missed)
        if step in limits:
            crossed += int(alive[limits[step] :].sum()) if len(alive) > limits[step] else 0
            alive = alive[: limits[step]]
    return mpf(crossed) / one


def _weighted(evidence: Weighted, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    """By a lower bound of the sway, the chance that the heaviest guess decides; exact for equal weights."""
    weights = _lattice(evidence, ApproximateDP(float(epsilon), float(delta)))
    statistic = int(weights @ evidence.hits)
    if statistic == 0 or level >= 1:
        return level >= 1
    bits = _bits(level)
    wrong = _fixed(1 / (1 + mpmath.exp(epsilon)), bits)
    heavy = sorted(weights[weights > 0].tolist())
    law = np.array([1 << bits], dtype=object)
    for weight in heavy[:-1]:
        law = _with_guess(law, weight, wrong, bits)
    deciding = mpf(int(law[max(0, statistic - heavy[-1]) : statistic].sum())) / (1 << bits)
    law = _with_guess(law, heavy[-1], wrong, bits)
    upper = mpf(int(law[statistic:].sum())) / (1 << bits)
    if heavy[0] == heavy[-1]:
        deciding = _sway(-(-statistic // heavy[0]), len(heavy), epsilon)
    return _shared(upper, deciding, flips(evidence.elements, epsilon, delta), level)


def _with_guess(law: Any, weight: int, wrong: int, bits: int) -> Any:
    missed, nothing = law * wrong >> bits, np.zeros(weight, dtype=object)
    return np.append(missed, nothing) + np.append(nothing, law - missed)


def _lattice(evidence: Weighted, claim: ApproximateDP) -> Any:
    """The weights as the evidence rounded them, after a check that exact rounding differs at ties only."""
    used, epsilon = evidence.lattice_weights(claim), claim.epsilon
    if evidence.losses is not None:
        cap = min(math.log(4 * len(evidence.losses)), evidence.top(claim))
        sizes, start = np.minimum(np.abs(evidence.losses), cap), Fraction(epsilon)
    else:
        sizes, start = np.asarray(evidence.weights), Fraction(0)
    whole = evidence.losses is None and sizes.max() <= _LATTICE and (sizes == np.rint(sizes)).all()
    top = Fraction(_LATTICE) if whole else Fraction(float(sizes.max()))
    if top - start < Fraction(1e-300):
        assert not used.any()
        return used
    blur = Fraction(1e-14) * (1 + _LATTICE * max(top, start) / (top - start))
    for size, weight in zip(sizes.tolist(), used.tolist(), strict=True):
        exact = _LATTICE * (Fraction(size) - start) / (top - start)
        assert max(0, exact - Fraction(1, 2) - blur) <= weight <= max(0, exact + Fraction(1, 2) + blur)
    return used


def _bets(evidence: Bets, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    """Whether ln(1 / level) + eta n delta / level is at most the largest log-wealth."""
    if level <= 0:
        return False
    spent, free = evidence.elements * delta, mpmath.log1p(mpmath.exp(-epsilon))
    eta = min(free, _GAIN / spent) if spent > 0 else free
    needed = -mpmath.log(level) + eta * spent / level
    return bool(needed <= mpmath.log(_largest_wealth(evidence, epsilon, None if eta == free else eta)))


def _largest_wealth(evidence: Bets, epsilon: mpf, cap: mpf | None) -> mpf:
    right, wrong = 1 / (1 + mpmath.exp(-epsilon)), 1 / (1 + mpmath.exp(epsilon))
    highest = mpf(1) if cap is None else right * mpmath.exp(cap)
    if evidence.confidences is None:
        return _largest_mixture(evidence.hits, epsilon, highest)
    wealth = largest = mpf(1)
    for stated, hit in zip(evidence.confidences.tolist(), evidence.hits.tolist(), strict=True):
        if mpf(stated) > right:
            used = min(mpf(stated), highest)
            wealth *= used / right if hit else (1 - used) / wrong
            largest = max(largest, wealth)
    return largest


def _largest_mixture(hits: Any, epsilon: mpf, highest: mpf) -> mpf:
    """The average over [p, u], (F(u) - F(p)) / ((u - p) (N + 1) Pr[Binomial(N, p) = h]), where about largest.

    F(q) = Pr[Binomial(N + 1, q) > h].
    """
    right, taken = np.cumsum(hits), np.arange(1, len(hits) + 1)
    with np.errstate(all="ignore"):
        rough = _mixture.log_mixture(right, taken, float(epsilon), float(highest))
    largest, claimed = mpf(1), 1 / (1 + mpmath.exp(-epsilon))
    for place in np.argsort(-np.nan_to_num(rough, nan=-np.inf))[:4].tolist():
        v, k = int(right[place]), int(taken[place])
        beyond = mpf(1) if highest == 1 else tail(v + 1, k + 1, mpmath.log(highest / (1 - highest)))
        part = beyond - tail(v + 1, k + 1, epsilon)
        largest = max(largest, part / ((highest - claimed) * (k + 1) * pmf(v, k, epsilon)))
    return largest


def _split(evidence: Split, epsilon: mpf, delta: mpf, level: mpf) -> bool:
    pairs = zip(evidence.parts, evidence.shares, strict=True)
    return level >= 1 or any(refuted(part, epsilon, delta, level * mpf(share)) for part, share in pairs)


_TESTS: Final[dict[type, Callable[[Any, mpf, mpf, mpf], bool]]] = {
    Counts: _counts,
    PublishedCounts: _published,
    UncommittedCounts: _uncommitted,
    Budget: _budget,
    Ranking: _ranking,
    Weighted: _weighted,
    Bets: _bets,
    Split: _split,
}
