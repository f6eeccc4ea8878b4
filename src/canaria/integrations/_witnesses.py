"""Combines the observations at witnesses from consecutive parts of training."""

import numpy as np

from canaria.training.canaries.witnesses import MOST_STEPS, Seen


def joined(before: Seen, more: Seen) -> Seen:
    """Combine the observations of some steps with those of at most `MOST_STEPS` steps that follow."""
    steps = before.steps + more.steps
    by_step = np.zeros(min(steps, MOST_STEPS))
    by_step[: len(before.by_step)] = before.by_step
    by_step[(before.steps + np.arange(more.steps)) % MOST_STEPS] += more.by_step
    # Single values are kept of the first steps only, so that memory does not grow with training.
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
