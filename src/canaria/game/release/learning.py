"""What tells two data sets apart, learned from runs whose data are known, and how far to trust it.

A *sign* is one number of the output and a threshold: runs above it look like one data set, runs below like
the other. Signs are learned from the earlier runs of a pair of data sets alone, and guess the later ones. So
no run is guessed by a sign that was learned from it, and the guesses are valid whatever was learned (Theorem
37).
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core.arrays import Floats, Hits
from canaria.game.release.outputs import table

_FIRST: Final = 4
"""Runs of a pair before its first guess."""
_AGAIN: Final = 1.5
"""A sign is learned again when there are this many times the runs."""
_RIGHT, _WRONG = 1.5, 0.5
"""Guesses that count as made before the first: a new sign is right with probability 3/4."""
_RANK: Final = 1.0
"""The nats that a sign of rank e costs: among a thousand numbers of noise, some tell eight runs apart."""
_LARGEST: Final = 0.999
"""The largest confidence."""


@dataclass(frozen=True)
class Sign:
    """Outputs with a number above a threshold look like those of the data `above`.

    Attributes:
        name: The name of the number.
        threshold: The threshold; `-inf` if the sign is that there is such a number.
        above: Whether runs above it look like the second data set; if not, runs below do.

    """

    name: str
    threshold: float
    above: bool

    def holds(self, numbers: dict[str, float]) -> bool:
        """Whether an output is above the threshold."""
        value = numbers.get(self.name, math.nan)
        # An absent number is below everything, even below -inf.
        return not math.isnan(value) and (value > self.threshold or self.threshold == -math.inf)

    @property
    def words(self) -> str:
        """The sign in words."""
        name = self.name.lstrip(".") or "the output"
        name = f"the output{name}" if name.startswith((" ", "[")) else name
        if self.threshold == -math.inf or (" has " in name and self.threshold < 1):
            says = any(verb in name for verb in (" has ", " is ", "it raises ", "it warns "))
            return name if says else f"{name} is there"
        return f"{name} is above {self.threshold:.6g}"


@dataclass(kw_only=True)
class Learner:
    """Guesses which of two data sets a run was on, from the earlier runs.

    Attributes:
        ranks: For each number, its place among those that moved most when the data changed; the first is 0.

    """

    ranks: dict[str, int]
    sign: Sign | None = None
    _runs: list[dict[str, float]] = field(default_factory=list)
    _bits: list[bool] = field(default_factory=list)
    _learned_from: int = 0
    _right: dict[bool, float] = field(default_factory=dict)
    _wrong: dict[bool, float] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The names of all numbers seen."""
        return list(dict.fromkeys(name for run in self._runs for name in run))

    def guess(self, numbers: dict[str, float]) -> tuple[bool, float] | None:
        """The guessed data set of a run, and the confidence; None before there is a sign."""
        if self.sign is None:
            return None
        bit = self.sign.holds(numbers) == self.sign.above
        right, wrong = self._right.get(bit, _RIGHT), self._wrong.get(bit, _WRONG)
        return bit, min(right / (right + wrong), _LARGEST)

    def add(self, numbers: dict[str, float], bit: bool) -> None:
        """Learn from a run, after its data set was guessed."""
        if self.sign is not None:
            guessed = self.sign.holds(numbers) == self.sign.above
            counts, first = (self._right, _RIGHT) if guessed == bit else (self._wrong, _WRONG)
            counts[guessed] = counts.get(guessed, first) + 1
        self._runs.append(numbers)
        self._bits.append(bit)
        if len(self._runs) >= max(_FIRST, _AGAIN * self._learned_from):
            self._learn()

    def seen(self) -> tuple[int, int, int, int]:
        """Runs with the sign and all runs, of the second data set and of the first."""
        assert self.sign is not None
        holds = [self.sign.holds(one) for one in self._runs]
        second = [held for held, bit in zip(holds, self._bits, strict=True) if bit]
        first = [held for held, bit in zip(holds, self._bits, strict=True) if not bit]
        return sum(second), len(second), sum(first), len(first)

    def _learn(self) -> None:
        bits = np.array(self._bits)
        if bits.all() or not bits.any():
            return
        if not (names := self.names):
            return
        last = len(self.ranks)
        cost = _RANK * np.log1p([self.ranks.get(name, last) for name in names])
        found = best_sign(table(self._runs, names), bits, cost)
        self._learned_from = len(self._runs)
        if found is None:
            return
        column, threshold, above = found
        sign = Sign(names[column], threshold, above)
        if self.sign is None or (sign.name, sign.above) != (self.sign.name, self.sign.above):
            # What is known of another sign says little about this one.
            self._right, self._wrong = {}, {}
        self.sign = sign


def best_sign(values: Floats, bits: Hits, cost: Floats) -> tuple[int, float, bool] | None:
    """The column and the threshold that explain the bits best, and whether those above it are True.

    A threshold divides the runs into two parts. Its worth is the log-likelihood of the bits if each part has
    a frequency of its own, less the cost of the column. `nan` counts as below all numbers.
    """
    filled = np.where(np.isnan(values), -np.inf, values)
    # A number that is there and infinite must still differ from one that is absent.
    filled[np.isneginf(values)] = -np.finfo(np.float64).max
    order = np.argsort(filled, axis=0, kind="stable")
    ranked = np.take_along_axis(filled, order, axis=0)
    below = np.arange(1, len(values))[:, None]
    ones = np.cumsum(bits[order], axis=0)[:-1]
    total = int(bits.sum())
    worth = _explained(ones, below) + _explained(total - ones, len(values) - below) - cost
    worth[ranked[1:] == ranked[:-1]] = -np.inf  # no threshold lies between equal numbers
    place, column = divmod(int(np.argmax(worth)), values.shape[1])
    if not np.isfinite(worth[place, column]):
        return None
    low, high = ranked[place, column], ranked[place + 1, column]
    threshold = -math.inf if np.isneginf(low) else float(low + (high - low) / 2)
    if not math.isfinite(high - low):
        threshold = -math.inf if np.isneginf(low) else float(low)
    above = ones[place, column] / (place + 1) < (total - ones[place, column]) / (len(values) - place - 1)
    return column, threshold, bool(above)


def _explained(ones: npt.NDArray[Any], count: npt.NDArray[Any]) -> Any:
    """The log-likelihood of a part by its own frequency, estimated as if there had been one run more."""
    share = (ones + 0.5) / (count + 1)
    return ones * np.log(share) + (count - ones) * np.log1p(-share)
