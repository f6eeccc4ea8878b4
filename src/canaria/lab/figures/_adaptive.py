"""One-run against adaptive auditing with a threshold on the loss, on the same runs."""

from typing import Any, Final

from canaria import Counts, lower_bound
from canaria.game import play_many
from canaria.lab.figures._experiment import Row
from canaria.rules import Bet, Threshold, UpTo

ONE_RUN: Final = "one-run, threshold"
PAPER: Final = "adaptive, threshold as in the paper (NO validity guarantee)"
BETS: Final = "adaptive, bets"
BUDGET: Final = "adaptive, committed budget"
ONE_RUN_BETS: Final = "one-run, bets"


def compare(mechanism: Any, n: int, threshold: float, trials: int, seed: int, x: float) -> list[Row]:
    """Pure bounds of all five; the same seed gives the same bits and the same outputs to each.

    The committed budget is 0.8 of the guesses that four pilot games, simulated beforehand, take on average.
    """
    rounds = mechanism.rounds(n)
    pilot = play_many(mechanism, None, UpTo(n, threshold), n, 4, rounds, rng=0)
    budget = max(1, int(0.8 * sum(game.evidence.tally(0.0).taken for game in pilot) / 4))
    one_run = play_many(mechanism, None, Threshold(threshold), n, trials, rng=seed)
    unlimited = play_many(mechanism, None, UpTo(n, threshold), n, trials, rounds, rng=seed)
    committed = play_many(mechanism, None, UpTo(budget, threshold), n, trials, rounds, rng=seed)
    bets = play_many(mechanism, None, Bet(), n, trials, rounds, rng=seed)
    one_run_bets = play_many(mechanism, None, Bet(), n, trials, rng=seed)
    rows = []
    for trial in range(trials):
        right, taken = unlimited[trial].evidence.tally(0.0)
        # Clopper-Pearson at a number of guesses that revealed bits decided: what the paper plots.
        paper = lower_bound(Counts(right, taken, n)).epsilon
        correct, counted = one_run[trial].evidence.tally(0.0)
        values = {
            ONE_RUN: lower_bound(Counts(correct, counted, n)).epsilon,
            PAPER: paper,
            BUDGET: committed[trial].bound().epsilon,
            BETS: bets[trial].bound().epsilon,
            ONE_RUN_BETS: one_run_bets[trial].bound().epsilon,
        }
        rows += [{"x": x, "series": series, "value": value} for series, value in values.items()]
    return rows
