"""The default rule: rank the guesses by confidence and look at every number of guesses."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from canaria._core.arrays import Bits, Floats, Integers
from canaria.evidence import Evidence, Ranking, Split
from canaria.evidence.ranking import looks
from canaria.rules._guesses import Guesses, between, falling, nothing_guessed, tails_alternating

SHARES: Final = (0.7, 0.15, 0.15)
"""What both tails, top only and bottom only may spend of the error probability."""
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
    """What each order may spend of the error probability, and whether it has one sign; first both tails."""

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

    def looks(self, elements: int) -> Integers:
        """The numbers of guesses that are looked at where there are so many elements."""
        return looks(elements)

    def could_have_made(self, evidence: Evidence) -> bool:
        """Whether evidence has the shares and looks of the rule, and three orders of the same elements."""
        if nothing_guessed(evidence):
            return True
        if not isinstance(evidence, Split) or evidence.shares != SHARES:
            return False
        grid = self.looks(evidence.elements)
        rankings = [part for part in evidence.parts if isinstance(part, Ranking)]
        return (
            len(rankings) == len(SHARES)
            and all(part.elements == part.committed == evidence.elements for part in rankings)
            and tuple(part.one_sided for part in rankings) == ONE_SIDED
            and all(np.array_equal(part.grid, grid) for part in rankings)
            and _agree(*rankings)
        )

    def included(self, evidence: Evidence) -> tuple[int, int]:
        """The right guesses of the top-only order, which guesses that every element is included."""
        top = evidence.parts[1] if isinstance(evidence, Split) else None
        if not isinstance(top, Ranking):
            return 0, evidence.elements
        return int(top.counts[-1]), int(top.counts[-1])

    def included_above(self, evidence: Evidence, highest: Integers) -> tuple[Integers, Integers]:
        """What the top-only order says between its looks."""
        top = evidence.parts[1] if isinstance(evidence, Split) else None
        if not isinstance(top, Ranking):
            return np.zeros_like(highest), highest
        return _between(top, highest)


@dataclass(frozen=True, eq=False)
class RankedOrders:
    """The committed orders."""

    orders: tuple[Guesses, ...]

    @property
    def guesses(self) -> Guesses:
        """The first order, both tails, which guesses every element once."""
        return self.orders[0]

    def reveal(self, bits: Bits) -> Split:
        """Compare each order with the bits."""
        parts = zip(self.orders, ONE_SIDED, strict=True)
        return Split(
            tuple(Ranking(guesses.hits(bits), one_sided=one_sided) for guesses, one_sided in parts), SHARES
        )


def _agree(both: Ranking, top: Ranking, bottom: Ranking) -> bool:
    """Whether three rankings can be of one list of elements.

    Of the first k of both tails, half are the first of each end. What is not among the last m is among the
    first n - m. Between looks a count is known up to the guesses there.
    """
    total, included = both.elements, int(top.counts[-1])
    if included + int(bottom.counts[-1]) != total:
        return False
    looked = both.grid
    least, most = (
        above + below
        for above, below in zip(_between(top, -(-looked // 2)), _between(bottom, looked // 2), strict=True)
    )
    above_rest = included - looked + bottom.counts
    low, high = _between(top, total - looked)
    return bool(
        ((least <= both.counts) & (both.counts <= most)).all()
        and ((low <= above_rest) & (above_rest <= high)).all()
    )


def _between(ranking: Ranking, taken: Integers) -> tuple[Integers, Integers]:
    """The fewest and the most right guesses among the first `taken`, from the looks before and after."""
    return between(ranking.grid, ranking.counts, taken)
