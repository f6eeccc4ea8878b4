"""Elements in sets of neighbours, and the loss if only the count of a set is seen."""

import math

import numpy as np

from canaria._core import binomial
from canaria._core.arrays import Bits, Floats, Integers


def sets_of(n: int, size: int) -> Integers:
    """The sizes of the sets: `size` each, and the rest in the last one."""
    return np.asarray(np.diff(np.r_[np.arange(0, n, size), n]))


def included_in_sets(bits: Bits, size: int) -> Integers:
    """The number of included elements of each set, (trials, sets)."""
    starts = np.arange(0, bits.shape[1], size)
    return np.add.reduceat(bits > 0, starts, axis=1, dtype=np.int64)


def set_rounds(n: int, size: int) -> tuple[Integers, ...]:
    """The first element of every set, then the second, and so on."""
    return tuple(np.arange(first, n, size) for first in range(min(size, n)))


def count_loss(log_likelihoods: Floats, known: Bits, size: int) -> Floats:
    """The loss of every hidden element from L(m), the log likelihood of m included in its set.

    If a elements of the set are revealed as included and u elements besides i are hidden,

        loss_i = ln sum_k Bin(k; u, 1/2) e^L(a + k + 1) - ln sum_k Bin(k; u, 1/2) e^L(a + k).

    `log_likelihoods` is (trials, sets, size + 1); all hidden elements of a set share their loss.
    """
    # The bits of the u others are fair coins: bit i adds one to the count, and they add Bin(u, 1/2).
    included, hidden = revealed_in_sets(known, size)
    others = np.maximum(hidden - 1, 0)
    weights = _log_binomials(size)[others]
    # Sets without a hidden element may give -inf - -inf; `spread` has no place for these.
    with np.errstate(invalid="ignore"):
        shared = _mixture(log_likelihoods, included + 1, weights)
        shared -= _mixture(log_likelihoods, included, weights)
    return spread(shared, known, size)


def revealed_in_sets(known: Bits, size: int) -> tuple[Integers, Integers]:
    """The numbers of elements that are revealed as included, and that are hidden, in each set."""
    starts = np.arange(0, known.shape[1], size)
    included = np.add.reduceat(known > 0, starts, axis=1, dtype=np.int64)
    return included, np.add.reduceat(known == 0, starts, axis=1, dtype=np.int64)


def spread(shared: Floats, known: Bits, size: int) -> Floats:
    """Give the loss of each set to its hidden elements."""
    losses = np.repeat(shared, sets_of(known.shape[1], size), axis=1)
    return np.where(known == 0, losses, 0.0)


def _log_binomials(size: int) -> Floats:
    """Ln Bin(k; u, 1/2) at [u, k], -inf where k > u."""
    total, hits = np.meshgrid(np.arange(size + 1.0), np.arange(size + 1.0), indexing="ij")
    return np.where(hits <= total, binomial.log_mass(np.minimum(hits, total), total, 0.5), -math.inf)


def _mixture(log_likelihoods: Floats, included: Integers, weights: Floats) -> Floats:
    """Ln sum_k e^weight(k) e^L(included + k), for each trial and set."""
    top = log_likelihoods.shape[-1]
    places = np.minimum(included[..., None] + np.arange(top), top - 1)
    terms = weights + np.take_along_axis(log_likelihoods, places, -1)
    peak = terms.max(axis=-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - peak).sum(axis=-1)) + peak[..., 0])
