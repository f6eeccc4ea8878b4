"""Strategies of matrix factorisation: matrices that correlate the noise of steps."""

from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import linalg

from canaria._core import checks
from canaria._core.arrays import Floats
from canaria._core.errors import InputError

_MANY: Final = 4
"""A matrix with fewer steps than this for each band is multiplied as a whole."""


class Strategy:
    """A lower triangular matrix C with a positive diagonal: training adds the noise C^-1 z.

    Args:
        matrix: The matrix, (T, T), finite.

    Example:
        >>> from canaria.mechanisms import Strategy
        >>> print(Strategy.toeplitz([1.0, 0.5, 0.25], steps=100))
        3 bands, 100 steps
        >>> print(Strategy([[1.0, 0.0], [0.5, 1.0]]))
        2 bands, 2 steps
    """

    def __init__(self, matrix: npt.ArrayLike) -> None:
        try:
            self.matrix = np.array(matrix, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"a strategy must be a square matrix of numbers: {error}") from None
        self.matrix.setflags(write=False)
        if self.matrix.ndim != 2 or len({*self.matrix.shape}) != 1 or not self.matrix.size:
            raise InputError(f"a strategy must be a square matrix, got shape {self.matrix.shape}")
        self.steps = len(self.matrix)
        if not np.isfinite(self.matrix).all() or np.triu(self.matrix, 1).any():
            raise InputError("a strategy must be finite and lower triangular")
        if not (np.diag(self.matrix) > 0).all():
            raise InputError("a strategy must be positive on its diagonal")
        nonzero = np.flatnonzero([np.diag(self.matrix, -k).any() for k in range(self.steps)])
        self.bands = int(nonzero[-1]) + 1

    @classmethod
    def toeplitz(cls, column: npt.ArrayLike, steps: int) -> "Strategy":
        """The strategy whose entries depend on the distance from the diagonal alone.

        Args:
            column: Its first column without the zeros at its end: one for each band, the first positive.
            steps: The number of steps.
        """
        first = np.asarray(column, dtype=np.float64)
        checks.integer("steps", steps, 1)
        if first.ndim != 1 or not 1 <= first.size <= steps:
            raise InputError(f"column must be a list of 1 to {steps} numbers, got shape {first.shape}")
        whole = np.zeros(steps)
        whole[: first.size] = first
        return cls(linalg.toeplitz(whole, np.zeros(steps)))

    @classmethod
    def buffered(cls, decays: npt.ArrayLike, scales: npt.ArrayLike, steps: int) -> "Strategy":
        """A buffered linear Toeplitz strategy (BLT): 1, then the sum of `scales` x `decays`^(k - 1)."""
        rates, weights = np.asarray(decays, dtype=np.float64), np.asarray(scales, dtype=np.float64)
        if rates.shape != weights.shape or rates.ndim != 1:
            raise InputError(
                f"decays and scales must be lists of one length, got shapes {rates.shape} and {weights.shape}"
            )
        checks.integer("steps", steps, 1)
        powers = rates[:, None] ** np.arange(steps - 1)
        return cls.toeplitz(np.append(1.0, weights @ powers), steps)

    def first(self, steps: int) -> "Strategy":
        """The strategy of the first steps: C is triangular, so no later step changes their releases."""
        if steps == self.steps:
            return self
        return Strategy(self.matrix[:steps, :steps])

    def back(self) -> Floats:
        """The entries of a step, of the step before, and so on, (steps, bands); 0 before the first step."""
        found = np.zeros((self.steps, self.bands))
        for lag in range(self.bands):
            found[lag:, lag] = np.diag(self.matrix, -lag)
        return found

    @cached_property
    def spread_of_sums(self) -> float:
        """The standard deviation of the sum over all steps of the noise that training adds, in units of s."""
        # The sum is 1' C^-1 z, and its standard deviation the norm of C^-T 1.
        ones = np.ones(self.steps)
        return float(np.linalg.norm(linalg.solve_triangular(self.matrix, ones, trans="T", lower=True)))

    @cached_property
    def spread_of_steps(self) -> Floats:
        """The standard deviation of the noise that training adds in each step, in units of s."""
        return np.asarray(np.linalg.norm(self.correlate(np.eye(self.steps)), axis=1))

    def whiten(self, released: Floats) -> Floats:
        """C times what was released, (steps, ...): its noise is independent from step to step."""
        return self._times(self.matrix, released)

    def correlate(self, noise: Floats) -> Floats:
        """C^-1 times independent noise, (steps, ...): the noise that training adds."""
        flat = linalg.solve_triangular(self.matrix, noise.reshape(self.steps, -1), lower=True)
        return np.asarray(flat.reshape(noise.shape))

    def statistic(self, released: Floats) -> Floats:
        """M = C' C g: the releases enter the likelihood ratio by m alone (Theorem 35)."""
        return self._times(self.matrix.T, self.whiten(released))

    def _times(self, matrix: Floats, values: Floats) -> Floats:
        """C or its transpose, as `matrix` says, times values; band by band if there are few."""
        if _MANY * self.bands > self.steps:
            return np.tensordot(matrix, values, axes=1)
        # One of the two triangles of the matrix is 0, so that adding both bands is right for C and for C'.
        ones = [1] * (values.ndim - 1)
        found = np.diag(matrix).reshape(-1, *ones) * values
        for lag in range(1, self.bands):
            below, above = np.diag(matrix, -lag), np.diag(matrix, lag)
            found[lag:] += below.reshape(-1, *ones) * values[:-lag]
            found[:-lag] += above.reshape(-1, *ones) * values[lag:]
        return np.asarray(found)

    def of(self, steps: npt.NDArray[np.bool_]) -> Floats:
        """C u for participations u, a column each, (steps, ...)."""
        return np.tensordot(self.matrix, steps.astype(np.float64), axes=1)

    @cached_property
    def squares(self) -> Floats:
        """The squared norm of every column: |C u|^2 of one participation."""
        return np.asarray((self.matrix**2).sum(axis=0))

    def __str__(self) -> str:
        """The numbers of bands and steps."""
        return f"{self.bands} bands, {self.steps} steps"
