"""What an audit keeps of the noisy sums of training: the specification, in NumPy.

Every integration does this in its own framework, on the device of the model, and one test holds them all to
what is written here. A step gives one number for each coordinate that carries canaries, the noisy sum there
less the part of the real rows, one for each witness, its noise, and one for each parameter, the sum of its
noise; all in units of the clip norm.

    noise      The believed noise of a parameter is the stated one, unless the first steps are too large or
               too small for it by five standard errors; then it is as many times the stated one as they
               show, so that a fault does not blunt the audit. The bits are not looked at, so bounds hold
               either way.
    table      L(m) - L(0) for m = 1 ... s, L(m) = sum_t ln sum_j Bin(j; m g, q) phi((y_t - j) / sigma_t),
               sigma_t the believed noise of step t, and g the batches that make a step. Of shuffled batches,
               for s = 1, the sum over passes of ln (1 - w r / b + w / b sum_t e^((y_t - 1/2) / sigma_t^2)),
               t over the r steps so far of the b steps of a pass, w the probability with which a row is in
               it. `HELD` steps are held back and added in one go.
    witnesses  What `canaria.training.canaries.witnesses.Seen` says, for conformance alone.
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
"""So many steps are held back and added together; the first of them show the noise."""
TOO_FEW: Final = 30
"""In a parameter with no more coordinates than this, the stated noise is believed."""
CLEAR: Final = 5.0
"""Standard errors from the stated noise at which what the steps show is believed."""
LEAST_NOISE: Final = 1e-3
"""Noise below this is taken for this, so that likelihoods stay finite."""


class Totals(NamedTuple):
    """What was seen in all steps.

    Attributes:
        sums: The sum of all steps, (coordinates).
        table: The likelihood table, (s, coordinates).
        witnessed: What witnesses showed.

    """

    sums: Floats
    table: Floats
    witnessed: Seen


@dataclass(frozen=True, kw_only=True)
class Accumulator:
    """How steps are added up.

    Attributes:
        layers: The number of coordinates in each parameter that carries canaries, in order.
        roles: What each witness is for.
        most: The largest number of canaries on one coordinate; 0 if there is no table: dense canaries, and
            those under correlated noise, have scores of another kind.
        sample_rate: The stated sampling rate, of a batch.
        sampling: How rows are stated to take part.

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
        """That of an audit with this design, of canaries and witnesses laid out so."""
        most = design.most if isinstance(design, Dirac) else 0
        return cls(layers=layers, roles=roles, most=most, sample_rate=sample_rate, sampling=sampling)

    @property
    def draws(self) -> int:
        """The number of coins that decide how often canaries take part in one step on one coordinate."""
        return self.most * self.sampling.accumulated

    @property
    def pass_of_shuffled(self) -> tuple[int, float]:
        """The steps of a pass of shuffled batches, and the probability with which a row is in it."""
        rate = self.sample_rate
        return self.sampling.steps_of_a_pass(rate), self.sampling.once_in_a_pass(rate)

    def absent(self, steps: int) -> float:
        """The logarithm of the probability that a row was in none of so many steps of a pass."""
        length, once = self.pass_of_shuffled
        left = 1 - once * steps / length
        return math.log(left) if left > 1e-12 else -math.inf

    @property
    def count_square(self) -> float:
        """The mean square of the number of canaries that take part on one coordinate."""
        once = self.sampling.accumulated * self.sample_rate
        return self.most / 2 * once * (1 - self.sample_rate) + (self.most + self.most**2) / 4 * once**2

    def believed_factors(self, seen: Floats, stated: Floats) -> list[float]:
        """How many times the stated noise each parameter has, by the first steps, (steps, coordinates)."""
        squares, mean_square = np.mean(seen**2, axis=0), float(np.mean(stated**2))
        return [
            self.believed_factor(float(part.mean()), float(part.std(ddof=1)), len(part), mean_square)
            if len(part) > TOO_FEW
            else 1.0
            for part in np.split(squares, np.cumsum(self.layers)[:-1])
        ]

    def believed_factor(self, mean: float, deviation: float, count: int, stated_square: float) -> float:
        """The factor to believe in where mean squares have this mean and standard deviation."""
        # The mean square of a coordinate is that of the noise plus that of the canaries which take part,
        # whose mean over the hidden bits is known. So the bits are not needed, and bounds hold (Theorem 25).
        stated_square = max(stated_square, LEAST_NOISE**2)
        shown = mean - self.count_square
        if not abs(shown - stated_square) > CLEAR * deviation / math.sqrt(count):
            return 1.0
        # A twentieth of the stated noise at least: where noise is missing, nothing or less may be left.
        return math.sqrt(max(shown / stated_square, 1 / 400))

    def likelihoods(self, seen: Floats, stated: Floats, factors: Sequence[float]) -> Floats:
        """What all steps add to the table, (s, coordinates), by the noise of each step and parameter."""
        parts = []
        for part, factor in zip(np.split(seen, np.cumsum(self.layers)[:-1], axis=1), factors, strict=True):
            sigmas = np.maximum(stated, LEAST_NOISE) * factor
            shuffled = self.sampling.kind == "shuffled" and self.most > 0
            parts.append(self._of_passes(part, sigmas) if shuffled else self._of_steps(part, sigmas))
        return np.concatenate(parts, axis=1)

    def _of_steps(self, seen: Floats, sigmas: Floats) -> Floats:
        added = np.zeros((self.most, seen.shape[1]))
        for row, sigma in zip(seen, sigmas.tolist(), strict=True):
            logs = log_likelihoods_of(row[None], self.draws, self.sample_rate, sigma)
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
        """What all steps come to: at the canaries, (steps, coordinates), at witnesses, and in parameters."""
        factors = self.believed_factors(seen[:HELD], stated[:HELD])
        units = np.maximum(stated, 1e-30)[:, None]
        witnessed = Seen.of(noise / units, whole / units, self.roles)
        return Totals(seen.sum(axis=0), self.likelihoods(seen, stated, factors), witnessed)


def table_of(likelihoods: Floats) -> Floats:
    """L(m) - L(0), (s, coordinates), as a `Recording` holds it: (coordinates, s + 1), with m = 0."""
    return np.concatenate([np.zeros_like(likelihoods[:1]), likelihoods]).T.copy()
