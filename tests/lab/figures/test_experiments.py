"""The figures at reduced size: shapes that the paper reports, with stated error rates."""

import math

import numpy as np
import pytest

from canaria.lab.figures import EXPERIMENTS, summary
from canaria.lab.figures._experiment import generator
from canaria.lab.figures.adaptive import BETS, BUDGET, ONE_RUN, PAPER


def means(name: str, points: list[object], trials: int) -> dict[tuple[object, str], tuple[float, float]]:
    """(x, series) to (mean, standard error)."""
    rows = []
    for index, point in enumerate(points):
        rows += EXPERIMENTS[name].block(point, trials, generator(1, name, index, 0))
    return {(row["x"], row["series"]): (row["mean"], row["error"]) for row in summary(rows)}


def test_bound_peaks_inside_while_the_estimate_falls() -> None:
    """K / n, 40 runs: differences of many standard errors."""
    found = means("guesses", [2.0], 40)
    shares = sorted({x for x, _ in found})  # type: ignore[type-var]
    bounds = [found[x, "bound"][0] for x in shares]
    peak = int(np.argmax(bounds))
    assert 0 < peak < len(shares) - 1
    assert bounds[peak] > bounds[0] + 0.2
    assert bounds[peak] > bounds[-1] + 0.1
    estimates = [found[x, "estimate"][0] for x in shares[2:]]
    assert (np.diff(estimates) < 0).all()


def test_adaptive_dpsgd_does_not_fall_with_elements() -> None:
    """Paired seeds, 20 runs: one-run falls beyond 5 per coordinate, adaptive does not."""
    found = means("adaptive-dpsgd", [5, 10], 20)
    assert found[5, PAPER][0] > found[5, ONE_RUN][0]
    assert found[10, PAPER][0] > found[10, ONE_RUN][0] + 0.1
    assert found[10, ONE_RUN][0] < found[5, ONE_RUN][0]
    assert found[10, PAPER][0] > found[5, PAPER][0] - 4 * (found[10, PAPER][1] + found[5, PAPER][1])
    assert found[10, BETS][0] > 0.5
    assert found[10, BUDGET][0] > 0.5


def test_adaptive_count_in_sets_rises_while_one_run_falls() -> None:
    """Equal at s = 1; then apart. 50 runs."""
    found = means("adaptive-count-in-sets", [1, 3, 6, 10], 50)
    assert found[1, PAPER][0] == found[1, ONE_RUN][0]
    adaptive, one_run = ([found[s, series][0] for s in (1, 3, 6, 10)] for series in (PAPER, ONE_RUN))
    assert adaptive[0] < adaptive[1] < adaptive[2]
    assert adaptive[3] > adaptive[2] - 0.05
    assert one_run[0] > one_run[1] > one_run[2] > one_run[3]
    assert found[10, BETS][0] > found[10, ONE_RUN][0]
    assert found[10, BUDGET][0] > found[10, ONE_RUN][0]


def test_laplace_lies_on_its_limit() -> None:
    found = means("laplace", [1.0, 4.0], 5)
    for x in (1.0, 4.0):
        assert found[x, "bound"][0] == pytest.approx(math.log(2 * math.exp(x / 2) - 1), abs=0.04)


@pytest.mark.parametrize("name", EXPERIMENTS)
@pytest.mark.slow
def test_every_experiment_runs_and_draws(name: str) -> None:
    """One repetition at its quick points gives rows, a chart and pictures."""
    from canaria.lab.figures.reproduce import draw

    experiment = EXPERIMENTS[name]
    rows = [
        row
        for point in experiment.quick_points
        for row in experiment.block(point, 2, generator(0, name, 0, 0))
    ]
    found = summary(rows)
    assert all({"x", "series", "mean", "error", "trials"} <= set(row) for row in found)
    files = draw(name, found)
    assert files["svg"].startswith(b"<svg")
    assert files["png"].startswith(b"\x89PNG")
    assert len(files["jsonl"].splitlines()) == len(found)
