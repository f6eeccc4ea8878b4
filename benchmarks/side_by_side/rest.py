"""What is left between ours and the best number of guesses in hindsight, and what it consists of."""

from typing import Any

import numpy as np

from canaria import Counts, lower_bound
from canaria.claims import DpSgd
from canaria.evidence.ranking import looks
from canaria.lab.validity.invalid import best_k
from canaria.rules import Ranked
from canaria.training.plan import planned_rule
from side_by_side.settings import DELTA, gaussian

SHIFTS, SIZES = (1.0, 2.0, 3.0), {1000: 100, 5000: 40}
LEVEL = 0.05


def measured() -> list[dict[str, Any]]:
    """Mean bounds.

    Ours; of one order without the split; of the number of guesses that is best on average; of numbers around
    one that is planned, for Gaussian noise as it is.
    """
    found = []
    for n, audits in SIZES.items():
        for shift in SHIFTS:
            scores, bits = gaussian(shift, n, audits, np.random.default_rng([13, n]))
            pairs = list(zip(scores, bits, strict=True))
            rng = np.random.default_rng(0)
            evidence = [Ranked()(scored, rng).reveal(hidden) for scored, hidden in pairs]
            orders = [split.parts[0] for split in evidence]
            rule = planned_rule(DpSgd(steps=1, sample_rate=1.0, noise_multiplier=1 / shift), n, delta=DELTA)
            planned = [rule(scored, rng).reveal(hidden) for scored, hidden in pairs]
            by_number = [
                np.mean([_of_counts(order, place, n) for order in orders]) for place in range(len(looks(n)))
            ]
            found.append(
                {
                    "n": n,
                    "shift": shift,
                    "ours": float(np.mean([lower_bound(one, DELTA).epsilon for one in evidence])),
                    "one order": float(np.mean([lower_bound(one, DELTA).epsilon for one in orders])),
                    "best number": float(max(by_number)),
                    "planned": float(np.mean([lower_bound(one, DELTA).epsilon for one in planned])),
                    "hindsight": float(np.mean([best_k(*pair, DELTA, 1 - LEVEL) for pair in pairs])),
                }
            )
    return found


def _of_counts(order: Any, place: int, n: int) -> float:
    return lower_bound(Counts(int(order.counts[place]), int(order.grid[place]), n), DELTA).epsilon
