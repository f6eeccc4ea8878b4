"""Figure 3: one-run against adaptive auditing of one full-batch step of DP-SGD, threshold 1."""

from typing import Any, Final

import numpy as np

from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.lab.charts import line_chart
from canaria.lab.figures._adaptive import compare
from canaria.lab.figures._dpsgd import DELTA, DIMENSION
from canaria.lab.figures._experiment import Experiment, Row
from canaria.mechanisms import SubsampledGaussian


def block(point: int, trials: int, rng: np.random.Generator) -> list[Row]:
    mechanism = SubsampledGaussian(
        dimension=DIMENSION,
        steps=1,
        sample_rate=1.0,
        noise_multiplier=dpsgd_noise_multiplier(2.0, DELTA, 1, 1.0),
    )
    n = point * DIMENSION
    seed = int(rng.integers(2**62))
    return compare(mechanism, n, 1.0, trials, seed, point)


def chart(rows: list[Row]) -> Any:
    return line_chart(
        rows,
        "Revealed bits take the interference away",
        "DP-SGD, T = 1, q = 1, d = 1000, ε = 2 (RDP), threshold |loss| ≥ 1; pure bounds, 95% confidence\n"
        "The paper's adaptive rule has no validity guarantee: revealed bits decide how often it guesses.",
        "elements per coordinate n / d",
        "bound on ε",
        log_x=False,
    )


EXPERIMENT: Final = Experiment(
    "adaptive-dpsgd",
    "one-run against adaptive DP-SGD (Fig. 3)",
    points=(1, 2, 3, 4, 5, 6, 8, 10, 12),
    quick_points=(1, 5, 10),
    block=block,
    chart=chart,
)
