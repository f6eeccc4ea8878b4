"""Figure 8: the effect of the number of elements for several epsilon, k = 100, 20 runs."""

from typing import Any, Final

import numpy as np

from canaria.lab.charts import line_chart
from canaria.lab.figures._dpsgd import DIMENSION, paper_mechanism, sums, tails_bound
from canaria.lab.figures._experiment import Experiment, Row
from canaria.lab.figures.elements import RATIOS
from canaria.lab.figures.guesses_epsilons import EPSILONS


def block(point: tuple[float, float], trials: int, rng: np.random.Generator) -> list[Row]:
    epsilon, ratio = point
    n = round(ratio * DIMENSION)
    bits, scores = sums(paper_mechanism(epsilon, "sum"), n, trials, rng)
    return [
        {"x": n, "series": f"ε = {epsilon:g}", "value": tails_bound(scores[t], bits[t], 100, rng).epsilon}
        for t in range(trials)
    ]


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "More elements help at every ε, up to a point",
        "DP-SGD, k = 100, d = 1000, T = 100, q = 0.1, δ = 1e-5; 95% confidence",
        "elements n",
        "bound on ε",
    )


EXPERIMENT: Final = Experiment(
    "elements-epsilons",
    "effect of n for several ε (Fig. 8)",
    points=tuple((epsilon, ratio) for epsilon in EPSILONS for ratio in RATIOS),
    quick_points=tuple((2.0, ratio) for ratio in (1.0, 8.0)),
    block=block,
    chart=chart,
    trials=20,
)
