"""Figure 7: the effect of the number of guesses for several epsilon, n = 5000, 20 runs."""

from typing import Any, Final

import numpy as np

from canaria.lab.charts import line_chart
from canaria.lab.figures._dpsgd import paper_mechanism, sums, tails_bound
from canaria.lab.figures._experiment import Experiment, Row
from canaria.lab.figures.guesses import ELEMENTS, GUESSES

EPSILONS: Final = (1.0, 2.0, 4.0, 8.0)


def block(point: float, trials: int, rng: np.random.Generator) -> list[Row]:
    bits, scores = sums(paper_mechanism(point, "sum"), ELEMENTS, trials, rng)
    return [
        {"x": k, "series": f"ε = {point:g}", "value": tails_bound(scores[t], bits[t], k, rng).epsilon}
        for t in range(trials)
        for k in GUESSES
    ]


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "For every ε the bound peaks at a small share of the elements",
        "DP-SGD, n = 5000, d = 1000, T = 100, q = 0.1, δ = 1e-5; 95% confidence",
        "guesses k",
        "bound on ε",
    )


EXPERIMENT: Final = Experiment(
    "guesses-epsilons",
    "effect of k for several ε (Fig. 7)",
    points=EPSILONS,
    quick_points=(2.0,),
    block=block,
    chart=chart,
    trials=20,
)
