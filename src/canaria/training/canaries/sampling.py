"""The stated sampling: how rows take part in steps."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from canaria._core import binomial, checks
from canaria._core.arrays import Floats, Hits, Integers
from canaria._core.errors import InputError, shown
from canaria.bounds.conformance import Part
from canaria.claims.families import DpSgdFamily, Family
from canaria.training.canaries.witnesses import Seen

KINDS: Final = ("poisson", "shuffled", "fixed-size")
_WORDS: Final = {
    "poisson": "Poisson sampling",
    "shuffled": "shuffled batches",
    "fixed-size": "batches of one size",
}
_OF_POISSON: Final = (
    "accountants of DP-SGD assume Poisson sampling, so their ε is not a claim about these batches; an "
    "excluded canary is drawn, and contributes 0"
)


class Trials(NamedTuple):
    """Coins that show heads with one probability; their number of heads is binomial."""

    number: int
    rate: float

    @property
    def mean(self) -> float:
        return self.number * self.rate

    @property
    def variance(self) -> float:
        return self.mean * (1 - self.rate)

    def law(self) -> tuple[Integers, Floats]:
        """The numbers of heads that are not negligibly rare, and the logarithms of their probabilities."""
        # Beyond 12 deviations lies less than 1e-30. At low rates, where the law is skewed, 12 counts more do.
        reach = 12 * math.sqrt(self.variance) + 12
        low, high = max(0, math.floor(self.mean - reach)), min(self.number, math.ceil(self.mean + reach))
        counts = np.arange(low, high + 1, dtype=np.int64)
        return counts, binomial.log_mass(counts, self.number, self.rate)


class Chances(NamedTuple):
    """The distribution of a number: the probabilities of 0, 1, 2, ..."""

    each: Floats

    @property
    def mean(self) -> float:
        return float(np.arange(len(self.each)) @ self.each)

    @property
    def variance(self) -> float:
        return float(np.square(np.arange(len(self.each)) - self.mean) @ self.each)

    def law(self) -> tuple[Integers, Floats]:
        """The numbers with a positive probability, and the logarithms of their probabilities."""
        counts = np.flatnonzero(self.each > 0)
        return counts, np.log(self.each[counts])


class Schedule(ABC):
    """The stated way in which rows take part in steps, and what follows for sums, claims and conformance."""

    kind: str

    @property
    @abstractmethod
    def is_poisson(self) -> bool:
        """Whether this is Poisson sampling, which accountants of DP-SGD assume."""

    @property
    @abstractmethod
    def caveat(self) -> str:
        """A caveat about claims for this sampling; empty if there is none."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The sampling in words."""

    @abstractmethod
    def family(self, steps: int, sample_rate: float) -> Family | None:
        """The family of claims that covers this kind of training; None if there is none."""

    @abstractmethod
    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[Trials | Chances, ...]:
        """The total number of times that this many rows take part, as a sum of independent numbers."""

    @property
    def noise_words(self) -> str:
        """A description of where the noise multiplier of a run comes from."""
        return "as stated"

    @property
    def reached(self) -> float:
        """The share of the sensitivity that rows with suitable gradients are known to reach."""
        return 1.0

    def require_own(self, steps: int | None, sample_rate: float | None) -> None:  # noqa: B027 (by default none)
        """Raise an error for steps or a rate that are not the stated ones, if results depend on both."""

    def timing(
        self,
        table: Floats | None,
        included: Hits,
        noise_multiplier: float,
        witnessed: Seen | None,
        rng: np.random.Generator,
    ) -> Part | None:
        """Test whether canaries took part when they should, under this noise; None if timing does not matter.

        `table` is that of a `Recording`.
        """
        return None

    def levelled(self, sums: Floats, included: Hits, steps: int) -> Floats:
        """The sums adjusted for known differences in how often canaries take part."""
        return sums

    def noise_of_sums(self, steps: int) -> float:
        """The noise of a sum over this many steps, over the root of their number, in noise multipliers."""
        return 1.0


@dataclass(frozen=True)
class Sampling(Schedule):
    """Sampling of rows by one of three schemes.

    Attributes:
        kind: "poisson": each row takes part in each batch by an independent coin. "shuffled": each row takes
            part once per pass over the data, in random order. "fixed-size": each batch is a fresh random
            subset of one size.
        accumulated: The number of batches per step; it divides `batches`.
        batches: The number of batches per pass, if it is not 1 over the sampling rate. An attached audit
            reads it from the data loader.

    Example:
        >>> Sampling("poisson", accumulated=4).words
        'Poisson sampling, 4 batches to a step'
    """

    kind: str = "poisson"
    accumulated: int = 1
    batches: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(
                f"sampling must be {', '.join(KINDS[:-1])} or {KINDS[-1]}, got {shown(self.kind)}"
            )
        checks.integer("accumulated", self.accumulated, 1)
        if self.batches is not None and self.batches % self.accumulated:
            raise InputError(
                f"{self.batches} batches of a pass cannot be divided into steps of {self.accumulated}"
            )

    @property
    def is_poisson(self) -> bool:
        return self.kind == "poisson" and self.accumulated == 1

    @property
    def caveat(self) -> str:
        return "" if self.is_poisson else _OF_POISSON

    @property
    def words(self) -> str:
        each = f", {self.accumulated} batches to a step" if self.accumulated > 1 else ""
        return f"{_WORDS[self.kind]}{each}"

    def family(self, steps: int, sample_rate: float) -> Family | None:
        return DpSgdFamily(steps, sample_rate) if self.is_poisson else None

    def steps_of_a_pass(self, sample_rate: float) -> int:
        """The number of steps in a pass of shuffled batches. A row is in at most one of them."""
        batches = round(1 / sample_rate) if self.batches is None else self.batches
        return max(1, batches // self.accumulated)

    def once_in_a_pass(self, sample_rate: float) -> float:
        """The probability that a row is in a pass of shuffled batches; 1 unless some batches are dropped."""
        return min(1.0, sample_rate * self.accumulated * self.steps_of_a_pass(sample_rate))

    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[Trials | Chances, ...]:
        if self.kind != "shuffled":
            # For batches of one size as well: a row is in each by a coin of its own. That rows of one batch
            # exclude each other a little is neglected.
            return (Trials(rows * steps * self.accumulated, sample_rate),)
        length, once = self.steps_of_a_pass(sample_rate), self.once_in_a_pass(sample_rate)
        passes, left = divmod(steps, length)
        # In an unfinished pass, the batches seen so far have full size: only the last batch may be shorter.
        return Trials(rows * passes, once), Trials(rows, min(once, left * self.accumulated * sample_rate))


POISSON: Final = Sampling()
