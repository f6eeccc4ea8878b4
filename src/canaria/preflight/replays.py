"""Records of replays of a training program, which the adapter of a framework makes."""

from dataclasses import dataclass
from typing import Final

_SLACK: Final = 1e-3
"""The largest rounding error of a clipped sum in single precision, in clip norms."""


@dataclass(frozen=True, kw_only=True)
class ReplayedStep:
    """One step of a replay.

    Attributes:
        batches: The numbers, from 0, of the batches that were drawn since the previous step.
        held: The number of them that contain the row, if the data set does.
        alone: Whether they contain no other row.
        noise_multiplier: The requested noise, over the clip norm.
        clip_norm: The clip norm C.
        expected_batch_size: The divisor of the noisy sum.
        rounding: The relative rounding error of the gradients.
        apart: The distance of the clipped sum from that of the first replay, in clip norms; None if earlier
            steps released different values, so that they cannot be compared; not finite if the sum is not.
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
        """The largest effect of rounding on the clipped sum, in clip norms."""
        return max(_SLACK, 2 * self.rounding)


@dataclass(frozen=True, kw_only=True)
class Replay:
    """The record of one run of the program.

    Attributes:
        name: The name of the data set, such as "without row 7".
        may_move: The clip norms by which the row may move the clipped sum: 1 if removed, 2 if replaced.
        sample_rate: The rate of the sampler. None if the run drew no batch; so are the next two.
        batches: The number of batches per pass that the sampler announces.
        unexpected_rows: The number of rows that it draws from, if it is not that of the data set; else None.
        steps: The steps.
        accountant: The accountant's record: noise multiplier, sample rate, steps; None if there is no
            accountant.
        exception: The exception that ended the program, such as "ValueError: ..."; None if there was none.
    """

    name: str
    may_move: int
    sample_rate: float | None
    batches: int | None
    unexpected_rows: int | None
    steps: tuple[ReplayedStep, ...]
    accountant: tuple[tuple[float, float, int], ...] | None
    exception: str | None


@dataclass(frozen=True, kw_only=True)
class Stopping:
    """Replays in passes of one batch, on data sets that differ in every row.

    Attributes:
        alike: A replay with every row equal to one row; None if there is an excuse.
        given: A replay on the data as given, with the releases of the first one.
        again: A repetition of the first one.
        excuse: The reason why there are no replays.
    """

    alike: Replay | None = None
    given: Replay | None = None
    again: Replay | None = None
    excuse: str = ""


def sums_differ(replay: Replay) -> bool:
    """Whether clipped sums differ from those of the first replay by more than rounding."""
    return not all(step.apart is not None and step.apart <= step.slack for step in replay.steps)
