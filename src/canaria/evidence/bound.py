"""From evidence to a lower bound on epsilon, with everything needed to check it."""

import html
import math
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from canaria._core import binomial, checks
from canaria._core.errors import InputError, shown
from canaria._core.rounding import percent, rounded_down
from canaria.claims import ApproximateDP
from canaria.evidence.base import Evidence, Inversion, Tally, to_dict
from canaria.evidence.inversion import GRID_IN_WORDS, last_refuted

if TYPE_CHECKING:
    import pandas as pd

    from canaria.results.result import Result


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon at a confidence, with everything needed to check it.

    If `epsilon` is positive, the p-value of the claim (epsilon, delta) is at most 1 - confidence, in floating
    point too.

    Attributes:
        epsilon: The last of the initial run of refuted claims; 0 means that no positive epsilon is shown.
        delta: The delta of the bound.
        confidence: The confidence of the bound.
        evidence: The evidence that proves the bound.
        adjacency: "add-remove", "replace" or "unspecified".
        rule: The rule that made the guesses, as text; None if it is not known.
        about: Which release is audited, if that is not plain from the context.

    """

    epsilon: float
    delta: float
    confidence: float
    evidence: Evidence
    _: KW_ONLY
    adjacency: str = "unspecified"
    rule: str | None = None
    about: str | None = None

    @property
    def method(self) -> str:
        """The method of the evidence."""
        return self.evidence.method

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What must be true for the bound to hold."""
        return self.evidence.assumptions

    @cached_property
    def tally(self) -> Tally:
        """The number of right guesses and of guesses taken, at the point where the evidence is strongest."""
        return self.evidence.tally(self.epsilon)

    @property
    def estimate(self) -> float:
        """The epsilon at which the observed accuracy is the expected one; it comes without any confidence."""
        return binomial.estimate(*self.tally)

    @property
    def grid(self) -> str | None:
        """The fixed grid of claims that was searched, in words; None if no grid is needed."""
        return None if self.evidence.inversion is Inversion.BISECTION else GRID_IN_WORDS

    def refutes(self, claim: ApproximateDP) -> bool:
        """Whether the bound lies above the claim: `bound.refutes(ApproximateDP(2.0, delta=1e-5))`.

        Args:
            claim: The claim to compare with.

        Returns:
            Whether the bound is larger than the epsilon of the claim.

        Raises:
            InputError: If the claim is not an `ApproximateDP`, has a larger delta than the bound, or another
                adjacency.

        """
        if not isinstance(claim, ApproximateDP):
            raise InputError(
                "claim must have an epsilon and a delta, as in ApproximateDP(2.0, delta=1e-5), "
                f"got {shown(claim)}"
            )
        claim.require_comparable(self.delta, self.adjacency)
        return self.epsilon > claim.epsilon

    def result(self, claim: ApproximateDP | None = None, *, name: str = "audit") -> "Result":
        """The bound with a claim, to be saved and reported: `bound.result(claim).report("report.html")`.

        Args:
            claim: What was promised, at the delta of the bound.
            name: What was audited.

        Returns:
            The result; the command line makes the same one from the same bound.

        """
        from canaria.results.result import Result

        return Result.of_bound(self, claim, name=name)

    def to_dict(self) -> dict[str, Any]:
        """The bound as plain data for JSON; infinite numbers become the string "inf"."""
        return {
            "epsilon": plain(self.epsilon),
            "estimate": plain(self.estimate),
            "correct": self.tally.correct,
            "taken": self.tally.taken,
            "elements": self.evidence.elements,
            "delta": self.delta,
            "confidence": self.confidence,
            "method": self.method,
            "adjacency": self.adjacency,
            "assumptions": list(self.assumptions),
            "rule": self.rule,
            "grid": self.grid,
            "about": self.about,
            "evidence": to_dict(self.evidence),
        }

    def to_frame(self) -> "pd.DataFrame":
        """The bound as a pandas data frame with one row (pandas is only imported here)."""
        import pandas as pd

        row = {key: value for key, value in self.to_dict().items() if key != "evidence"}
        return pd.DataFrame([{**row, "assumptions": "; ".join(self.assumptions)}])

    def __str__(self) -> str:
        """One sentence with the bound, its evidence and its assumptions."""
        claim = f"epsilon is at least {self.epsilon_text} at delta {self.delta:g}"
        if self.epsilon == 0:
            claim = f"no epsilon above 0 at delta {self.delta:g} is shown"
        return (
            f"With {percent(self.confidence)}% confidence {claim}: {self.tally.correct} of "
            f"{self.tally.taken} guesses right among {self.evidence.elements} elements "
            f"({self.method}; {self.adjacency} adjacency; {f'about {self.about}; ' if self.about else ''}"
            f"assuming {', and '.join(self.assumptions)})."
        )

    @property
    def epsilon_text(self) -> str:
        """Epsilon to three decimals, rounded down."""
        return rounded_down(self.epsilon)

    def _repr_html_(self) -> str:
        rows = (
            ("lower bound on epsilon", f"<b>{self.epsilon_text}</b>"),
            ("estimate (no guarantee)", f"{self.estimate:.3f}"),
            ("delta", f"{self.delta:g}"),
            ("confidence", f"{self.confidence:.10g}"),
            ("right guesses", f"{self.tally.correct} of {self.tally.taken}"),
            ("elements", f"{self.evidence.elements}"),
            ("method", html.escape(self.method)),
            ("adjacency", html.escape(self.adjacency)),
            *([("about", html.escape(self.about))] if self.about else []),
            ("assumes", "<br>".join(map(html.escape, self.assumptions))),
        )
        cells = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows)
        return f"<table>{cells}</table>"


def lower_bound(
    evidence: Evidence,
    delta: float = 0.0,
    confidence: float = 0.95,
    *,
    adjacency: str = "unspecified",
    rule: str | None = None,
    about: str | None = None,
) -> Bound:
    """The lower bound on epsilon that the evidence proves at the given delta and confidence.

    Valid because claims are nested: an (epsilon, delta)-DP mechanism is (epsilon', delta)-DP for every
    epsilon' above. Where the p-value is monotone, bisection finds the last refuted claim. Where it is not, a
    grid fixed in advance is walked upward and the last point of the initial run of refuted claims is
    reported; to over-claim, the first point at or above the truth would have to be refuted.

    Args:
        evidence: What the audit saw.
        delta: The delta at which epsilon is bounded.
        confidence: The confidence of the bound, strictly between 0 and 1.
        adjacency: "add-remove", "replace" or "unspecified".
        rule: The rule that made the guesses, as text.
        about: Which release is audited, if that needs saying.

    Returns:
        The bound, with its evidence.

    Raises:
        InputError: If delta or confidence is out of range, or the adjacency is unknown.

    Example:
        >>> from canaria import Counts
        >>> print(lower_bound(Counts(73, 100, 1000), delta=1e-5).epsilon_text)
        0.606

    """
    delta, level = checks.delta(delta), 1 - checks.confidence(confidence)
    epsilon = last_refuted(evidence, delta, level)
    return Bound(
        epsilon,
        delta,
        float(confidence),
        evidence,
        adjacency=checks.adjacency(adjacency),
        rule=rule,
        about=about,
    )


def plain(number: float) -> float | str:
    """A number for JSON; infinity becomes the string "inf"."""
    return number if math.isfinite(number) else str(number)
