"""One run of a function on one data set: new data, new randomness, and all that the run shows."""

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from canaria.game.release.neighbours import DataSet
from canaria.game.release.outputs import numbers_of

RAISES: Final = "it raises "
WARNS: Final = "it warns "
"""How the names of errors and of warnings begin, among the numbers of a run."""


class Runner:
    """Runs a function on a data set, with a generator made from a seed.

    The global generators are seeded too, since released code draws from them, and no run must go on with the
    randomness of another.

    Args:
        fit: A function `fit(data, rng)`.

    Example:
        >>> run = Runner(lambda data, rng: {"largest": max(data)})
        >>> run([2.0, 5.0], np.random.SeedSequence(0))
        {'.size': 1, "['largest']": 5.0}

    """

    def __init__(self, fit: Callable[..., Any]) -> None:
        self._fit = fit

    def __call__(self, data: DataSet, seed: np.random.SeedSequence) -> dict[str, float]:
        """The numbers of one run. An error or a warning is part of what a run shows."""
        common = int(seed.generate_state(1)[0])
        random.seed(common)
        np.random.seed(common)  # noqa: NPY002
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(common)
        with warnings.catch_warnings(record=True) as warned:
            # By default, a second run would not show the warning of the first.
            warnings.simplefilter("always")
            try:
                output = self._fit(data, np.random.default_rng(seed))
            except Exception as error:
                return {RAISES + type(error).__name__: 1.0}
            found = numbers_of(output)
        for one in warned:
            name = WARNS + one.category.__name__
            found[name] = found.get(name, 0.0) + 1
        return found


def refusal(base: list[dict[str, float]], other: dict[str, float]) -> str:
    """What a function does instead of a release on one of two data sets, or on both; empty if it does not.

    `base` are its runs on the first one, and `other` is a run on the second. A function that fails now and
    then, on both, is not refusing.
    """
    for starts in (RAISES, None):
        done = [_failure(one, starts) for one in (*base, other)]
        if all(done[:-1]) != bool(done[-1]) and len(set(map(bool, done[:-1]))) == 1:
            return next(filter(None, done))
        if all(done):
            return done[-1]
    return ""


def _failure(numbers: dict[str, float], starts: str | None) -> str:
    """The error of a run, or that it returned nan."""
    for name in numbers:
        if starts is not None and name.startswith(starts):
            return name
        if starts is None and name.endswith(" is nan"):
            return "it returns nan"
    return ""
