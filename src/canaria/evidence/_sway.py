"""The sway: the influence of a flip on a verdict whose guesses the output decides (Theorems 6, 9, Lemma 6).

Given the output, a verdict "right weight at least t" has probability at most A + D x, where x is the budget
of flips that is spent there, on average at most B = n delta / (1 + e^epsilon). D, the sway, is at least

    sup over guesses k and hits x of the integral over s from 0 to 1 of Pr[t - w_k <= T_{-k}(x^s) < t],

where T_{-k} is the right weight without guess k, and in x^s every hit is redrawn with probability s.
"""

import math
from functools import lru_cache
from typing import Final

import numpy as np

from canaria._core import binomial, effort
from canaria._core.arrays import Floats, Integers

MOST: Final = 0.6
"""The largest share of a level that delta may have."""
_CUTS: Final = np.array([0.0, 0.01, 0.03, 0.08, 0.2, 0.4, 0.7, 1.0])
_ANGLES: Final = math.pi * np.linspace(0, 1, 161) ** 2
_LIFTS: Final = 1 - np.cos(_ANGLES[:-1])
_STEPS: Final = np.diff(_ANGLES)
_CELLS: Final = 20
"""Cells of the high frequencies for each period of the heaviest weight."""
_TOGETHER: Final = 4
"""Cells that count together, in units of a cell over the heaviest weight."""
_GENTLE: Final = (0.8, 0.6)
"""Further tilts eta, over the best one for light weights."""
_STRONG: Final = (0.25, 0.5, 1.0, 1.6)
"""Further tilts eta W."""
_STEEPEST: Final = 3.0
"""The largest eta W: beyond it e^(eta W), which the spread is divided by, spoils every bound."""
_RATIO: Final = 1.12
"""The ratio of the ends of a cell of V."""
_ALIKE: Final = 1e-5
"""Exponents this close count as equal, at the lower: a difference quotient would lose too many digits."""


def combined(upper: float, sway: float, budget: float) -> float:
    """The smallest level b with A <= b (1 - s) and B D <= b s, where s = min(B / b, 0.6).

    Up to B / 0.6 the share is 0.6; above, delta needs no more than the plain rule gives it.
    """
    split = max(upper / (1 - MOST), budget * sway / MOST)
    return min(1.0, split if split <= budget / MOST else upper + budget)


def matters(upper: float, budget: float) -> bool:
    """Whether `combined` depends on the sway."""
    return upper / (1 - MOST) <= budget / MOST


def of_count(correct: int, taken: int, epsilon: float) -> float:
    """The largest sway of a number of right guesses, A (1 - A) / (q v b); it is attained."""
    if not 0 < correct <= taken:
        return 1.0
    upper = float(binomial.tail(correct, taken, epsilon))
    if upper == 1:
        return 1.0
    spread = binomial.tail_over_pmf(correct, taken, epsilon, upper)
    lower = binomial.lower_tail(correct, taken, epsilon)
    return min(1.0, spread * lower / (float(binomial.failure(epsilon)) * correct))


def of_weights(groups: Integers, statistic: int, epsilon: float, enough: float = 0.0) -> float:
    """The sway, from above, of reaching the weight t = `statistic` with right guesses.

    `groups` counts the guesses with the integer weights 0, 1, .... No bound below `enough` is looked for.
    """
    used = np.flatnonzero(groups[1:]) + 1
    if len(used) == 0 or statistic <= 0:
        return 1.0
    common = int(np.gcd.reduce(used))
    if common > 1:
        smaller = np.zeros(used[-1] // common + 1, dtype=groups.dtype)
        smaller[used // common] = groups[used]
        return of_weights(smaller, -(-statistic // common), epsilon, enough)
    if len(used) == 1:
        return of_count(statistic, int(groups[1]), epsilon)
    return _of_several(groups[: used[-1] + 1], statistic, epsilon, enough)


def _of_several(groups: Integers, statistic: int, epsilon: float, enough: float) -> float:
    """The largest bound over all spreads in the window; for each the smallest over tilts of the law.

    The bound (1) of Theorem 9 depends on the hits x through V alone. A geometric grid cuts the range of V
    into cells. Each cell may have its own tilt eta, as (1) holds for every tilt. For large V the bound has to
    use the same V in both of its factors, or it would be far too large.
    """
    right, wrong, heaviest = (
        float(binomial.success(epsilon)),
        float(binomial.failure(epsilon)),
        len(groups) - 1,
    )
    drift = statistic - right * _moment(groups, 1) - wrong * heaviest
    low, high = _spreads(groups, statistic, right, wrong)
    if low <= 0:
        return 1.0
    laws = _Laws(groups, right, wrong)
    # Without a tilt only the least V matters: one bound for all x.
    plain = min(1.0, float(laws.sway(np.zeros(1), drift, np.array([low]), np.array([low]))[0]))
    if drift <= 0 or plain <= enough:
        return plain
    pieces = max(1, math.ceil(math.log(high / low) / math.log(_RATIO)))
    edges = low * (high / low) ** (np.arange(pieces + 1) / pieces)
    least, most = edges[:-1], edges[1:]
    # rho = eta drift - eta^2 V e^(eta W) is largest at about eta = drift / (2 V), if eta W is small.
    best = laws.sway(drift / (2 * most), drift, least, most)
    for share in _GENTLE:
        if best.max() <= enough:
            break
        best = np.minimum(best, laws.sway(share * drift / (2 * most), drift, least, most))
    for strong in _STRONG:
        if best.max() <= enough:
            break
        best = np.minimum(best, laws.sway(np.full(pieces, strong / heaviest), drift, least, most))
    return min(plain, float(best.max()))


def _moment(groups: Integers, power: int) -> float:
    return float(groups @ np.arange(len(groups), dtype=np.float64) ** power)


def _spreads(groups: Integers, statistic: int, right: float, wrong: float) -> tuple[float, float]:
    """The least and the most of half of q sum of w^2 over hits + p sum of w^2 over misses, in the window.

    The hits weigh less than t and at least t - W in all, one guess left out: least if they are the heaviest
    guesses, most if they are the lightest.
    """
    heaviest, squares = len(groups) - 1, _moment(groups, 2)
    others = squares - heaviest**2
    low = 0.5 * (right * others - (right - wrong) * _squares(groups, statistic, lightest=False))
    most = 0.5 * (
        right * squares - (right - wrong) * _squares(groups, max(0, statistic - heaviest), lightest=True)
    )
    low = max(low, 0.5 * wrong * others)
    return low, max(low, most)


def _squares(groups: Integers, total: float, lightest: bool) -> float:
    """Sum of w^2 over hits of a total weight, on the lightest or the heaviest guesses, the last in part."""
    order = np.arange(1, len(groups)) if lightest else np.arange(len(groups) - 1, 0, -1)
    weight = groups[order] * order
    # Filled in this order, each kind takes what is left of the total: a knapsack whose items may be cut.
    taken = np.clip((total - (np.cumsum(weight) - weight)) / order, 0, groups[order])
    return float(taken @ order.astype(np.float64) ** 2)


class _Laws:
    """The laws of the right weight as hits are redrawn, through their Fourier transforms.

    What is computed is the right-hand side of (1) in Theorem 9, for a tilt eta >= 0 and V in a range:

        (1 / pi) [ (omega / W) int_0^pi F(2 V (1 - cos phi) / (W^2 e^(eta W))) dphi
                   + int_{pi / W}^pi ker(theta) F(q (Lambda(theta) - 2)_+ / e^(eta W)) dtheta ],

        F(y) = int_0^1 exp(-s rho - s (1 - p s) y) ds,      rho = eta Delta - eta^2 V e^(eta W),
        omega = sum_{j < W} e^(eta j),      Lambda(theta) = sum_i (1 - cos w_i theta),
        ker(theta) = min(omega, (e^(eta W) + 1) e^(eta / 2) / (2 sin(theta / 2))).

    The sway is the chance, averaged over the time s of redrawing, that the right weight is within one guess
    of t. F does the averaging. The tilt moves the law towards t, at the price e^(-s rho). The first integral
    has the low frequencies, at which all guesses turn by at most half a circle and V says enough. The second
    has the high ones, where Lambda is needed; it depends on the weights alone, so it is prepared here.
    """

    def __init__(self, groups: Integers, right: float, wrong: float) -> None:
        self._right, self._wrong, self._heaviest = right, wrong, len(groups) - 1
        self._starts, width, lifts = _cells(self._heaviest)
        # Lambda - 2 at least, in each cell: its value in the middle, less what |Lambda'| <= sum w allows to
        # the ends. Neighbouring cells count together, with their least value, to save evaluations of F.
        lifted = groups @ lifts - 2 - width / 2 * _moment(groups, 1)
        firsts = np.arange(0, len(lifted), max(1, self._heaviest // _TOGETHER))
        self._lifted = np.maximum(np.minimum.reduceat(lifted, firsts), 0.0)
        self._starts, self._widths = self._starts[firsts], width * np.diff(firsts, append=len(lifted))

    def sway(self, tilts: Floats, drift: float, least: Floats, most: Floats) -> Floats:
        """The bound for each tilt of the law and range of spreads; 1 where a tilt does not serve."""
        points = len(_LIFTS) + len(self._starts)
        effort.spend(effort.CALL + effort.RATIO * len(tilts) * len(_CUTS) * points)
        # F falls in rho and in V: rho takes the largest V of the range, and the first integral the smallest.
        # A tilt with rho < 0 or too steep does not serve; its bound is 1.
        serves = tilts * self._heaviest <= _STEEPEST
        tilts = np.where(serves, tilts, 0.0)[:, None]
        grown = np.exp(tilts * self._heaviest)
        rates = tilts * drift - tilts**2 * most[:, None] * grown
        serves &= rates[:, 0] >= 0
        rates = np.maximum(rates, 0.0)
        safe = np.where(tilts > 0, tilts, 1.0)
        window = np.where(tilts > 0, np.expm1(safe * self._heaviest) / np.expm1(safe), float(self._heaviest))
        spread = 2 * least[:, None] / self._heaviest**2 / grown
        spreads = np.hstack([spread * _LIFTS, self._wrong / grown * self._lifted])
        lasting = self._over_time(spreads, rates)
        # Left Riemann sums for the low frequencies, where F falls; ker at the left ends for the high ones.
        low = window[:, 0] / (math.pi * self._heaviest) * (lasting[:, : len(_LIFTS)] @ _STEPS)
        kernel = np.minimum(window, (grown + 1) * np.exp(tilts / 2) / (2 * np.sin(self._starts / 2)))
        beyond = (lasting[:, len(_LIFTS) :] * kernel) @ self._widths / math.pi
        return np.where(serves, (low + beyond) * binomial.ROUND_UP, 1.0)

    def _over_time(self, spread: Floats, rates: Floats) -> Floats:
        """The integral over s of exp(-s rate - s (1 - p s) spread), from above.

        Between the cuts the exponent lies above its chords, as s (1 - p s) is concave.
        """
        total, here, left = np.zeros_like(spread), np.zeros_like(spread), np.ones_like(spread)
        for start, end in zip(_CUTS[:-1].tolist(), _CUTS[1:].tolist(), strict=True):
            there = end * rates + end * (1 - self._right * end) * spread
            still, apart = np.exp(-there), there - here
            # The integral of the exponential of a chord from e to e' is (e^-e - e^-e') / (e' - e) of its
            # length.
            alike = np.abs(apart) < _ALIKE
            quotient = (left - still) / np.where(alike, 1.0, apart)
            total += (end - start) * np.where(alike, np.maximum(left, still), quotient)
            here, left = there, still
        return total


@lru_cache(maxsize=64)
def _cells(heaviest: int) -> tuple[Floats, float, Floats]:
    """Starts of cells from pi / W to pi, their width, and 1 - cos(w angle) in their middles for each w."""
    width = math.pi / (_CELLS * heaviest)
    first = math.pi / heaviest
    starts = np.asarray(first + np.arange(math.ceil((math.pi - first) / width)) * width, dtype=np.float64)
    middles = np.arange(heaviest + 1.0)[:, None] * (starts + width / 2)
    return starts, width, np.asarray(1 - np.cos(middles))
