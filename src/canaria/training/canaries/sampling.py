"""How rows are stated to take part in steps."""

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
    "accountants of DP-SGD take batches for Poisson's, so their ε is no claim about these; an excluded "
    "canary is drawn, and contributes 0"
)


class Trials(NamedTuple):
    """Coins that show heads with one probability; their number of heads is binomial."""

    number: int
    rate: float

    @property
    def mean(self) -> float:
        """The expected number of heads."""
        return self.number * self.rate

    @property
    def variance(self) -> float:
        """Its variance."""
        return self.mean * (1 - self.rate)

    def law(self) -> tuple[Integers, Floats]:
        """The likely numbers of heads, and the logarithms of their probabilities."""
        reach = 12 * math.sqrt(self.variance) + 12
        low, high = max(0, math.floor(self.mean - reach)), min(self.number, math.ceil(self.mean + reach))
        counts = np.arange(low, high + 1, dtype=np.int64)
        return counts, binomial.log_mass(counts, self.number, self.rate)


class Chances(NamedTuple):
    """A number by its probabilities, from 0 on."""

    each: Floats

    @property
    def mean(self) -> float:
        """The expected number."""
        return float(np.arange(len(self.each)) @ self.each)

    @property
    def variance(self) -> float:
        """Its variance."""
        return float(np.square(np.arange(len(self.each)) - self.mean) @ self.each)

    def law(self) -> tuple[Integers, Floats]:
        """The numbers that may be, and the logarithms of their probabilities."""
        counts = np.flatnonzero(self.each > 0)
        return counts, np.log(self.each[counts])


class Schedule(ABC):
    """How rows are stated to take part in steps, and what follows for sums, claims and conformance."""

    kind: str

    @property
    @abstractmethod
    def is_poisson(self) -> bool:
        """Whether it is what accountants of DP-SGD take it for."""

    @property
    @abstractmethod
    def caveat(self) -> str:
        """What to know about claims for this sampling; empty if there is nothing."""

    @property
    @abstractmethod
    def words(self) -> str:
        """The sampling in words."""

    @abstractmethod
    def family(self, steps: int, sample_rate: float) -> Family | None:
        """The claims that are about training of this kind; None if there are none."""

    @abstractmethod
    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[Trials | Chances, ...]:
        """How often this many rows take part, all together: a sum of independent numbers."""

    @property
    def noise_words(self) -> str:
        """Where the noise multiplier of a run comes from, in words."""
        return "as stated"

    @property
    def reached(self) -> float:
        """The share of the sensitivity that rows with some gradients surely reach."""
        return 1.0

    def require_own(self, steps: int | None, sample_rate: float | None) -> None:  # noqa: B027 (by default none)
        """Refuse to test other steps, or another rate, than were stated, where everything depends on them."""

    def timing(
        self,
        table: Floats | None,
        included: Hits,
        noise_multiplier: float,
        witnessed: Seen | None,
        rng: np.random.Generator,
    ) -> Part | None:
        """Whether canaries took part when they should, under this noise; None where that makes no difference.

        `table` is that of a `Recording`.
        """
        return None

    def levelled(self, sums: Floats, included: Hits, steps: int) -> Floats:
        """The sums as if every canary had taken part by one law, where it is known that they did not."""
        return sums

    def noise_of_sums(self, steps: int) -> float:
        """The noise of the sum over this many steps, over the root of their number, in noise multipliers."""
        return 1.0


@dataclass(frozen=True)
class Sampling(Schedule):
    """How rows are stated to take part in steps.

    Attributes:
        kind: "poisson": every row by a coin of its own, anew in every batch. "shuffled": every row once in
            each pass over the data, in random order. "fixed-size": every batch a fresh random subset of one
            size.
        accumulated: How many batches make a step.
        batches: How many batches a pass has, where that is not 1 over the sampling rate; an attached audit
            asks the data loader.

    Raises:
        InputError: If the kind is unknown, or if batches cannot be divided into steps.

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
        """How many steps a pass of shuffled batches has; a row is in one of them at most."""
        batches = round(1 / sample_rate) if self.batches is None else self.batches
        return max(1, batches // self.accumulated)

    def once_in_a_pass(self, sample_rate: float) -> float:
        """The probability with which a row is in a pass of shuffled batches; 1 unless some are dropped."""
        return min(1.0, sample_rate * self.accumulated * self.steps_of_a_pass(sample_rate))

    def participations(self, rows: int, steps: int, sample_rate: float) -> tuple[Trials | Chances, ...]:
        if self.kind != "shuffled":
            return (Trials(rows * steps * self.accumulated, sample_rate),)
        length, once = self.steps_of_a_pass(sample_rate), self.once_in_a_pass(sample_rate)
        passes, left = divmod(steps, length)
        # Of a pass that training is within, the batches seen are whole: only the last one may be short.
        return Trials(rows * passes, once), Trials(rows, min(once, left * self.accumulated * sample_rate))


POISSON: Final = Sampling()
