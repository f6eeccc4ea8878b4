"""Figures 2 and 6: the effect of the number of elements per coordinate n / d, k = 100 guesses."""

from typing import Any, Final

import numpy as np

from canaria.lab.charts import line_chart
from canaria.lab.figures._dpsgd import DIMENSION, bound_rows, paper_mechanism, sums, tails_bound
from canaria.lab.figures._experiment import Experiment, Row

RATIOS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)


def block(point: float, trials: int, rng: np.random.Generator) -> list[Row]:
    bits, scores = sums(paper_mechanism(2.0, "sum"), round(point * DIMENSION), trials, rng)
    return [
        row
        for trial in range(trials)
        for row in bound_rows(tails_bound(scores[trial], bits[trial], 100, rng), x=point)
    ]


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "Several elements per coordinate help, until they interfere",
        "DP-SGD, k = 100, d = 1000, T = 100, q = 0.1, ε = 2 (RDP), δ = 1e-5; 95% confidence",
        "elements per coordinate n / d",
        "",
    )


EXPERIMENT: Final = Experiment(
    "elements",
    "effect of n / d (Fig. 2, 6)",
    points=RATIOS,
    quick_points=(0.5, 1.0, 8.0, 64.0),
    block=block,
    chart=chart,
)
