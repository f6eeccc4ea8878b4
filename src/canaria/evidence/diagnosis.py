"""Why a bound is 0, or far below what the same guesses estimate, in one line."""

import math
from contextlib import suppress
from typing import Final

import numpy as np
from scipy import special

from canaria._core import effort
from canaria.claims import ApproximateDP
from canaria.evidence.base import KINDS, Evidence, Progress, Tally
from canaria.evidence.bound import Bound, lower_bound

_LOW: Final = 0.5
"""A bound below this share of what it could be is far below it."""
_CHANCE: Final = 0.1
"""Guesses with a larger p-value against coin tossing show no signal."""
_SURELY: Final = 3e-7
"""The level, that of five standard errors, at which guesses are wrong more often than right."""
_LOOKS_COST: Final = 4.0
"""Evidence that looks at many numbers of guesses has about this fraction of the level for each."""
_LARGEST: Final = 10_000_000
"""Audits of more elements are not proposed."""
_PATIENCE: Final = 1.0
"""Seconds of an ordinary core that may be spent on how many elements would do."""


def diagnosis(bound: Bound) -> str:
    """What keeps the bound down.

    Args:
        bound: The bound.

    Returns:
        One sentence for people, without its full stop; empty if the bound is near what its guesses estimate.

    """
    if bound.evidence.withdrawn:
        return ""
    if bound.tally.taken == 0:
        return "no guess was made: the scores are all equal, or the rule guesses nothing"
    if bound.epsilon == 0:
        if (wrong := _mostly_wrong(bound.clearest.progress(0.0))) is not None:
            return (
                f"guesses are wrong more often than by chance, {wrong.taken - wrong.correct} of the surest "
                f"{wrong.taken}: a higher score must mean 'more likely included'; if it is a loss, say so "
                "(--higher-means excluded)"
            )
        if (p_value := _against_coins(bound)) > _CHANCE:
            return (
                f"no signal: tossed coins would do as well with probability {p_value:.2g}; either the scores "
                "tell nothing, or more elements are needed to see it"
            )
    return _too_much_delta(bound) or _too_few_elements(bound)


def _mostly_wrong(progress: Progress) -> Tally | None:
    """The number of guesses at which it is clearest that more are wrong than by chance; None if it is not."""
    tails = special.bdtr(progress.correct, progress.taken, 0.5)
    worst = int(np.argmin(tails))
    if tails[worst] * len(tails) >= _SURELY:
        return None
    return Tally(int(progress.correct[worst]), int(progress.taken[worst]))


def _against_coins(bound: Bound) -> float:
    """The p-value against guesses that are right by chance alone."""
    if bound.family is None:
        return bound.evidence.p_value(ApproximateDP(0.0, delta=0))
    right, taken = bound.tally
    return float(special.bdtrc(right - 1, taken, 0.5)) if right else 1.0


def _too_much_delta(bound: Bound) -> str:
    """Whether most is lost to the failures that delta permits."""
    if bound.delta == 0 or bound.family is not None:
        return ""
    without = _bound_within_reason(bound.evidence, 0.0, bound.confidence)
    if without == 0 or bound.epsilon >= _LOW * without:
        return ""
    given_away = bound.delta * bound.evidence.elements
    return (
        f"δ = {bound.delta:g} is large for {bound.evidence.elements} elements: it permits "
        f"{given_away:.2g} of them to be given away; at δ = 0 the same guesses show "
        f"{Bound(without, 0.0, bound.confidence, bound.evidence).epsilon_text}"
    )


def _too_few_elements(bound: Bound) -> str:
    """Whether most is lost to chance, and how many elements would do."""
    if bound.epsilon >= _LOW * bound.estimate:
        return ""
    right, taken = bound.tally
    if right == taken:
        return f"all of the {taken} surest guesses are right: only more of them can show more"
    wanted = "a bound above 0" if bound.epsilon == 0 else "half of the estimate"
    needed = _elements_needed(bound)
    if needed is None:
        return f"too few elements: {right} of {taken} right may be luck"
    return (
        f"too few elements: with as good guesses as {right} of {taken}, about {needed:,} elements would show "
        f"{wanted}"
    )


def _elements_needed(bound: Bound) -> int | None:
    """With how many elements the same accuracy, less a standard error, shows enough; None if not found."""
    evidence = bound.clearest
    kind = evidence.count_kind
    if kind is None or bound.family is not None:
        return None
    right, taken = bound.tally
    share = 1.0 if type(bound.evidence).__name__ == kind else _LOOKS_COST
    sure = 1 - (1 - bound.confidence) / share
    enough = max(_LOW * bound.estimate if bound.epsilon else 0.0, 1e-3)
    size = evidence.elements
    while (size := math.ceil(1.25 * size)) <= _LARGEST:
        larger = size / evidence.elements
        guesses = round(taken * larger)
        unlucky = max(0, int(right / taken * guesses - math.sqrt(guesses) / 2))
        count = KINDS[kind].of_count(unlucky, guesses, size, evidence.one_sided)
        if _bound_within_reason(count, bound.delta, sure) >= enough:
            return _rounded_up(size)
    return None


def _bound_within_reason(evidence: Evidence, delta: float, confidence: float) -> float:
    """The bound, or 0 if it takes long."""
    with suppress(effort.TooLongError), effort.at_most(_PATIENCE):
        return lower_bound(evidence, delta, confidence).epsilon
    return 0.0


def _rounded_up(size: int) -> int:
    """To two digits, upward.

    >>> _rounded_up(1234), _rounded_up(99)
    (1300, 99)
    """
    unit: int = 10 ** max(0, len(str(size)) - 2)
    return -(-size // unit) * unit
