"""What an audit keeps of the noisy sums of training: the specification, in NumPy.

Every integration does this in its own framework, on the device of the model, and one test holds them all to
what is written here. A step gives one number for each coordinate that carries canaries: the noisy sum there,
less the part of the real rows, in units of the clip norm.

    places   Every parameter carries canaries, the small ones too; within a parameter their coordinates lie
             side by side, from the first one on.
    noise    The believed noise of a parameter is the stated one, unless the first steps are too large or too
             small for it by five standard errors; then it is what they show, so that a fault does not blunt
             the audit. The bits are not looked at, so bounds hold either way.
    table    L(m) - L(0) for m = 1 ... s, L(m) = sum_t ln sum_j Bin(j; m, q) phi((y_t - j) / sigma), sigma the
             believed noise. `HELD` steps are held back and added in one go.
    pairs    The squared differences of the steps 1 and 2, 3 and 4, ..., summed over a pair and over a
             parameter. They are taken where no canary is included: on some thousands of coordinates, some of
             every parameter; for dense canaries, along some directions at right angles to all that are
             included. After an odd number of steps, the last one is held against the mean of all others.
    twins    Coordinates with the same index in two parameters, compared as above, for every two parameters:
             how often their differences have the same sign. One random key used for several parameters gives
             them the same noise.

Pairs and twins serve conformance alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from scipy import linalg

from canaria._core.arrays import Bits, Floats, Integers
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.training.canaries import Design, Dirac
from canaria.training.differences import Pairs, Twins

HELD: Final = 16
"""So many steps are held back and added together; the first of them show the noise."""
TOO_FEW: Final = 30
"""In a parameter with no more coordinates than this, the stated noise is believed."""
CLEAR: Final = 5.0
"""Standard errors from the stated noise at which what the steps show is believed."""
_COMPARED: Final = 4096
"""About so many coordinates are enough to compare steps on."""
_COMPARED_OF_EACH: Final = 8
"""Of every parameter at least so many, if it has them."""
_TWINS: Final = 64
"""So many indices are enough to see whether parameters share their noise."""
_DIRECTIONS: Final = 256
"""Steps of dense canaries are compared along at most so many directions."""
_AT_LEAST: Final = 4
"""Every parameter gets so many coordinates, if there are enough for all."""
_LEAST_NOISE: Final = 1e-3
"""Noise below this is taken for this, so that likelihoods stay finite."""


def places(sizes: Sequence[int], count: int) -> list[slice]:
    """Where `count` coordinates lie in parameters of these sizes; a slice is empty if there are none.

    >>> places([900, 90, 10], 100)
    [slice(0, 78, None), slice(0, 14, None), slice(0, 8, None)]
    """
    return [slice(0, share) for share in shares(sizes, count)]


def shares(sizes: Sequence[int], count: int) -> list[int]:
    """How many of `count` coordinates each of these sizes gets: a floor for the small, then in proportion.

    >>> shares([900, 90, 10], 100)
    [78, 14, 8]
    >>> shares([3, 5], 8)
    [3, 5]
    >>> shares([900, 90, 10, 1], 10)
    [5, 2, 2, 1]
    """
    wholes = np.array(sizes, dtype=np.int64)
    floor = max(count // (4 * len(wholes)), min(_AT_LEAST, count // len(wholes)))
    given = np.minimum(wholes, floor)
    while given.sum() < count:
        room = wholes - given
        more = np.minimum(room, np.floor(room * ((count - given.sum()) / room.sum())).astype(np.int64))
        if more.sum() == 0:
            largest = np.argsort(-room, kind="stable")[: count - int(given.sum())]
            more[largest[room[largest] > 0]] = 1
        given = given + more
    return [int(share) for share in given]


class Totals(NamedTuple):
    """What was seen in all steps.

    Attributes:
        sums: The sum of all steps, (coordinates).
        table: The likelihood table, (s, coordinates).
        by_pair: The squared differences of each pair of steps.
        by_place: The same over all pairs, for each place where steps are compared.
        signs: For every two parameters, how often over all pairs the differences at twins had a sign, and how
            much more often it was the same, (2, parameters, parameters).

    """

    sums: Floats
    table: Floats
    by_pair: Floats
    by_place: Floats
    signs: Floats


class Last(NamedTuple):
    """A last step without a partner, its stated noise, and the mean square of that of the steps before."""

    seen: Floats
    stated: float
    mean_square_before: float


@dataclass(frozen=True, kw_only=True)
class Accumulator:
    """How steps are added up.

    Attributes:
        layers: The number of coordinates in each parameter that carries canaries, in order.
        most: The largest number of canaries on one coordinate; 0 for dense canaries, which have no table.
        sample_rate: The stated sampling rate.
        noise_multiplier: The stated noise multiplier; where it changes, that of the first step.
        compared: The coordinates on which steps are compared; all for dense canaries.
        directions: For dense canaries, the directions along which steps are compared, (coordinates,
            directions), orthonormal; else None.
        twins: For every parameter, which of the compared places has the index 0, 1, ... in it, (parameters,
            indices); -1 where none has.

    """

    layers: tuple[int, ...]
    most: int
    sample_rate: float
    noise_multiplier: float
    compared: Integers
    directions: Floats | None = None
    twins: Integers

    @classmethod
    def of(
        cls,
        design: Design,
        bits: Bits,
        layers: tuple[int, ...],
        *,
        sample_rate: float,
        noise_multiplier: float,
    ) -> "Accumulator":
        """That of an audit with this design and these hidden bits."""
        stated = max(noise_multiplier, _LEAST_NOISE)
        if isinstance(design, Dirac):
            compared = _quiet(design.coordinates, bits, layers)
            return cls(
                layers=layers,
                most=design.most,
                sample_rate=sample_rate,
                noise_multiplier=stated,
                compared=compared,
                twins=_twins(compared, layers),
            )
        return cls(
            layers=layers,
            most=0,
            sample_rate=sample_rate,
            noise_multiplier=stated,
            compared=np.arange(design.coordinates),
            directions=_quiet_directions(design.gradients()[bits > 0]),
            twins=np.full((len(layers), 0), -1),
        )

    @property
    def places(self) -> int:
        """The number of places where steps are compared."""
        return len(self.compared) if self.directions is None else self.directions.shape[1]

    @property
    def count_square(self) -> float:
        """The mean square of the number of canaries that take part on one coordinate."""
        mean = self.most * self.sample_rate / 2
        return mean * (1 - self.sample_rate / 2) + mean**2

    def believed_noise(self, seen: Floats) -> list[float]:
        """The believed noise of each parameter, by the first steps, (steps, coordinates)."""
        squares = np.mean(seen**2, axis=0)
        return [
            self.believed_of(float(part.mean()), float(part.std(ddof=1)), len(part))
            if len(part) > TOO_FEW
            else self.noise_multiplier
            for part in np.split(squares, np.cumsum(self.layers)[:-1])
        ]

    def believed_of(self, mean: float, deviation: float, count: int) -> float:
        """The noise to believe in where mean squares have this mean and standard deviation."""
        stated, shown = self.noise_multiplier, mean - self.count_square
        if not abs(shown - stated**2) > CLEAR * deviation / math.sqrt(count):
            return stated
        return math.sqrt(max(shown, (stated / 20) ** 2))

    def likelihoods(self, seen: Floats, noise: Sequence[float]) -> Floats:
        """What steps add to the table, (s, coordinates), by the noise of each parameter."""
        parts = []
        for part, sigma in zip(np.split(seen, np.cumsum(self.layers)[:-1], axis=1), noise, strict=True):
            logs = log_likelihoods_of(part, self.most, self.sample_rate, sigma)
            parts.append(logs[:, 1:] - logs[:, :1])
        return np.concatenate(parts).T

    def at_places(self, seen: Floats) -> Floats:
        """The values that are compared: noise alone, if training is correct."""
        return seen[..., self.compared] if self.directions is None else seen @ self.directions

    def differences(self, seen: Floats, stated: Floats) -> Floats:
        """Differences of pairs of steps over their standard deviation, (pairs, places).

        `stated` is the noise multiplier of each step. The first step must be an odd one; a last one without a
        partner is left out.
        """
        paired = len(seen) // 2 * 2
        values = self.at_places(seen[:paired])
        variances = stated[0:paired:2] ** 2 + stated[1:paired:2] ** 2
        return np.asarray((values[0::2] - values[1::2]) / np.sqrt(np.maximum(variances, 1e-30))[:, None])

    def signs(self, differences: Floats) -> Floats:
        """How often the differences at twins have a sign, and how much more often it is the same."""
        padded = np.concatenate([np.sign(differences), np.zeros((len(differences), 1))], axis=1)
        by_index = padded[:, self.twins].transpose(1, 0, 2).reshape(len(self.twins), -1)
        return np.stack([values @ values.T for values in (np.abs(by_index), by_index)])

    def totals(self, seen: Floats, stated: Floats) -> Totals:
        """What all steps, (steps, coordinates), come to."""
        differences = self.differences(seen, stated)
        squares = differences**2
        table = self.likelihoods(seen, self.believed_noise(seen[:HELD]))
        signs = self.signs(differences)
        return Totals(seen.sum(axis=0), table, squares.sum(axis=1), squares.sum(axis=0), signs)

    def pairs(self, totals: Totals, last: Last | None = None, left: float = 0.5) -> Pairs | None:
        """What the conformance test takes; None if there is nothing to compare.

        `last` is the last step if their number is odd, and `left` what a silent step leaves of its pair.
        """
        by_pair, by_place = totals.by_pair, totals.by_place
        if last is not None and len(by_pair):
            others = 2 * len(by_pair)
            off = self.off(last, totals.sums, others)
            by_pair, by_place = np.append(by_pair, off.sum()), by_place + off
            left = max(left, left_by_silence(last.stated**2, last.mean_square_before / others, either=False))
        return Pairs.of(
            by_pair,
            len(by_place),
            self.by_parameter(by_place),
            odd=len(by_pair) > len(totals.by_pair),
            twins=Twins.of(totals.signs),
            left=left,
        )

    def off(self, last: Last, sums: Floats, others: int) -> Floats:
        """Squared differences of a last step and the mean of the others, over their variance.

        If all steps have the same noise, they are independent of the sum of all and of all other differences.
        """
        differences = self.at_places(last.seen - (sums - last.seen) / others)
        variance = last.stated**2 + last.mean_square_before / others
        return np.asarray(differences**2 / max(variance, 1e-30))

    def by_parameter(self, by_place: Floats) -> tuple[tuple[float, int], ...]:
        """The sum and the number of places of each parameter; none where directions mix them."""
        if self.directions is not None:
            return ()
        layer = np.repeat(np.arange(len(self.layers)), self.layers)[self.compared]
        sums = np.bincount(layer, weights=by_place, minlength=len(self.layers))
        counts = np.bincount(layer, minlength=len(self.layers))
        return tuple((float(total), int(count)) for total, count in zip(sums, counts, strict=True))


def left_by_silence(square: float, other: float, *, either: bool = True) -> float:
    """The share of their sum that two variances keep without the first, or without the smaller one."""
    return max(other, square if either else 0.0) / max(square + other, 1e-30)


def table_of(likelihoods: Floats) -> Floats:
    """L(m) - L(0), (s, coordinates), as a `Recording` holds it: (coordinates, s + 1), with m = 0."""
    return np.concatenate([np.zeros_like(likelihoods[:1]), likelihoods]).T.copy()


def _quiet(coordinates: int, bits: Bits, layers: tuple[int, ...]) -> Integers:
    """Coordinates of Dirac canaries of which none is included: of many some, of every parameter."""
    included = np.bincount(np.flatnonzero(bits > 0) % coordinates, minlength=coordinates)
    chosen, first = [], 0
    for share in layers:
        quiet = first + np.flatnonzero(included[first : first + share] == 0)
        chosen.append(quiet[: max(_COMPARED_OF_EACH, _COMPARED * share // coordinates)])
        first += share
    return np.concatenate(chosen)


def _twins(compared: Integers, layers: tuple[int, ...]) -> Integers:
    """For every layer the place among those compared of its coordinates 0, 1, ...; -1 where there is none."""
    ends = np.cumsum(layers)
    layer = np.searchsorted(ends, compared, side="right")
    index = compared - (ends - layers)[layer]
    table = np.full((len(layers), min(_TWINS, max(layers))), -1)
    near = index < table.shape[1]
    table[layer[near], index[near]] = np.flatnonzero(near)
    return table


def _quiet_directions(included: Floats) -> Floats:
    """Orthonormal directions at right angles to all of these gradients, at most `_DIRECTIONS`."""
    count, width = included.shape
    free = max(width - count, 0)
    tried = np.random.default_rng(0).normal(size=(width, min(free, _DIRECTIONS)))
    if free == 0:
        return tried
    if count:
        spanned = linalg.qr(included.T, mode="economic")[0]
        for _ in range(2):
            tried -= spanned @ (spanned.T @ tried)
    return np.asarray(linalg.qr(tried, mode="economic")[0])
