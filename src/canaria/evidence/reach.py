"""How far an audit can reach: a test that could not fail, whatever it saw, proves nothing by passing.

An audit is as good as its kind, its number of guesses and of elements, and the level at which it is held. All
that is known before any bit is revealed, and so is the epsilon that perfect guesses would prove. Where a
claim is no lower, the audit cannot refute it. In particular nothing is ever refuted at a level of delta or
below: an (epsilon, delta)-DP mechanism may lay everything open with probability delta.
"""

import warnings
from collections.abc import Iterator
from typing import Final

from canaria._core.errors import NothingRefutableWarning
from canaria.evidence.base import Evidence
from canaria.evidence.bound import lower_bound
from canaria.evidence.inversion import EPSILON_GRID

_MOST_GUESSES: Final = 100_000
_LARGEST_LEVEL: Final = 0.5


def reach(evidence: Evidence, delta: float, confidence: float, guesses: int | None = None) -> float | None:
    """The epsilon that perfect guesses would prove, or so many of them: no audit of this size shows more.

    None where the size of the audit is not known: no guess was made, or the kind does not say.

    >>> from canaria import Counts
    >>> round(reach(Counts(0, 10, 10), 0.0, 0.95), 3)
    1.052
    """
    asked = evidence.most_guesses if guesses is None else guesses
    best = evidence.best_of_size(asked) if asked else None
    if best is None:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NothingRefutableWarning)
        return lower_bound(best, delta, confidence).epsilon


def remedy(evidence: Evidence, claimed: float, delta: float, confidence: float) -> str:
    """What perfect guesses would need to refute the claim, in words; others need more."""
    level = 1 - confidence
    if level <= delta:
        return f"nothing is ever refuted at a false-alarm probability of delta or less, here {level:.3g}"
    if claimed >= EPSILON_GRID[-1]:
        return "no bound goes so far"
    unit = "elements" if evidence.most_guesses == evidence.elements else "guesses"
    for guesses in _other_sizes(evidence.most_guesses):
        if (reach(evidence, delta, confidence, guesses) or 0.0) > claimed:
            return f"{guesses} {unit} would do for perfect guesses"
    while (level := 2 * level) <= _LARGEST_LEVEL:
        if (reach(evidence, delta, 1 - level) or 0.0) > claimed:
            return f"a false-alarm probability of {level:.2g} would do for perfect guesses"
    return "no audit of this kind would do"


def _other_sizes(guesses: int) -> Iterator[int]:
    """Twice as many guesses, and again; then half as many, as delta is charged for every element."""
    factor = 2.0
    while factor * guesses <= _MOST_GUESSES:
        yield round(guesses * factor)
        factor *= 2
    factor = 0.5
    while factor * guesses >= 1:
        yield max(1, round(guesses * factor))
        factor /= 2
