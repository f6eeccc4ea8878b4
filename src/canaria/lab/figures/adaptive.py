"""Figures 3 and 9, and one beyond the paper: one-run against adaptive auditing, on the same runs."""

import math
from typing import Any, Final

import numpy as np

from canaria import Counts, lower_bound
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.claims.base import PERFECT_PRIVACY
from canaria.game import play_many
from canaria.lab.figures._experiment import Experiment, Row
from canaria.lab.figures.dpsgd import DELTA, DIMENSION, paper_mechanism
from canaria.mechanisms import CountInSets, SubsampledGaussian
from canaria.rules import Bet, Threshold, UpTo

ONE_RUN: Final = "one-run, threshold"
PAPER: Final = "adaptive, threshold as in the paper (NO validity guarantee)"
BETS: Final = "adaptive, bets"
BUDGET: Final = "adaptive, committed budget"
ONE_RUN_BETS: Final = "one-run, bets"
_NO_GUARANTEE: Final = (
    "\nThe paper's adaptive rule has no validity guarantee: revealed bits decide how often it guesses."
)
_SETS: Final = 100


def _compared(mechanism: Any, n: int, threshold: float, trials: int, seed: int, x: float) -> list[Row]:
    """Pure bounds of all five series. The same seed gives each the same bits and the same outputs.

    The committed budget is 0.8 of the guesses that four pilot games, simulated beforehand, take on average.
    """
    rounds = mechanism.rounds(n)
    pilot = play_many(mechanism, None, UpTo(n, threshold), n, 4, rounds, rng=0)
    # Below what is taken on average, as guesses that are not taken count as wrong.
    budget = max(1, int(0.8 * sum(game.evidence.tally(PERFECT_PRIVACY).taken for game in pilot) / 4))
    one_run = play_many(mechanism, None, Threshold(threshold), n, trials, rng=seed)
    unlimited = play_many(mechanism, None, UpTo(n, threshold), n, trials, rounds, rng=seed)
    found = {
        # Clopper-Pearson at a number of guesses that revealed bits decided, which is what the paper plots.
        ONE_RUN: [_counted(game, n) for game in one_run],
        PAPER: [_counted(game, n) for game in unlimited],
    }
    for series, rule, order in (
        (BUDGET, UpTo(budget, threshold), rounds),
        (BETS, Bet(), rounds),
        (ONE_RUN_BETS, Bet(), None),
    ):
        played = play_many(mechanism, None, rule, n, trials, order, rng=seed)
        found[series] = [game.bound().epsilon for game in played]
    return [
        {"x": x, "series": series, "value": value} for series, values in found.items() for value in values
    ]


def _counted(game: Any, n: int) -> float:
    right, taken = game.evidence.tally(PERFECT_PRIVACY)
    return lower_bound(Counts(right, taken, n)).epsilon


def _dpsgd(per_coordinate: int, trials: int, rng: np.random.Generator) -> list[Row]:
    mechanism = SubsampledGaussian(
        dimension=DIMENSION,
        steps=1,
        sample_rate=1.0,
        noise_multiplier=dpsgd_noise_multiplier(2.0, DELTA, 1, 1.0),
    )
    n, seed = per_coordinate * DIMENSION, int(rng.integers(2**62))
    return _compared(mechanism, n, 1.0, trials, seed, per_coordinate)


def _count_in_sets(size: int, trials: int, rng: np.random.Generator) -> list[Row]:
    seed = int(rng.integers(2**62))
    return _compared(CountInSets(size), _SETS * size, math.inf, trials, seed, size)


def _steps(point: tuple[float, int], trials: int, rng: np.random.Generator) -> list[Row]:
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


ADAPTIVE_DPSGD: Final = Experiment(
    "adaptive-dpsgd",
    "one-run against adaptive DP-SGD (Fig. 3)",
    points=(1, 2, 3, 4, 5, 6, 8, 10, 12),
    quick_points=(1, 5, 10),
    block=_dpsgd,
    title="Revealed bits remove the interference",
    subtitle="DP-SGD, T = 1, q = 1, d = 1000, ε = 2 (RDP), threshold |loss| ≥ 1; pure bounds, 95% confidence"
    + _NO_GUARANTEE,
    x="elements per coordinate n / d",
    log_x=False,
)
ADAPTIVE_COUNT_IN_SETS: Final = Experiment(
    "adaptive-count-in-sets",
    "one-run against adaptive Count-in-Sets (Fig. 9)",
    points=tuple(range(1, 11)),
    quick_points=(1, 4, 10),
    block=_count_in_sets,
    title="Certain guesses: interference starves one run, not the adaptive auditor",
    subtitle="Count-in-Sets, 100 sets, threshold ∞; pure bounds, 95% confidence (ε itself is infinite)"
    + _NO_GUARANTEE,
    x="elements per set",
    log_x=False,
    trials=100,
)
ADAPTIVE_STEPS: Final = Experiment(
    "adaptive-steps",
    "adaptive auditing over many steps (ours)",
    points=tuple((epsilon, s) for epsilon in (2.0, 8.0) for s in (1, 2, 4, 8, 16)),
    quick_points=((8.0, 1), (8.0, 8)),
    block=_steps,
    title="Adaptive auditing over 100 subsampled steps",
    subtitle="DP-SGD, d = 1000, T = 100, q = 0.1, optimal losses, bets; pure bounds, 95% confidence",
    x="elements per coordinate n / d",
    trials=20,
    quick_trials=2,
    block_size=10,
)
