"""One run of a function on one data set: new data, new randomness, and all that the run shows."""

import random
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from canaria.game.release.outputs import numbers_of

RAISES = "it raises "
"""How the name of an error begins, among the numbers of a run."""


class Runner:
    """Runs a function on a data set, with a generator made from a seed.

    The global generators are seeded too, since released code draws from them, and no run must go on with the
    randomness of another.
    """

    def __init__(self, fit: Callable[..., Any]) -> None:
        self._fit = fit

    def __call__(self, data: Any, seed: np.random.SeedSequence) -> dict[str, float]:
        """The numbers of one run. An error or a warning is part of what a run shows."""
        common = int(seed.generate_state(1)[0])
        random.seed(common)
        np.random.seed(common)  # noqa: NPY002
        if (torch := sys.modules.get("torch")) is not None:
            torch.manual_seed(common)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter(
                "always"
            )  # by default, a second run would not show the warning of the first
            try:
                found = numbers_of(self._fit(data, np.random.default_rng(seed)))
            except Exception as error:
                found = {RAISES + type(error).__name__: 1.0}
        for one in warned:
            name = f"it warns {one.category.__name__}"
            found[name] = found.get(name, 0.0) + 1
        return found


def refusal(base: list[dict[str, float]], other: dict[str, float]) -> str:
    """What a function does instead of a release on one of two data sets; empty if it releases both.

    `base` are its runs on the first one, and `other` is a run on the second.
    """
    for one in (*base, other):
        for name in one:
            if name.startswith(RAISES):
                return name
    undefined = [any(name.endswith(" is nan") for name in one) for one in (*base, other)]
    return "it returns nan" if undefined[-1] != any(undefined[:-1]) else ""
