"""What one replay of a training program shows: records that an adapter of a framework makes."""

from dataclasses import dataclass
from typing import Final

_SLACK: Final = 1e-3
"""By how much of a clip norm rounding moves a clipped sum in single precision, at most."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a replay.

    Attributes:
        batches: The numbers of the batches that were drawn since the step before, from 0.
        held: How many of them hold the row, if the data set does.
        alone: Whether they hold no other.
        noise_multiplier: The noise that was asked for, over the clip norm.
        clip_norm: The clip norm C.
        expected_batch_size: By what the noisy sum is divided.
        rounding: The relative rounding error of the gradients.
        apart: The distance of the clipped sum from that of the first replay, in clip norms; None if steps
            before released something else, so that they cannot be compared; NaN or infinite if the sum is.
        drift: The distance of the parameters before the step from those of the first replay, over their norm.

    """

    batches: tuple[int, ...]
    held: int
    alone: bool
    noise_multiplier: float
    clip_norm: float
    expected_batch_size: float
    rounding: float
    apart: float | None = 0.0
    drift: float = 0.0

    @property
    def slack(self) -> float:
        """By how much of a clip norm rounding may move the clipped sum."""
        return max(_SLACK, 2 * self.rounding)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """What one run of the program showed.

    Attributes:
        name: The data set, as "without row 7".
        may_move: How many clip norms the row may move the clipped sum by: 1 if it is removed, 2 if replaced.
        sample_rate: The rate of the sampler; None if the run drew no batch, and so for the next two.
        batches: How many batches the sampler announces for one pass.
        unexpected_rows: From how many rows it draws, where the data set has another number; else None.
        steps: The steps.
        accountant: What the accountant was told: noise multiplier, sample rate, steps; None if none was
            found.
        exception: The exception that ended the program, as "ValueError: ..."; None if there was none.

    """

    name: str
    may_move: int
    sample_rate: float | None
    batches: int | None
    unexpected_rows: int | None
    steps: tuple[Step, ...]
    accountant: tuple[tuple[float, float, int], ...] | None
    exception: str | None


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Replays in passes of one batch, on data sets that differ in every row.

    Attributes:
        alike: With every row like one; None if there is an excuse.
        given: On the data as given, with what the first one released.
        again: The first one repeated.
        excuse: Why there are none.

    """

    alike: Replay | None = None
    given: Replay | None = None
    again: Replay | None = None
    excuse: str = ""


def sums_differ(replay: Replay) -> bool:
    """Whether clipped sums differ from those of the first replay, by more than rounding."""
    return not all(step.apart is not None and step.apart <= step.slack for step in replay.steps)
