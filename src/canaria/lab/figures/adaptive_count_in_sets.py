"""Figure 9: one-run against adaptive auditing of Count-in-Sets, certain guesses only, 100 sets."""

import math
from typing import Any, Final

import numpy as np

from canaria.lab.charts import line_chart
from canaria.lab.figures._adaptive import compare
from canaria.lab.figures._experiment import Experiment, Row
from canaria.mechanisms import CountInSets

SETS: Final = 100


def block(point: int, trials: int, rng: np.random.Generator) -> list[Row]:
    seed = int(rng.integers(2**62))
    return compare(CountInSets(point), SETS * point, math.inf, trials, seed, point)


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "Certain guesses: interference starves one run, not the adaptive auditor",
        "Count-in-Sets, 100 sets, threshold ∞; pure bounds, 95% confidence (ε itself is infinite)\n"
        "The paper's adaptive rule has no validity guarantee: revealed bits decide how often it guesses.",
        "elements per set",
        "bound on ε",
        log_x=False,
    )


EXPERIMENT: Final = Experiment(
    "adaptive-count-in-sets",
    "one-run against adaptive Count-in-Sets (Fig. 9)",
    points=tuple(range(1, 11)),
    quick_points=(1, 4, 10),
    block=block,
    chart=chart,
    trials=100,
)
