"""A rule that learns from revealed bits how far a score can be trusted, and bets."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Bits, Floats, Hits, Integers
from canaria.evidence import Bets
from canaria.rules._guesses import Guesses, falling

_RIDGE: Final = np.diag([0.01, 0.1])
"""The prior precision of intercept and slope: without it, separable blocks would have no fit."""
_NEWTON_STEPS: Final = 25
_LARGEST_FEATURE: Final = 8.0
"""In standard deviations: one outlier must not decide the fit."""


@dataclass(frozen=True)
class Online:
    """Reveal the elements from the middle of the ranking outward, in blocks, and bet on each block.

    The confidence of a guess is the prediction of regularised logistic fits to the blocks revealed before,
    discounted for their uncertainty. The elements in the middle of the ranking teach the fit and cost little.
    The tails, which matter most, come last, when the fit is best. There are two fits, one on the score and
    one on its rank, weighted by their likelihoods of earlier blocks. Gives `Bets`.

    Attributes:
        blocks: The number of blocks, at least 2.

    Example:
        >>> import numpy as np
        >>> from canaria import audit_scores
        >>> from canaria.rules import Online
        >>> rng = np.random.default_rng(0)
        >>> included = rng.integers(0, 2, 1000)
        >>> audit_scores(rng.normal(2.0 * included), included, rule=Online(), rng=0).epsilon > 2
        True
    """

    blocks: int = 30

    def __post_init__(self) -> None:
        checks.assign(self, blocks=checks.integer("blocks", self.blocks, 2))

    def __call__(self, scores: Floats, rng: np.random.Generator) -> "OnlineRounds":
        """Commit to the order of the blocks and to how confidences are learnt."""
        order = falling(scores, rng)
        outward, features = _middle_outward(order), _features(scores, order)
        parts = np.array_split(outward, min(self.blocks, len(outward)))
        return OnlineRounds(features, tuple(parts))


@dataclass(frozen=True, eq=False)
class OnlineRounds:
    """The committed rounds of `Online`; a guess sees only the bits of earlier rounds.

    Attributes:
        features: The features of the two fits.
        rounds: The elements of each block.

    Example:
        >>> import numpy as np
        >>> from canaria.rules import Online
        >>> scores = np.random.default_rng(0).normal(size=100)
        >>> rounds = Online(blocks=4)(scores, np.random.default_rng(0))
        >>> sum(len(block) for block in rounds.rounds)
        100
    """

    features: Floats
    rounds: tuple[Integers, ...]

    def guess(self, known: Bits, block: Integers, trust: Floats) -> tuple[Guesses, Floats, Floats]:
        """Guess a block from the known bits alone.

        `trust` is the log likelihood of each fit on the earlier blocks.

        Returns:
            The guesses, their confidences, and Pr[+1] according to each fit.
        """
        seen = np.flatnonzero(known)
        chances = np.array(
            [_predict(feature[seen], known[seen] > 0, feature[block]) for feature in self.features]
        )
        # Bayes' rule for "one of the two fits is right", with equal priors.
        weights = np.exp(trust - trust.max())
        mixed = weights @ chances / weights.sum()
        # No bet stakes everything: a wrong guess would then lose all that was won before. The limit depends
        # on the number of elements alone (Theorem 12).
        largest = 1 - 1 / (2 * len(known))
        confidences = np.minimum(np.maximum(mixed, 1 - mixed), largest)
        return Guesses(block, np.where(mixed >= 0.5, 1, -1).astype(np.int8)), confidences, chances

    def reveal(self, bits: Bits) -> Bets:
        """Guess a round, reveal its bits, learn, and continue with the next."""
        return self.play(bits)[1]

    def play(self, bits: Bits) -> tuple[Guesses, Bets]:
        """Play all rounds: the guesses in order, and their evidence."""
        known = np.zeros_like(bits)
        trust = np.zeros(len(self.features))
        signs, confidences = [], []
        for block in self.rounds:
            guesses, stated, chances = self.guess(known, block, trust)
            signs.append(guesses.signs)
            confidences.append(stated)
            known[block] = bits[block]
            likelihood = np.where(bits[block] > 0, chances, 1 - chances)
            trust = trust + np.log(np.maximum(likelihood, 1e-12)).sum(axis=1)
        played = Guesses(np.concatenate(self.rounds), np.concatenate(signs))
        return played, Bets(np.concatenate(confidences), played.hits(bits))


def _middle_outward(order: Integers) -> Integers:
    distance = np.abs(np.arange(len(order)) - (len(order) - 1) / 2)
    outward: Integers = order[np.argsort(distance, kind="stable")]
    return outward


def _features(scores: Floats, order: Integers) -> Floats:
    """The standardised score and the normal quantile of its rank; pooled, so blind to the bits.

    Ranks come from the order in which ties were broken at random, never from the order of the input.
    """
    # Infinite scores are allowed: they end up beyond all finite ones. Centre and scale are the median and the
    # quantiles of one standard deviation, which a few extreme scores do not move.
    finite = scores[np.isfinite(scores)]
    largest = float(np.abs(finite).max(initial=0.0)) or 1.0
    bounded = np.clip(scores / largest, -2.0, 2.0)
    centre = float(np.median(bounded))
    low, high = np.quantile(bounded, [0.16, 0.84])
    scale = float(high - low) / 2 or float(np.abs(bounded - centre).max()) or 1.0
    standard = np.clip((bounded - centre) / scale, -_LARGEST_FEATURE, _LARGEST_FEATURE)
    ranks = np.empty(len(scores))
    ranks[order] = special.ndtri((np.arange(len(scores))[::-1] + 0.5) / len(scores))
    return np.stack([standard, ranks])


def _predict(seen: Floats, included: Hits, new: Floats) -> Floats:
    """Pr[+1] at new features from a ridge logistic fit, moderated by the uncertainty of the fit."""
    # Newton's method for the penalised likelihood, which is concave.
    design = np.column_stack([np.ones_like(seen), seen])
    target, weights = np.column_stack([np.ones_like(new), new]), np.zeros(2)
    curvature = _RIDGE.copy()
    for _ in range(_NEWTON_STEPS):
        chance = special.expit(design @ weights)
        curvature = _RIDGE + (design * (chance * (1 - chance))[:, None]).T @ design
        step = np.linalg.solve(curvature, design.T @ (included - chance) - _RIDGE @ weights)
        weights = weights + step
        if np.abs(step).max() < 1e-6:
            break
    # MacKay (1992): the mean of a logistic function over a normal law of its argument, approximately.
    variance = np.einsum("ij,ij->i", target @ np.linalg.inv(curvature), target)
    return np.asarray(special.expit(target @ weights / np.sqrt(1 + math.pi / 8 * variance)))
