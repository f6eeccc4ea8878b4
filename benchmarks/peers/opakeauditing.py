"""Opake: `one_run`, its (epsilon, delta) method and its Gaussian one.

It guesses every element. Without a threshold it takes the one with the most right guesses; the explicit one
is the median of all scores, which knows no bits. The Gaussian method refuses delta = 0: no claim there.
"""

from typing import Any

import numpy as np
from opake import auditing
from opake.auditing.types import CoinFlip

from ._scores import Bits, Floats, claim, groups

PACKAGE = "opake-auditing==0.16.1"
CHECK = "opake.auditing"


def _estimate(scores: Floats, bits: Bits) -> Any:
    """Its estimate for coins that were thrown elsewhere."""
    places, included = np.arange(len(bits)), bits > 0
    coins = CoinFlip(len(bits), places, included, places[included], places[~included])
    return auditing.one_run(auditing.canary_scores(scores, canary_indices=places), coin_flip=coins)


def _eps_delta(scores: Floats, bits: Bits, delta: float, confidence: float, threshold: float | None) -> float:
    if groups(scores, bits) is None:
        return 0.0
    method = _estimate(scores, bits).eps_delta()
    return claim(method.epsilon_at(delta=delta, significance=1 - confidence, threshold=threshold))


def _gdp(scores: Floats, bits: Bits, delta: float, confidence: float, threshold: float | None) -> float:
    if delta == 0 or groups(scores, bits) is None:
        return 0.0
    method = _estimate(scores, bits).gdp()
    return claim(method.epsilon_at(delta=delta, significance=1 - confidence, threshold=threshold))


def eps_delta_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`one_run(...).eps_delta().epsilon_at`, best threshold. Claims a lower bound."""
    return _eps_delta(scores, bits, delta, confidence, None)


def eps_delta_median(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`one_run(...).eps_delta().epsilon_at(threshold=median)`. Claims a lower bound."""
    return _eps_delta(scores, bits, delta, confidence, float(np.median(scores)))


def gdp_best(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`one_run(...).epsilon_at` (its default), best threshold. Claims a lower bound, if Gaussian."""
    return _gdp(scores, bits, delta, confidence, None)


def gdp_median(scores: Floats, bits: Bits, delta: float, confidence: float) -> float:
    """`one_run(...).gdp().epsilon_at(threshold=median)`. Claims a lower bound, if Gaussian."""
    return _gdp(scores, bits, delta, confidence, float(np.median(scores)))


AUDITORS = {audit.__name__: audit for audit in (eps_delta_best, eps_delta_median, gdp_best, gdp_median)}
