"""Rules that guess all at once: a fixed number of elements, those above a threshold, or all by weight."""

from dataclasses import dataclass

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria.evidence import Counts, UncommittedCounts, Weighted
from canaria.rules._guesses import Guesses, OneShot, falling, highest, tails_alternating


@dataclass(frozen=True)
class Top:
    """Guess +1 for the k highest scores; gives one-sided `Counts`.

    Attributes:
        k: The number of guesses, fixed in advance.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalLaplace
        >>> from canaria.rules import Top
        >>> print(play(LocalLaplace(2.0), rule=Top(200), n=1000, rng=0).bound())
        ε ≥ 1.507 at δ = 0, with 95% confidence: 173 of 200 guesses right, 1000 elements
    """

    k: int

    def __post_init__(self) -> None:
        checks.assign(self, k=checks.integer("k", self.k, 1))

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to the k highest scores."""
        taken, total = checks.integer("k", self.k, 1, len(scores), "elements"), len(scores)
        guesses = Guesses(highest(scores, taken, rng), np.ones(taken, dtype=np.int8))
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), taken, total, one_sided=True))


@dataclass(frozen=True)
class Tails:
    """Guess +1 for the k/2 highest scores and -1 for the k/2 lowest; gives `Counts`.

    If k is odd, the extra guess is a highest score.

    Attributes:
        k: The number of guesses, fixed in advance.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalLaplace
        >>> from canaria.rules import Tails
        >>> print(play(LocalLaplace(2.0), rule=Tails(200), n=1000, rng=0).bound())
        ε ≥ 1.545 at δ = 0, with 95% confidence: 174 of 200 guesses right, 1000 elements
    """

    k: int

    def __post_init__(self) -> None:
        checks.assign(self, k=checks.integer("k", self.k, 1))

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to both tails."""
        taken, total = checks.integer("k", self.k, 1, len(scores), "elements"), len(scores)
        both = tails_alternating(falling(scores, rng))
        guesses = Guesses(both.order[:taken], both.signs[:taken])
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), taken, total))


@dataclass(frozen=True)
class Surest:
    """Guess the signs of the k scores of largest absolute value; gives `Counts`.

    With privacy losses as scores this is the maximum-likelihood guesser of the paper, which has the best
    expected accuracy of all that take k guesses. A score of 0 is guessed as +1.

    Attributes:
        k: The number of guesses, fixed in advance.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalLaplace
        >>> from canaria.rules import Surest
        >>> print(play(LocalLaplace(2.0), rule=Surest(200), n=1000, rng=0).bound())
        ε ≥ 1.846 at δ = 0, with 95% confidence: 181 of 200 guesses right, 1000 elements
    """

    k: int

    def __post_init__(self) -> None:
        checks.assign(self, k=checks.integer("k", self.k, 1))

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to the k scores of largest absolute value."""
        taken, total = checks.integer("k", self.k, 1, len(scores), "elements"), len(scores)
        surest = highest(np.abs(scores), taken, rng)
        guesses = Guesses(surest, np.where(scores[surest] >= 0, 1, -1).astype(np.int8))
        return OneShot(guesses, lambda hits: Counts(int(hits.sum()), taken, total))


@dataclass(frozen=True)
class Threshold:
    """Guess the sign of every score of absolute value at least t; gives `UncommittedCounts`.

    The number of guesses depends on the scores, so the sharper delta rule of committed counts does not apply.
    t may be infinite: then only certain guesses (infinite losses) are taken.

    Attributes:
        t: The smallest absolute value that is guessed.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalGaussian
        >>> from canaria.rules import Threshold
        >>> print(play(LocalGaussian(1.0), rule=Threshold(2.0), n=1000, rng=0).bound())
        ε ≥ 2.550 at δ = 0, with 95% confidence: 498 of 526 guesses right, 1000 elements
    """

    t: float

    def __post_init__(self) -> None:
        checks.assign(self, t=checks.nonnegative("t", self.t))

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to the scores of absolute value at least t; there are no ties to break."""
        # With t = 0, too, a score of 0 has no sign to guess.
        taken = np.flatnonzero((np.abs(scores) >= self.t) & (scores != 0))
        guesses = Guesses(taken, np.sign(scores[taken]).astype(np.int8))
        total = len(scores)
        return OneShot(guesses, lambda hits: UncommittedCounts(int(hits.sum()), len(hits), total))


@dataclass(frozen=True)
class Soft:
    """Guess every sign and weigh it by its score, which must be a privacy loss; gives `Weighted`.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalGaussian
        >>> from canaria.rules import Soft
        >>> play(LocalGaussian(1.0), rule=Soft(), n=1000, rng=0).bound().epsilon > 1
        True
    """

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to every sign; there are no ties to break."""
        guesses = Guesses(np.arange(len(scores)), np.sign(scores).astype(np.int8))
        return OneShot(guesses, lambda hits: Weighted(hits, losses=scores))
