"""From evidence to a lower bound on epsilon: one inverter for every kind."""

import html
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import optimize

from canaria import _validate
from canaria._numbers import percent, rounded_down
from canaria._validate import Floats, InputError, shown
from canaria.claims import ApproximateDP
from canaria.evidence import (
    Capped,
    Decided,
    Evidence,
    Perfectible,
    Screened,
    Split,
    Tally,
    _binomial,
    to_dict,
)

if TYPE_CHECKING:
    import pandas as pd

EPSILON_GRID: Final[Floats] = np.concatenate(
    [np.arange(2001) / 100, 20 + np.arange(1, 301) / 10, 50 + np.arange(1.0, 651.0)]
)
"""The fixed grid of claims: steps of 0.01 from 0 to 20, of 0.1 to 50, of 1 to 700."""
EPSILON_GRID.flags.writeable = False

GRID_IN_WORDS: Final = "0 to 20 in steps of 0.01, to 50 in 0.1, to 700 in 1"
_LARGEST_EPSILON: Final = 750.0
_BUDGET_SHARE: Final = 0.9
_TINY: Final = 1e-300
_ROUNDING: Final = 1e-8
_BELOW_ONE: Final = 1 - 2.0**-48
"""So that a part's p-value, divided by its share, is at most the level in floating point too."""


@dataclass(frozen=True)
class Bound:
    """A lower bound on epsilon at a confidence, with everything needed to check it.

    `epsilon` is the last of the initial run of refuted claims. If it is positive,
    `evidence.p_value(epsilon, delta) <= 1 - confidence`, in floating point too. `about` says which release
    is audited, where that is not plain from the context.
    """

    epsilon: float
    delta: float
    confidence: float
    evidence: Evidence
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
        """Right guesses and guesses taken (where the evidence speaks most clearly)."""
        return self.evidence.tally(self.epsilon)

    @property
    def estimate(self) -> float:
        """The epsilon at which the accuracy seen is the expected one; no confidence."""
        return _binomial.estimate(*self.tally)

    @property
    def grid(self) -> str | None:
        """The fixed grid of claims that was walked, in words; None where none is needed."""
        return None if self.evidence.inversion == "bisection" else GRID_IN_WORDS

    def refutes(self, claim: ApproximateDP) -> bool:
        """Whether the bound lies above the claim: `bound.refutes(ApproximateDP(2.0, delta=1e-5))`.

        A claim at a larger delta than the bound's, or of another adjacency, is an InputError.
        """
        if not isinstance(claim, ApproximateDP):
            raise InputError(
                "claim must have an epsilon and a delta, as in ApproximateDP(2.0, delta=1e-5), "
                f"got {shown(claim)}"
            )
        claim.require_comparable(self.delta, self.adjacency)
        return self.epsilon > claim.epsilon

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain data for JSON (infinite numbers as the string "inf")."""
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
        """One row of a pandas data frame (pandas is imported here only)."""
        import pandas as pd

        row = {key: value for key, value in self.to_dict().items() if key != "evidence"}
        return pd.DataFrame([{**row, "assumptions": "; ".join(self.assumptions)}])

    def __str__(self) -> str:
        """One honest sentence."""
        claim = f"epsilon is at least {self.epsilon_text} at delta {self.delta:g}"
        if self.epsilon == 0:
            claim = f"no epsilon above 0 at delta {self.delta:g} is shown"
        return (
            f"With {percent(self.confidence)} % confidence {claim}: {self.tally.correct} of "
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
            ("estimate (no confidence)", f"{self.estimate:.3f}"),
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
    epsilon' above. Where the p-value is monotone, bisection finds the last refuted claim. Where it is
    not, a grid fixed in advance is walked upward and the last point of the initial run of refuted
    claims is reported; to over-claim, the first point at or above the truth would have to be refuted.

    >>> from canaria import Counts
    >>> print(lower_bound(Counts(73, 100, 1000), delta=1e-5).epsilon_text)
    0.606
    """
    delta, level = _validate.delta(delta), 1 - _validate.confidence(confidence)
    epsilon = _last_refuted(evidence, delta, level)
    return Bound(epsilon, delta, float(confidence), evidence, _validate.adjacency(adjacency), rule, about)


def _last_refuted(evidence: Evidence, delta: float, level: float, beat: float = -1.0) -> float:
    """The bound; a part of a split that cannot beat an earlier part may answer less."""
    if isinstance(evidence, Split):
        best = beat
        for part, share in zip(evidence.parts, evidence.shares, strict=True):
            best = max(best, _last_refuted(part, delta, level * share * _BELOW_ONE, best))
        return best
    if evidence.inversion == "bisection":
        beaten = beat >= 0 and not _refutes(evidence, beat, delta, level)
        return 0.0 if beaten else _bisect(evidence, delta, level)
    return _walk(evidence, delta, level, beat)


def first_claim_refuted(evidence: Evidence, truth: float, delta: float, level: float) -> bool:
    """Whether the first claim at or above `truth` that `lower_bound` would ever try is refuted.

    If it is not, the bound is at most `truth`. Costs one p-value where a bound costs many.
    """
    if isinstance(evidence, Split):
        parts = zip(evidence.parts, evidence.shares, strict=True)
        return any(first_claim_refuted(part, truth, delta, level * share) for part, share in parts)
    if evidence.inversion == "bisection":
        return _refutes(evidence, truth, delta, level)
    start = _first_claim(evidence, delta, level) if evidence.inversion == "late grid" else 0
    claims = EPSILON_GRID[start:]
    tried = claims[claims >= truth][:1]
    if len(tried) == 0:
        return False
    settled = int(evidence.screen(tried, delta, level)[0]) if isinstance(evidence, Screened) else 0
    return settled > 0 or (settled == 0 and _refutes(evidence, float(tried[0]), delta, level))


def _refutes(evidence: Evidence, claim: float, delta: float, level: float) -> bool:
    if isinstance(evidence, Decided):
        return evidence.refuted(claim, delta, level)
    return evidence.p_value(claim, delta) <= level


def _bisect(evidence: Evidence, delta: float, level: float) -> float:
    """The largest refuted claim of a monotone p-value, rounded down."""
    high = evidence.ceiling(level) if isinstance(evidence, Capped) else _LARGEST_EPSILON
    if isinstance(evidence, Decided):
        return _bisect_verdicts(lambda claim: evidence.refuted(claim, delta, level), high)
    if evidence.p_value(0.0, delta) > level:
        return 0.0
    for claim in (high, max(0.0, high - _ROUNDING * max(1.0, high))):
        if evidence.p_value(claim, delta) <= level:
            return claim

    def excess(claim: float) -> float:
        return math.log(max(evidence.p_value(claim, delta), _TINY) / level)

    claim, step = float(optimize.brentq(excess, 0.0, high, xtol=1e-13, rtol=1e-13)), 1e-13
    while evidence.p_value(claim, delta) > level:
        claim, step = max(0.0, claim - step), 2 * step
    return claim


def _bisect_verdicts(refuted: Callable[[float], bool], high: float) -> float:
    low = 0.0
    if not refuted(low):
        return low
    while high - low > _ROUNDING:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def _walk(evidence: Evidence, delta: float, level: float, beat: float) -> float:
    """The last point of the initial run of refuted claims on the fixed grid.

    A run that reaches above `beat` holds the first claim above it, which is therefore tried first.
    """
    start = _first_claim(evidence, delta, level) if evidence.inversion == "late grid" else 0
    claims = EPSILON_GRID[start:]
    beyond = int(np.searchsorted(claims, beat, side="right"))
    if 0 < beyond < len(claims) and not _refutes(evidence, float(claims[beyond]), delta, level):
        return 0.0
    settled = (
        evidence.screen(claims, delta, level)
        if isinstance(evidence, Screened)
        else np.zeros(len(claims), dtype=np.int8)
    )
    run, walked = int(np.argmax(np.append(settled, 0) != 1)), False
    while run < len(claims) and settled[run] >= 0:
        if settled[run] == 0 and not _refutes(evidence, float(claims[run]), delta, level):
            break
        run, walked = run + 1, settled[run] == 0
    while run > 0 and not walked and not _refutes(evidence, float(claims[run - 1]), delta, level):
        run -= 1
    return float(claims[run - 1]) if run > 0 else 0.0


def _first_claim(evidence: Evidence, delta: float, level: float) -> int:
    """The first grid point where the plain delta rule leaves room to reject, known in advance."""
    if delta == 0:
        return 0
    budget = _binomial.flip_budget(evidence.elements, EPSILON_GRID, delta)
    start = int(np.searchsorted(-budget, -_BUDGET_SHARE * level))
    if start > 0 and isinstance(evidence, Perfectible):
        first = float(EPSILON_GRID[min(start, len(EPSILON_GRID) - 1)])
        if evidence.perfect().p_value(first, delta) > level:
            most = math.floor(2 * _BUDGET_SHARE * level / delta)
            warnings.warn(
                f"no claim can be refuted with elements={evidence.elements} at delta={delta:g} and "
                f"confidence={1 - level:.10g}, even by perfect guesses; at most {most} elements would do",
                stacklevel=4,
            )
    return start


def plain(number: float) -> float | str:
    """A number as JSON has it: infinity as the string "inf"."""
    return number if math.isfinite(number) else str(number)
