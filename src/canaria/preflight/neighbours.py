"""Compares replays of a training program on neighbouring data sets, to find what tells these apart.

DP-SGD composes steps. The accountant's theorem assumes that each step, given everything released before, is
one subsampled Gaussian: settings that do not depend on the data, and a clipped sum that one row moves by at
most the clip norm. So replays that release the same values in every step must agree in everything except the
clipped sums of steps with the row in the batch, and there up to the clip norm. This check of examples is not
a proof: what it finds is a fault, but it may miss others.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from canaria._core.errors import InputError
from canaria.preflight.differences import (
    DRIFT,
    Difference,
    chained_differences,
    counted,
    difference_of,
    differences_of,
    fair,
    left_out_batches,
    setting_differences,
)
from canaria.preflight.replays import Replay, Stopping, sums_differ


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """The result of replaying a training program on neighbouring data sets.

    Attributes:
        row: The row that was removed, and replaced.
        steps: The number of steps that the program made on the data as given.
        compared: The neighbours that were compared with it.
        moved: The largest distance between clipped sums when the row is removed, in clip norms; NaN if no
            step could be compared.
        random: Whether gradients depend on randomness that replays cannot share. Steps with the row and other
            rows were then left out.
        differences: The differences between the data sets that were found.
        passes: The number of one-batch passes in which the number of steps was compared.
        not_compared: The reason why it was not compared; empty if it was.

    Example:
        >>> from canaria.preflight import Neighbours
        >>> found = Neighbours(
        ...     row=7, steps=100, compared=("without row 7",), moved=1.0, random=False, differences=()
        ... )
        >>> found.holds
        True
    """

    row: int
    steps: int
    compared: tuple[str, ...]
    moved: float
    random: bool
    differences: tuple[Difference, ...]
    passes: int = 0
    not_compared: str = ""

    @property
    def holds(self) -> bool:
        """Whether no difference between neighbouring data sets was found."""
        return not self.differences

    def __str__(self) -> str:
        """The verdict, and a line for each difference."""
        if self.differences:
            lines = ["Neighbouring data sets can be told apart by more than the noise hides:"]
            lines += [f"  {difference}" for difference in self.differences]
        else:
            lines = [
                f"Neighbouring data sets look alike: {self.steps} steps, the same settings, and clipped sums "
                f"that differ by at most {self.moved:.2f} clip norms ({', '.join(self.compared)})."
            ]
        if self.not_compared:
            lines.append(
                f"  Not tested: whether the number of steps depends on the rows ({self.not_compared})."
            )
        elif not self.differences:
            lines.append(
                f"  The number of steps and the learning rates did not depend on the rows in {self.passes} "
                "passes that were cut to one batch."
            )
        if self.random:
            lines.append(
                "  Not compared: sums in which the row is one of several. Gradients depend on randomness "
                "that two runs cannot share, such as augmentation; switch it off to compare them, too."
            )
        return "\n".join(lines)


def compared(
    row: int,
    *,
    given: Replay,
    repeated: Replay,
    reseeded: Replay,
    neighbours: tuple[Replay, ...],
    smaller: Replay,
    stopping: Stopping,
) -> Neighbours:
    """Compare the replays on neighbours with the one on the data as given.

    Args:
        row: The row in which the neighbours differ.
        given: The first replay.
        repeated: A replay on the same data, which must be equal.
        reseeded: A replay on the same data, with other randomness in each step.
        neighbours: Replays on neighbouring data sets, in order. The first is the one without the row.
        smaller: A replay on fewer rows, with the same first batch. A chain of neighbours leads there, so the
            settings, the first sum and the parameters after it must be the same.
        stopping: Replays in short passes, to see whether programs stop at the same time.

    Raises:
        InputError: If two replays on the same data differ, so that neighbours cannot be compared.
    """
    _require_repeatable(given, repeated)
    random = sums_differ(reseeded)
    found = [*left_out_batches(given)]
    found += [difference for replay in neighbours for difference in differences_of(given, replay, random)]
    told = {difference.what for difference in found}
    chained = [one for one in chained_differences(given, smaller) if one.what not in told]
    found += [replace(one, text=one.text + _CHAIN) for one in chained]
    stops, not_compared = _stops(stopping)
    found += [one for one in stops if one.what not in {difference.what for difference in found}]
    removed = [step.apart for step in neighbours[0].steps if fair(step, random)]
    moves = [apart for apart in removed if apart is not None]
    return Neighbours(
        row=row,
        steps=len(given.steps),
        compared=tuple(replay.name for replay in (*neighbours, smaller)),
        moved=max(moves, default=math.nan),
        random=random,
        differences=tuple(found),
        passes=len(stopping.given.steps) if stopping.given is not None else 0,
        not_compared=not_compared,
    )


_CHAIN: Final = " One removed row after the other leads there, so it must not change."


def _require_repeatable(given: Replay, repeated: Replay) -> None:
    # The first replay is 0 apart from itself, unless a sum is not finite.
    broken = [number for number, step in enumerate(given.steps, 1) if step.apart != 0]
    if broken:
        raise InputError(
            f"the clipped sum of step {broken[0]} is not finite on the data as given; fix that first, "
            "because clipping does not bound NaN"
        )
    differences = [one.what for one in differences_of(given, repeated, random=False)]
    if sums_differ(repeated):
        differences.append("clipped sum")
    if differences:
        raise InputError(
            f"two runs of train on the same data differ ({differences[0]}), so nothing can be said about "
            "neighbours; train must start afresh on every call, leave its data as they are, and draw its "
            "randomness from the global generators of Python, NumPy and torch"
        )


_ALL_REPLACED: Final = " One replaced row after the other leads there, so it must not change."


def _stops(stopping: Stopping) -> tuple[list[Difference], str]:
    """Differences between two programs in short passes, or the reason why they are not known."""
    alike, given, again = stopping.alike, stopping.given, stopping.again
    if alike is None or given is None or again is None:
        return [], stopping.excuse
    if excuse := _not_comparable(alike, given):
        return [], excuse
    # Training this fast may diverge. Later steps then carry no information.
    finite = next((number for number, step in enumerate(alike.steps) if step.apart != 0), None)
    alike, given, again = (replace(one, steps=one.steps[:finite]) for one in (alike, given, again))
    found = list(_went_on(given, alike))
    if found and list(_went_on(again, alike)):
        return [], "two runs of train on the same data continued differently"
    return found, ""


def _not_comparable(alike: Replay, given: Replay) -> str:
    """The reason why two programs in short passes cannot be compared; empty if they can."""
    for one in (alike, given):
        if one.exception is not None:
            return f"train raises {one.exception} {one.name}, in passes of one batch"
        if one.unexpected_rows is not None:
            return f"train draws from {one.unexpected_rows} rows {one.name}"
    if not given.steps or alike.steps[0].apart != 0:
        return f"no step has a finite sum {alike.name}"
    return "" if given.steps[0].drift <= DRIFT else f"the initial weights differ {alike.name}"


def _went_on(given: Replay, alike: Replay) -> Iterator[Difference]:
    """The first difference in settings, parameters or end; `given` released the same as `alike`."""
    settings = tuple(setting_differences(given, alike))
    if settings:
        yield replace(settings[0], text=settings[0].text + _ALL_REPLACED)
        return
    drifted = [number for number, step in enumerate(given.steps, 1) if not step.drift <= DRIFT]
    if drifted:
        text = (
            f"the parameters before step {drifted[0]} differ in passes of one batch, though every step "
            "before released the same. Something besides the noisy sums depends on the data, such as a "
            "learning rate that follows the training loss."
        )
        yield difference_of(alike, "parameters", None, 0.0, text + _ALL_REPLACED, drifted[0])
    elif len(given.steps) != len(alike.steps):
        text = (
            f"{counted(len(alike.steps), 'step')} in passes of one batch, as given {len(given.steps)}, "
            "though every step released the same: the number of steps depends on the data, as by a training "
            "loss. Fix it, or decide by public data or by a loss that is noised and accounted for."
        )
        yield difference_of(alike, "stop", len(alike.steps), len(given.steps), text + _ALL_REPLACED)
