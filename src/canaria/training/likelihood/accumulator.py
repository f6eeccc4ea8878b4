"""The reduction of the noisy sums to the numbers that an audit keeps: the specification, in NumPy.

Each integration implements this in its own framework, on the device of the model, and one test compares all
of them with this module. All values are in units of the clip norm. A step gives one number for each
coordinate with canaries (the noisy sum without the real rows), one for each witness (its noise), and one for
each parameter (the sum of its noise).

    noise      By default the stated noise of a parameter is used. If the first steps differ from it by more
               than five standard errors, the observed noise is used instead, so that a fault does not weaken
               the audit. This does not depend on the bits, so bounds hold either way.
    table      L(m) - L(0) for m = 1 ... s, where L(m) = sum_t ln sum_j Bin(j; m g, q) phi((y_t - j) /
               sigma_t), sigma_t is the noise of step t, and g the number of batches per step. For shuffled
               batches, s = 1 and it is the sum over passes of ln (1 - w r / b + w / b sum_t e^((y_t - 1/2) /
               sigma_t^2)), with t over the r steps so far of the b steps of a pass, and w the probability
               that a row is in the pass. `HELD` steps are buffered and added at once.
    witnesses  The fields of `canaria.training.canaries.witnesses.Seen`, for conformance only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from scipy import special

from canaria._core.arrays import Floats
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.training.canaries.designs import Design, Dirac
from canaria.training.canaries.sampling import POISSON, Sampling
from canaria.training.canaries.witnesses import Roles, Seen

HELD: Final = 16
"""This many steps are buffered and added together. The first buffer is used to estimate the noise."""
TOO_FEW: Final = 30
"""For a parameter with at most this many coordinates, the stated noise is used."""
CLEAR: Final = 5.0
"""Standard errors between the stated and observed noise above which the observed noise is used."""
LEAST_NOISE: Final = 1e-3
"""Noise below this is raised to it, so that likelihoods stay finite."""


class Totals(NamedTuple):
    """The totals over all steps."""

    sums: Floats
    table: Floats
    witnessed: Seen


@dataclass(frozen=True, kw_only=True)
class Accumulator:
    """The rule by which steps are added up.

    Attributes:
        layers: The number of coordinates in each parameter that carries canaries, in order.
        roles: The tests that each witness is used for.
        most: The largest number of canaries on one coordinate; 0 if there is no table, because dense canaries
            and those under correlated noise are scored differently.
        sample_rate: The stated sampling rate, per batch.
        sampling: The stated sampling.
    """

    layers: tuple[int, ...]
    roles: Roles
    most: int
    sample_rate: float
    sampling: Sampling = POISSON

    @classmethod
    def of(
        cls,
        design: Design,
        layers: tuple[int, ...],
        roles: Roles,
        *,
        sample_rate: float,
        sampling: Sampling = POISSON,
    ) -> "Accumulator":
        """Make the accumulator for an audit with this design and layout."""
        most = design.most if isinstance(design, Dirac) else 0
        return cls(layers=layers, roles=roles, most=most, sample_rate=sample_rate, sampling=sampling)

    @property
    def draws(self) -> int:
        """The number of coins that decide how often canaries on one coordinate take part in a step."""
        return self.most * self.sampling.accumulated

    @property
    def pass_of_shuffled(self) -> tuple[int, float]:
        """The number of steps in a pass of shuffled batches, and the probability that a row is in it."""
        rate = self.sample_rate
        return self.sampling.steps_of_a_pass(rate), self.sampling.once_in_a_pass(rate)

    def absent(self, steps: int) -> float:
        """The logarithm of the probability that a row was in none of the first `steps` steps of a pass."""
        length, once = self.pass_of_shuffled
        left = 1 - once * steps / length
        return math.log(left) if left > 1e-12 else -math.inf

    @property
    def count_square(self) -> float:
        """The mean square of the number of canaries on one coordinate that take part in a step."""
        once = self.sampling.accumulated * self.sample_rate
        return self.most / 2 * once * (1 - self.sample_rate) + (self.most + self.most**2) / 4 * once**2

    def believed_factors(self, seen: Floats, stated: Floats) -> list[float]:
        """The noise of each parameter over the stated noise, from the first steps, (steps, coordinates)."""
        squares, mean_square = np.mean(seen**2, axis=0), float(np.mean(stated**2))
        return [
            self.believed_factor(float(part.mean()), float(part.std(ddof=1)), len(part), mean_square)
            if len(part) > TOO_FEW
            else 1.0
            for part in np.split(squares, np.cumsum(self.layers)[:-1])
        ]

    def believed_factor(self, mean: float, deviation: float, count: int, stated_square: float) -> float:
        """The noise over the stated noise, for mean squares with this mean and standard deviation."""
        # The mean square of a coordinate is that of the noise plus that of the participating canaries. Its
        # mean over the hidden bits is known, so the bits are not needed, and bounds hold (Theorem 25).
        stated_square = max(stated_square, LEAST_NOISE**2)
        shown = mean - self.count_square
        if not abs(shown - stated_square) > CLEAR * deviation / math.sqrt(count):
            return 1.0
        # At least a twentieth of the stated noise: if noise is missing, the difference may be 0 or negative.
        return math.sqrt(max(shown / stated_square, 1 / 400))

    def likelihoods(self, seen: Floats, stated: Floats, factors: Sequence[float]) -> Floats:
        """The contribution of all steps to the table, (s, coordinates), given the noise of each parameter."""
        parts = []
        for part, factor in zip(np.split(seen, np.cumsum(self.layers)[:-1], axis=1), factors, strict=True):
            sigmas = np.maximum(stated, LEAST_NOISE) * factor
            # A row is in one batch of a pass, so its steps are not independent: the likelihood is that of a
            # pass.
            shuffled = self.sampling.kind == "shuffled" and self.most > 0
            parts.append(self._of_passes(part, sigmas) if shuffled else self._of_steps(part, sigmas))
        return np.concatenate(parts, axis=1)

    def _of_steps(self, seen: Floats, sigmas: Floats) -> Floats:
        added = np.zeros((self.most, seen.shape[1]))
        for row, sigma in zip(seen, sigmas.tolist(), strict=True):
            logs = log_likelihoods_of(row[None], self.draws, self.sample_rate, sigma)
            # Coins of one canary come in groups of `accumulated`: m canaries have m times as many.
            logs = logs[:, :: self.sampling.accumulated]
            added += (logs[:, 1:] - logs[:, :1]).T
        return added

    def _of_passes(self, seen: Floats, sigmas: Floats) -> Floats:
        length, once = self.pass_of_shuffled
        ratios = (seen - 0.5) / sigmas[:, None] ** 2
        added = np.zeros((1, seen.shape[1]))
        for start in range(0, len(seen), length):
            some = ratios[start : start + length]
            added += np.logaddexp(
                special.logsumexp(some, axis=0) + math.log(once / length), self.absent(len(some))
            )
        return added

    def totals(self, seen: Floats, noise: Floats, whole: Floats, stated: Floats) -> Totals:
        """The totals of all steps, from values at canaries, (steps, coordinates), witnesses, parameters."""
        factors = self.believed_factors(seen[:HELD], stated[:HELD])
        units = np.maximum(stated, 1e-30)[:, None]
        witnessed = Seen.of(noise / units, whole / units, self.roles)
        return Totals(seen.sum(axis=0), self.likelihoods(seen, stated, factors), witnessed)


def table_of(likelihoods: Floats) -> Floats:
    """Convert L(m) - L(0), (s, coordinates), to the table of a `Recording`, (coordinates, s + 1)."""
    return np.concatenate([np.zeros_like(likelihoods[:1]), likelihoods]).T.copy()
