"""How rows are stated to take part in steps, and whether a sampler draws them so.

What is kept of the batches is what tells. Under Poisson sampling their sizes are Binomial(rows, q), and so
are the numbers of batches that each row is in; given their sizes, what a batch has in common with the one
before is hypergeometric. Each number becomes a normal score by its own law, discrete ones by a random number
of the auditor's own. Shuffled batches have one size, and all rows take part equally often; batches that are
used again have too much in common, or rows take part too unevenly. The hidden bits play no part.
"""

import math
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import special, stats

from canaria._core import checks
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError, shown
from canaria.results.conformance import sidak
from canaria.training.noise import Part, chi_squared, normal_scores

_MOST_ROWS: Final = 2**22
"""Of more rows than this, single rows are not followed."""
_FEWEST_BATCHES: Final = 4


KINDS: Final = ("poisson", "shuffled", "fixed-size")


@dataclass(frozen=True)
class Sampling:
    """How rows are stated to take part in steps.

    Attributes:
        kind: "poisson": every row by a coin of its own, anew in every batch. "shuffled": every row once in
            each pass over the data, in random order. "fixed-size": every batch a fresh random subset of one
            size.
        accumulated: How many batches make a step.

    Raises:
        InputError: If the kind is unknown, or if the number is not at least 1.

    Example:
        >>> Sampling("poisson", accumulated=4).words
        'Poisson sampling, 4 batches to a step'

    """

    kind: str = "poisson"
    accumulated: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"sampling must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {shown(self.kind)}"
            )
        checks.integer("accumulated", self.accumulated, 1)

    @property
    def is_poisson(self) -> bool:
        """Whether it is what accountants of DP-SGD take it for."""
        return self == Sampling()

    @property
    def words(self) -> str:
        """The sampling in words."""
        each = f", {self.accumulated} batches to a step" if self.accumulated > 1 else ""
        return {
            "poisson": "Poisson sampling",
            "shuffled": "shuffled batches",
            "fixed-size": "batches of one size",
        }[self.kind] + each

    def steps_of_a_pass(self, sample_rate: float) -> int:
        """How many steps a pass of shuffled batches has; a row is in one of them."""
        return max(1, round(1 / sample_rate / self.accumulated))

    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[int, int, float]:
        """How often so many rows take part, all together: c + Binomial(n, rate), as (c, n, rate)."""
        if self.kind != "shuffled":
            return 0, rows * steps * self.accumulated, sample_rate
        passes, left = divmod(steps, self.steps_of_a_pass(sample_rate))
        return rows * passes, rows, left / self.steps_of_a_pass(sample_rate)


_POISSON: Final = Sampling()


class Drawn(NamedTuple):
    """What a sampler drew.

    Attributes:
        rows: From how many rows.
        sizes: The number of rows of each batch.
        overlaps: How many of those were last drawn for the batch `apart` before; empty if rows were not
            followed.
        taking: How many rows are in 0, 1, 2, ... batches; empty if rows were not followed.
        apart: Overlaps are with the batch so many before.

    """

    rows: int
    sizes: Integers
    overlaps: Integers
    taking: Integers
    apart: int = 1


class Batches:
    """Follows the batches of a sampler of so many rows.

    What a batch has in common is counted with the one `apart` batches before it.
    """

    def __init__(self, rows: int, apart: int = 1) -> None:
        self._rows, self._apart, self.twice = rows, apart, False
        self._sizes: list[int] = []
        self._overlaps: list[int] = []
        followed = rows if rows <= _MOST_ROWS else 0
        self._times = np.zeros(followed, dtype=np.int32)
        self._last = np.full(followed, -1, dtype=np.int32)

    def add(self, batch: Any) -> None:
        """One more batch, of these rows."""
        number = len(self._sizes)
        self._sizes.append(len(batch))
        chosen = np.asarray(batch if len(batch) else np.zeros(0, dtype=np.int64))
        numbers = chosen.ndim == 1 and np.issubdtype(chosen.dtype, np.integer)
        if not numbers or (len(chosen) and not 0 <= chosen.min() <= chosen.max() < len(self._times)):
            self._times = self._last = self._times[:0]
            return
        distinct = np.unique(chosen)
        self.twice = self.twice or len(distinct) < len(chosen)
        before = number - self._apart
        self._overlaps.append(int(np.count_nonzero(self._last[distinct] == before)) if before >= 0 else 0)
        self._times[distinct] += 1
        self._last[distinct] = number

    def drawn(self) -> Drawn:
        """What was drawn so far."""
        return Drawn(
            self._rows,
            np.array(self._sizes, dtype=np.int64),
            np.array(self._overlaps if len(self._times) else [], dtype=np.int64),
            np.bincount(self._times) if len(self._times) else np.zeros(0, dtype=np.int64),
            self._apart,
        )


def part_of(
    drawn: Drawn, sample_rate: float, rng: np.random.Generator, stated: Sampling = _POISSON
) -> Part | None:
    """The part of conformance that the draws show; None if there are too few, or all rows are taken."""
    batches = len(drawn.sizes)
    if batches < _FEWEST_BATCHES or not 0 < sample_rate < 1:
        return None
    found = _by_size(drawn, sample_rate, rng) if stated.kind == "poisson" else []
    if len(drawn.taking):
        if stated.kind != "shuffled":
            times = np.repeat(np.arange(len(drawn.taking)), drawn.taking)
            taking = normal_scores(stats.binom(batches, sample_rate), times, rng)
            found.append(_spread(taking, "how often rows were drawn"))
        apart = drawn.apart
        law = stats.hypergeom(drawn.rows, drawn.sizes[:-apart], drawn.sizes[apart:])
        common = normal_scores(law, drawn.overlaps[apart:], rng)
        if len(common) > 1:
            found.append(_spread(common, "what the batches that the sampler drew have in common"))
    if not found:
        return None
    smallest = min(found, key=lambda part: part.p_value)
    seen = "" if stated.kind == "shuffled" else _looks_like(drawn)
    return Part(sidak(smallest.p_value, len(found)), f"{smallest.where}{seen}")


def _by_size(drawn: Drawn, sample_rate: float, rng: np.random.Generator) -> list[Part]:
    """What the sizes of batches tell."""
    sizes = normal_scores(stats.binom(drawn.rows, sample_rate), drawn.sizes, rng)
    mean = float(sizes.sum()) / math.sqrt(len(sizes))
    return [
        Part(float(2 * special.ndtr(-abs(mean))), "the mean size of the batches that the sampler drew"),
        _spread(sizes, "the sizes of the batches that the sampler drew"),
    ]


def _looks_like(drawn: Drawn) -> str:
    """In words, if every row was drawn as often as any other, but for one time: shuffled batches."""
    often = np.flatnonzero(drawn.taking)
    if len(often) == 0 or often[-1] - often[0] > 1 or often[-1] == 0:
        return ""
    return f" (they look shuffled, {round(drawn.rows / float(np.median(drawn.sizes)))} batches to a pass)"


def contradictions(drawn: Drawn, stated: Sampling) -> tuple[str, ...]:
    """What cannot be, if batches are drawn as stated."""
    batches, sizes = len(drawn.sizes), np.unique(drawn.sizes)
    if stated.kind == "fixed-size" and len(sizes) > 1:
        return (f"batches of one size are stated, but they had {sizes[0]} to {sizes[-1]} rows",)
    if stated.kind == "shuffled" and len(drawn.taking) - 1 > -(-batches // drawn.apart):
        return (
            f"shuffled batches are stated, but a row was drawn {len(drawn.taking) - 1} times in "
            f"{-(-batches // drawn.apart)} passes",
        )
    return ()


def _spread(scores: Floats, where: str) -> Part:
    """The spread of scores around their mean."""
    return Part(chi_squared(float(np.sum((scores - scores.mean()) ** 2)), len(scores) - 1), where)
