"""Figures 1 and 5: the effect of the fraction of guesses k / n on one-run auditing of DP-SGD."""

from typing import Any, Final

import numpy as np

from canaria.lab.charts import line_chart
from canaria.lab.figures._dpsgd import bound_rows, paper_mechanism, sums, tails_bound
from canaria.lab.figures._experiment import Experiment, Row

ELEMENTS: Final = 5000
GUESSES: Final = (10, 20, 50, 100, 200, 400, 800, 1600, 3200, 5000)


def block(point: float, trials: int, rng: np.random.Generator) -> list[Row]:
    """One run for every k."""
    bits, scores = sums(paper_mechanism(point, "sum"), ELEMENTS, trials, rng)
    return [
        row
        for trial in range(trials)
        for k in GUESSES
        for row in bound_rows(tails_bound(scores[trial], bits[trial], k, rng), x=k / ELEMENTS)
    ]


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "Fewer guesses are surer, more guesses are stronger evidence",
        "DP-SGD, n = 5000, d = 1000, T = 100, q = 0.1, ε = 2 (RDP), δ = 1e-5; 95% confidence",
        "fraction of guesses k / n",
        "",
    )


EXPERIMENT: Final = Experiment(
    "guesses", "effect of k / n (Fig. 1, 5)", points=(2.0,), quick_points=(2.0,), block=block, chart=chart
)
