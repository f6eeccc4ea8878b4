"""Compares two replays: settings, ends and clipped sums that differ between their data sets.

Settings must not depend on the data. A clipped sum may, by at most the clip norm, if its batch has the row.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from canaria.preflight.replays import Replay, ReplayedStep

DRIFT: Final = 1e-5
"""Parameters that differ by more than this, relative to their norm, were updated differently."""
_SAME: Final = 1e-9
"""Settings with a relative difference up to this are the same number computed twice."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """An observable difference between a neighbouring data set and the one that was given.

    Attributes:
        neighbour: The name of the neighbour, such as "without row 7".
        what: The quantity that differs, such as "expected batch size".
        there: Its value on the neighbour.
        here: Its value on the data as given.
        step: The first step in which it differs, counted from 1; None if it does not belong to a step.
        text: A description, with advice.

    Example:
        >>> from canaria.preflight.differences import Difference
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


def fair(step: ReplayedStep, random: bool) -> bool:
    """Whether two replays should have the same sum, except for the row.

    Generators start from the same seed for each batch. So the same batch has the same randomness, and an
    empty one needs none. But in a batch with one row less, every row may get other random numbers.
    """
    return not random or not step.held or step.alone


def differences_of(given: Replay, other: Replay, random: bool) -> Iterator[Difference]:
    """All differences of another replay from the one on the data as given; `random` as in `fair`."""
    if other.unexpected_rows is not None:
        yield difference_of(
            other,
            "rows",
            other.unexpected_rows,
            None,
            f"the sampler draws from {other.unexpected_rows} rows, which the data set does not have. Draw "
            "from the rows that train is given.",
        )
        return
    found = [*setting_differences(given, other), *_ends(given, other), *_sums(given, other, random)]
    yield from found
    if not found and given.accountant != other.accountant:
        yield difference_of(
            other,
            "accountant",
            other.accountant,
            given.accountant,
            f"the accountant was told {other.accountant} (noise multiplier, sample rate, steps), "
            f"{_otherwise(other)} {given.accountant}. Give it the same settings for all data.",
        )


def chained_differences(given: Replay, smaller: Replay) -> Iterator[Difference]:
    """Differences in settings, in the sum of the shared first batch, and in the parameters after it."""
    yield from setting_differences(given, smaller)
    steps = [
        step if step.batches == (0,) else replace(step, apart=0.0)
        for step in smaller.steps
        if step.apart is not None
    ]
    yield from _sums(given, replace(smaller, steps=tuple(steps)), random=False)


def setting_differences(given: Replay, other: Replay) -> Iterator[Difference]:
    """Differences in settings, which must be the same for all data sets."""
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
            # Once a setting differs, it does so in all later steps, and says nothing new.
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
    yield difference_of(other, what, there, here, f"{values}: {_REMEDIES[what]}", step)


def left_out_batches(given: Replay) -> Iterator[Difference]:
    """A batch of the first replay without a step of its own, if others have one: it has few rows."""
    drawn = [step.batches for step in given.steps]
    if min(map(len, drawn)) != 1 or max(map(len, drawn)) == 1:
        return
    missed = next(batches[0] for batches in drawn if len(batches) > 1)
    text = f"batch {missed + 1} made no step, unlike others. {_EVERY_BATCH}"
    yield difference_of(given, "steps", len(drawn), sum(map(len, drawn)), text)


_EVERY_BATCH: Final = (
    "Make a step of every batch, whatever it holds and whatever its loss; Opacus gives empty batches the "
    "right shape."
)


def _ends(given: Replay, other: Replay) -> Iterator[Difference]:
    """Differences in how the program ended or which steps it made."""
    if other.exception is not None:
        yield difference_of(
            other,
            "exception",
            other.exception,
            None,
            f"train raises {other.exception} after {counted(len(other.steps), 'step')}. Anyone who sees it "
            "fail learns of the row; handle such rows and empty batches without an exception.",
        )
        return
    made, expected = ([step.batches[-1] for step in replay.steps] for replay in (other, given))
    if made != expected:
        left = sorted(set(expected) - set(made))
        where = f" (none for batch {left[0] + 1})" if left else ""
        text = f"{counted(len(made), 'step')}{where}, {_otherwise(other)} {len(expected)}. {_EVERY_BATCH}"
        yield difference_of(other, "steps", len(made), len(expected), text)


def _sums(given: Replay, other: Replay, random: bool) -> Iterator[Difference]:
    """The first step at which the row moves the clipped sum, or the parameters, too far."""
    for number, step in enumerate(other.steps[: len(given.steps)], 1):
        if step.apart is None:
            return
        # Written so that NaN counts as a difference.
        if not step.drift <= DRIFT:
            yield difference_of(
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
        unfair = not fair(step, random)
        if not (unfair or step.apart <= limit + step.slack * max(limit, 1)) or not math.isfinite(step.apart):
            yield difference_of(other, "clipped sum", step.apart, limit, _moved(step, number, limit), number)
            return


def _moved(step: ReplayedStep, number: int, limit: int) -> str:
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


def difference_of(
    replay: Replay, what: str, there: object, here: object, text: str, step: int | None = None
) -> Difference:
    """Make a difference between a replay and the one on the data as given."""
    return Difference(neighbour=replay.name, what=what, there=there, here=here, step=step, text=text)


def _otherwise(replay: Replay) -> str:
    return "with it" if replay.name.startswith("without") else "as given"


def counted(number: int, thing: str) -> str:
    """A number of things in words."""
    return f"{number} {thing}{'' if number == 1 else 's'}"
