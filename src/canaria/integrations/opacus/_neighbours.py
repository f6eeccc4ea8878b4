"""Replays a training program on neighbouring data sets, with batches, noise and releases held fixed."""

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from canaria._core import checks, seeds
from canaria._core.errors import InputError
from canaria.integrations.opacus._items import has_floats
from canaria.integrations.opacus._replays import Course, Run
from canaria.integrations.opacus._variants import Sized, fresh, only, require_rows
from canaria.preflight.neighbours import Neighbours, compared
from canaria.preflight.replays import Stopping, sums_differ

_NEIGHBOURS: Final = 41
"""The purpose of this random stream."""
_PASSES: Final = 32
"""The number of one-batch passes in which runs must stop at the same time: enough for a patience of ten."""
_MOST_BYTES: Final = 2**32
"""The memory for the releases of short passes, and for the parameters before each."""


def check_neighbours(
    train: Callable[[Any], object],
    data: Sized,
    *,
    row: int | None = None,
    steps: int = 4,
    passes: int = _PASSES,
    rng: seeds.Seed = None,
) -> Neighbours:
    """Run a training program on neighbouring data sets, and report what tells them apart.

    An audit shows leaks that the noise should hide. It cannot detect other dependence on the data: a batch
    size derived from the number of rows, steps that are skipped for empty batches, a NaN that clipping does
    not bound. Here `train` is run five times for a few steps: twice on the data as given, without one row,
    with this row set to NaN (if it holds floating-point numbers), and on the first half of the rows. All runs
    draw the same batches and release the same values, so they may differ only in the clipped sums of batches
    with the row, by one clip norm. One of these batches has only that row, so it is empty without it. Dropout
    is switched off. Two more runs, on the data as given and with every row replaced by this one, must make
    the same number of steps with the same learning rates; a program that stops by its training loss does not.
    Their passes are cut to one batch of eight rows, so that decisions after a pass come soon. Classes of
    Opacus and torch are patched meanwhile; they and the states of random generators are restored afterwards.

    Args:
        train: The program: it makes model, optimizer and loader from the data set that it is given, and
            trains. It is ended after a few steps, by an exception that `except Exception` does not catch. Its
            return value is ignored. Each call must start afresh, and sample from all given rows, in their
            order.
        data: The data set: a `TensorDataset`, a sequence, or anything with a length and items.
        row: The row to remove: by default the last, or one that `rng` draws.
        steps: The number of batches after which a run is ended, at least 3.
        passes: The number of one-batch passes after which the last two runs are ended; 0 skips them. If
            `train` evaluates after each pass, so do these runs.
        rng: A seed for the batches and for all randomness of the program; fixed by default.

    Raises:
        InputError: If `train` makes no private step, does not use Poisson sampling, clips adaptively, or
            trains in several processes; or if two runs on the same data differ.
        Exception: Any exception that `train` raises on the data as given.

    Example:
        ```python
        print(check_neighbours(train, dataset, row=7))
        ```
    """
    require_rows(data)
    count = len(data)
    generator = seeds.generator(0 if rng is None else rng, _NEIGHBOURS)
    drawn = int(generator.integers(count))
    if row is None:
        row = count - 1 if rng is None else drawn
    row = checks.integer("row", row, 0, count - 1)
    course = Course.drawn(generator, row, count, checks.integer("steps", steps, 3, 1000))
    rows = list(range(count))
    left, half = [one for one in rows if one != row], rows[: count // 2]

    with seeds.global_state_kept(), torch.random.fork_rng():
        first = Run("as given", course, course.batches, count)
        first.follow(train, fresh(data))
        reseeded = Run("again", course, course.batches, count, first=first, salt=1)
        reseeded.follow(train, fresh(data))
        repeated = reseeded
        if sums_differ(reseeded.replay()):
            repeated = Run("again", course, course.batches, count, first=first)
            repeated.follow(train, fresh(data))
        without = Run(f"without row {row}", course, course.without(), count - 1, first=first)
        without.follow(train, only(data, left))
        neighbours = [without.replay()]
        if has_floats(data[row]):
            broken = Run(f"with row {row} NaN", course, course.batches, count, first=first, replaced=True)
            broken.follow(train, only(data, rows, nan=row))
            neighbours.append(broken.replay())
        smaller = Run("with half of the rows", course, course.shared(), len(half), first=first)
        smaller.follow(train, only(data, half))
        stopping = _stopping(train, data, first, course, checks.integer("passes", passes, 0, 1000))
    return compared(
        row,
        stopping=stopping,
        given=first.replay(),
        repeated=repeated.replay(),
        reseeded=reseeded.replay(),
        neighbours=tuple(neighbours),
        smaller=smaller.replay(),
    )


def _stopping(
    train: Callable[[Any], object], data: Sized, first: "Run", course: "Course", passes: int
) -> Stopping:
    """Run the program in short passes on two data sets that differ in every row.

    If every row is the same, the loss soon falls to nothing; on the data as given, the same parameters make
    it rise. Replacing one row at a time leads from one data set to the other. So if the program behaves
    differently, a single row makes the difference somewhere on the way.
    """
    held = 2 * sum(parameter.nbytes for parameter in first.parameters[0])
    allowed = min(passes, _MOST_BYTES // max(held, 1))
    if not allowed:
        return Stopping(excuse="passes is 0" if not passes else "the model is too large to keep its steps")
    count, short = len(data), course.shortened(len(data), allowed)

    def run(name: str, rows: Sequence[int], lead: "Run | None" = None) -> Run:
        made = Run(name, short, short.batches, count, first=lead, short=True)
        made.follow(train, only(data, rows))
        return made

    try:
        alike = run(f"with every row like row {course.row}", [course.row] * count)
        given = run("as given", range(count), alike)
        again = run("again", [course.row] * count, alike)
    except InputError as error:
        return Stopping(excuse=str(error))
    return Stopping(alike=alike.replay(), given=given.replay(), again=again.replay())
