"""The time that evidence takes, in seconds on an ordinary core: estimated in advance, counted during work.

`Effort` is the estimate for a kind of evidence. The true cost can depend on every count, so expensive steps
also `spend` their time before they start; within `at_most`, work beyond the limit is refused. Both are the
same on every machine. Prices were measured (fuzz/slow_files.py compares them with processor time), and
rounded up.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, NamedTuple

import numpy as np

from canaria._core.arrays import Numbers
from canaria._core.errors import InputError

CALL: Final = 1e-4
"""A p-value of a single count, with all checks; also other work on a few numbers."""
LOG_PMF: Final = 2.4e-7
"""One point of a binomial law, computed directly."""
RATIO: Final = 4e-8
"""One point of a binomial law, computed from its neighbour; also other passes over an array."""
TRANSFORM: Final = 1.3e-7
"""One point of a convolution by three Fourier transforms."""
PRODUCT: Final = 2e-9
"""One product of a direct convolution."""
_TAIL: Final = (6e-7, 1e-5)
_LARGE_TAIL: Final = (5e-5, 4e-6)
_SMALL_TAIL: Final = 2e-3
"""For more than 10^9 trials, at one deviation from the mean; below two deviations, less is computed."""
_LARGE: Final = 1e9


class TooLongError(InputError):
    """Raised for evidence that would take longer than allowed."""

    __module__ = "canaria"


class Effort(NamedTuple):
    """Seconds needed to decide one claim, and to find the last refuted claim."""

    claim: float
    bound: float


_LEFT: Final[ContextVar[list[float] | None]] = ContextVar("left", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Refuse work that takes more than this many seconds, with a TooLongError."""
    token = _LEFT.set([seconds])
    try:
        yield
    finally:
        _LEFT.reset(token)


def spend(seconds: float) -> None:
    """Count work before it is done."""
    left = _LEFT.get()
    if left is not None:
        left[0] -= seconds
        if left[0] < 0:
            raise TooLongError("evidence takes longer than is allowed")


def spend_on_tails(correct: Numbers, taken: Numbers, wrong: Numbers) -> None:
    """Count the cost of binomial tails. The continued fraction converges slowly near the mean."""
    if _LEFT.get() is None:
        return
    base, slow = _TAIL if np.max(taken, initial=0) <= _LARGE else _LARGE_TAIL
    variance = np.maximum(taken * wrong * (1 - wrong), 1.0)
    near = (correct - taken * (1 - wrong)) ** 2 / variance + 60 * np.maximum(taken, 1.0) ** (-1 / 3)
    price = 2 * CALL + base * near.size + slow * float(np.sum(1 / near))
    if base > _TAIL[0]:
        price += _SMALL_TAIL * float(np.sum(1 / np.maximum(near, 5.0)))
    spend(price)
