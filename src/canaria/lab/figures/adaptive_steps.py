"""Beyond the paper: adaptive auditing over many subsampled steps, the same evidence for both."""

from typing import Any, Final

import numpy as np

from canaria.game import play_many
from canaria.lab.charts import line_chart
from canaria.lab.figures._dpsgd import DIMENSION, paper_mechanism
from canaria.lab.figures._experiment import Experiment, Row
from canaria.rules import Bet


def block(point: tuple[float, int], trials: int, rng: np.random.Generator) -> list[Row]:
    epsilon, per_coordinate = point
    mechanism, n = paper_mechanism(epsilon), per_coordinate * DIMENSION
    seed = int(rng.integers(2**62))
    games = {
        "one-run": play_many(mechanism, None, Bet(), n, trials, rng=seed),
        "adaptive": play_many(mechanism, None, Bet(), n, trials, mechanism.rounds(n), rng=seed),
    }
    return [
        {"x": per_coordinate, "series": series, "panel": f"ε = {epsilon:g}", "value": game.bound().epsilon}
        for series, played in games.items()
        for game in played
    ]


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "Adaptive auditing over 100 subsampled steps",
        "DP-SGD, d = 1000, T = 100, q = 0.1, optimal losses, bets; pure bounds, 95% confidence",
        "elements per coordinate n / d",
        "bound on ε",
    )


EXPERIMENT: Final = Experiment(
    "adaptive-steps",
    "adaptive auditing over many steps (ours)",
    points=tuple((epsilon, s) for epsilon in (2.0, 8.0) for s in (1, 2, 4, 8, 16)),
    quick_points=((8.0, 1), (8.0, 8)),
    block=block,
    chart=chart,
    trials=20,
    quick_trials=2,
    block_size=10,
)
