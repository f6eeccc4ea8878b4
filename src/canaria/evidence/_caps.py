"""The cap of the losses that gives weighted guesses the most power (Theorem 9, "The weights").

A heavy guess may have more sway than it is worth: delta pays for flips by the heaviest weights. With T the
right weight, the claim is refuted at level b if A(T) <= 0.4 b and B D(T) <= 0.6 b (Theorem 6 (c)), so T must
exceed its mean under the claim by

    needed = max(excess at which A = 0.4 b, excess at which D = 0.6 b / B).

If the losses are right, guess i is right with probability p(|loss_i|), and T is about normal. The power rises
with (believed mean - claimed mean - needed) / believed standard deviation, which is compared at b = 0.05.
Validity depends on none of this, as the hits do not enter: the cap may be any function of the output and the
claim.
"""

from typing import Final

import numpy as np
from scipy import special

from canaria._core import binomial
from canaria._core.arrays import Floats
from canaria._core.binomial import NOT_ZERO
from canaria.evidence import _sway

LATTICE: Final = 40
"""The largest integer weight."""
HALFWAY: Final = (np.arange(LATTICE) + 0.5) / LATTICE
"""The sizes at which the integer weights 1, 2, ..., 40 begin, as shares of the largest size."""
_DESIGN: Final = 0.05
"""The level b for which losses are capped."""
FROM_BUDGET: Final = _sway.MOST * _DESIGN
"""Up to this budget B the share of delta is B / b, so D does not matter, and neither does a cap."""
_CAPS: Final = 1.6 ** -np.arange(9.0)


def best_cap(sizes: Floats, believed: tuple[Floats, Floats], epsilon: float, budget: float) -> float:
    """The cap out of nine with the most power, for sorted sizes of losses.

    `believed` are mean and variance of the hits of the first k guesses by size, if the losses are right.
    """
    largest = float(sizes[-1])
    # For each cap, how many guesses have which weight: from where each weight begins among sorted sizes.
    weights = np.arange(LATTICE + 1)
    tops = epsilon + (largest - epsilon) * _CAPS
    starts = np.searchsorted(sizes, epsilon + (tops - epsilon)[:, None] * HALFWAY, side="left")
    edges = np.pad(starts, ((0, 0), (1, 1)), constant_values=((0, 0), (0, len(sizes))))
    groups = np.diff(edges)
    # The standard deviation of T under the claim. A cap that leaves no guess with weight is not taken.
    right, wrong = binomial.success(epsilon), binomial.failure(epsilon)
    spread = np.sqrt(right * wrong * (groups @ weights**2))
    used = spread > 0
    spread = np.where(used, spread, 1.0)
    heaviest = ((groups > 0) * weights).max(axis=1)
    # Mean and variance of T if the losses are right, by sums over the sorted guesses.
    mean, noise = (
        np.diff(sums[edges]) @ powers for sums, powers in zip(believed, (weights, weights**2), strict=True)
    )
    by_chance = -special.ndtri((1 - _sway.MOST) * _DESIGN) * spread
    by_flips = _excess_for_sway(FROM_BUDGET / budget, heaviest, spread)
    needed = np.maximum(by_chance, by_flips)
    power = (mean - right * (groups @ weights) - needed) / np.sqrt(np.maximum(noise, NOT_ZERO))
    return float(tops[np.argmax(np.where(used, power, -np.inf))])


def _excess_for_sway(most: float, heaviest: Floats, spread: Floats) -> Floats:
    """The excess of a total weight over its mean at which a flip sways it by at most about `most`.

    At the mean a flip of the heaviest guess sways by about its share of the spread; far above, by its share
    of the excess, times a factor that grows with how coarse the weights are. The numbers are fitted to
    computed sways.
    """
    coarse = heaviest / spread
    at_the_mean = (0.75 + coarse) * coarse
    factor = np.clip(0.5 + 7 * coarse, 1.2, 3.5)
    return np.where(at_the_mean > most, factor * heaviest / most, 0.0)
