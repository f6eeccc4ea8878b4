"""The record of one game, from which its bound follows."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Final

import numpy as np

from canaria._core import markup
from canaria._core.arrays import Bits
from canaria.bounds.bound import Bound, delta_of, lower_bound
from canaria.bounds.parts import Histogram
from canaria.bounds.result import Result
from canaria.claims import Claim
from canaria.claims.base import PERFECT_PRIVACY
from canaria.claims.families import Family
from canaria.evidence import Evidence
from canaria.rules import Guesses

LARGEST_EXPLAINED: Final = 5000
"""No histogram is made of more losses: they take long, and a histogram of fewer looks the same."""


@dataclass(frozen=True, eq=False, repr=False)
class Transcript:
    """The record of one game.

    Attributes:
        bits: The hidden bits, -1 or +1.
        output: The output of the mechanism.
        guesses: The guesses in the order in which they were made; None if a user's rule does not show them.
        evidence: The evidence that the guesses give.
        adjacency: The adjacency that the game tests: "add-remove", "replace" or "unspecified".
        rule: The rule, as text.
        about: Which release is audited, if that needs saying.

    Example:
        >>> from canaria import play
        >>> from canaria.mechanisms import RandomizedResponse
        >>> game = play(RandomizedResponse(2.0), n=1000, rng=0)
        >>> game.bits[:5].tolist(), game.output[:5].tolist()
        ([-1, -1, 1, -1, -1], [-1, -1, 1, -1, -1])
        >>> print(game.bound())
        ε ≥ 1.650 at δ = 0, with 95% confidence: 424 of 476 guesses right, 1000 elements
    """

    bits: Bits
    output: Any
    guesses: Guesses | None
    evidence: Evidence
    _: KW_ONLY
    adjacency: str
    rule: str
    about: str | None = None

    def bound(self, delta: float = 0.0, confidence: float = 0.95, *, family: Family | None = None) -> Bound:
        """The lower bound on epsilon that the game proves."""
        return lower_bound(
            self.evidence,
            delta,
            confidence,
            adjacency=self.adjacency,
            rule=self.rule,
            about=self.about,
            family=family,
        )

    def result(
        self,
        claim: Claim | None = None,
        *,
        delta: float | None = None,
        confidence: float = 0.95,
        mechanism: Any = None,
        name: str = "game",
    ) -> Result:
        """The bound with a claim, to be saved and reported.

        Args:
            claim: The promise; the bound is at its delta.
            delta: The delta of the bound, if there is no claim or the claim is a curve; 0 by default.
            confidence: The confidence of the bound, strictly between 0 and 1.
            mechanism: The mechanism, if its privacy loss is known: then the histogram of the losses is shown.
            name: What was audited.

        Returns:
            The result; of a known mechanism of moderate size also how far apart the losses are.
        """
        made = self.bound(delta_of(claim, delta), confidence).result(claim, name=name)
        if not hasattr(mechanism, "loss") or len(self.bits) > LARGEST_EXPLAINED:
            return made
        losses = mechanism.loss(self.output[None], np.zeros_like(self.bits)[None])[0]
        return replace(made, histogram=Histogram.of(losses, self.bits))

    def __repr__(self) -> str:
        return f"<Transcript: {self}>"

    def __str__(self) -> str:
        """The number of right guesses; the bound depends on delta and confidence."""
        right, taken = self.evidence.tally(PERFECT_PRIVACY)
        return f"{right} of {taken} guesses right, {len(self.bits)} elements; ask for bound(delta)"

    def _repr_html_(self) -> str:
        right, taken = self.evidence.tally(PERFECT_PRIVACY)
        rows = [
            ("right guesses", f"{right} of {taken}"),
            ("elements", str(len(self.bits))),
            ("rule", self.rule),
            ("adjacency", self.adjacency),
            ("about", self.about or ""),
            ("next", "bound(delta) gives the lower bound on ε"),
        ]
        return markup.described((name, value) for name, value in rows if value)
