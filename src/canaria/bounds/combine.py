"""Several audits of one model: bounds that hold simultaneously, by splitting the error probability."""

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from canaria._core import checks, markup
from canaria._core.errors import InputError, shown
from canaria._core.rounding import percent
from canaria.bounds.bound import Bound, bound_again, lower_bound
from canaria.claims import Claim
from canaria.claims.adjacency import common_adjacency
from canaria.evidence.base import Evidence
from canaria.evidence.split import MOST_SHARES, Split

if TYPE_CHECKING:
    from canaria.bounds.result import Result

_AUDIT_LEVEL: Final = 1 - 2.0**-50
"""The level of an audit over its share of beta: then levels add up to at most beta in floating point."""


@dataclass(frozen=True)
class Combined:
    """The bounds of several audits, which all hold simultaneously, and the largest of them.

    The joint bound is saved like any other, with the names of all audits: `result(claim).save(path)`.

    Attributes:
        bounds: The bound of each audit by name, each at its share of the error probability.
        bound: The largest of these bounds; it holds with the confidence of the whole.

    Example:
        >>> from canaria import Counts, combine
        >>> both = combine({"histogram": Counts(90, 100, 100), "mean": Counts(60, 100, 100)})
        >>> {name: bound.epsilon_text for name, bound in both.bounds.items()}
        {'histogram': '1.542', 'mean': '0.000'}
        >>> both.best, both.bound.confidence
        ('histogram', 0.95)
    """

    bounds: dict[str, Bound]
    bound: Bound

    @property
    def best(self) -> str:
        """The name of the audit with the largest bound; the first one if several are equal."""
        return max(self.bounds, key=lambda name: self.bounds[name].epsilon)

    def refutes(self, claim: Claim) -> bool:
        """Whether the joint bound lies above the claim; see `Bound.refutes`."""
        return self.bound.refutes(claim)

    def result(self, claim: Claim | None = None, *, name: str = "several audits") -> "Result":
        """The joint bound with a claim, to be saved and reported; it names every audit."""
        made = self.bound.result(claim, name=name)
        lines = (
            f"{name}: ε ≥ {epsilon} with {sure} confidence, {right} guesses right, {elements} elements "
            f"({method})"
            for name, epsilon, sure, right, elements, method in self._rows()
        )
        listed = {f"audit {place}": line for place, line in enumerate(lines, start=1)}
        return replace(made, facts={**listed, **made.facts})

    def _rows(self) -> list[tuple[str, str, str, str, str, str]]:
        """Each audit with its bound, confidence, right guesses, elements and method."""
        return [
            (
                name,
                bound.epsilon_text,
                f"{percent(bound.confidence)}%",
                f"{bound.tally.correct} of {bound.tally.taken}",
                str(bound.evidence.elements),
                bound.method,
            )
            for name, bound in self.bounds.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """The joint bound as plain data for JSON, with every audit under its name."""
        audits = {name: bound.to_dict() for name, bound in self.bounds.items()}
        return {**self.bound.to_dict(), "audits": audits}

    def __str__(self) -> str:
        """The joint bound in one line, and a line for each audit."""
        joint, width = self.bound, max(map(len, self.bounds))
        shows = f"as {self.best} shows" if joint.epsilon > 0 else "none shows more"
        lines = [
            f"  {name:<{width}}  ε ≥ {epsilon} with {sure} confidence: {right} guesses right, {elements} "
            f"elements ({method})"
            for name, epsilon, sure, right, elements, method in self._rows()
        ]
        if len(self.bounds) == 1:
            return "\n".join([f"{joint.short}, {shows}", *lines])
        return "\n".join([f"{joint.short}, {shows}; all {len(self.bounds)} bounds hold at once:", *lines])

    def _repr_html_(self) -> str:
        head = ("audit", "ε ≥", "confidence", "guesses right", "elements", "method")
        return markup.paragraph(f"{self.bound.short}.") + markup.tabulated(head, self._rows())

    @property
    def explanation(self) -> str:
        """The joint bound in a sentence, with what is assumed."""
        alone = self.bound.explanation.removesuffix(").")
        return f"{alone}, and every audit that was made is listed)."


def combine(
    audits: Mapping[str, Any],
    delta: float | None = None,
    confidence: float = 0.95,
    *,
    shares: Mapping[str, float] | None = None,
) -> Combined:
    """Combine several audits of one model or mechanism into bounds that hold simultaneously.

    Proved (Theorem 19, a union bound): audit i errs with probability at most beta share_i, so with
    probability at least 1 - beta no audit errs, however they depend on each other: same run or not, same
    canaries or not. Every audit that was made must be listed, also one that shows nothing. Leaving some out
    after looking, or choosing shares then, breaks it.

    Args:
        audits: The audits by name. An audit is a `Bound` or a `Result`, evidence, or an object with
            `bound(delta, confidence)`, such as a `Transcript` or an attached training audit. The bound is
            always computed again from the evidence.
        delta: The delta of all bounds. By default the delta of the given bounds, or 0 if there are none.
        confidence: The probability with which all bounds hold simultaneously.
        shares: The share of the error probability that each audit gets, by name; equal by default. Other
            shares must be fixed before looking, and add up to at most 1.

    Raises:
        InputError: If the bounds have different deltas and none is given, or if the adjacencies differ.

    Example:
        >>> from canaria import Counts, combine
        >>> from canaria.claims import ApproximateDP
        >>> seen = combine({"white box": Counts(90, 100, 1000), "black box": Counts(60, 100, 1000)})
        >>> seen.best, seen.bound.epsilon_text, seen.refutes(ApproximateDP(1.0, delta=0))
        ('white box', '1.542', True)
    """
    if not isinstance(audits, Mapping) or not audits or not all(isinstance(name, str) for name in audits):
        raise InputError(f"audits must be a dict from names to audits, got {shown(audits)}")
    # A part's level is a little below its share, so that the levels add up to at most beta as computed.
    at = _common_delta(audits) if delta is None else checks.delta(delta)
    parts = _shares(list(audits), shares)
    beta = 1 - checks.confidence(confidence)
    bounds = {
        name: bound_of(audit, at, confidence_at(beta * parts[name] / MOST_SHARES * _AUDIT_LEVEL))
        for name, audit in audits.items()
    }
    return Combined(bounds, _joint(bounds, parts, at, confidence))


def bound_of(audit: object, delta: float, confidence: float, **how: object) -> Bound:
    """The bound that a finished audit proves at this delta and confidence.

    Bounds that were computed before at another delta or confidence do not matter: the evidence is used again.
    `how` holds further arguments for the `bound` method of the audit, such as those of training audits.
    """
    if (made := made_bound(audit)) is not None:
        return bound_again(made, delta, confidence)
    ask = getattr(audit, "bound", None)
    if callable(ask):
        try:
            inspect.signature(ask).bind(delta=delta, confidence=confidence, **how)
        except TypeError:
            raise InputError(
                f"audit cannot be asked for bound({', '.join(['delta', 'confidence', *how])}), got "
                f"{shown(audit)}; pass the bound that it gives, or the recording of a JAX audit"
            ) from None
        found = ask(delta=delta, confidence=confidence, **how)
        if isinstance(found, Bound):
            asked = (found.delta, found.confidence) == (delta, confidence)
            return found if asked else bound_of(found, delta, confidence)
    elif isinstance(audit, Evidence):
        return lower_bound(audit, delta, confidence)
    raise InputError(f"audit must be a bound, evidence, or have bound(delta, confidence), got {shown(audit)}")


def made_bound(audit: object) -> Bound | None:
    """The bound, or the bound of a result; None for audits that have not computed one yet."""
    found = audit if isinstance(audit, Bound) else getattr(audit, "bound", None)
    return found if isinstance(found, Bound) else None


def confidence_at(level: float) -> float:
    """The confidence that errs with probability at most `level`: 1 - level, rounded up if it is not exact."""
    # The level that a bound is made at is 1 - confidence, in floating point, which must not exceed `level`.
    confidence = 1 - level
    while 1 - confidence > level:
        confidence = math.nextafter(confidence, 2)
    if confidence >= 1:
        raise InputError(f"an error probability of {level:g} is too small to be told from 0")
    return confidence


def _common_delta(audits: Mapping[str, Any]) -> float:
    made = [made_bound(audit) for audit in audits.values()]
    deltas = {bound.delta for bound in made if bound is not None} or {0.0}
    if len(deltas) > 1:
        raise InputError(f"delta must be given for bounds at different deltas, got {shown(sorted(deltas))}")
    return float(deltas.pop())


def _shares(names: list[str], shares: Mapping[str, float] | None) -> dict[str, float]:
    if shares is not None:
        if not isinstance(shares, Mapping) or set(shares) != set(names):
            raise InputError(f"shares must be a dict with the names of the audits, got {shown(shares)}")
        chosen = {name: checks.real("shares", shares[name]) for name in names}
        if min(chosen.values()) <= 0 or math.fsum(chosen.values()) > MOST_SHARES:
            raise InputError(f"shares must be positive and add up to at most 1, got {shown(chosen)}")
        return chosen
    return dict.fromkeys(names, 1 / len(names))


def _joint(bounds: dict[str, Bound], shares: dict[str, float], delta: float, confidence: float) -> Bound:
    adjacency = common_adjacency("audits", (bound.adjacency for bound in bounds.values()))
    if len(families := {bound.family for bound in bounds.values()}) > 1:
        raise InputError("audits must all be for any claim, or all for one family of claims")
    abouts = dict.fromkeys(bound.about for bound in bounds.values() if bound.about)
    return lower_bound(
        Split(tuple(bound.evidence for bound in bounds.values()), tuple(shares.values())),
        delta,
        confidence,
        adjacency=adjacency,
        about=" and ".join(abouts) or None,
        family=families.pop(),
    )
