"""The default rule: rank the guesses by confidence and look at every number of guesses."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from canaria._core.arrays import Bits, Floats, Integers
from canaria.evidence import Ranking, Split
from canaria.evidence.ranking import looks
from canaria.rules._guesses import Guesses, falling, tails_alternating

SHARES: Final = (0.7, 0.15, 0.15)
"""The shares of the error probability of both tails, of the top, and of the bottom (Theorem 15)."""
ONE_SIDED: Final = (False, True, True)
"""Whether all guesses of an order have one sign."""


@dataclass(frozen=True)
class Ranked:
    """Rank the guesses in three orders: both tails alternating, top only, bottom only.

    The bound is the largest of the three, both tails tested at 0.7 of the error probability and the one-sided
    orders at 0.15 each, because most leaks show at both ends. Only the order of the scores is used, and ties
    are broken at random. Gives a `Split` of three `Ranking`s.

    Example:
        >>> import numpy as np
        >>> from canaria import audit_scores
        >>> from canaria.rules import Ranked
        >>> rng = np.random.default_rng(0)
        >>> included = rng.integers(0, 2, 1000)
        >>> print(audit_scores(rng.normal(2.0 * included), included, rule=Ranked(), rng=0))
        ε ≥ 3.390 at δ = 0, with 95% confidence: 199 of 200 guesses right, 1000 elements
    """

    orders: ClassVar[tuple[tuple[float, bool], ...]] = tuple(zip(SHARES, ONE_SIDED, strict=True))
    """The share of the error probability of each order, and whether it has one sign; first both tails."""

    def __call__(self, scores: Floats, rng: np.random.Generator) -> "RankedOrders":
        """Commit to the three orders."""
        order = falling(scores, rng)
        # Leaks may show at one end of the scores alone. One sign is then guessed throughout, and delta is
        # charged for half of the elements.
        upward, downward = (np.ones(len(order), dtype=np.int8), np.full(len(order), -1, dtype=np.int8))
        orders = (tails_alternating(order), Guesses(order, upward), Guesses(order[::-1], downward))
        return RankedOrders(orders)

    def looks(self, elements: int) -> Integers:
        """The numbers of guesses that are looked at, for a number of elements."""
        return looks(elements)


@dataclass(frozen=True, eq=False)
class RankedOrders:
    """The committed orders."""

    orders: tuple[Guesses, ...]

    @property
    def guesses(self) -> Guesses:
        """The first order, both tails, which guesses every element once."""
        return self.orders[0]

    def reveal(self, bits: Bits) -> Split:
        parts = zip(self.orders, ONE_SIDED, strict=True)
        return Split(
            tuple(Ranking(guesses.hits(bits), one_sided=one_sided) for guesses, one_sided in parts), SHARES
        )
