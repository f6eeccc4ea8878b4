"""Why a bound is 0, or far below what the same guesses estimate, in one line."""

import math
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import special

from canaria._core import effort
from canaria._core.rounding import percent, rounded_down
from canaria.claims.base import PERFECT_PRIVACY
from canaria.evidence.base import Evidence, Progress, Tally, count_alone
from canaria.evidence.inversion import last_refuted

if TYPE_CHECKING:
    from canaria.bounds.bound import Bound

_LOW: Final = 0.5
"""A bound below this share of what it could be is far below it."""
_CHANCE: Final = 0.1
"""Guesses with a larger p-value against coin tossing show no signal."""
_SURELY: Final = 3e-7
"""The level, that of five standard errors, at which guesses are wrong more often than right."""
_LOOKS_COST: Final = 4.0
"""Evidence with many looks tests each of them at about the level divided by this."""
_LARGEST: Final = 10_000_000
"""Audits of more elements are not proposed."""
_PATIENCE: Final = 1.0
"""Seconds of an ordinary core for the search for a sufficient number of elements."""


def diagnosis(bound: "Bound") -> str:
    """The first cause that keeps the bound low, in one sentence; empty if it is near the estimate."""
    if bound.evidence.withdrawn or 0 < bound.epsilon >= _LOW * bound.estimate:
        return ""
    # In this order, as later ones may hold too where an earlier one does: without guesses there is no signal.
    causes = (
        _no_guess,
        _too_much_delta,
        _all_right,
        _wrong_sign,
        _no_signal,
        _poor_weights,
        _too_few_elements,
    )
    return next(filter(None, (cause(bound) for cause in causes)), "")


def _no_guess(bound: "Bound") -> str:
    none = "no guess was made: the scores are all equal, or the rule guesses nothing"
    return none if bound.tally.taken == 0 else ""


def _all_right(bound: "Bound") -> str:
    right, taken = bound.tally
    alike = " of one sign" if bound.clearest.one_sided else ""
    only = f"all of the {taken} surest guesses{alike} are right: only more of them can show more"
    return only if right == taken else ""


def _wrong_sign(bound: "Bound") -> str:
    wrong = None if bound.epsilon else _mostly_wrong(bound.clearest.progress(PERFECT_PRIVACY))
    if wrong is None:
        return ""
    return (
        f"guesses are wrong more often than by chance, {wrong.taken - wrong.correct} of the surest "
        f"{wrong.taken}: a higher score must mean 'more likely included'; if scores are losses, that must be "
        "said (higher means excluded)"
    )


def _no_signal(bound: "Bound") -> str:
    if bound.epsilon or bound.clearest.weighs or (p_value := _against_coins(bound)) <= _CHANCE:
        return ""
    return (
        f"no signal: tossed coins would do as well with probability {p_value:.2g}; either the scores tell "
        "nothing, or more elements are needed to see it"
    )


def _poor_weights(bound: "Bound") -> str:
    """Whether guesses that were weighed by their losses, or bet on, are not as good as these say."""
    if not bound.clearest.weighs:
        return ""
    right, taken = bound.tally
    return (
        f"the losses overstate how sure the guesses are, or there are too few: {right} of {taken} are right"
    )


def _mostly_wrong(progress: Progress) -> Tally | None:
    """The number of guesses at which it is clearest that more are wrong than by chance; None if it is not."""
    # At many numbers of guesses: the smallest tail times their number is a p-value (Bonferroni).
    tails = special.bdtr(progress.correct, progress.taken, 0.5)
    worst = int(np.argmin(tails))
    if tails[worst] * len(tails) >= _SURELY:
        return None
    return Tally(int(progress.correct[worst]), int(progress.taken[worst]))


def _against_coins(bound: "Bound") -> float:
    """The p-value against guesses that are right by chance alone."""
    if bound.family is None:
        return bound.evidence.p_value(PERFECT_PRIVACY)
    right, taken = bound.tally
    return float(special.bdtrc(right - 1, taken, 0.5)) if right else 1.0


def _too_much_delta(bound: "Bound") -> str:
    """Whether most is lost to the failures that delta permits."""
    if bound.delta == 0 or bound.family is not None:
        return ""
    (right, taken), allowed = bound.tally, (1 + bound.delta) / 2
    if taken < 2 * right <= 2 * allowed * taken:
        return f"δ = {bound.delta:g} alone lets {100 * allowed:.4g}% of guesses be right, and no more were"
    without = _bound_within_reason(bound.evidence, 0.0, bound.confidence)
    if without == 0 or bound.epsilon >= _LOW * without:
        return ""
    given_away, elements = bound.delta * bound.evidence.elements, bound.evidence.elements
    large = f" for {elements} elements at {percent(bound.confidence)}% confidence"
    if given_away >= 1:
        large = f": of {elements} elements it lets {given_away:,.0f} be given away"
    shown = f"at δ = 0 the same guesses show {rounded_down(without)}"
    return f"δ = {bound.delta:g} is large{large}; {shown}"


def _too_few_elements(bound: "Bound") -> str:
    """Whether most is lost to chance, and how many elements would do."""
    right, taken = bound.tally
    wanted = "a bound above 0" if bound.epsilon == 0 else "half of the estimate"
    needed = _elements_needed(bound)
    if needed is None:
        return "" if bound.epsilon else f"too few elements: {right} of {taken} right refute no claim"
    return (
        f"too few elements: with as good guesses as {right} of {taken}, about {needed:,} elements would show "
        f"{wanted}"
    )


def _elements_needed(bound: "Bound") -> int | None:
    """The number of elements at which the same accuracy, less a standard error, is enough; else None."""
    # The same accuracy at larger sizes, in steps of 25%, as a count alone. Evidence of another kind needs a
    # share of the level for its looks.
    evidence = bound.clearest
    kind = evidence.count_kind
    if kind is None or bound.family is not None:
        return None
    right, taken = bound.tally
    share = 1.0 if isinstance(bound.evidence, Evidence.kinds()[kind]) else _LOOKS_COST
    sure = 1 - (1 - bound.confidence) / share
    enough = max(_LOW * bound.estimate if bound.epsilon else 0.0, 1e-3)
    size = evidence.elements
    while (size := math.ceil(1.25 * size)) <= _LARGEST:
        larger = size / evidence.elements
        guesses = round(taken * larger)
        unlucky = max(0, int(right / taken * guesses - math.sqrt(guesses) / 2))
        count = count_alone(evidence, unlucky, guesses, size)
        if count and _bound_within_reason(count, bound.delta, sure) >= enough:
            return _rounded_up(size)
    return None


def _bound_within_reason(evidence: Evidence, delta: float, confidence: float) -> float:
    """The bound, or 0 if it takes long."""
    with suppress(effort.TooLongError), effort.at_most(_PATIENCE):
        return last_refuted(evidence, delta, 1 - confidence)
    return 0.0


def _rounded_up(size: int) -> int:
    """A number rounded up to two digits.

    >>> _rounded_up(1234), _rounded_up(99)
    (1300, 99)
    """
    unit: int = 10 ** max(0, len(str(size)) - 2)
    return -(-size // unit) * unit
