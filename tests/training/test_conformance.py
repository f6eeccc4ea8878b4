"""Conformance: its parts are independent and uniform for correct training, and how far off it is where not."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from canaria.results.conformance import joined
from canaria.training import conformance
from canaria.training.canaries import Dirac
from canaria.training.conformance import Pairs, _joined
from tests.training.simulated import watched

PARTS = ("offset", "weight", "layers", "noise", "steps")


def test_every_part_is_uniform_and_independent_for_correct_training() -> None:
    """Theorem 26 (b) to (e): 400 runs, three layers, noise that changes from pair to pair; false alarms 1e-3.

    Six tests of Kolmogorov and Smirnov at 1e-4, and ten correlations at 4.5 standard errors.
    """
    sigmas, runs = np.repeat([2.0, 1.0, 3.0], 2), 400
    found = [conformance(watched(Dirac(120, 2), seed, sigmas, (20, 30, 10))) for seed in range(runs)]
    assert tuple(found[0].parts) == PARTS
    parts = np.array([list(one.parts.values()) for one in found]).T
    for p_values in (*parts, np.array([one.p_value for one in found])):
        assert stats.kstest(p_values, "uniform").pvalue >= 1e-4
    scores = stats.norm.isf(parts)
    for first, second in itertools.combinations(scores, 2):
        assert abs(np.corrcoef(first, second)[0, 1]) <= 4.5 / math.sqrt(runs)


def test_layers_and_steps_name_the_fault() -> None:
    """Something added in one layer, and noise that comes and goes: each shows in its own part."""
    run = watched(Dirac(1200, 2), 0, np.full(6, 2.0), (200, 300, 100))
    assert run.pairs is not None
    assert run.pairs.count == 3
    assert conformance(run).conforms
    shifted = replace(run, sums=run.sums + np.repeat([6.0, 0.0, 0.0], [200, 300, 100]))
    assert conformance(shifted).parts["layers"] < 1e-6
    uneven = replace(run, pairs=Pairs.of([150.0, 40.0, 350.0], 150))
    assert conformance(uneven).parts["steps"] < 1e-6
    assert conformance(uneven).clearest == "steps 3 and 4"


def alarms(coordinates: int, pairs: int, runs: int, seed: int) -> float:
    """How often conformance is below 1e-3 if every second step has no noise to speak of, four parts.

    Half of the coordinates have no included canary. There the difference of a pair is its noise, the sum of
    all pairs is the sum, and both enter: "steps" and "noise" share what they see. Everything is normal and
    known, so the parts are computed for all runs at once; the first twenty are held against the code.
    """
    rng = np.random.default_rng(seed)
    included = np.arange(coordinates) % 2
    quiet = included == 0
    noise = rng.normal(size=(runs, pairs, int(quiet.sum())))
    normal = rng.normal(size=(runs, coordinates))
    normal[:, quiet] = noise.sum(axis=1) / math.sqrt(pairs)
    squares = (noise**2).sum(axis=2)
    weight = (included - included.mean()) / np.linalg.norm(included - included.mean())
    along = np.column_stack([normal.sum(axis=1) / math.sqrt(coordinates), normal @ weight])
    rest = (normal**2).sum(axis=1) - (along**2).sum(axis=1)
    least = two_sided(squares, int(quiet.sum())).min(axis=1)
    logs = np.log(2 * stats.norm.sf(np.abs(along))).sum(axis=1)
    logs += np.log(two_sided(rest, coordinates - 2)) + np.log(-np.expm1(pairs * np.log1p(-least)))
    p_values = stats.chi2.sf(-2 * logs, 8)
    directions = {"offset": np.ones(coordinates), "weight": included.astype(float)}
    for run in range(20):
        shown = Pairs.of(squares[run], int(quiet.sum()))
        by_code = _joined(normal[run], directions, (1.0, 1.0, 1.0), (), shown).p_value
        assert by_code == pytest.approx(p_values[run], rel=1e-6)
    return float((p_values < 1e-3).mean())


def two_sided(values: np.ndarray, freedom: int) -> np.ndarray:
    return np.asarray(2 * np.minimum(stats.chi2.cdf(values, freedom), stats.chi2.sf(values, freedom)))


def test_a_single_pair_of_unequal_steps_raises_the_alarm_rate() -> None:
    """Theorem 26, where it is not exact: 0.35 % instead of 0.1 %, within four standard errors of 60,000 runs."""
    slack = 4 * math.sqrt(0.0035 / 60_000)
    assert alarms(300, 1, 60_000, seed=0) == pytest.approx(0.0035, abs=slack)


def test_many_pairs_of_unequal_steps_hardly_raise_it() -> None:
    """Theorem 26: ten pairs share little with their sum; 0.13 % in 40,000 runs, within four standard errors."""
    assert alarms(40, 10, 40_000, seed=1) == pytest.approx(0.0013, abs=4 * math.sqrt(0.0013 / 40_000))


@pytest.mark.parametrize(("parts", "rate"), [(4, 0.0058), (5, 0.0048)])
def test_alarm_rate_if_two_parts_were_equal(parts: int, rate: float) -> None:
    """Theorem 26: the law of Fisher's sum with one part counted twice, in closed form."""
    limit = float(stats.chi2.isf(1e-3, 2 * parts))
    assert joined(dict.fromkeys(map(str, range(parts)), math.exp(-limit / 2 / parts))) == pytest.approx(1e-3)
    others = 2 * (parts - 2)
    inside, _ = integrate.quad(lambda x: stats.chi2.pdf(x, others) * math.exp(-(limit - x) / 4), 0, limit)
    assert inside + stats.chi2.sf(limit, others) == pytest.approx(rate, abs=5e-5)
