"""The largest bound that an audit of a given size could show.

The kind of the evidence, the numbers of guesses and of elements and the level of the test are known before
any bit is revealed. They decide the epsilon that perfect guesses would prove. An audit cannot refute a claim
that is at least this epsilon, so a test of such a claim proves nothing by passing. In particular nothing can
be refuted at a level of delta or below, because an (epsilon, delta)-DP mechanism may reveal everything with
probability delta.
"""

from collections.abc import Iterator
from typing import Final

from canaria.bounds.bound import Bound, lower_bound
from canaria.claims.families import Family
from canaria.evidence.base import Evidence
from canaria.evidence.inversion import EPSILON_GRID

_MOST_GUESSES: Final = 100_000
_LARGEST_LEVEL: Final = 0.5


def reach(
    evidence: Evidence,
    delta: float,
    confidence: float,
    guesses: int | None = None,
    *,
    family: Family | None = None,
) -> float | None:
    """The epsilon that perfect guesses would prove; no audit of this size can show more.

    None if the size of the audit is not known: no guess was made, or the kind does not say.

    The evidence is of the kind and size in question; other `guesses` replace its number of guesses.

    Example:
        >>> from canaria import Counts
        >>> round(reach(Counts(0, 10, 10), 0.0, 0.95), 3)
        1.052
    """
    asked = evidence.most_guesses if guesses is None else guesses
    best = evidence.best_of_size(asked) if asked else None
    if best is None:
        return None
    return lower_bound(best, delta, confidence, family=family).epsilon


def remedy(bound: Bound, claimed: float) -> str:
    """The size or level at which perfect guesses would refute the claim, in words."""
    evidence, delta, family, level = bound.evidence, bound.delta, bound.family, 1 - bound.confidence
    if level <= delta and family is None:
        return f"nothing is ever refuted at a false-alarm probability of delta or less, here {level:.3g}"
    if claimed >= EPSILON_GRID[-1]:
        return f"bounds end at {EPSILON_GRID[-1]:g}"
    unit = "elements" if evidence.most_guesses == evidence.elements else "guesses"
    for guesses in _other_sizes(evidence.most_guesses):
        if (reach(evidence, delta, bound.confidence, guesses, family=family) or 0.0) > claimed:
            return f"{guesses} {unit} would be enough for perfect guesses"
    while (level := 2 * level) <= _LARGEST_LEVEL:
        if (reach(evidence, delta, 1 - level, family=family) or 0.0) > claimed:
            return f"a false-alarm probability of {level:.2g} would be enough for perfect guesses"
    return "no audit of this kind is enough"


def _other_sizes(guesses: int) -> Iterator[int]:
    """Twice as many guesses, and again."""
    while (guesses := 2 * guesses) <= _MOST_GUESSES:
        yield guesses
