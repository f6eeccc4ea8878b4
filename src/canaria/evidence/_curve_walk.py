"""The worst mechanism for a count, as a walk along the curve of a claim (Theorem 14).

Notation as on the proofs page: n elements, r guesses, v of them right; lines (kappa_t, delta_t), their curve
phi(Q) = min_t (delta_t + kappa_t Q) and its inverse gamma. Let a_j be the mass of j right guesses under the
probability m of Lemma 4 (b), averaged over the order of the guesses. It has at least the mass Pr[V >= v] from
v on, so this linear program bounds Pr[V >= v]:

    maximise    sum_{j >= v} a_j
    subject to  sum_j a_j = 1,  a_j >= 0,
                sum_{j = 1..r} (j a_j - kappa_t (r - j + 1) a_{j-1})_+ <= n delta_t       for every line t.

Its dual has a price lambda_t >= 0 for each line, a number tau, and 0 <= s_{j,t} <= lambda_t for the positive
parts. With Lambda_j = sum_t s_{j,t}, K_j = sum_t kappa_t s_{j,t} and K_{r+1} = 0 it reads

    minimise    tau + sum_t lambda_t delta_t
    subject to  n (1{j >= v} - tau) <= j Lambda_j - (r - j) K_{j+1}        for j = 0, ..., r.         (*)

Every feasible point of the dual is a certificate. At the optimum of both, complementary slackness says:

    a_j > 0                                          (*) holds with equality at j;
    j a_j > kappa_t (r - j + 1) a_{j-1}              s_{j,t} = lambda_t: edge j pays for line t in full;
    j a_j < kappa_t (r - j + 1) a_{j-1}              s_{j,t} = 0: edge j does not pay for line t.

*Edge j* is the event that an element is guessed and j - 1 of the other guesses are right. Under the two
values of the element's bit it has the probabilities (j a_j / n, (r - j + 1) a_{j-1} / n), so the last two
cases compare its likelihood ratio with the slope of the line.

The primal side is `walk`. It puts the edges one after the other on the curve, from (0, 0) to P + Q = r / n.
It begins with edge v. A *down step* takes the next edge below those taken, an *up step* the next one above.
In any such order the likelihood ratios fall, so all Neyman-Pearson sets end on the curve: the walk is a
mechanism that keeps the claim, if both directions have the same deltas and all slopes are at least 1.

The dual side is `multiply`. By slackness, the edge of a step pays in full for the lines of that step and of
all later ones, whose slopes are smaller, and for no others. So the *multiplier* of a step, its part of the
price of its line, follows from (*) with equality, from the last step to the first. If no multiplier is
negative, they are feasible prices, and walk and prices are both optimal. The order of the steps decides this;
`reorder` looks for a better one.
"""

import math
from typing import Final, NamedTuple

import numpy as np

from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.compiled import compiled

_NEVER: Final = 1e-17
"""A walk ends when its last mass is below this share of the mass of V >= v."""
_TOO_FAR: Final = 1.5
"""A walk ends beyond this multiple of r / n: its start was too large, and no more is needed of it."""
_LEAST, _MOST = -45.0, 0.7
"""Logarithms between which Pr[V = v] is sought."""
_EXACT: Final = 1e-7
"""How close to 1 the mass of a mechanism must be; bounds rest on the prices, not on the walk."""


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
    """Walk from Pr[V = v] = start; steps beyond those that are ordered lead down.

    The walk is at (P, Q) = (right, wrong). A step moves by one edge: one of its two probabilities is known
    from the mass that the walk has placed, and the other is what the curve leaves. That one gives the next
    mass:

        down, edge j = low:       P += a_j j / n,        Q = gamma(P),   which gives a_{j-1};
        up, edge j + 1, j = high: Q += a_j (r - j) / n,  P = phi(Q),     which gives a_{j+1}.

    A mass a_j adds a_j r / n to P + Q by its two edges, so the masses add up to 1 if the walk ends at r / n.
    For an arbitrary start they do not: `start_of` finds the one for which they do.
    """
    n, r, v = count
    right = wrong = 0.0
    low_mass = high_mass = above = start
    low = high = v
    # Slopes fall along the walk. At Q = 0 the steepest line, the last, is the lowest.
    line, made, end = len(curve.kappas) - 1, 0, r / n
    while low >= 1 or high < r:
        # Edge v is both the first one down and the first one up. The walk takes it as a down step.
        if high < r and (low < 1 or (made > 0 and steps.upward[made])):
            wrong += high_mass * (r - high) / n
            # `line` never has to go back, because P and Q only grow.
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
            # Up to phi(0) the curve asks for no Q at all: gamma is 0 there, and the line negative.
            reached = max(wrong, (right - curve.deltas[line]) / curve.kappas[line])
            low_mass = n * (reached - wrong) / (r - low + 1)
            wrong = reached
            steps.edges[made] = low
            low -= 1
        steps.lines[made] = line
        made += 1
        # `start_of` needs only the sign of the excess, and the masses below a negligible one add nothing.
        if right + wrong > _TOO_FAR * end or (high == r and low_mass < _NEVER * above):
            break
    return Walked((right + wrong) / end, above, made)


@compiled
def start_of(count: Count, curve: Envelope, steps: Steps, near: float) -> float:
    """Pr[V = v] at which the walk ends at P + Q = r / n, searched from `near`.

    A bracket that grows by steps of four, then regula falsi (Illinois) on logarithms: masses range over many
    powers of ten. Illinois halves the value at the end that stays, or that end might stay for good. The lower
    end of the bracket is returned, at which the masses add up to at most 1.
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
    """Tau, and the multipliers of the walk, by complementary slackness.

    Every step has one multiplier and one condition, (*) with equality at the mass that it gives. The first
    step has two conditions, as edge v touches the masses at v and at v - 1. That the two agree determines
    tau. All recursions are linear in tau, so what they differ by at tau = 0 and at tau = 1 gives its zero.
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

    `price` and `cost` are the sums of the multipliers and of slope times multiplier, over this step and all
    later ones: Lambda_j and K_j of its edge. At edge j the equality is

        up, (*) at j:         j Lambda_j = n (1 - tau) + (r - j) K_{j+1},             `above` = K_{j+1};
        down, (*) at j - 1:   (r - j + 1) K_j = n tau + (j - 1) Lambda_{j-1},         `below` = Lambda_{j-1}.

    The last multiplier of all is what edges weigh that the walk left out, because their mass is negligible.
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
    """Lambda_low by (*) with equality, if edges 1, ..., low pay for one line alone: K_j = slope Lambda_j."""
    base = 0.0
    for j in range(1, low + 1):
        base = (count.n * tau + (j - 1) * base) / ((count.r - j + 1) * slope)
    return base


@compiled
def reorder(count: Count, curve: Envelope, steps: Steps, made: int, found: Multiplied, share: float) -> None:
    """The next order to try: up steps a share of the way from where they are to where multipliers say.

    The multipliers were computed with the lines of the old order. Going all the way can make two orders
    alternate for good, so `_certified` goes shorter ways in later rounds.
    """
    upward = _by_multipliers(count, curve, steps, made, found)
    places, were = np.flatnonzero(upward), np.flatnonzero(steps.edges[:made] > count.v)
    steps.upward[:] = False
    last = 0
    for number in range(min(len(places), len(were))):
        between = int(share * places[number] + (1 - share) * were[number] + 0.5)
        # Rounding must not put two up steps in one place, nor one in place 0, which is edge v.
        last = min(max(last + 1, between), made - 1)
        steps.upward[last] = True


@compiled
def _by_multipliers(count: Count, curve: Envelope, steps: Steps, made: int, found: Multiplied) -> Hits:
    """Backwards, of the next lower and the next upper edge, the one whose multiplier comes out smaller.

    The conditions of both edges fix sums that only grow, `price` for the upper edge and `cost` for the lower.
    If the edge with the larger multiplier came first, the sum would go beyond that of the other edge, whose
    multiplier would then be negative.
    """
    n, r, v = count
    # The tau of an order that is far from the right one may be no probability.
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
