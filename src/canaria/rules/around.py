"""The rule for a planned number of guesses: both tails, counted at numbers of guesses near it."""

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats, Integers
from canaria.evidence import Ranking
from canaria.rules._guesses import Guesses, OneShot, falling, tails_alternating

_WIDTH: Final = 1.5
"""Looks range from k / 1.5 to 1.5 k."""
_LOOKS: Final = 21


@dataclass(frozen=True)
class Around:
    """Guess both tails alternating, and look at about 21 numbers of guesses from k / 1.5 to 1.5 k.

    This is `Tails(k)` with some slack. Counts at such close numbers rise and fall together, so looking at all
    of them costs little, and the best of them gains more. If both tails leak and k suits the leak, the bound
    is larger than that of `Ranked`, which looks at every number of guesses and at each tail alone. If the
    leak has another size, above all a larger one, the bound is smaller.
    `canaria.training.plan.planned_rule` finds k for a training run. Only the order of the scores is used, and
    ties are broken at random. Gives a `Ranking`.

    Attributes:
        k: The number of guesses, fixed in advance.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalGaussian
        >>> from canaria.rules import Around
        >>> print(play(LocalGaussian(1.2), rule=Around(100), n=600, rng=0).bound(1e-5))
        ε ≥ 2.290 at δ = 1e-05, with 95% confidence: 104 of 108 guesses right, 600 elements
    """

    k: int
    orders: ClassVar[tuple[tuple[float, bool], ...]] = ((1.0, False),)
    """The share of the error probability of each order, and whether it has one sign: only both tails."""

    def __post_init__(self) -> None:
        checks.assign(self, k=checks.integer("k", self.k, 1))

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to both tails."""
        total = len(scores)
        grid = self.looks(total)
        taken = int(grid[-1])
        both = tails_alternating(falling(scores, rng))
        guesses = Guesses(both.order[:taken], both.signs[:taken])
        return OneShot(guesses, lambda hits: Ranking(hits, total, grid, committed=taken))

    def looks(self, elements: int) -> Integers:
        """The numbers of guesses that are looked at, for a number of elements."""
        checks.integer("k", self.k, 1, elements, "elements")
        # The range ends at the number of elements: no guess is left to look at beyond it.
        spaced = np.geomspace(max(self.k / _WIDTH, 1), min(self.k * _WIDTH, elements), _LOOKS)
        return np.unique(np.rint(spaced).astype(np.int64))
