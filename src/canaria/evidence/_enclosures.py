"""The p-value of a ranking between two bounds, ever closer ("Bounds that save walks" in Theorem 7).

The p-value is A + (1 - A) B / E[N], where A = q_0, E[N] = sum_f (1 - q_f), and q_f is the probability that a
walk crosses the boundary lowered by f flips. Each q_f costs a walk through all looks, and a verdict rarely
needs all of them. So intervals [least_l, most_l] for q at some numbers of flips f_l are kept, and narrowed
where it pays most. For f < f' and the tails of single looks,

    max_j tail_j(c_j - f) <= q_f <= sum_j tail_j(c_j - f),
    q_f <= q_f' <= q_f + sum_j [tail_j(c_j - f') - tail_j(c_j - f)].

The first line gives the intervals to begin with. The second is why one walk narrows all of them: a walk that
crosses only the lower boundary is between the two at some look.
"""

import math
from collections.abc import Iterator

import numpy as np

from canaria._core import binomial, effort
from canaria._core.arrays import Integers
from canaria.evidence import _walks
from canaria.evidence.boundaries import flips_that_matter, mean_to_reach


def enclosures(
    looks: Integers, boundary: Integers, epsilon: float, budget: float, *, rough: bool
) -> Iterator[tuple[float, float]]:
    """Bounds (low, high) on the p-value of a boundary, the last with low == high.

    Any of them may be used: `high` refutes, and `low` only ever decides that a claim is kept. Walks are first
    made roughly (Theorem 8), unless `rough` is False, and then exactly.
    """
    effort.spend(5 * effort.CALL)
    # Looks with c_j > k_j cannot be crossed. If there is no other, the p-value is 1 by definition.
    reachable = boundary <= looks
    if not reachable.any():
        yield 1.0, 1.0
        return
    crossings = _Crossings(looks[reachable], boundary[reachable], epsilon, budget)
    # Rough walks narrow the intervals as far as they can. Exact ones then begin with what is known.
    for exact in (False, True) if rough and crossings.walk.rough else (True,):
        crossings.walked[:] = False
        while True:
            effort.spend(3 * effort.CALL)
            low, high = crossings.p_values()
            done = bool(crossings.walked.all())
            # With all exact walks made, `high` is the p-value as it is defined, with E[N] rounded down.
            yield binomial.rounded_up(high if done and exact else low), binomial.rounded_up(high)
            if done:
                break
            crossings.narrow(exact)


class _Crossings:
    """Intervals for the crossing probabilities q at some numbers of flips."""

    def __init__(self, looks: Integers, boundary: Integers, epsilon: float, budget: float) -> None:
        self.boundary, self.budget = boundary, budget
        self.flips = np.zeros(1, dtype=np.int64)
        # A second upper bound on E[N], beside the one from `least`: E[N] <= min_j E[(c_j - S_j)_+].
        self.easiest = math.inf
        if budget > 0:
            self.flips = flips_that_matter(looks, boundary, epsilon)
        tails = binomial.tail(boundary[:, None] - self.flips, looks[:, None], epsilon)
        if budget > 0:
            self.easiest = mean_to_reach(boundary, looks, epsilon, tails[:, 0])
        # q_f at f_l stands for all f in (f_{l-1}, f_l], as 1 - q_f falls with f. This rounds E[N] down.
        self.widths = np.diff(self.flips, prepend=-1)
        self.union = tails.sum(axis=0)
        self.least, self.most = tails.max(axis=0), np.minimum(self.union, 1.0)
        self.walk = _walks.Walk(looks, epsilon, rarest=float(self.least[0]))
        self.walked = np.zeros(len(self.flips), dtype=np.bool_)

    @property
    def _mean(self) -> float:
        """At most this is E[N]."""
        return float(self.widths @ (1 - self.least))

    def p_values(self) -> tuple[float, float]:
        """The p-value with all q at the lower ends of their intervals, and with all at the upper ends."""
        low = _p_value(float(self.least[0]), min(self._mean, self.easiest), self.budget)
        fewest = float(self.widths @ (1 - self.most))
        return low, max(low, _p_value(float(self.most[0]), fewest, self.budget))

    def narrow(self, exact: bool) -> None:
        """Walk to the boundary at which the p-value can change most."""
        # The p-value moves with q_0 at a rate of about 1, by A, and with each q by B / E[N]^2, by E[N].
        weights = self.widths * (self.budget / max(self._mean, 1.0) ** 2)
        weights[0] += 1
        place = int(np.argmax(np.where(self.walked, -1.0, weights * (self.most - self.least))))
        self.walked[place] = True
        # Below the floor an exact crossing, with its slivers, would come out larger than what is known.
        crossed = at_most = float(self.most[place])
        if crossed > self.walk.floor:
            found = self.walk.crossing(self.boundary - self.flips[place], exact)
            crossed, at_most = np.minimum(found, crossed)
        # Lower boundaries, with more flips, are crossed at least as often; higher ones at most.
        least, most, union = self.least, self.most, self.union
        least[place:], most[place] = np.maximum(least[place:], crossed), at_most
        most[place:] = np.minimum(most[place:], most[place] + union[place:] - union[place])
        most[:place] = np.minimum(most[:place], most[place])


def _p_value(crossed: float, flips: float, budget: float) -> float:
    """A + (1 - A) B / E[N], at most 1."""
    if budget == 0:
        return crossed
    return 1.0 if budget >= flips else crossed + (1 - crossed) * budget / flips
