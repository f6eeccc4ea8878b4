"""Whether a sampler draws as Poisson sampling does: every row by a coin of its own, anew in every batch.

What is kept of the batches is what tells. If sampling is as stated, their sizes are Binomial(rows, q), and so
are the numbers of batches that each row is in; given their sizes, what a batch has in common with the one
before is hypergeometric. Each number becomes a normal score by its own law, discrete ones by a random number
of the auditor's own. Shuffled batches have one size, and all rows take part equally often; batches that are
used again have too much in common, or rows take part too unevenly. The hidden bits play no part.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import special, stats

from canaria._core.arrays import Floats, Integers
from canaria.results.conformance import sidak
from canaria.training.noise import Part, chi_squared, normal_scores

_MOST_ROWS: Final = 2**22
"""Of more rows than this, single rows are not followed."""
_FEWEST_BATCHES: Final = 4


class Drawn(NamedTuple):
    """What a sampler drew.

    Attributes:
        rows: From how many rows.
        sizes: The number of rows of each batch.
        overlaps: How many of those were in the batch before; empty if rows were not followed.
        taking: How many rows are in 0, 1, 2, ... batches; empty if rows were not followed.

    """

    rows: int
    sizes: Integers
    overlaps: Integers
    taking: Integers


class Batches:
    """Follows the batches of a sampler of so many rows."""

    def __init__(self, rows: int) -> None:
        self._rows, self.twice = rows, False
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
        self._overlaps.append(int(np.count_nonzero(self._last[distinct] == number - 1)) if number else 0)
        self._times[distinct] += 1
        self._last[distinct] = number

    def drawn(self) -> Drawn:
        """What was drawn so far."""
        return Drawn(
            self._rows,
            np.array(self._sizes, dtype=np.int64),
            np.array(self._overlaps if len(self._times) else [], dtype=np.int64),
            np.bincount(self._times) if len(self._times) else np.zeros(0, dtype=np.int64),
        )


def part_of(drawn: Drawn, sample_rate: float, rng: np.random.Generator) -> Part | None:
    """The part of conformance that the draws show; None if there are too few, or all rows are taken."""
    batches = len(drawn.sizes)
    if batches < _FEWEST_BATCHES or not 0 < sample_rate < 1:
        return None
    sizes = normal_scores(stats.binom(drawn.rows, sample_rate), drawn.sizes, rng)
    mean = float(sizes.sum()) / math.sqrt(batches)
    found = [
        Part(float(2 * special.ndtr(-abs(mean))), "the mean size of the batches that the sampler drew"),
        _spread(sizes, "the sizes of the batches that the sampler drew"),
    ]
    if len(drawn.taking):
        times = np.repeat(np.arange(len(drawn.taking)), drawn.taking)
        taking = normal_scores(stats.binom(batches, sample_rate), times, rng)
        found.append(_spread(taking, "how often rows were drawn"))
        law = stats.hypergeom(drawn.rows, drawn.sizes[:-1], drawn.sizes[1:])
        common = normal_scores(law, drawn.overlaps[1:], rng)
        found.append(_spread(common, "what the batches that the sampler drew have in common"))
    smallest = min(found, key=lambda part: part.p_value)
    return Part(sidak(smallest.p_value, len(found)), smallest.where)


def _spread(scores: Floats, where: str) -> Part:
    """The spread of scores around their mean."""
    return Part(chi_squared(float(np.sum((scores - scores.mean()) ** 2)), len(scores) - 1), where)
