"""The worst mechanism for a count, as a walk along the curve of a claim (Theorem 14).

Notation as on the proofs page: n elements, r guesses, v right. The walk leads from (0, 0) to P + Q = r / n.
Its steps are edges j: the event that an element is guessed and j - 1 of the other guesses are right. A down
step takes the next edge below v, an up step the next one above; the first is edge v. Whatever their order,
the walk is a mechanism that keeps the claim. Its multipliers, one for each step, say how dear the lines are.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.compiled import compiled

_NEVER: Final = 1e-17
"""Of the mass of V >= v: a walk ends where what is left is smaller."""
_TOO_FAR: Final = 1.5
"""Of the end of the walk: beyond it nothing is asked for."""
_LEAST, _MOST = -45.0, 0.7
"""Logarithms between which Pr[V = v] is sought."""
_EXACT: Final = 1e-7
"""How close to 1 the mass of a mechanism must be; the proof does not depend on it."""


class Count(NamedTuple):
    """The numbers of a count: elements that are charged, guesses, right guesses."""

    n: float
    r: int
    v: int


class Envelope(NamedTuple):
    """The lines of a claim, as in `claims.lines.Lines`."""

    kappas: Floats
    deltas: Floats
    corners_q: Floats
    corners_p: Floats


class Steps(NamedTuple):
    """The order of the steps that is asked for, and for each step that was made its edge and its line."""

    upward: Hits
    edges: Integers
    lines: Integers


class Walked(NamedTuple):
    """A walk: P + Q at its end over r / n, which is 1 for a mechanism; Pr[V >= v]; how many steps."""

    filled: float
    above: float
    steps: int


class Multiplied(NamedTuple):
    """Tau, the highest edge below all that were reached, and the highest that was reached."""

    tau: float
    low: int
    high: int


@compiled
def walk(count: Count, curve: Envelope, steps: Steps, start: float) -> Walked:
    """Walk from Pr[V = v] = start; steps beyond those that are ordered lead down."""
    n, r, v = count
    right = wrong = 0.0
    low_mass = high_mass = above = start
    low = high = v
    line, made, end = len(curve.kappas) - 1, 0, r / n
    while low >= 1 or high < r:
        if high < r and (low < 1 or (made > 0 and steps.upward[made])):
            wrong += high_mass * (r - high) / n
            while line > 0 and curve.corners_q[line - 1] <= wrong:
                line -= 1
            reached = max(right, curve.deltas[line] + curve.kappas[line] * wrong)
            high += 1
            high_mass = n * (reached - right) / high
            right = reached
            above += high_mass
            steps.edges[made] = high
        else:
            right += low_mass * low / n
            while line > 0 and curve.corners_p[line - 1] <= right:
                line -= 1
            reached = max(wrong, (right - curve.deltas[line]) / curve.kappas[line])
            low_mass = n * (reached - wrong) / (r - low + 1)
            wrong = reached
            steps.edges[made] = low
            low -= 1
        steps.lines[made] = line
        made += 1
        if right + wrong > _TOO_FAR * end or (high == r and low_mass < _NEVER * above):
            break
    return Walked((right + wrong) / end, above, made)


@compiled
def start_of(count: Count, curve: Envelope, steps: Steps, near: float) -> float:
    """Pr[V = v] at which the walk ends at P + Q = r / n, searched from `near`.

    A bracket that grows by steps of four, then regula falsi (Illinois) on logarithms.
    """
    low, high = _bracket(count, curve, steps, math.log(near))
    at_low, at_high, side = _excess(count, curve, steps, low), _excess(count, curve, steps, high), 0
    for _ in range(60):
        if at_high - at_low < _EXACT or high - low < _EXACT:
            break
        point = (low * at_high - high * at_low) / (at_high - at_low)
        excess = _excess(count, curve, steps, point)
        if excess > 0:
            high, at_high = point, excess
            at_low = at_low / 2 if side == 1 else at_low
            side = 1
        else:
            low, at_low = point, excess
            at_high = at_high / 2 if side == -1 else at_high
            side = -1
        if abs(excess) < _EXACT:
            break
    return math.exp(low)


@compiled
def _bracket(count: Count, curve: Envelope, steps: Steps, near: float) -> tuple[float, float]:
    low = high = near
    step = 1e-3
    while high < _MOST and _excess(count, curve, steps, high) <= 0:
        low, high, step = high, min(high + step, _MOST), 4 * step
    step = 1e-3
    while low > _LEAST and _excess(count, curve, steps, low) > 0:
        low, high, step = max(low - step, _LEAST), low, 4 * step
    return low, high


@compiled
def _excess(count: Count, curve: Envelope, steps: Steps, log_start: float) -> float:
    return math.log(max(walk(count, curve, steps, math.exp(log_start)).filled, 1e-300))


@compiled
def multiply(count: Count, curve: Envelope, steps: Steps, made: int, multipliers: Floats) -> Multiplied:
    """Tau, at which the two conditions of the first step agree, and the multipliers of the walk.

    What they differ by is linear in tau.
    """
    low = high = count.v
    for step in range(made):
        low, high = min(low, steps.edges[step] - 1), max(high, steps.edges[step])
    at_0 = _multipliers(count, curve, steps, low, 0.0, multipliers[: made + 1])
    at_1 = _multipliers(count, curve, steps, low, 1.0, multipliers[: made + 1])
    tau = at_0 / (at_0 - at_1) if at_0 != at_1 else math.nan
    _multipliers(count, curve, steps, low, tau, multipliers[: made + 1])
    return Multiplied(tau, low, high)


@compiled
def _multipliers(
    count: Count, curve: Envelope, steps: Steps, low: int, tau: float, multipliers: Floats
) -> float:
    """The multipliers from (*) with equality, the last step first; by how much those of the first differ.

    The last of all is what the last line weighs below the lowest edge.
    """
    n, r, v = count
    made = len(multipliers) - 1
    price = below = multipliers[made] = _base(count, curve.kappas[steps.lines[made - 1]], low, tau)
    cost, above, apart = curve.kappas[steps.lines[made - 1]] * price, 0.0, math.nan
    for step in range(made - 1, -1, -1):
        j, slope = steps.edges[step], curve.kappas[steps.lines[step]]
        up = (n * (1 - tau) + (r - j) * above) / j - price
        down = ((n * tau + (j - 1) * below) / (r - j + 1) - cost) / slope
        gain, apart = up if j > v else down, down - up
        price += gain
        cost += slope * gain
        if j > v:
            above = cost
        else:
            below = price
        multipliers[step] = gain
    return apart


@compiled
def _base(count: Count, slope: float, low: int, tau: float) -> float:
    """The weight of a line below an edge if all edges up to that one are on it."""
    base = 0.0
    for j in range(1, low + 1):
        base = (count.n * tau + (j - 1) * base) / ((count.r - j + 1) * slope)
    return base


@compiled
def reorder(count: Count, curve: Envelope, steps: Steps, made: int, found: Multiplied, share: float) -> None:
    """The next order to try: up steps a share of the way from where they are to where multipliers say."""
    upward = _by_multipliers(count, curve, steps, made, found)
    places, were = np.flatnonzero(upward), np.flatnonzero(steps.edges[:made] > count.v)
    steps.upward[:] = False
    last = 0
    for number in range(min(len(places), len(were))):
        between = int(share * places[number] + (1 - share) * were[number] + 0.5)
        last = min(max(last + 1, between), made - 1)
        steps.upward[last] = True


@compiled
def _by_multipliers(count: Count, curve: Envelope, steps: Steps, made: int, found: Multiplied) -> Hits:
    """Backwards, of the next lower and the next upper edge, the one whose multiplier comes out smaller."""
    n, r, v = count
    tau = min(max(found.tau, 1e-12), 0.5)
    slope = curve.kappas[steps.lines[made - 1]]
    price = below = _base(count, slope, found.low, tau)
    cost, above = slope * price, 0.0
    lower, upper = found.low + 1, found.high
    upward = np.zeros(made, dtype=np.bool_)
    for step in range(made - 1, 0, -1):
        slope = curve.kappas[steps.lines[step]]
        down = up = math.inf
        if lower < v:
            down = ((n * tau + (lower - 1) * below) / (r - lower + 1) - cost) / slope
        if upper > v:
            up = (n * (1 - tau) + (r - upper) * above) / upper - price
        gain = max(0.0, min(down, up))
        price += gain
        cost += slope * gain
        if up < down:
            above, upper, upward[step] = cost, upper - 1, True
        else:
            below, lower = price, lower + 1
    return upward
