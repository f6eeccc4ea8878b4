"""Tests whether distributed processes draw independently, and each from its own rows.

The accountant assumes that each row is drawn by an independent coin, and that a drawn row weighs at most the
clip norm. Two faults of distributed training break this, and no process can detect them alone. If the
samplers of two processes share a seed, they draw the same positions among their rows, so one row reveals when
another takes part. If two processes draw from the same rows, a row that both draw is added twice.

Draws are compared by the coins that a sampler tosses, one for each row in each batch, as one long sequence.
If the rows cannot be divided evenly, processes have one row more or less, so equal seeds give equal sequences
but different batches. The sequence is cut into stretches that are so long that independent draws agree in one
of them with probability at most exp(-50).
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Hits, Integers

COMPARED: Final = 64
"""The number of stretches, and of rows, that processes compare."""
_TOO_MANY: Final = 24
"""The number of common rows, of 256 distinct rows of each of two ranks, that counts as sharing. Equal records
of different people may also be common: if lambda are expected, both ranks have none with probability
exp(-lambda), and for no lambda is that together with 24 common rows more likely than 10^-7."""
_OWN_ROWS: Final = "give each rank rows of its own, as DPDataLoader(distributed=True) does"
_SURPRISE: Final = 50.0
"""Independent draws agree in a stretch with probability at most exp(-50) = 2e-22. Over 64 stretches of a
thousand processes, this is below 1e-13."""


def stretch_of(sample_rate: float, rows: int) -> int:
    """The number of coins in a stretch, at least those of one batch; 0 if coins carry no information.

    Two coins with probability q of heads agree with probability 1 - 2q(1 - q).
    """
    differ = -math.log1p(-2 * sample_rate * (1 - sample_rate))
    return max(rows, math.ceil(_SURPRISE / differ)) if differ > 0 else 0


class Stretches:
    """Fingerprints of the coins that one sampler tosses, one per stretch of coins."""

    def __init__(self, rows: int, length: int) -> None:
        self._rows, self._length, self._tossed = rows, length, 0
        self._sums = np.zeros(COMPARED, dtype=np.uint64)

    def add(self, positions: Integers) -> None:
        """Add a batch: the positions that were drawn, counted from 0."""
        heads = self._tossed + np.asarray(positions, dtype=np.int64)
        heads = heads[heads < COMPARED * self._length]
        np.add.at(self._sums, heads // self._length, _mixed(heads))
        self._tossed += self._rows

    def fingerprints(self) -> Integers:
        """The number of complete stretches, followed by all fingerprints."""
        whole = min(COMPARED, self._tossed // self._length)
        return np.append(np.int64(whole), self._sums.view(np.int64))


def _mixed(numbers: Integers) -> npt.NDArray[np.uint64]:
    """Hash numbers to pseudorandom ones (SplitMix64), so that sums over different sets differ."""
    mixed = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def same_draws(shared: Integers) -> tuple[str, ...]:
    """The contradiction shown by the `fingerprints` of all processes, one row each; () if there is none."""
    whole, prints = shared[:, 0], shared[:, 1:]
    alike = np.zeros((len(shared), len(shared)), dtype=np.int64)
    for one in range(len(shared) - 1):
        # Only stretches that both have finished: the sums of an unfinished one are those of fewer coins.
        both = np.arange(COMPARED) < np.minimum(whole[one], whole[one + 1 :])[:, None]
        alike[one, one + 1 :] = ((prints[one] == prints[one + 1 :]) & both).sum(axis=1)
    if not alike.any():
        return ()
    first, second = np.unravel_index(np.argmax(alike), alike.shape)
    return (
        f"ranks {first} and {second} drew the same positions in {alike[first, second]} of "
        f"{min(whole[first], whole[second])} comparisons{_others(alike > 0)}: their loaders share a seed, so "
        "rows are not drawn independently and the accountant's ε does not hold; seed each rank's loader "
        "differently",
    )


def _others(alike: Hits) -> str:
    """The number of processes that share draws, in words, if more than two do."""
    involved = int((alike | alike.T).any(axis=1).sum())
    return f" ({involved} of {len(alike)} ranks drew what another drew)" if involved > 2 else ""


def compared_rows(rows: int) -> Integers:
    """The rows of a data set that processes compare to detect shared data."""
    return np.unique(np.linspace(0, rows - 1, min(COMPARED, rows)).astype(np.int64))


def shared_rows(pools: Sequence[Hits], prints: Integers, sizes: Sequence[int]) -> tuple[str, ...]:
    """The contradiction that two processes draw from the same row; () if that is not known.

    For each process, `pools` says whether it draws from each of `compared_rows`, and `prints` has
    fingerprints of distinct rows of its data set, which has `sizes` rows; 0 if there is none.
    """
    most, many = 1, most_in_common(prints)
    for one in range(len(prints)):
        # Equal fingerprints and equal sizes are one data set: `pools` number the rows of it alike.
        same = [
            pool
            for pool, other, size in zip(pools, prints, sizes, strict=True)
            if prints[one].any() and np.array_equal(prints[one], other) and size == sizes[one]
        ]
        most = max(most, int(np.sum(same, axis=0).max()) if same else 1)
    if most > 1:
        return (
            f"{most} ranks draw from the same rows: a row that all of them draw weighs {most} clip norms, "
            f"where noise and accountant allow 1; {_OWN_ROWS}",
        )
    if many >= _TOO_MANY:
        return (
            f"{many} of the rows that were compared are in the data of two ranks: such a row weighs 2 clip "
            f"norms, where noise and accountant allow 1; {_OWN_ROWS}",
        )
    return ()


def most_in_common(prints: Integers) -> int:
    """The most rows that two processes have in common, except processes that split the same data set."""
    most = 0
    for one, own in enumerate(prints):
        for other in prints[one + 1 :]:
            # Processes that split one data set have the same prints; what they draw from it tells them apart.
            if not np.array_equal(own, other):
                most = max(most, len(np.intersect1d(own[own != 0], other)))
    return most
