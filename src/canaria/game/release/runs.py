"""One run of a function on one data set: new data, new randomness, and all that the run shows."""

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from canaria._core import seeds
from canaria.game.release.neighbours import DataSet
from canaria.game.release.outputs import numbers_of

RAISES: Final = "it raises "
TAKES: Final = "it takes more than "
WARNS: Final = "it warns "
"""How the names of errors, of runs without an end and of warnings begin, among the numbers of a run."""
SECONDS: Final = "the running time in seconds"
"""The name of the time of a run."""


class _TooLong(BaseException):
    """A run took too long. It is no `Exception`, because functions catch these and go on."""


class Runner:
    """Runs a function on a data set, with a generator made from a seed.

    The global generators are seeded too, since released code draws from them, and no run must go on with the
    randomness of another.

    Args:
        fit: A function `fit(data, rng)`.
        timed: Whether the running time counts as released.

    Attributes:
        limit: The seconds after which a run is given up.
        longest: The seconds of the longest run so far.
        error: The last error that the function raised.

    Example:
        >>> run = Runner(lambda data, rng: {"largest": max(data)})
        >>> run([2.0, 5.0], np.random.SeedSequence(0))
        {'.size': 1, "['largest']": 5.0}

    """

    def __init__(self, fit: Callable[..., Any], *, timed: bool = False) -> None:
        self._fit, self.timed = fit, timed
        self.limit, self.longest = math.inf, 0.0
        self.error: Exception | None = None

    def __call__(self, data: DataSet, seed: np.random.SeedSequence) -> dict[str, float]:
        """The numbers of one run. An error or a warning is part of what a run shows."""
        seeds.set_global(int(seed.generate_state(1)[0]))
        with warnings.catch_warnings(record=True) as warned:
            # By default, a second run would not show the warning of the first.
            warnings.simplefilter("always")
            began = time.perf_counter()
            try:
                with _given_up_after(self.limit):
                    output = self._fit(data, np.random.default_rng(seed))
            except _TooLong:
                return {f"{TAKES}{self.limit:.3g} s": 1.0}
            except Exception as error:
                self.error = error
                return {RAISES + type(error).__name__: 1.0}
            took = time.perf_counter() - began
            self.longest = max(self.longest, took)
            found = numbers_of(output)
            if self.timed:
                found[SECONDS] = took
        for one in warned:
            name = WARNS + one.category.__name__
            found[name] = found.get(name, 0.0) + 1
        return found


@contextmanager
def _given_up_after(seconds: float) -> Iterator[None]:
    """Raise `_TooLong` in the main thread after some seconds, where the system has timers for that."""
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "setitimer") or math.isinf(seconds):
        yield
        return

    def give_up(*_: object) -> None:
        raise _TooLong

    handler = signal.signal(signal.SIGALRM, give_up)
    left, again = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, left, again)
        signal.signal(signal.SIGALRM, handler)


def refusal(base: list[dict[str, float]], other: dict[str, float]) -> str:
    """What a function does instead of a release on one of two data sets, or on both; empty if it does not.

    `base` are its runs on the first one, and `other` is a run on the second. A function that fails now and
    then, on both, is not refusing.
    """
    failures = [next(filter(_failed, one), "") for one in (*base, other)]
    *before, after = failures
    if all(failures) or (len(set(map(bool, before))) == 1 and bool(after) != bool(before[0])):
        return after or before[0]
    # A number that is always nan hides nothing. Only one that becomes nan, or stops to be, is a refusal.
    lost = [{name for name in one if name.endswith(" is nan")} for one in (*base, other)]
    now = lost.pop()
    sometimes, always = set[str]().union(*lost), lost[0].intersection(*lost)
    return "it returns nan" if now - sometimes or always - now else ""


def _failed(name: str) -> bool:
    return name.startswith((RAISES, TAKES))
