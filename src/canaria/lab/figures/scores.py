"""Beyond the paper: the likelihood score against the sum, over the sampling rate, epsilon = 8."""

from typing import Final

import numpy as np

from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.game import play_many
from canaria.lab.figures._experiment import Experiment, Row
from canaria.lab.figures.dpsgd import DELTA, DIMENSION
from canaria.mechanisms import SubsampledGaussian
from canaria.rules import Ranked

EPSILON: Final = 8.0


def block(point: tuple[int, float], trials: int, rng: np.random.Generator) -> list[Row]:
    steps, rate = point
    sigma = dpsgd_noise_multiplier(EPSILON, DELTA, steps, rate)
    rows = []
    for score in ("likelihood", "sum"):
        games = play_many(
            SubsampledGaussian(
                dimension=DIMENSION, steps=steps, sample_rate=rate, noise_multiplier=sigma, score=score
            ),
            None,
            Ranked(),
            DIMENSION,
            trials,
            rng=rng,
        )
        rows += [
            {"x": rate, "series": score, "panel": f"T = {steps}", "value": game.bound().epsilon}
            for game in games
        ]
    return rows


EXPERIMENT: Final = Experiment(
    "scores",
    "likelihood against sum score over q (ours)",
    points=tuple((steps, rate) for steps in (100, 1000) for rate in (0.01, 0.03, 0.1, 0.3)),
    quick_points=((100, 0.01), (100, 0.1)),
    block=block,
    title="At small sampling rates the sum discards the evidence",
    subtitle="DP-SGD, ε = 8 (RDP), n = d = 1000, ranking; pure bounds, 95% confidence",
    x="sampling rate q",
    trials=20,
    quick_trials=2,
    block_size=5,
)
