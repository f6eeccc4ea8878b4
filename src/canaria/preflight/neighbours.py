"""Replays of a training program on neighbouring data sets, compared: what could tell the data sets apart.

DP-SGD composes steps. The accountant's theorem assumes that each step, given everything released before, is
one subsampled Gaussian: settings that do not depend on the data, and a clipped sum that one row moves by at
most the clip norm. Replays in which every step releases the same therefore must agree in everything but the
clipped sums of steps whose batch held the row, and there up to the clip norm. This is a check of examples,
not a proof: what it finds is wrong, what it does not find may be wrong.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from canaria._core.errors import InputError

_SLACK: Final = 1e-3
"""By how much of a clip norm rounding moves a clipped sum in single precision, at most."""
DRIFT: Final = 1e-5
"""Parameters that differ by more than this, relative to their norm, were not updated alike."""
_SAME: Final = 1e-9
"""Settings that differ by no more than this, relatively, are the same number computed twice."""


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


@dataclass(frozen=True, kw_only=True)
class Difference:
    """Something that tells a neighbouring data set from the one that was given.

    Attributes:
        neighbour: Which neighbour, as "without row 7".
        what: What differs, as "expected batch size".
        there: Its value on the neighbour.
        here: Its value on the data as given.
        step: The first step in which it differs, from 1; None for what is not of a step.
        text: All that in words, and what to do.

    Example:
        >>> from canaria.preflight.neighbours import Difference
        >>> found = Difference(
        ...     neighbour="without row 7",
        ...     what="sample rate",
        ...     there=0.11,
        ...     here=0.1,
        ...     step=None,
        ...     text="the sample rate is 0.11, not 0.1",
        ... )
        >>> print(found)
        without row 7: the sample rate is 0.11, not 0.1

    """

    neighbour: str
    what: str
    there: object
    here: object
    step: int | None
    text: str

    def __str__(self) -> str:
        """One line for a terminal."""
        return f"{self.neighbour}: {self.text}"


@dataclass(frozen=True, kw_only=True)
class Neighbours:
    """What replays of a training program on neighbouring data sets showed.

    Attributes:
        row: The row that was removed, and replaced.
        steps: How many steps the program made on the data as given.
        compared: The neighbours that were compared with it.
        moved: The largest distance between clipped sums when the row is removed, in clip norms; NaN if no
            step could be compared.
        random: Whether gradients depend on randomness that replays cannot share, so that steps in which the
            row is one of several were left out.
        differences: What tells the data sets apart.
        passes: In how many passes of one batch the number of steps was compared.
        not_compared: Why it was not; empty if it was.

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
        """Whether nothing was found that tells neighbouring data sets apart."""
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
    """Hold the replays on neighbours against the one on the data as given.

    Args:
        row: The row in which the neighbours differ.
        given: The first replay.
        repeated: On the same data; it must be the same.
        reseeded: On the same data, with other randomness in every step.
        neighbours: On neighbouring data sets, in order; the first is the one without the row.
        smaller: On fewer rows, with the same first batch. A chain of neighbours leads there, so settings must
            be the same, and so must the first sum and the parameters that it leads to.
        stopping: In short passes, to see whether programs stop alike.

    Raises:
        InputError: If two replays on the same data differ, so that nothing can be said about neighbours.

    """
    _require_repeatable(given, repeated)
    random = sums_differ(reseeded)
    found = [*_left_out(given)]
    found += [difference for replay in neighbours for difference in _differences(given, replay, random)]
    told = {difference.what for difference in found}
    chained = [one for one in _chained(given, smaller) if one.what not in told]
    found += [replace(one, text=one.text + _CHAIN) for one in chained]
    stops, not_compared = _stops(stopping)
    found += [one for one in stops if one.what not in {difference.what for difference in found}]
    removed = [step.apart for step in neighbours[0].steps if _fair(step, random)]
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


def sums_differ(replay: Replay) -> bool:
    """Whether clipped sums differ from those of the first replay, by more than rounding."""
    return not all(step.apart is not None and step.apart <= step.slack for step in replay.steps)


def _require_repeatable(given: Replay, repeated: Replay) -> None:
    broken = [number for number, step in enumerate(given.steps, 1) if step.apart != 0]
    if broken:
        raise InputError(
            f"the clipped sum of step {broken[0]} is not finite on the data as given; mend that first, "
            "because clipping does not bound NaN"
        )
    differences = [one.what for one in _differences(given, repeated, random=False)]
    if sums_differ(repeated):
        differences.append("clipped sum")
    if differences:
        raise InputError(
            f"two runs of train on the same data differ ({differences[0]}), so nothing can be said about "
            "neighbours; train must start afresh on every call, leave its data as they are, and draw its "
            "randomness from the global generators of Python, NumPy and torch"
        )


def _fair(step: Step, random: bool) -> bool:
    """Whether two replays have the same sum to show, but for the row.

    For every batch, generators start from the same seed. So the same batch has the same randomness, and an
    empty one needs none; in a batch with one row less, every row may have other random numbers.
    """
    return not random or not step.held or step.alone


def _differences(given: Replay, other: Replay, random: bool) -> Iterator[Difference]:
    if other.unexpected_rows is not None:
        yield _difference(
            other,
            "rows",
            other.unexpected_rows,
            None,
            f"the sampler draws from {other.unexpected_rows} rows, which the data set does not have. Draw "
            "from the rows that train is given.",
        )
        return
    found = [*_settings(given, other), *_ends(given, other), *_sums(given, other, random)]
    yield from found
    if not found and given.accountant != other.accountant:
        yield _difference(
            other,
            "accountant",
            other.accountant,
            given.accountant,
            f"the accountant was told {other.accountant} (noise multiplier, sample rate, steps), "
            f"{_otherwise(other)} {given.accountant}. Tell it the same whatever the data are.",
        )


def _chained(given: Replay, smaller: Replay) -> Iterator[Difference]:
    """Settings, the sum of the first batch, which is the same, and the parameters that its step leaves."""
    yield from _settings(given, smaller)
    steps = [
        step if step.batches == (0,) else replace(step, apart=0.0)
        for step in smaller.steps
        if step.apart is not None
    ]
    yield from _sums(given, replace(smaller, steps=tuple(steps)), random=False)


def _settings(given: Replay, other: Replay) -> Iterator[Difference]:
    """What must be the same for all data sets."""
    rates, batches = (given.sample_rate, other.sample_rate), (given.batches, other.batches)
    yield from _setting(other, "sample rate", "sample rate {}", *rates)
    yield from _setting(other, "batches", "{} batches in a pass", *batches)
    told = set()
    for number, (first, step) in enumerate(zip(given.steps, other.steps, strict=False), 1):
        if step.apart is None:
            return
        for what, here, there in (
            ("expected batch size", first.expected_batch_size, step.expected_batch_size),
            ("noise multiplier", first.noise_multiplier, step.noise_multiplier),
            ("clip norm", first.clip_norm, step.clip_norm),
        ):
            if what not in told:
                found = tuple(_setting(other, what, what + " {}", here, there, number))
                told |= {one.what for one in found}
                yield from found


_REMEDIES: Final = {
    "sample rate": "the other rows are drawn with another probability. make_private derives it from the "
    "length of the data; give DPDataLoader a constant sample_rate.",
    "batches": "the number of steps depends on the data. The sampler announces 1 / sample rate; keep the "
    "rate constant, or count steps and not passes.",
    "expected batch size": "the noisy sum is divided by another number. make_private derives it from the "
    "length of the data; give DPOptimizer a constant expected_batch_size.",
    "noise multiplier": "another amount of noise is added. Choose it for a constant sample rate and number "
    "of steps.",
    "clip norm": "gradients are clipped, and noise is scaled, by another norm. Use a constant one.",
}


def _setting(
    other: Replay, what: str, form: str, here: float | None, there: float | None, step: int | None = None
) -> Iterator[Difference]:
    if here is None or there is None or math.isclose(here, there, rel_tol=_SAME):
        return
    values = f"{form.format(f'{there:.6g}')}, {_otherwise(other)} {here:.6g}"
    yield _difference(other, what, there, here, f"{values}: {_REMEDIES[what]}", step)


def _left_out(given: Replay) -> Iterator[Difference]:
    """A batch of the first replay without a step of its own, where others have one: it holds few rows."""
    drawn = [step.batches for step in given.steps]
    if min(map(len, drawn)) != 1 or max(map(len, drawn)) == 1:
        return
    missed = next(batches[0] for batches in drawn if len(batches) > 1)
    text = f"batch {missed + 1} made no step, unlike others. {_EVERY_BATCH}"
    yield _difference(given, "steps", len(drawn), sum(map(len, drawn)), text)


_EVERY_BATCH: Final = (
    "Make a step of every batch, whatever it holds and whatever its loss; Opacus gives empty batches the "
    "right shape."
)


def _ends(given: Replay, other: Replay) -> Iterator[Difference]:
    """Where the program went another way: by an exception, or by steps that it made or left out."""
    if other.exception is not None:
        yield _difference(
            other,
            "exception",
            other.exception,
            None,
            f"train raises {other.exception} after {_count(len(other.steps), 'step')}. Whoever sees it fail "
            "learns of the row; handle such rows and empty batches without an exception.",
        )
        return
    made, expected = ([step.batches[-1] for step in replay.steps] for replay in (other, given))
    if made != expected:
        left = sorted(set(expected) - set(made))
        where = f" (none for batch {left[0] + 1})" if left else ""
        text = f"{_count(len(made), 'step')}{where}, {_otherwise(other)} {len(expected)}. {_EVERY_BATCH}"
        yield _difference(other, "steps", len(made), len(expected), text)


_ALL_REPLACED: Final = " One replaced row after the other leads there, so it must not change."


def _stops(stopping: Stopping) -> tuple[list[Difference], str]:
    """How two programs in short passes went on otherwise, or why that is not known."""
    alike, given, again = stopping.alike, stopping.given, stopping.again
    if alike is None or given is None or again is None:
        return [], stopping.excuse
    if excuse := _not_comparable(alike, given):
        return [], excuse
    # Learning so quickly may diverge; steps after that say nothing.
    finite = next((number for number, step in enumerate(alike.steps) if step.apart != 0), None)
    alike, given, again = (replace(one, steps=one.steps[:finite]) for one in (alike, given, again))
    found = list(_went_on(given, alike))
    if found and list(_went_on(again, alike)):
        return [], "two runs of train on the same data went on otherwise"
    return found, ""


def _not_comparable(alike: Replay, given: Replay) -> str:
    """Why two programs in short passes have nothing to compare; empty if they have."""
    for one in (alike, given):
        if one.exception is not None:
            return f"train raises {one.exception} {one.name}, in passes of one batch"
        if one.unexpected_rows is not None:
            return f"train draws from {one.unexpected_rows} rows {one.name}"
    if not given.steps or alike.steps[0].apart != 0:
        return f"no step has a finite sum {alike.name}"
    return "" if given.steps[0].drift <= DRIFT else f"the first weights are other ones {alike.name}"


def _went_on(given: Replay, alike: Replay) -> Iterator[Difference]:
    """The first setting, the first parameters or the end that differ; `given` released what `alike` did."""
    settings = tuple(_settings(given, alike))
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
        yield _difference(alike, "parameters", None, 0.0, text + _ALL_REPLACED, drifted[0])
    elif len(given.steps) != len(alike.steps):
        text = (
            f"{_count(len(alike.steps), 'step')} in passes of one batch, as given {len(given.steps)}, though "
            "every step released the same: the number of steps depends on the data, as by a training loss. "
            "Fix it, or decide by public data or by a loss that is noised and accounted for."
        )
        yield _difference(alike, "stop", len(alike.steps), len(given.steps), text + _ALL_REPLACED)


def _sums(given: Replay, other: Replay, random: bool) -> Iterator[Difference]:
    """The first step whose clipped sum, or whose parameters, the row moves too far."""
    for number, step in enumerate(other.steps[: len(given.steps)], 1):
        if step.apart is None:
            return
        if not step.drift <= DRIFT:
            yield _difference(
                other,
                "parameters",
                step.drift,
                0.0,
                f"the parameters before step {number} differ, though every step before released the same. "
                "Something besides the noisy sums depends on the data, such as first weights or a learning "
                "rate.",
                number,
            )
            return
        limit = other.may_move if step.held else 0
        unfair = not _fair(step, random)
        if not (unfair or step.apart <= limit + step.slack * max(limit, 1)) or not math.isfinite(step.apart):
            yield _difference(other, "clipped sum", step.apart, limit, _moved(step, number, limit), number)
            return


def _moved(step: Step, number: int, limit: int) -> str:
    if not math.isfinite(step.apart or 0.0):
        return (
            f"the clipped sum of step {number} is not finite. Clipping does not bound NaN; replace such "
            "gradients by zero before they are clipped."
        )
    if not step.held:
        return (
            f"the clipped sum of step {number} differs by {step.apart:.3g} clip norms, though its batch does "
            "not hold the row. The row must not act on the gradients of others, and train must keep the "
            "order of rows."
        )
    remedy = "Clip the gradient of every row by itself, let no row act on others, and keep the order of rows."
    if step.held > 1:
        remedy = "It is made of several batches that hold the row; use BatchMemoryManager for large batches."
    return (
        f"the clipped sum of step {number} differs by {step.apart:.4g} clip norms, where noise is scaled for "
        f"{limit}. {remedy}"
    )


def _difference(
    replay: Replay, what: str, there: object, here: object, text: str, step: int | None = None
) -> Difference:
    return Difference(neighbour=replay.name, what=what, there=there, here=here, step=step, text=text)


def _otherwise(replay: Replay) -> str:
    return "with it" if replay.name.startswith("without") else "as given"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
