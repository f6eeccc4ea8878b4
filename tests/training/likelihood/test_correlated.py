"""Correlated noise in recordings: scores, conformance and rungs, of correct training and of wrong."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import linalg, stats

from canaria import InputError, play
from canaria.claims import GaussianDP
from canaria.claims.noise import gaussian_epsilon
from canaria.mechanisms import BallsInBins, Correlated, CyclicPoisson, InOrder, MinSeparation, Strategy
from canaria.training import CorrelatedRecorder, Recording, TrainingDivergedError
from canaria.training.canaries.witnesses import Seen, layout
from canaria.training.likelihood.correlated import Correlation
from tests.training.simulated import correlated

SHAPES = ((20, 30), (25,), (15, 15))
STEPS, DELTA = 32, 1e-5
COLUMN = 0.5 ** np.arange(4.0)
BANDS = Strategy.toeplitz(COLUMN, STEPS)
BANDED = linalg.toeplitz(np.append(COLUMN, np.zeros(STEPS - 4)), np.zeros(STEPS))
MATRIX = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, (STEPS, STEPS))) + np.eye(STEPS)
DENSE = Strategy(MATRIX)
TRAININGS = {
    "bands": Correlated(BANDS, CyclicPoisson(4, 0.5), 1.1),
    "bands of one column norm": Correlated(
        Strategy(BANDED / np.linalg.norm(BANDED, axis=0)), CyclicPoisson(5), 1.1
    ),
    "bins": Correlated(DENSE, BallsInBins(8), 1.1),
    "apart": Correlated(BANDS, MinSeparation(4, 0.5), 1.1),
    "order": Correlated(DENSE, InOrder(8), 1.1),
    "one epoch": Correlated(DENSE, InOrder(STEPS), 0.4),
    "few of an epoch": Correlated(DENSE, InOrder(12), 0.4),
}


class Clustered(InOrder):
    """As often as in order, but in steps that follow each other."""

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> np.ndarray:
        often = -(-steps // self.period)
        return np.repeat(np.arange(steps)[:, None] < often, count, axis=1)


class Reshuffled(InOrder):
    """In another order in every epoch."""

    def draw(self, steps: int, count: int, rng: np.random.Generator) -> np.ndarray:
        own = rng.integers(0, self.period, (-(-steps // self.period), count))
        return np.arange(steps)[:, None] % self.period == own[np.arange(steps) // self.period]


def run(name: str, seed: int, **faults: Any) -> Recording:
    return correlated(TRAININGS[name], 300, seed, SHAPES, **faults)


@pytest.mark.parametrize("steps", [None, 21], ids=["whole", "stopped"])
@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("runs", [25, pytest.param(1000, marks=pytest.mark.full)])
def test_correct_training_is_not_accused(runs: int, name: str, steps: int | None) -> None:
    """Uniform p-values of whole tests and of each part: Kolmogorov and Smirnov at 1e-5, false alarms 1e-3."""
    found = [run(name, seed, steps=steps).conformance() for seed in range(runs)]
    for part in found[0].parts:
        assert stats.kstest([one.parts[part] for one in found], "uniform").pvalue >= 1e-5
    assert stats.kstest([one.p_value for one in found], "uniform").pvalue >= 1e-5
    assert np.mean([one.weight for one in found]) == pytest.approx(1, abs=1 / runs**0.5)


FAULTS = {
    "a band is missing": {"made": Strategy.toeplitz(COLUMN[:-1], STEPS)},
    "noise is independent": {"made": Strategy.toeplitz([1.0], STEPS)},
    "no sensitivity": {"noise": 1 / float(np.linalg.norm(COLUMN))},
    "0.9 of the noise": {"noise": 0.9},
    "twice the clip norm": {"weight": 2.0},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str) -> None:
    for seed in range(3):
        assert run("bands", seed, **FAULTS[fault]).conformance().p_value <= 1e-6


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("steps", [None, 21], ids=["whole", "stopped"])
def test_a_step_without_noise_is_certain(seed: int, steps: int | None) -> None:
    """Whitened, it has the noise of the steps before; eight weights without canaries are enough."""
    found = correlated(TRAININGS["bands"], 300, seed, ((308,),), silent=9, steps=steps).conformance()
    assert found.parts["steps"] < 1e-100
    assert "step 10 has no noise: ε is unbounded" in found.answer


@pytest.mark.parametrize(
    ("name", "law", "noise"),
    [
        ("order", Clustered(8), 0.3),
        ("order", Reshuffled(8), 0.1),
        ("bins", Clustered(8), 0.3),
        ("bands of one column norm", Clustered(5), 0.3),
        ("bands of one column norm", Reshuffled(5), 0.3),
    ],
    ids=["order, clustered", "order, reshuffled", "bins, clustered", "bands, clustered", "bands, reshuffled"],
)
def test_rows_that_take_part_at_other_times_are_found(name: str, law: InOrder, noise: float) -> None:
    """As often as stated, with noise that lets single steps be seen: of three, all are found."""
    training = Correlated(TRAININGS[name].strategy, TRAININGS[name].participation, noise)
    for seed in range(3):
        found = correlated(training, 300, seed, SHAPES, law=law).conformance()
        assert found.p_value <= 1e-6
        assert "canaries do not take part in the stated steps" in found.answer


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_noise_that_is_no_number_is_no_audit(value: float) -> None:
    rng = np.random.default_rng(0)
    recorder = CorrelatedRecorder(np.zeros(1200), TestRecorder.MECHANISM, canaries=500, rng=0)
    for _ in range(8):
        noisy = recorder.draw() + rng.normal(size=1200)
        noisy[np.flatnonzero(~np.isin(np.arange(1200), recorder._laid.canaries[0]))] = value
        recorder.see(noisy, real=np.zeros(1200))
    with pytest.raises(TrainingDivergedError, match="not finite"):
        recorder.bound(DELTA)


@pytest.mark.parametrize(("noise", "believed"), [(0.5, True), (1.01, False)])
def test_noise_that_witnesses_contradict_is_not_believed(noise: float, believed: bool) -> None:
    rng = np.random.default_rng(0)
    roles = layout(SHAPES, 300, rng).roles
    values = rng.normal(scale=noise, size=(STEPS, len(roles.index)))
    witnessed = Seen.of(values, np.zeros((STEPS, len(SHAPES))), roles)
    seen = rng.normal(size=(STEPS, 9))
    law = TRAININGS["bands"]
    size = float(np.sqrt(np.mean(values[:, ~roles.shaped] ** 2))) if believed else 1.0
    expected = Correlated(law.strategy, law.participation, law.noise_multiplier * size).losses(seen)
    assert Correlation(mechanism=law).table(seen, witnessed)[:, 1] == pytest.approx(expected)


def test_scores_are_the_losses_of_the_mechanism() -> None:
    stated = Correlation(mechanism=TRAININGS["bins"])
    seen = np.random.default_rng(1).normal(size=(STEPS, 9))
    table = stated.table(seen)
    assert table[:, 1] == pytest.approx(TRAININGS["bins"].losses(seen))
    assert (table[:, 0] == 0).all()
    assert (run("bins", 0).losses(np.zeros(300, np.int8)) == run("bins", 0).table[:, 1]).all()


def test_bounds_are_rarely_above_the_truth() -> None:
    """Known steps, single ones: exactly Gaussian. At most 5 % of 60 runs; false alarm 1e-4."""
    training = Correlated(Strategy(MATRIX / np.linalg.norm(MATRIX, axis=0)), InOrder(STEPS), 1.1)
    truth = gaussian_epsilon(1 / 1.1, DELTA)
    over = [correlated(training, 300, seed, SHAPES).bound(DELTA).epsilon > truth for seed in range(60)]
    assert stats.binom.sf(sum(over) - 1, len(over), 0.05) >= 1e-4


def test_where_steps_are_known_the_claim_is_a_curve() -> None:
    """All four rungs, in their order; the interval of the last holds the truth."""
    recording = run("order", 0)
    result = recording.report(delta=DELTA, family="gaussian")
    assert isinstance(result.claim, GaussianDP)
    assert result.claim.mu == pytest.approx(1 / 1.1)
    assert [rung.name for rung in result.rungs] == [
        "any mechanism",
        "Gaussian noise",
        "independent canaries",
        "measured noise",
    ]
    least, most = result.rungs[3].least, result.rungs[3].most
    assert least is not None
    assert most is not None
    assert least <= gaussian_epsilon(1 / 1.1, DELTA) <= most
    assert result.rungs[0].least < result.rungs[1].least <= least
    withdrawn = run("order", 0, made=Strategy.toeplitz([1.0], STEPS)).report(delta=DELTA).rungs[3]
    assert "does not fit" in withdrawn.withdrawn


def test_reports_say_what_was_stated() -> None:
    result = run("bands", 0).report(claimed=8.0, delta=DELTA)
    assert "(correlated noise, 4 bands, cyclic Poisson sampling 4 x 0.5)" in str(result)
    assert result.rungs == ()
    with pytest.raises(InputError, match="dpsgd is for Poisson sampling, not for correlated noise, 4 bands"):
        run("bands", 0).bound(DELTA, family="dpsgd")


def test_rows_that_rarely_take_part_are_not_accused() -> None:
    """With little noise most losses are equal; of 60 p-values none is below 1e-6 but with probability 6e-5."""
    training = Correlated(Strategy.toeplitz([1.0, 0.5], 4), CyclicPoisson(2, 0.01), 0.05)
    found = [correlated(training, 20, seed, ((60,),)).conformance().parts["timing"] for seed in range(60)]
    assert min(found) > 1e-6
    assert max(found) > 0.9


def test_a_weight_that_cannot_be_estimated_is_1() -> None:
    """All canaries are included."""
    record = run("bands", 0)
    bits = np.ones_like(record.bits)
    assert replace(record, bits=bits).conformance().weight == 1


def test_reports_say_that_training_was_stopped() -> None:
    said = run("bands", 0, steps=21).report(delta=DELTA).facts["training"]
    assert "stopped before the last of 32 steps" in said
    assert "the stated noise over the sensitivity of these steps" in said


def test_training_that_stops_before_canaries_take_part_shows_nothing() -> None:
    """Columns grow, so that the last row of an epoch leaks most, and canaries are there."""
    growing = Strategy(np.diag(np.linspace(1, 2, STEPS)))
    training = Correlated(growing, InOrder(8).worst(growing), 1.1)
    assert training.participation == InOrder(8, first=7)
    result = correlated(training, 300, 0, SHAPES, steps=5).report(delta=DELTA, family="gaussian")
    assert result.bound.epsilon == 0
    assert result.conformance is not None
    assert result.conformance.conforms


def test_stopped_training_has_the_noise_of_its_own_sensitivity() -> None:
    """Fewer steps add less; the noise is the same."""
    whole = Correlation(mechanism=TRAININGS["order"])
    half = whole.first(16)
    assert half.mechanism.deviation == pytest.approx(whole.mechanism.deviation)
    assert half.mechanism.noise_multiplier > whole.mechanism.noise_multiplier
    assert whole.first(STEPS).mechanism.noise_multiplier == pytest.approx(1.1)


def test_steps_and_rate_are_those_of_the_strategy() -> None:
    with pytest.raises(InputError, match="steps and sample rate are those of the strategy"):
        run("bands", 0).conformance(sample_rate=0.5)


def test_without_noise_there_is_nothing_to_correlate() -> None:
    with pytest.raises(InputError, match="correlated noise must be at least"):
        Correlation(mechanism=Correlated(BANDS, CyclicPoisson(4), 1e-4))


def test_the_last_rung_claims_no_more_than_a_row_can_leak() -> None:
    """Where steps overlap negatively, the sensitivity is an upper bound, which no gradients reach.

    Gradients of norm 1 add at most the root of T times the largest eigenvalue of C'C.
    """
    steps, share = 20, 0.99 / 19
    overlaps = (1 + share) * np.eye(steps) - share
    strategy = Strategy(np.linalg.cholesky(overlaps[::-1, ::-1])[::-1, ::-1].T)
    training = Correlated(strategy, InOrder(1), 1.0)
    reached = np.sqrt(steps * np.linalg.eigvalsh(overlaps).max())
    truth = GaussianDP(reached / training.deviation).epsilon_at(DELTA)
    last = correlated(training, 300, 0, ((2000,),)).report(delta=DELTA).rungs[3]
    assert last.least < truth < last.most


class TestRecorder:
    """A loop of one's own, whose noise is correlated."""

    MECHANISM = Correlated(Strategy.toeplitz([1.0, 0.5, 0.375, 0.3125], 32), CyclicPoisson(4, 0.5), 0.8)

    def trained(self, seed: int, *, noise: float = 1.0, steps: int = 32, correlated: bool = True) -> Any:
        rng = np.random.default_rng(seed)
        drawn = noise * self.MECHANISM.deviation * rng.normal(size=(32, 1200))
        added = self.MECHANISM.strategy.correlate(drawn) if correlated else drawn
        recorder = CorrelatedRecorder(np.zeros(1200), self.MECHANISM, canaries=500, rng=seed)
        for step in range(steps):
            real = rng.normal(size=1200)
            recorder.see(real + recorder.draw() + added[step], real=real)
        return recorder

    def test_bounds_are_those_of_the_mechanism(self) -> None:
        """Means of 12 runs; four standard errors."""
        own = [self.trained(seed).bound(1e-5).epsilon for seed in range(12)]
        games = [play(self.MECHANISM, n=500, rng=seed).bound(1e-5).epsilon for seed in range(12)]
        error = math.hypot(np.std(own, ddof=1), np.std(games, ddof=1)) / math.sqrt(12)
        assert abs(np.mean(own) - np.mean(games)) <= 4 * error

    def test_correct_training_conforms_and_faults_do_not(self) -> None:
        """The smallest of 12 p-values is below 1e-5 with probability 1e-4."""
        assert min(self.trained(seed).conformance().p_value for seed in range(12)) > 1e-5
        assert self.trained(0, noise=0.5).conformance().p_value < 1e-6
        assert self.trained(0, correlated=False).conformance().p_value < 1e-6

    def test_training_that_stopped_early_is_that_of_its_steps(self) -> None:
        early = self.trained(1, steps=20)
        assert early.recording().steps == 20
        assert early.conformance().p_value > 1e-4
        with pytest.raises(InputError, match="for 32 steps, and all were seen"):
            self.trained(1).draw()

    def test_nothing_was_seen(self) -> None:
        with pytest.raises(InputError, match="no training step was seen"):
            CorrelatedRecorder(np.zeros(9), self.MECHANISM, canaries=3).bound(1e-5)
