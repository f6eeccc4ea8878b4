"""Several pieces of evidence about one mechanism, with the error probability split between them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from canaria._core import checks
from canaria._core.effort import Effort
from canaria._core.errors import InputError, shown
from canaria.claims import Claim
from canaria.evidence.base import Evidence, Inversion, Progress, Tally

MOST_SHARES: Final = 1 + 2.0**-50
"""The most that shares may add up to: each is rounded to a double, which adds at most 2^-53 of it."""


@dataclass(frozen=True)
class Split(Evidence):
    """Parts that were all fixed before the bits were revealed, each tested at its share of beta.

    Proved (Theorem 15, a union bound): if part i is tested at level share_i * beta and the shares add up to
    at most 1, some part refutes a true claim with probability at most beta, however the parts depend on each
    other. The p-value is the smallest p_i / share_i, and the bound is the largest of the parts' bounds.
    Shares such as 49 times 1/49 add up to a little more than 1 in floating point: up to 1 + 2^-50 is allowed,
    and p-values are raised by as much.

    Attributes:
        parts: The evidence of each part.
        shares: The share of the error probability that each part gets.
        elements: The largest number of elements of a part.

    Example:
        >>> from canaria import Counts
        >>> from canaria.claims import ApproximateDP
        >>> from canaria.evidence import Split
        >>> parts = Split((Counts(73, 100, 1000), Counts(40, 50, 1000)), (0.5, 0.5))
        >>> parts.tally(ApproximateDP(0.0, delta=0))
        Tally(correct=73, taken=100)
    """

    parts: tuple[Evidence, ...]
    shares: tuple[float, ...]
    elements: int = field(init=False, repr=False)

    inversion: ClassVar[Inversion] = Inversion.PARTS

    def __post_init__(self) -> None:
        parts = _all("parts", self.parts)
        shares = tuple(checks.real("shares", share) for share in _all("shares", self.shares))
        for part in parts:
            if not isinstance(part, Evidence):
                raise InputError(f"parts must be evidence, got {shown(part)}")
        checks.same_length("shares", len(shares), "parts", len(parts))
        if not parts or min(shares) <= 0 or max(shares) > 1 or math.fsum(shares) > MOST_SHARES:
            raise InputError(f"shares must be positive and add up to at most 1, got {shown(shares)}")
        families = {part.family for part in parts} - {None}
        if len(families) > 1:
            raise InputError("parts must not be for different families of claims")
        elements = max(part.elements for part in parts)
        checks.assign(
            self, parts=parts, shares=shares, elements=elements, family=families.pop() if families else None
        )

    @property
    def method(self) -> str:
        return " + ".join(dict.fromkeys(part.method for part in self.parts))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions of all parts."""
        return tuple(dict.fromkeys(line for part in self.parts for line in part.assumptions))

    def effort(self, delta: float) -> Effort:
        """One claim of each part, which usually rules it out, and the bound of the slowest part."""
        parts = [part.effort(delta) for part in self.parts]
        claims = sum(part.claim for part in parts)
        return Effort(claims, claims + max((part.bound for part in parts), default=0.0))

    def fixed(self) -> str:
        parts = dict.fromkeys(part.fixed() for part in self.parts)
        shares = " + ".join(f"{share:g}" for share in self.shares)
        return "; ".join(
            [f"{len(self.parts)} guessing orders and their shares of the error probability, {shares}", *parts]
        )

    def progress(self, claim: Claim) -> Progress:
        """The progress of the part with the strongest evidence against the claim."""
        return self.clearest(claim).progress(claim)

    def tally(self, claim: Claim) -> Tally:
        """The tally of the part with the strongest evidence against the claim."""
        return self.clearest(claim).tally(claim)

    def clearest(self, claim: Claim) -> Evidence:
        """The part with the smallest p-value for its share."""
        pairs = zip(self.parts, self.shares, strict=True)
        # A part may itself be a split: its own clearest part is the evidence that is shown.
        part, _ = min(pairs, key=lambda pair: pair[0].p_value(claim) / pair[1])
        return part.clearest(claim)

    @property
    def assumed(self) -> str:
        """The assumptions about the mechanism of all parts."""
        return " and ".join(dict.fromkeys(part.assumed for part in self.parts if part.assumed))

    @property
    def withdrawn(self) -> str | None:
        """Why no part proves anything; None if one does."""
        reasons = [part.withdrawn for part in self.parts]
        return "; ".join(dict.fromkeys(one for one in reasons if one)) if all(reasons) else None

    def p_value(self, claim: Claim) -> float:
        """The smallest p-value of a part after dividing each by its share."""
        pairs = zip(self.parts, self.shares, strict=True)
        return min(1.0, *(part.p_value(claim) / share * MOST_SHARES for part, share in pairs))

    @property
    def most_guesses(self) -> int:
        """The largest number of guesses that a part could take; 0 if it is not known for every part."""
        guesses = [part.most_guesses for part in self.parts]
        return max(guesses) if min(guesses) > 0 else 0

    def best_of_size(self, guesses: int) -> "Split | None":
        """Every part with its number of guesses scaled by the same factor, all right."""
        if self.most_guesses == 0:
            return None
        # Parts keep their proportions, as an audit of another size would have them.
        factor = guesses / self.most_guesses
        parts = [part.best_of_size(max(1, round(part.most_guesses * factor))) for part in self.parts]
        known = tuple(part for part in parts if part is not None)
        return Split(known, self.shares) if len(known) == len(parts) else None

    @classmethod
    def read(cls, parts: Iterable[object], shares: Iterable[float]) -> "Split":  # type: ignore[override]
        return cls(tuple(Evidence.from_dict(part) for part in parts), tuple(shares))


def _all(name: str, values: Iterable[Any]) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise InputError(f"{name} must be a sequence, got {shown(values)}") from None
