"""The rule for a family of claims: every claim is tested at its own numbers of guesses."""

from dataclasses import dataclass

import numpy as np

from canaria._core import checks
from canaria._core.arrays import Floats, Hits
from canaria._core.errors import InputError, shown
from canaria.claims.families import Family, parse_family, require_constant, written
from canaria.evidence import MatchedCounts
from canaria.rules._guesses import OneShot, falling, tails_alternating


@dataclass(frozen=True, repr=False)
class Matched:
    """Guess both tails alternating, and count at numbers of guesses chosen for each claim of a family.

    The bound is against the family, so it applies to mechanisms of the family alone. It is larger than one
    for every mechanism, and choosing the number of guesses costs nothing. Only the order of the scores is
    used, and ties are broken at random. Gives `MatchedCounts`.

    Attributes:
        family: The family of claims, or its name: "gaussian", "dpsgd:steps=1000,sample_rate=0.01".
        confidence: The confidence for which the numbers of guesses are chosen.
        independent: Whether elements are assumed not to influence each other. The bound is then larger, and
            withdrawn if the guesses contradict the assumption.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import LocalGaussian
        >>> from canaria.rules import Matched
        >>> play(LocalGaussian(1.0), rule=Matched("gaussian"), n=100, rng=0).bound(1e-5).condition
        'its privacy profile is that of Gaussian noise'
    """

    family: Family | str
    confidence: float = 0.95
    independent: bool = False

    def __post_init__(self) -> None:
        family = parse_family(self.family) if isinstance(self.family, str) else self.family
        if not isinstance(family, Family):
            raise InputError(f"family must be a family of claims, such as Gaussian(), got {shown(family)}")
        require_constant(family)
        confidence, alone = checks.confidence(self.confidence), checks.truth("independent", self.independent)
        checks.assign(self, family=family, confidence=confidence, independent=alone)

    def __call__(self, scores: Floats, rng: np.random.Generator) -> OneShot:
        """Commit to both tails."""
        guesses = tails_alternating(falling(scores, rng))

        def weigh(hits: Hits) -> MatchedCounts:
            return MatchedCounts(self._family, hits, self.confidence, independent=self.independent)

        return OneShot(guesses, weigh)

    def __repr__(self) -> str:
        alone = ", independent=True" if self.independent else ""
        return f"Matched({written(self._family)!r}, confidence={self.confidence!r}{alone})"

    @property
    def _family(self) -> Family:
        assert isinstance(self.family, Family)
        return self.family
