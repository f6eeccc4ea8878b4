"""Several pieces of evidence about one mechanism, the error probability split between them."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from canaria import _validate
from canaria._validate import InputError
from canaria.evidence._effort import Effort
from canaria.evidence._protocol import (
    Bracketed,
    Evidence,
    Explained,
    Measured,
    Progress,
    Tally,
    from_dict,
    kind,
    to_dict,
)

MOST_SHARES: Final = 1 + 2.0**-50
"""What shares may add up to: each is rounded to a double, which adds at most 2^-53 of it to the sum."""


@kind
@dataclass(frozen=True)
class Split:
    """Parts that were all fixed before the bits were revealed, each tested at its share of beta.

    Proved (union bound): if part i is tested at level share_i * beta and the shares add up to at most
    1, some part refutes a true claim with probability at most beta, however the parts depend on each
    other. The p-value is the smallest p_i / share_i, and the bound is the largest of the parts' bounds.
    Shares such as 49 times 1/49 add up to a little more than 1 in floating point: up to 1 + 2^-50 is allowed,
    and p-values are raised by as much.

    >>> from canaria import Counts, Split
    >>> Split((Counts(73, 100, 1000), Counts(40, 50, 1000)), (0.5, 0.5)).tally(0.0)
    Tally(correct=73, taken=100)
    """

    parts: tuple[Evidence, ...]
    shares: tuple[float, ...]

    inversion: ClassVar[str] = "parts"

    def __post_init__(self) -> None:
        parts = _all("parts", self.parts)
        shares = tuple(_validate.real("shares", share) for share in _all("shares", self.shares))
        for part in parts:
            if not callable(getattr(part, "p_value", None)):
                raise InputError(f"parts must be evidence, got {_validate.shown(part)}")
        _validate.same_length("shares", len(shares), "parts", len(parts))
        if not parts or min(shares) <= 0 or max(shares) > 1 or math.fsum(shares) > MOST_SHARES:
            raise InputError(
                f"shares must be positive and add up to at most 1, got {_validate.shown(shares)}"
            )
        _validate.assign(self, parts=parts, shares=shares)

    @property
    def elements(self) -> int:
        """The elements of the audit."""
        return max(part.elements for part in self.parts)

    @property
    def method(self) -> str:
        """The methods of the parts."""
        return " + ".join(dict.fromkeys(part.method for part in self.parts))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """All that any part assumes."""
        return tuple(dict.fromkeys(line for part in self.parts for line in part.assumptions))

    def effort(self, delta: float) -> Effort:
        """One claim of each part, which mostly tells that it shows less, and the bound of the longest."""
        parts = [part.effort(delta) for part in self.parts if isinstance(part, Measured)]
        claims = sum(part.claim for part in parts)
        return Effort(claims, claims + max((part.bound for part in parts), default=0.0))

    def fixed(self) -> str:
        """What was fixed before the bits were revealed."""
        parts = dict.fromkeys(part.fixed() for part in self.parts if isinstance(part, Explained))
        shares = " + ".join(f"{share:g}" for share in self.shares)
        return "; ".join([f"{len(self.parts)} ways to look and their shares of the error, {shares}", *parts])

    def progress(self, epsilon: float) -> Progress:
        """The progress of the part that speaks most clearly against the claim."""
        part = self.clearest(epsilon)
        if isinstance(part, Explained):
            return part.progress(epsilon)
        right, taken = part.tally(epsilon)
        return Progress(np.array([taken]), np.array([right]))

    def tally(self, epsilon: float) -> Tally:
        """The tally of the part that speaks most clearly against the claim."""
        return self.clearest(epsilon).tally(epsilon)

    def clearest(self, epsilon: float) -> Evidence:
        """The part that speaks most clearly against the claim (read at delta = 0)."""
        ranges = self._ranges(epsilon)
        least = min(high for *_, high in ranges)
        near = [known for known in ranges if known[2] <= least]

        def exact(known: tuple[Evidence, float, float, float]) -> float:
            part, share, low, high = known
            return low if low == high else part.p_value(epsilon) / share

        return near[0][0] if len(near) == 1 else min(near, key=exact)[0]

    def between(self, epsilon: float, beyond: float = 1.0) -> tuple[float, float]:
        """Bounds on the p-value at delta = 0; rough, if it is above `beyond`."""
        ranges = self._ranges(epsilon, beyond)
        return min(1.0, *(low for *_, low, _ in ranges)), min(1.0, *(high for *_, high in ranges))

    def _ranges(self, epsilon: float, beyond: float = math.inf) -> list[tuple[Evidence, float, float, float]]:
        """The parts, their shares, and bounds on p-value / share at delta = 0, rough where not the least."""
        found = []
        for part, share in zip(self.parts, self.shares, strict=True):
            if isinstance(part, Bracketed):
                low, high = part.between(epsilon, beyond * share)
            else:
                low = high = part.p_value(epsilon)
            found.append((part, share, low / share, high / share))
            beyond = min(beyond, high / share)
        return found

    def p_value(self, epsilon: float, delta: float = 0.0) -> float:
        """The smallest of the parts' p-values, each divided by its share."""
        pairs = zip(self.parts, self.shares, strict=True)
        return min(1.0, *(part.p_value(epsilon, delta) / share * MOST_SHARES for part, share in pairs))

    def to_dict(self) -> dict[str, Any]:
        """The parts and their shares, for JSON."""
        return {"parts": [to_dict(part) for part in self.parts], "shares": list(self.shares)}

    @classmethod
    def from_dict(cls, parts: Any, shares: Any) -> "Split":
        """Read what `to_dict` wrote."""
        return cls(tuple(from_dict(part) for part in parts), tuple(shares))


def _all(name: str, values: Any) -> tuple[Any, ...]:
    try:
        return tuple(values)
    except TypeError:
        raise InputError(f"{name} must be a sequence, got {_validate.shown(values)}") from None
