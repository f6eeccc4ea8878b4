"""Tests whether a sampler draws as stated.

The tests use a summary of the batches. Under Poisson sampling, the sizes of batches are Binomial(rows, q),
and so is the number of batches that each row is in. Given the sizes, the overlap of two consecutive batches
is hypergeometric. Each number becomes a normal score under its own law; discrete ones are randomised with the
auditor's own random numbers. Shuffled batches have one size, and all rows take part equally often. Reused
batches overlap too much, or rows take part too unevenly. If shuffled batches are stated, no row may be drawn
twice in a pass, and rows may not keep their batch in a later pass more often than under a fresh shuffle. The
hidden bits are not used.
"""

import math
from collections import deque
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import stats

from canaria._core.arrays import Floats, Integers
from canaria.bounds.conformance import LEAKS, LEVEL, OPEN, SAFE, Part, sidak
from canaria.training.canaries.sampling import POISSON, Schedule
from canaria.training.conformance import laws

_MOST_ROWS: Final = 2**22
"""With more rows than this, single rows are not tracked."""
_FEWEST_BATCHES: Final = 4
_LAGS: Final = 4
"""A pass is compared with this many passes before it."""


class Drawn(NamedTuple):
    """A summary of the batches that a sampler drew.

    Attributes:
        rows: The number of rows to draw from.
        sizes: The number of rows of each batch.
        overlaps: The number of rows that were also in the batch before; empty if rows were not tracked.
        taking: The number of rows in 0, 1, 2, ... batches; empty if rows were not tracked.
        twice_in_a_pass: Whether a row was drawn twice in one pass.
        repeats: For whole passes that are 1, 2, ... apart, the number of rows in the same batch of both,
            summed over all such pairs, and its mean under fresh shuffles.
    """

    rows: int
    sizes: Integers
    overlaps: Integers
    taking: Integers
    twice_in_a_pass: bool = False
    repeats: tuple[tuple[int, float], ...] = ()


class Pass:
    """One pass over the data: the number of each row's batch, or -1, and the sizes of the batches."""

    def __init__(self, rows: int) -> None:
        self.place = np.full(rows, -1, dtype=np.int32)
        self.sizes: list[int] = []


class Batches:
    """Track the batches that a sampler draws from this many rows. Passes may overlap.

    `begin` starts a pass, `add` adds batches to it, and `end` marks it as complete.
    """

    def __init__(self, rows: int) -> None:
        self._rows, self.twice, self._twice_in_a_pass = rows, False, False
        self._sizes: list[int] = []
        self._overlaps: list[int] = []
        self._repeats: list[list[tuple[int, float]]] = [[] for _ in range(_LAGS)]
        self._followed = rows if rows <= _MOST_ROWS else 0
        self._times = np.zeros(self._followed, dtype=np.int32)
        self._last = np.full(self._followed, -1, dtype=np.int32)
        self._before: deque[Pass] = deque(maxlen=_LAGS)

    def begin(self) -> Pass:
        """Start a new pass over the data."""
        return Pass(self._followed)

    def end(self, this: Pass) -> None:
        """Mark a pass as complete and compare it with earlier ones."""
        for found, before in zip(self._repeats, self._before, strict=False):
            if len(self._times) and len(this.sizes) == len(before.sizes) > 1:
                found.append(_repeated(this, before, self._rows))
        self._before.appendleft(this)

    def add(self, batch: Any, this: Pass) -> None:
        """Add a batch of these rows to a pass."""
        number = len(self._sizes)
        self._sizes.append(len(batch))
        chosen = np.asarray(batch if len(batch) else np.zeros(0, dtype=np.int64))
        numbers = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
        if not numbers or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self._times)):
            self._times = self._last = self._times[:0]
            return
        distinct = np.unique(chosen)
        self.twice = self.twice or len(distinct) < len(chosen)
        self._twice_in_a_pass = self._twice_in_a_pass or bool((this.place[distinct] >= 0).any())
        self._overlaps.append(int(np.count_nonzero(self._last[distinct] == number - 1)) if number else 0)
        self._times[distinct] += 1
        self._last[distinct] = number
        this.place[distinct] = len(this.sizes)
        this.sizes.append(len(chosen))

    def drawn(self) -> Drawn:
        """A summary of all batches so far."""
        found = [of_lag for of_lag in self._repeats if of_lag]
        return Drawn(
            self._rows,
            np.array(self._sizes, dtype=np.int64),
            np.array(self._overlaps if len(self._times) else [], dtype=np.int64),
            np.bincount(self._times) if len(self._times) else np.zeros(0, dtype=np.int64),
            self._twice_in_a_pass,
            tuple((sum(same for same, _ in one), sum(mean for _, mean in one)) for one in found),
        )


def _repeated(this: Pass, before: Pass, rows: int) -> tuple[int, float]:
    """The number of rows in the same batch of two passes, and its mean under a fresh shuffle."""
    same = int(np.count_nonzero((this.place >= 0) & (this.place == before.place)))
    return same, float(np.array(this.sizes) @ np.array(before.sizes)) / rows


def part_of(
    drawn: Drawn, sample_rate: float, rng: np.random.Generator, stated: Schedule = POISSON
) -> Part | None:
    """The sampling part of conformance; None if there are too few batches, or each has all rows."""
    batches = len(drawn.sizes)
    if batches < _FEWEST_BATCHES or not 0 < sample_rate < 1:
        return None
    if stated.kind == "shuffled":
        return _of_passes(drawn)
    found = _by_size(drawn, sample_rate, rng) if stated.kind == "poisson" else []
    if len(drawn.taking):
        # Theorem 26 (i): the number of draws of each row is binomial, and the overlap of two consecutive
        # batches is hypergeometric given their sizes. Each gives normal scores, whose spread is tested.
        times = np.repeat(np.arange(len(drawn.taking)), drawn.taking)
        taking = laws.normal_scores(stats.binom(batches, sample_rate), times, rng)
        found.append(
            _spread(
                taking,
                "the sampler draws some rows too often and others too rarely",
                "rows take part too evenly",
            )
        )
        law = stats.hypergeom(drawn.rows, drawn.sizes[:-1], drawn.sizes[1:])
        common = laws.normal_scores(law, drawn.overlaps[1:], rng)
        found.append(
            _spread(
                common,
                "the rows that batches have in common vary too much",
                "the rows that batches have in common vary too little",
            )
        )
    if not found:
        return None
    smallest = min(found, key=lambda part: part.p_value)
    if smallest.effect == SAFE:
        # Smaller batches are safe only if rows take part independently at the observed rate. Otherwise a few
        # rows may be in every batch.
        seen = part_of(drawn, float(drawn.sizes.mean()) / drawn.rows, rng, stated)
        if seen is not None and seen.p_value < LEVEL:
            smallest = smallest._replace(cause=f"{smallest.cause}; {seen.cause}", effect=OPEN)
    cause = f"{smallest.cause}{_looks_like(drawn)}"
    return smallest._replace(p_value=sidak(smallest.p_value, len(found)), cause=cause)


def _of_passes(drawn: Drawn) -> Part | None:
    """Test whether rows are in the same batch of two passes more often than under a fresh shuffle.

    The number of such rows is nearly Poisson if there are many batches, and varies less if there are few, so
    the upper tail of the Poisson distribution is conservative.
    """
    if not drawn.repeats:
        return None
    by_lag = [float(stats.poisson.sf(same - 1, expected)) for same, expected in drawn.repeats]
    p_value, lag = laws.smallest(by_lag)
    apart = "in a row" if lag == 0 else f"{lag + 1} apart"
    return Part(p_value, f"too many rows are in the same batch of two passes {apart}", LEAKS)


def _by_size(drawn: Drawn, sample_rate: float, rng: np.random.Generator) -> list[Part]:
    """Tests of the mean and the spread of batch sizes."""
    sizes = laws.normal_scores(stats.binom(drawn.rows, sample_rate), drawn.sizes, rng)
    mean = float(sizes.sum()) / math.sqrt(len(sizes))
    shown, stated = float(drawn.sizes.mean()), drawn.rows * sample_rate
    return [
        Part(
            laws.normal(mean),
            f"batches have {shown:.4g} rows on average, where the stated rate gives {stated:.4g}",
            LEAKS if mean > 0 else SAFE,  # rows take part more, or less, often than the accountant assumes
        ),
        _spread(sizes, "the sizes of batches vary too much", "the sizes of batches vary too little"),
    ]


def _looks_like(drawn: Drawn) -> str:
    """A note if all rows were drawn equally often, up to one time, as in shuffled batches; else empty."""
    often = np.flatnonzero(drawn.taking)
    if len(often) == 0 or often[-1] - often[0] > 1 or often[-1] == 0:
        return ""
    return f" (they look shuffled, {round(drawn.rows / float(np.median(drawn.sizes)))} batches to a pass)"


def contradictions(drawn: Drawn, stated: Schedule) -> tuple[str, ...]:
    """Contradictions between the batches and the stated sampling."""
    sizes = np.unique(drawn.sizes)
    if stated.kind == "fixed-size" and len(sizes) > 1:
        return (f"batches of one size are stated, but they had {sizes[0]} to {sizes[-1]} rows",)
    if stated.kind == "shuffled" and drawn.twice_in_a_pass:
        return ("shuffled batches are stated, but a row was drawn twice in one pass",)
    return ()


def _spread(scores: Floats, wide: str, narrow: str) -> Part:
    """Test the spread of scores around their mean; `wide` and `narrow` are the causes to report."""
    squares, freedom = float(np.sum((scores - scores.mean()) ** 2)), len(scores) - 1
    return Part(laws.chi_squared(squares, freedom), wide if squares > freedom else narrow)
