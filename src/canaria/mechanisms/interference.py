"""Dense gradient canaries: every canary touches every coordinate, so canaries interfere with each other."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg

from canaria._core.arrays import Bits, Floats


class Interference:
    """The score of each dense canary from summed noisy gradients, given the bits revealed so far.

    The released sums are Y = sum_j x_j g_j + N(0, T sigma^2) with unit gradients g_j, where x_j is 0 if
    canary j is excluded and Binomial(T, q) if it is included. The parts of revealed canaries are subtracted
    at their mean (interference cancellation). Those of hidden ones are treated as Gaussian with their mean
    and variance, which whitens their interference as far as possible. For canary i one number b ~ N(a x_i, a)
    is left, and its score is the log likelihood ratio of that. It is close to the privacy loss, not the loss
    itself: bounds hold whatever it is.

    S, the covariance of Y, has as many rows as there are coordinates. Only the (n, n) matrix G S^-1 G' is
    needed. It is kept and updated as bits are revealed: O(n^2) for each bit, O(n^3) in all.

    Args:
        sums: The released sums, one per coordinate.
        gradients: The canaries, (canaries, coordinates).
        steps: The number of steps T.
        sample_rate: The sampling rate q.
        noise_multiplier: The noise multiplier sigma.

    Example:
        >>> import numpy as np
        >>> score = Interference([8.0, 1.0], np.eye(2), steps=8, sample_rate=1.0, noise_multiplier=1.0)
        >>> score(np.zeros(2, dtype=np.int8))
        array([ 4., -3.])
    """

    def __init__(
        self,
        sums: npt.ArrayLike,
        gradients: npt.ArrayLike,
        *,
        steps: int,
        sample_rate: float,
        noise_multiplier: float,
    ) -> None:
        vectors = np.asarray(gradients, dtype=np.float64)
        self._taken = steps * sample_rate
        self._spread = self._taken * (1 - sample_rate)
        self._noise = steps * noise_multiplier**2
        self._overlap = vectors @ vectors.T
        self._projected = vectors @ np.asarray(sums, dtype=np.float64)
        self._start(np.zeros(len(vectors), dtype=np.int8))

    def __call__(self, known: Bits) -> Floats:
        """One score per canary; 0 where the bit is revealed."""
        # Revealing is cheap for few bits. Hiding bits again, as for a new game, needs a fresh start.
        changed = np.flatnonzero(known != self._known)
        if len(changed) * 4 > len(known) or (self._known[changed] != 0).any():
            self._start(known)
        elif len(changed):
            self._reveal(changed, known)
        hidden = known == 0
        # r = g' S^-1 g and g' S^-1 (Y - all means), for every canary g.
        means = self._means(known)
        variances = self._variances(known)
        reach = np.diagonal(self._inner)
        pull = self._pulled - self._inner @ means
        # Canary i is taken out of S again (Sherman and Morrison), and its mean out of the residual.
        alone = 1 / np.maximum(1 - variances * reach, 1e-12)
        strength = np.maximum(reach * alone, 1e-300)
        # a = `strength` = g' S_-i^-1 g and b = `seen` = g' S_-i^-1 (Y - means of the others), so b ~ N(a x_i,
        # a). For an excluded canary x_i = 0. For an included one x_i has the mean T q and the variance T q (1
        # - q), treated as normal: b ~ N(a T q, a + a^2 T q (1 - q)).
        seen = pull * alone + strength * means
        wide = strength + strength**2 * self._spread
        ratio = 0.5 * (seen**2 / strength - (seen - strength * self._taken) ** 2 / wide)
        ratio -= 0.5 * np.log(wide / strength)
        return np.where(hidden, ratio, 0.0)

    def _means(self, known: Bits) -> Floats:
        """The means of x_j: Binomial(T, q) if included, 0 if not, and half of each if hidden."""
        return np.where(known == 0, self._taken / 2, np.where(known > 0, self._taken, 0.0))

    def _variances(self, known: Bits) -> Floats:
        """The mean variance given the bit, plus the variance that the bit itself adds."""
        hidden = self._spread / 2 + self._taken**2 / 4
        return np.where(known == 0, hidden, np.where(known > 0, self._spread, 0.0))

    def _start(self, known: Bits) -> None:
        """Solve for G S^-1 G': S = noise I + G' V G, so G S^-1 = (noise I + K V)^-1 G with K = G G'."""
        system = self._overlap * self._variances(known)
        system[np.diag_indices_from(system)] += self._noise
        solved = linalg.solve(system, np.column_stack([self._overlap, self._projected]), check_finite=False)
        self._inner, self._pulled = np.ascontiguousarray(solved[:, :-1]), solved[:, -1]
        self._known = known.copy()

    def _reveal(self, changed: Any, known: Bits) -> None:
        """Change the variances of a few canaries in S.

        With D the change and G_c their gradients, S becomes S + G_c' D G_c. By Woodbury's formula, the matrix
        K = G S^-1 G' loses K_c (I + D K_cc)^-1 D K_c'.
        """
        change = self._variances(known)[changed] - self._variances(self._known)[changed]
        columns = self._inner[:, changed]
        small = np.eye(len(changed)) + change[:, None] * columns[changed]
        gain = linalg.solve(small, change[:, None] * columns.T, check_finite=False)
        self._pulled = self._pulled - gain.T @ self._pulled[changed]
        self._inner = self._inner - columns @ gain
        self._known = known.copy()


def unit_rows(count: int, dimension: int, rng: np.random.Generator) -> Floats:
    """Random dense canaries: independent signs, each vector of norm 1."""
    signs = rng.integers(0, 2, (count, dimension), dtype=np.int8)
    return np.asarray((2.0 * signs - 1.0) / math.sqrt(dimension))
