"""Figure 4: one-run auditing of local Laplace without abstentions, over epsilon."""

import math
from typing import Any, Final

import numpy as np

from canaria.game import play_many
from canaria.lab.charts import line_chart
from canaria.lab.figures._experiment import Experiment, Row
from canaria.mechanisms import LocalLaplace
from canaria.rules import All

ELEMENTS: Final = 100_000


def block(point: float, trials: int, rng: np.random.Generator) -> list[Row]:
    games = play_many(LocalLaplace(point), None, All(), ELEMENTS, trials, rng=rng)
    return [{"x": point, "series": "bound", "value": game.bound().epsilon} for game in games]


def chart(rows: list[Row]) -> Any:
    exact = []
    for x in sorted({row["x"] for row in rows}):
        limit = math.log(2 * math.exp(x / 2) - 1)
        exact.append({"x": x, "series": "ln(2 exp(ε/2) - 1), the limit", "mean": limit, "error": 0.0})
        exact.append({"x": x, "series": "ε itself", "mean": x, "error": 0.0})
    return line_chart(
        [*rows, *exact],
        "Outputs that are not the worst: one-run bounds of local Laplace stay below ε",
        "all of n = 100,000 elements guessed; 95% confidence",
        "ε",
        "bound on ε",
        log_x=False,
    )


EXPERIMENT: Final = Experiment(
    "laplace",
    "local Laplace over ε (Fig. 4)",
    points=(0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0),
    quick_points=(1.0, 4.0),
    block=block,
    chart=chart,
    trials=20,
    block_size=5,
)
