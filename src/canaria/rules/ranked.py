"""The default rule: rank the guesses by confidence and look at every number of guesses."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from canaria._validate import Bits, Floats
from canaria.evidence import Ranking, Split
from canaria.rules._guesses import Guesses, falling, tails_alternating

SHARES: Final = (0.7, 0.15, 0.15)
"""What both tails, top only and bottom only may spend of the error probability."""


@dataclass(frozen=True)
class Ranked:
    """Three orders, fixed in advance: both tails alternating, top only, bottom only.

    The bound is the largest of the three, both tails tested at 0.7 of the error probability and the
    one-sided orders at 0.15 each: most leaks tell at both ends. Blind to the bits: only the order of the
    scores is used, and ties are broken at random. Gives a `Split` of three `Ranking`s.
    """

    def __call__(self, scores: Floats, rng: np.random.Generator) -> "RankedOrders":
        """Commit to the three orders."""
        order = falling(scores, rng)
        upward, downward = (
            np.ones(len(order), dtype=np.int8),
            np.full(len(order), -1, dtype=np.int8),
        )
        orders = (
            tails_alternating(order),
            Guesses(order, upward),
            Guesses(order[::-1], downward),
        )
        return RankedOrders(orders)


@dataclass(frozen=True, eq=False)
class RankedOrders:
    """The committed orders."""

    orders: tuple[Guesses, ...]

    @property
    def guesses(self) -> Guesses:
        """The first order, both tails, which guesses every element once."""
        return self.orders[0]

    def reveal(self, bits: Bits) -> Split:
        """Meet each order with the bits."""
        return Split(tuple(Ranking(guesses.hits(bits)) for guesses in self.orders), SHARES)
