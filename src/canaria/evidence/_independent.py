"""Elements that do not influence each other: a count against a product of mechanisms (Theorem 30).

Then no guesser does better than one that sees, for every element, an output of the worst pair of laws that a
claim allows, and guesses the elements of largest loss. The law of its right guesses is known. It is much
narrower than that of elements with shared luck. One run cannot prove the assumption, but hits can contradict
it.
"""

from typing import Final

import numpy as np
from scipy import special

from canaria._core import effort
from canaria._core.arrays import Floats, Integers
from canaria._core.binomial import ROUND_UP
from canaria.claims.lines import Lines

_PIECES: Final = 400
"""Equally likely pieces into which the range of u is cut."""
_SMALLEST: Final = 1e-12
"""The smallest u, as the mean accuracy divides by it."""
_IN_A_BLOCK: Final = 8
"""Wrong guesses that are expected in each block of ranks."""


def p_value(elements: float, taken: int, correct: int, lines: Lines) -> float:
    """Pr[V >= correct] for the surest guesses of independent elements, each the worst that the lines allow.

    Let u be the probability that the loss of one element exceeds the first loss that is not guessed. Given u,
    all guesses are independent, and each is right with the mean accuracy of a share u of the elements, which
    falls with u. As an order statistic of uniform variables, u has the law Beta(r + 1, n - r). Its range is
    cut into equally likely pieces, and in each piece the smallest u counts, which errs upward.
    """
    effort.spend(effort.CALL + effort.RATIO * _PIECES * len(lines.kappas))
    shares = np.ones(1)
    if taken < elements:
        pieces = np.arange(_PIECES) / _PIECES
        # At the left end of each piece, where u is smallest and guesses are most often right.
        shares = np.maximum(special.betaincinv(taken + 1, elements - taken, pieces), _SMALLEST)
    right = np.minimum(lines.mean_accuracy(shares), 1.0)
    return min(1.0, float(special.betainc(correct, taken - correct + 1, right).mean()) * ROUND_UP)


def misfit(taken: Integers, correct: Integers, accuracies: Floats) -> float:
    """The p-value of the way in which wrong guesses are spread over the ranks, given expected accuracies.

    `accuracies` are the mean accuracies of the first k guesses, for k in `taken`. There are two approximate
    tests, each at half of the level. If all elements share their luck, wrong guesses come too early on
    average. If only some elements share it, the numbers of wrong guesses in blocks of ranks vary too much.
    """
    wrong = np.diff(taken - correct, prepend=0)
    expected = np.maximum(np.diff(taken * (1 - accuracies), prepend=0.0), 0.0)
    number, total = int(wrong.sum()), float(expected.sum())
    if number == 0 or total == 0:
        return 1.0
    # If all is as expected, each wrong guess falls into a block between looks by this law, independently.
    law = expected / total
    places = (taken + np.append(0, taken[:-1])) / 2
    mean = float(law @ places)
    spread = float(np.sqrt(law @ (places - mean) ** 2 / number))
    early = float(special.ndtr((float(wrong @ places) / number - mean) / spread)) if spread > 0 else 1.0
    # Blocks in which enough wrong guesses are expected for Pearson's chi-squared.
    blocks = np.floor(np.cumsum(law) * max(1, number // _IN_A_BLOCK) * (1 - 1e-9)).astype(np.int64)
    seen, chance = np.bincount(blocks, wrong), np.bincount(blocks, law)
    fits = seen[chance > 0], number * chance[chance > 0]
    uneven = float(special.chdtrc(len(fits[0]) - 1, ((fits[0] - fits[1]) ** 2 / fits[1]).sum()))
    return min(1.0, 2 * min(early, uneven if len(fits[0]) > 1 else 1.0))
