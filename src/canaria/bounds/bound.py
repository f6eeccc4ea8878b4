"""From evidence to a lower bound on epsilon, with everything needed to check it."""

import math
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from canaria._core import binomial, checks, markup
from canaria._core.errors import InputError
from canaria._core.extras import needed_for
from canaria._core.kinds import plain, to_dict
from canaria._core.rounding import percent, rounded_down
from canaria.bounds.comparable import require_comparable
from canaria.bounds.diagnosis import diagnosis
from canaria.bounds.parts import Ladder
from canaria.bounds.result import Result
from canaria.claims import ApproximateDP, Claim, families, require_same_adjacency
from canaria.claims.families import Family, tested
from canaria.evidence.base import Evidence, Inversion, Tally
from canaria.evidence.inversion import GRID_IN_WORDS, expected_at, last_refuted, weakest_refuted

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Bound:
    """A lower bound on epsilon at a confidence, with everything needed to check it.

    If `epsilon` is positive, the p-value of `claim` is at most 1 - confidence, in floating point too. Without
    a family the claim is (epsilon, delta)-DP, and the bound is for every mechanism. With a family it is the
    weakest claim of the family that is refuted, and `epsilon` is what the accountant gives for it: a bound
    for mechanisms of the family alone.

    Attributes:
        epsilon: The last of the initial run of refuted claims; 0 means that no positive epsilon is shown.
        delta: The delta of the bound.
        confidence: The confidence of the bound.
        evidence: The evidence that proves the bound.
        adjacency: "add-remove", "replace" or "unspecified".
        rule: The rule that made the guesses, as text; None if it is not known.
        about: Which release is audited, if that is not plain from the context.
        family: The family of claims that was tested; None for epsilon at delta.

    Example:
        >>> from canaria import Counts, lower_bound
        >>> from canaria.claims import ApproximateDP
        >>> bound = lower_bound(Counts(90, 100, 1000), delta=1e-5)
        >>> print(bound)
        ε ≥ 1.630 at δ = 1e-05, with 95% confidence: 90 of 100 guesses right, 1000 elements
        >>> bound.refutes(ApproximateDP(1.0, delta=1e-5)), bound.refutes(ApproximateDP(2.0, delta=1e-5))
        (True, False)
    """

    epsilon: float
    delta: float
    confidence: float
    evidence: Evidence
    _: KW_ONLY
    adjacency: str = "unspecified"
    rule: str | None = None
    about: str | None = None
    family: Family | None = None

    @cached_property
    def claim(self) -> Claim | None:
        """The weakest refuted claim; None if none is."""
        if self.family is None:
            refuted = ApproximateDP(self.epsilon, self.delta, self.adjacency)
            return refuted if self.epsilon > 0 else None
        return weakest_refuted(self.evidence, self.family, 1 - self.confidence)

    @property
    def method(self) -> str:
        """The method of the evidence."""
        return self.evidence.method

    @property
    def assumptions(self) -> tuple[str, ...]:
        """The assumptions under which the bound holds."""
        return self.evidence.assumptions

    @cached_property
    def tally(self) -> Tally:
        """The number of right guesses and of guesses taken, at the point where the evidence is strongest."""
        return self.clearest.tally(self._shown_at)

    @cached_property
    def clearest(self) -> Evidence:
        """The part with the strongest evidence; evidence without parts is its own."""
        return self.evidence.clearest(self._shown_at)

    @property
    def _shown_at(self) -> Claim:
        """The claim at which guesses are counted: the last refuted one, or the first that was tested."""
        if self.family is None:
            return ApproximateDP(self.epsilon, delta=0)
        first = tested(self.family, self.evidence.elements)[0]
        return self.claim or self.family.claim(float(first))

    @property
    def estimate(self) -> float:
        """The epsilon at which the observed accuracy is the expected one; it has no confidence."""
        if self.family is None:
            return binomial.estimate(*self.tally)
        claim = expected_at(self.family, self.evidence.elements, self.tally)
        return math.inf if claim is None else claim.least_epsilon_at(self.delta)

    @property
    def condition(self) -> str:
        """The condition on the mechanism under which epsilon is bounded; empty if there is none."""
        of_family = "" if self.family is None else self.family.condition
        return " and ".join(filter(None, (self.evidence.assumed, of_family)))

    @property
    def grid(self) -> str | None:
        """The fixed grid of claims that was searched, in words; None if no grid is needed."""
        monotone = self.evidence.inversion is Inversion.BISECTION
        return None if monotone or self.family is not None else GRID_IN_WORDS

    def refutes(self, claim: Claim) -> bool:
        """Whether the claim is refuted: `bound.refutes(ApproximateDP(2.0, delta=1e-5))`.

        Args:
            claim: The claim to compare with. A bound against a family refutes `self.claim` and all stronger
                claims of that family; a bound without one refutes a claim if it lies above its epsilon, which
                for a curve is that at the delta of the bound.

        Raises:
            InputError: If it is not a claim, if it is not of the family of the bound, has a larger delta than
                the bound, no finite epsilon at its delta, or another adjacency.
        """
        require_comparable(self, claim)
        if self.family is not None:
            # Only the run that the bound reports: a weaker claim may have a small p-value of its own, but
            # then the verdict would contradict the epsilon that is printed beside it.
            last = self.claim
            return last is not None and self.family.parameter(claim) <= self.family.parameter(last)
        promised = claim.epsilon if isinstance(claim, ApproximateDP) else claim.epsilon_at(self.delta)
        return self.epsilon > promised

    def result(self, claim: Claim | None = None, *, name: str = "audit") -> Result:
        """The bound with a claim, to be saved and reported: `bound.result(claim).report("report.html")`.

        If the claim is not refuted, the result has the ladder from the claim down to the bound.

        Example:
            >>> from canaria import Counts, lower_bound
            >>> from canaria.claims import ApproximateDP
            >>> lower_bound(Counts(73, 100, 1000), 1e-5).result(ApproximateDP(1.0, delta=1e-5)).answer
            'not refuted'
        """
        made = Result(self, claim, name=name)
        if made.claimed is None:
            return made
        return replace(made, ladder=Ladder.of_scores(made.claimed, self.estimate, self.epsilon))

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
            "family": None if self.family is None else to_dict(self.family),
            "last_refuted": None if self.family is None or self.claim is None else to_dict(self.claim),
            "evidence": to_dict(self.evidence),
        }

    def to_frame(self) -> "pd.DataFrame":
        """The bound as a pandas data frame with one row (pandas is only imported here)."""
        with needed_for("a data frame", "frames"):
            import pandas as pd

        row = {key: value for key, value in self.to_dict().items() if key != "evidence"}
        family = None if self.family is None else families.written(self.family)
        last = None if self.family is None or self.claim is None else str(self.claim)
        named = {"family": family, "last_refuted": last, "assumptions": "; ".join(self.assumptions)}
        return pd.DataFrame([{**row, **named}])

    def __str__(self) -> str:
        """The bound in one line, and if it is low, why in another; `explanation` says what it assumes."""
        right, taken = self.tally
        line = f"{self.short}: {right} of {taken} guesses right, {self.evidence.elements} elements"
        return f"{line}\n{self.diagnosis}" if self.diagnosis else line

    def __repr__(self) -> str:
        return f"<Bound: {self.short}>"

    @property
    def short(self) -> str:
        """Epsilon, delta, the condition on the mechanism, and the confidence."""
        if self.evidence.withdrawn:
            return self.sentence.removesuffix(".")
        given = f", if {self.condition}" if self.condition else ""
        about = f" for {self.about}" if self.about else ""
        sure = f"with {percent(self.confidence)}% confidence"
        return f"ε ≥ {self.epsilon_text} at δ = {self.delta:g}{about}{given}, {sure}"

    @cached_property
    def diagnosis(self) -> str:
        """Why the bound is 0, or far below what the same guesses estimate; empty if it is neither."""
        return diagnosis(self)

    @property
    def explanation(self) -> str:
        """The bound in a sentence, with the guesses, the method and the assumptions."""
        right, taken = self.tally
        return (
            f"{self.sentence} Seen: {right} of {taken} guesses right among {self.evidence.elements} elements "
            f"({self.method}; {self.adjacency} adjacency; {f'about {self.about}; ' if self.about else ''}"
            f"assuming {', and '.join(self.assumptions)})."
        )

    @property
    def sentence(self) -> str:
        """The result of the audit in a sentence; against a family it never reads as a bound for all."""
        sure, family = f"{percent(self.confidence)}%", self.family
        if family is None or not self.condition:
            shown = f"ε is at least {self.epsilon_text}" if self.epsilon > 0 else "no ε above 0 is shown"
            return f"With {sure} confidence {shown} at δ = {self.delta:g}."
        if self.evidence.withdrawn:
            return f"Nothing is said about the family of {family}: {self.evidence.withdrawn}."
        if self.claim is None:
            return f"No claim of the family of {family} is refuted at {sure} confidence."
        assumed = f", if {self.evidence.assumed}" if self.evidence.assumed else ""
        refuted = (
            f"Refuted, at {sure} confidence{assumed}: that this mechanism is as private as {self.claim}."
        )
        if not family.condition:
            return f"{refuted} Then {family.consequence(self.claim)}."
        return (
            f"{refuted} If {family.condition}, {family.consequence(self.claim)}, where the accountant gives "
            f"ε = {self.epsilon_text} at δ = {self.delta:g}."
        )

    @property
    def epsilon_text(self) -> str:
        """Epsilon to three decimals, rounded down."""
        return rounded_down(self.epsilon)

    def _repr_html_(self) -> str:
        what, named = "lower bound on ε", []
        if self.condition:
            what, named = "ε of the weakest refuted claim", [("refuted", self.sentence)]
        rows = [
            (what, self.epsilon_text),
            *named,
            ("why no more", self.diagnosis),
            ("estimate (no guarantee)", rounded_down(self.estimate)),
            ("δ", f"{self.delta:g}"),
            ("confidence", f"{percent(self.confidence)}%"),
            ("right guesses", f"{self.tally.correct} of {self.tally.taken}"),
            ("elements", f"{self.evidence.elements}"),
            ("method", self.method),
            ("adjacency", self.adjacency),
            ("about", self.about or ""),
            ("assumes", "; ".join(self.assumptions)),
        ]
        return markup.described((name, value) for name, value in rows if value)


def lower_bound(
    evidence: Evidence,
    delta: float = 0.0,
    confidence: float = 0.95,
    *,
    adjacency: str = "unspecified",
    rule: str | None = None,
    about: str | None = None,
    family: Family | None = None,
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
        family: The family of claims to test, instead of epsilon at this delta; by default the one that the
            evidence was made for, if any.

    Raises:
        InputError: If delta or confidence is out of range, the adjacency is unknown, or claims of the family
            have no epsilon at this delta.

    Example:
        >>> from canaria import Counts
        >>> print(lower_bound(Counts(73, 100, 1000), delta=1e-5).epsilon_text)
        0.606
    """
    delta, level = checks.delta(delta), 1 - checks.confidence(confidence)
    against = family or evidence.family
    if against is not None:
        against.require_delta(delta)
        # A claim of the family has an adjacency of its own if its curve is for one, as that of DP-SGD.
        first = float(tested(against, evidence.elements)[0])
        of_family = against.claim(first).adjacency
        if of_family != "unspecified":  # a profile, such as that of Gaussian noise, is for any neighbours
            require_same_adjacency(checks.adjacency(adjacency), of_family)
    bound = Bound(
        last_refuted(evidence, delta, level) if against is None else 0.0,
        delta,
        float(confidence),
        evidence,
        adjacency=checks.adjacency(adjacency),
        rule=rule,
        about=about,
        family=against,
    )
    if against is None or bound.claim is None:
        return bound
    epsilon = bound.claim.least_epsilon_at(delta)
    if math.isinf(epsilon):
        raise InputError(
            f"delta must be larger, such as 1e-5: claims of the family of {against} have no finite epsilon "
            f"at delta = {delta:g}"
        )
    return with_epsilon(bound, epsilon)


def bound_again(bound: Bound, delta: float, confidence: float) -> Bound:
    """The bound from the same evidence at another delta and confidence."""
    names = ("adjacency", "rule", "about", "family")
    return lower_bound(bound.evidence, delta, confidence, **{name: getattr(bound, name) for name in names})


def with_epsilon(bound: Bound, epsilon: float) -> Bound:
    """The same bound with this epsilon; its claim is not searched for again."""
    changed = replace(bound, epsilon=epsilon)
    if bound.family is not None:
        # Where cached_property keeps its value.
        changed.__dict__["claim"] = bound.claim
    return changed


def delta_of(claim: Claim | None, delta: float | None) -> float:
    """The delta of a bound: that of the claim; another one beside it is an error."""
    if not isinstance(claim, ApproximateDP):
        return 0.0 if delta is None else delta
    if delta is not None and delta != claim.delta:
        raise InputError(f"delta must be that of the claim, {claim.delta:g}, or left out, got {delta}")
    return claim.delta
