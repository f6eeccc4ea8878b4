"""What witnesses showed in one part of training and the next, put together."""

import numpy as np

from canaria.training.canaries.witnesses import MOST_STEPS, Seen


def joined(before: Seen, more: Seen) -> Seen:
    """What was seen in some steps and those that follow, at most `MOST_STEPS` of them at a time."""
    steps = before.steps + more.steps
    by_step = np.zeros(min(steps, MOST_STEPS))
    by_step[: len(before.by_step)] = before.by_step
    by_step[(before.steps + np.arange(more.steps)) % MOST_STEPS] += more.by_step
    # Single values are kept of the first steps alone, so that memory does not grow with training.
    room = MOST_STEPS - len(before.signs)
    each = len(more.firsts) // max(more.steps, 1)
    return Seen(
        steps,
        by_step,
        before.by_place + more.by_place,
        before.cells + more.cells,
        np.concatenate([before.signs, more.signs[:room]]),
        np.concatenate([before.totals, more.totals])[:MOST_STEPS],
        firsts=np.concatenate([before.firsts, more.firsts[: room * each]]),
    )
