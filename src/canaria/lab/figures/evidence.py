"""Beyond the paper: all kinds of evidence in one setting, over the elements per coordinate."""

from typing import Final

import numpy as np

from canaria import lower_bound
from canaria.evidence import Evidence
from canaria.game import play_many
from canaria.lab.figures._experiment import Experiment, Row
from canaria.lab.figures.dpsgd import DELTA, DIMENSION, paper_mechanism
from canaria.mechanisms import SubsampledGaussian
from canaria.rules import Bet, Ranked, Rule, Soft, Surest, Tails, UpTo
from canaria.rules.door import guess_once

RULES: Final[dict[str, Rule]] = {
    "likelihood, 100 guesses": Surest(100),
    "likelihood, ranked": Ranked(),
    "likelihood, weighted": Soft(),
}


def block(point: int, trials: int, rng: np.random.Generator) -> list[Row]:
    """One sample for all rules that guess everything at once."""
    n, seed = point * DIMENSION, int(rng.integers(2**62))
    optimal, paper = paper_mechanism(2.0), paper_mechanism(2.0, "sum")
    bits = 2 * rng.integers(0, 2, (trials, n), dtype=np.int8) - np.int8(1)
    losses = optimal.loss(optimal.sample(bits, rng), np.zeros_like(bits))
    evidence: dict[str, list[Evidence]] = {
        "paper: sum, 100 guesses": [
            g.evidence for g in play_many(paper, None, Tails(100), n, trials, rng=seed)
        ]
    }
    for series, rule in RULES.items():
        evidence[series] = [
            guess_once(rule, row, hidden, rng)[1] for row, hidden in zip(losses, bits, strict=True)
        ]
    rounds = optimal.rounds(n)
    for series, bet, order in (
        ("likelihood, bets", Bet(), None),
        ("adaptive likelihood, bets", Bet(), rounds),
        ("adaptive likelihood, budget of 100", UpTo(100, _pilot_threshold(optimal, n)), rounds),
    ):
        evidence[series] = [g.evidence for g in play_many(optimal, None, bet, n, trials, order, rng=seed)]
    return [
        {"x": point, "series": series, "panel": f"δ = {delta:g}", "value": lower_bound(seen, delta).epsilon}
        for series, found in evidence.items()
        for delta in (0.0, DELTA)
        for seen in found
    ]


def _pilot_threshold(mechanism: SubsampledGaussian, n: int) -> float:
    """The |loss| exceeded by 150 elements of a game simulated beforehand: enough to fill the budget."""
    rng = np.random.default_rng(0)
    bits = 2 * rng.integers(0, 2, (1, n), dtype=np.int8) - np.int8(1)
    losses = mechanism.loss(mechanism.sample(bits, rng), np.zeros_like(bits))
    return float(np.sort(np.abs(losses[0]))[-150])


EXPERIMENT: Final = Experiment(
    "evidence",
    "every kind of evidence, one setting (ours)",
    points=(1, 2, 4, 8, 16),
    quick_points=(1, 8),
    block=block,
    title="Every kind of evidence on one setting",
    subtitle="DP-SGD, d = 1000, T = 100, q = 0.1, ε = 2 (RDP; PLD: 1.81); 95% confidence",
    x="elements per coordinate n / d",
    trials=40,
    quick_trials=2,
    block_size=10,
)
