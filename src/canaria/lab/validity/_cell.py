"""The counts in one cell of the matrix, and their interpretation."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from scipy import special

from canaria.lab.validity._games import Case

CHANCE: Final = float(special.ndtr(-4))
"""The probability that a correct auditor is flagged in a cell: that of 4 standard errors, about 3e-5."""
SUSPECT: Final = 1e-3
_TOO_WIDE: Final = 3


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One auditor in one case.

    Attributes:
        auditor: The name of the auditor.
        control: Whether the auditor is invalid on purpose.
        case: The case.
        confidence: The confidence of the bounds.
        audits: The number of audits that computed a bound from scores.
        false: The number of these bounds that exceeded the truth.
        errors: The number of these audits that failed.
        mean: The mean of the bounds.
        claims: The number of further audits that only tested the first claim at or above the truth.
        refuted: The number of these claims that were refuted. If the claim is not refuted, no bound exceeds
            the truth.
        error: The first error message, or None.

    Example:
        >>> from canaria.lab.validity import laboratory
        >>> matrix = laboratory(["top:20"], ["rr-1"], audits=20, claims=0).run()
        >>> cell = matrix.cells[0]
        >>> cell.audits, cell.false, cell.verdict
        (20, 0, 'too few audits')
    """

    auditor: str
    control: bool
    case: Case
    confidence: float
    audits: int
    false: int
    errors: int
    mean: float
    claims: int
    refuted: int
    error: str | None = None

    @property
    def nominal(self) -> float:
        """The rate of false claims that the confidence allows."""
        return 1 - self.confidence

    @property
    def seen(self) -> tuple[int, int]:
        """The number of false claims and of all claims: tested claims if there are any, else bounds."""
        return (self.refuted, self.claims) if self.claims else (self.false, self.answered)

    @property
    def answered(self) -> int:
        """The number of audits that gave a bound."""
        return self.audits - self.errors

    @property
    def rate(self) -> float:
        """The rate of false claims."""
        false, total = self.seen
        return false / total if total else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """The exact (Clopper-Pearson) 95% interval of the rate."""
        false, total = self.seen
        if total == 0:
            return 0.0, 1.0
        low = special.betaincinv(false, total - false + 1, 0.025) if false else 0.0
        high = special.betaincinv(false + 1, total - false, 0.975) if false < total else 1.0
        return float(low), float(high)

    @cached_property
    def chance(self) -> float:
        """The probability that an auditor at the nominal rate makes at least as many false claims.

        It is the smaller of the two for bounds and for tested claims, doubled if there are both.
        """
        counted = [(self.false, self.answered), (self.refuted, self.claims)]
        tails = [float(special.bdtrc(false - 1, total, self.nominal)) for false, total in counted if total]
        return min([1.0, *(len(tails) * tail for tail in tails)])

    @property
    def excessive(self) -> bool:
        """Whether the rate exceeds the nominal one by more than chance."""
        return self.chance <= CHANCE

    @property
    def flagged(self) -> bool:
        """Whether the auditor over-claims. It is not flagged if the bits are not fair."""
        return self.case.fair and self.excessive

    @property
    def verdict(self) -> str:
        """The verdict in a few words."""
        words = "holds" if self.rate <= self.nominal else "within chance"
        if self.interval[1] > _TOO_WIDE * self.nominal:
            words = "too few audits" if self.seen[1] else "no bound"
        if self.chance <= SUSPECT:
            words = "over-claims" if self.excessive else "suspect"
        return words if self.case.fair else f"{words}: unfair bits"

    @property
    def tightness(self) -> float | None:
        """The mean bound divided by the truth; None if the truth is 0 or there was no bound."""
        return self.mean / self.case.epsilon if self.case.epsilon > 0 and self.answered else None

    def to_dict(self) -> dict[str, Any]:
        """The cell as plain data for JSON."""
        low, high = self.interval
        return {
            "auditor": self.auditor,
            "control": self.control,
            "case": self.case.name,
            "about": self.case.about,
            "epsilon": self.case.epsilon,
            "delta": self.case.delta,
            "fair bits": self.case.fair,
            "scores know": self.case.known,
            "nominal": round(self.nominal, 12),
            "rate": self.rate,
            "low": low,
            "high": high,
            "chance": self.chance,
            "flagged": self.flagged,
            "audits": self.audits,
            "false": self.false,
            "claims": self.claims,
            "refuted": self.refuted,
            "mean bound": self.mean,
            "tightness": self.tightness,
            "errors": self.errors,
            "error": self.error,
        }
