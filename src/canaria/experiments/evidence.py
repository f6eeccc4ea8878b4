"""Beyond the paper: every kind of evidence on its setting, over the elements per coordinate."""

from typing import Any, Final

import numpy as np

from canaria import Bet, Ranked, Soft, Surest, Tails, play_many
from canaria.experiments._dpsgd import DELTA, DIMENSION, paper_mechanism
from canaria.experiments._experiment import Experiment, Row
from canaria.report.plots import line_chart


def block(point: int, trials: int, rng: np.random.Generator) -> list[Row]:
    n, seed = point * DIMENSION, int(rng.integers(2**62))
    optimal, paper = paper_mechanism(2.0), paper_mechanism(2.0, "sum")
    games = {
        "paper: sum, 100 guesses": play_many(paper, None, Tails(100), n, trials, rng=seed),
        "likelihood, 100 guesses": play_many(optimal, None, Surest(100), n, trials, rng=seed),
        "likelihood, ranked": play_many(optimal, None, Ranked(), n, trials, rng=seed),
        "likelihood, weighted": play_many(optimal, None, Soft(), n, trials, rng=seed),
        "likelihood, bets": play_many(optimal, None, Bet(), n, trials, rng=seed),
        "adaptive likelihood, bets": play_many(optimal, None, Bet(), n, trials, optimal.rounds(n), rng=seed),
    }
    return [
        {"x": point, "series": series, "panel": f"δ = {delta:g}", "value": game.bound(delta).epsilon}
        for series, played in games.items()
        for delta in (0.0, DELTA)
        for game in played
    ]


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "What the evidence is worth: the same runs, bound by every kind",
        "DP-SGD, d = 1000, T = 100, q = 0.1, ε = 2 (RDP; PLD: 1.81); 95 % confidence",
        "elements per coordinate n / d",
        "bound on ε",
    )


EXPERIMENT: Final = Experiment(
    "evidence",
    "every kind of evidence, one setting (ours)",
    (1, 2, 4, 8, 16),
    (1, 8),
    block,
    chart,
    trials=40,
    quick_trials=2,
)
