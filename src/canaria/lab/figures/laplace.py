"""Figure 4: one-run auditing of local Laplace without abstentions, over epsilon."""

import math
from typing import Final

import numpy as np

from canaria.game import play_many
from canaria.lab.figures._experiment import Experiment, Row
from canaria.mechanisms import LocalLaplace
from canaria.rules import All

ELEMENTS: Final = 100_000


def block(point: float, trials: int, rng: np.random.Generator) -> list[Row]:
    games = play_many(LocalLaplace(point), None, All(), ELEMENTS, trials, rng=rng)
    return [{"x": point, "series": "bound", "value": game.bound().epsilon} for game in games]


def limits(rows: list[Row]) -> list[Row]:
    """The bound from infinitely many elements, and epsilon itself."""
    found = []
    for x in sorted({row["x"] for row in rows}):
        limit = math.log(2 * math.exp(x / 2) - 1)
        found.append({"x": x, "series": "ln(2 exp(ε/2) - 1), the limit", "mean": limit, "error": 0.0})
        found.append({"x": x, "series": "ε itself", "mean": x, "error": 0.0})
    return found


EXPERIMENT: Final = Experiment(
    "laplace",
    "local Laplace over ε (Fig. 4)",
    points=(0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0),
    quick_points=(1.0, 4.0),
    block=block,
    title="Outputs that are not the worst: one-run bounds of local Laplace stay below ε",
    subtitle="all of n = 100,000 elements guessed; 95% confidence",
    x="ε",
    log_x=False,
    theory=limits,
    trials=20,
    block_size=5,
)
