"""Plans: the law of the losses against closed forms, expected bounds and powers against simulated games.

Seeds are fixed. Where simulations are compared, the false-alarm rate of another seed is stated.
"""

import json
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import special, stats

from canaria import InputError, lower_bound, plan
from canaria.claims import ApproximateDP, DpSgd
from canaria.claims.accounting import dpsgd_noise_multiplier
from canaria.claims.families import DpSgdFamily
from canaria.game import play_many
from canaria.mechanisms import Correlated, CyclicPoisson, Strategy, SubsampledGaussian
from canaria.mechanisms.dpsgd import binomial_law, log_likelihoods_of
from canaria.rules import Around, Matched, Ranked, Soft, Surest
from canaria.theory import efficacy
from canaria.training.canaries.designs import Dirac, hidden_bits
from canaria.training.conformance.sums import Stated, of_dirac
from canaria.training.plan import Choice, Expected, Plan, expected_bound, planned_rule, refutation_power
from canaria.training.plan import _law as laws
from canaria.training.plan._expected import CAREFUL, checked_audit
from canaria.training.plan._law import games, law_of_losses, law_of_sums
from canaria.training.plan._verdicts import Verdicts
from canaria.training.recording import Recording

USUAL = DpSgd(steps=100, sample_rate=0.1, noise_multiplier=2.4224)


def dpsgd(steps: int, sample_rate: float, noise_multiplier: float) -> DpSgd:
    return DpSgd(steps=steps, sample_rate=sample_rate, noise_multiplier=noise_multiplier)


class Setting(NamedTuple):
    """A planned audit, the noise by the RDP accountant (at delta = 1e-5 where delta is 0)."""

    epsilon: float
    delta: float
    steps: int
    sample_rate: float
    canaries: int
    per_coordinate: int
    rule: Ranked | Around | Soft
    trials: int

    @property
    def training(self) -> DpSgd:
        sigma = dpsgd_noise_multiplier(self.epsilon, self.delta or 1e-5, self.steps, self.sample_rate)
        return dpsgd(self.steps, self.sample_rate, sigma)

    def planned(self) -> Expected:
        audit = (self.canaries, self.per_coordinate, self.delta)
        return expected_bound(self.training, *audit, rule=self.rule)

    def simulated(self, seed: int) -> np.ndarray:
        """The bounds of whole games against the mechanism itself."""
        mechanism = SubsampledGaussian(
            dimension=-(-self.canaries // self.per_coordinate), **self.training.to_dict()
        )
        bounds: list[float] = []
        block = max(1, 2_000_000 // self.canaries)
        rng = np.random.default_rng(seed)
        while len(bounds) < self.trials:
            trials = min(block, self.trials - len(bounds))
            games = play_many(mechanism, rule=self.rule, n=self.canaries, trials=trials, rng=rng)
            bounds += [game.bound(self.delta).epsilon for game in games]
        return np.array(bounds)


def best_up_to_chance(one: Choice, choices: tuple[Choice, ...]) -> bool:
    """Whether no mean of 50 or more audits is larger by three standard errors of a difference."""
    most = max(choices, key=lambda choice: choice.expected.mean).expected
    return one.expected.mean >= most.mean - 3 * math.hypot(most.deviation, one.expected.deviation) / 50**0.5


def name(value: object) -> str:
    """The id of a setting."""
    return "-".join(map(str, value)).replace("()", "") if isinstance(value, Setting) else str(value)


# The law of the losses.


@pytest.mark.parametrize("sigma", [0.5, 1.3, 8.0])
def test_one_full_batch_step_is_a_gaussian_shift(sigma: float) -> None:
    """The loss is (y - 1/2) / sigma^2: a mixture of two normals, accuracy Phi(1 / (2 sigma))."""
    law = law_of_losses(dpsgd(1, 1.0, sigma), 1)
    outputs = law.losses * sigma**2 + 0.5
    mixture = (special.ndtr(outputs / sigma) + special.ndtr((outputs - 1) / sigma)) / 2
    ranks = (np.arange(len(outputs)) + 0.5) / len(outputs)
    assert np.abs(mixture - ranks).max() < 2e-4
    assert law.accuracy(1.0) == pytest.approx(special.ndtr(0.5 / sigma), abs=1e-5)


@pytest.mark.parametrize(
    "training", [dpsgd(40, 0.5, 2.0), dpsgd(300, 0.05, 0.9), dpsgd(60, 1.0, 5.0)], ids=str
)
@pytest.mark.parametrize("too_small", [1.0, 3.0])
def test_the_law_of_sums_is_that_of_simulated_ones(training: DpSgd, too_small: float) -> None:
    """Losses are the likelihood ratios of a sum over all steps; false-alarm rate 1e-4 for each case."""
    law, rng, count = law_of_sums(training, too_small), np.random.default_rng(0), 20_000
    bits = rng.integers(0, 2, count)
    taken = rng.binomial(training.steps, training.sample_rate, count) * bits
    scale = math.sqrt(training.steps) * training.noise_multiplier
    sums = taken + rng.normal(scale=scale / too_small, size=count)
    times = np.arange(training.steps + 1)
    likely = stats.binom.pmf(times, training.steps, training.sample_rate)
    densities = np.exp(-0.5 * ((sums[:, None] - times) / scale) ** 2) @ likely
    losses = np.log(densities) + 0.5 * (sums / scale) ** 2
    assert stats.ks_2samp(losses, law.losses).pvalue > 1e-4
    included = 1 - law.below[0]
    where = np.clip(np.searchsorted(law.losses, losses), 0, len(included) - 1)
    expected, spread = included[where].sum(), np.sqrt((included[where] * (1 - included[where])).sum())
    assert abs(bits.sum() - expected) < 4 * spread


@pytest.mark.parametrize(
    ("training", "share"), [(dpsgd(300, 0.05, 0.7), 0.9), (dpsgd(50, 1.0, 8.0), 1.0)], ids=str
)
def test_the_finished_model_shows_less_unless_every_step_has_all_rows(training: DpSgd, share: float) -> None:
    whole = checked_audit(training, 300, 1, 1e-5, 0.95, None)
    bounds = [replace(whole, final=final).expected(CAREFUL).mean for final in (True, False)]
    assert 0 < bounds[0] <= share * bounds[1] * 1.02


def test_a_plan_for_the_finished_model_says_so() -> None:
    planned = str(plan(4.0, 1e-5, 50, 1.0, canaries=100, too_small=(), black_box=True))
    assert "with weights of their own, seen in the finished model" in planned
    assert "conformance" not in planned
    assert "per coordinate" not in planned


@pytest.mark.parametrize(
    "training",
    [USUAL, dpsgd(1000, 0.01, 0.6), dpsgd(10**6, 1e-4, 0.6), dpsgd(3, 0.5, 1.0)],
    ids=str,
)
def test_losses_of_one_are_log_likelihood_ratios(training: DpSgd) -> None:
    """A canary with loss l is included with probability p(l): the law knows nothing of that identity."""
    law = law_of_losses(training, 1)
    assert np.abs(law.below[0] - special.expit(-law.losses)).max() < 1e-4


@pytest.mark.parametrize(
    "stated",
    [
        USUAL,
        dpsgd(1000, 0.01, 0.616),
        dpsgd(1000, 0.001, 0.413),
        dpsgd(10, 0.5, 2.14),
        dpsgd(10**5, 1e-3, 0.7),
    ],
    ids=str,
)
@pytest.mark.parametrize("too_small", [1.0, 2.0])
def test_doubling_agrees_with_the_fourier_transform(stated: DpSgd, too_small: float) -> None:
    """The two ways to the law, for one canary to a coordinate."""
    actual = replace(stated, noise_multiplier=stated.noise_multiplier / too_small)
    exact, drawn = laws._law_of_one(stated, actual), laws._law_of_several(stated, actual, 1)
    places = [0.01, 0.1, 0.5, 0.9, 0.99]
    near = (0.05 if too_small == 1 else 0.15) * float(np.std(exact.losses))
    assert np.quantile(drawn.losses, places) == pytest.approx(np.quantile(exact.losses, places), abs=near)
    assert drawn.accuracy(1.0) == pytest.approx(exact.accuracy(1.0), abs=0.004)
    assert drawn.accuracy(0.1) == pytest.approx(exact.accuracy(0.1), abs=0.008)


@pytest.mark.parametrize(("per_coordinate", "rate", "sigma"), [(2, 1.0, 1.0), (3, 0.3, 0.4), (8, 0.5, 0.7)])
def test_one_step_on_crowded_coordinates_by_quadrature(
    per_coordinate: int, rate: float, sigma: float
) -> None:
    """One step: the loss is a function of y, and the accuracy an integral over y."""
    outputs = np.linspace(-10 * sigma, per_coordinate + 10 * sigma, 4001)
    logs = log_likelihoods_of(outputs[None], per_coordinate, rate, sigma)
    included = special.binom(per_coordinate, np.arange(per_coordinate + 1)) / 2**per_coordinate
    density = np.exp(logs) @ included
    share = np.exp(logs) @ (included * np.arange(per_coordinate + 1) / per_coordinate) / density
    wanted = float(np.maximum(share, 1 - share) @ density / density.sum())
    law = law_of_losses(dpsgd(1, rate, sigma), per_coordinate)
    assert law.accuracy(1.0) == pytest.approx(wanted, abs=5e-4)


def test_crowded_coordinates_against_simulated_games() -> None:
    """The efficacy of all guesses, 200,000 simulated canaries: 4 standard errors, 1 false alarm in 16,000."""
    steps, rate, sigma = 30, 0.2, 1.5
    found = efficacy(
        SubsampledGaussian(dimension=1000, steps=steps, sample_rate=rate, noise_multiplier=sigma),
        4000,
        trials=50,
        rng=0,
    )
    law = law_of_losses(dpsgd(steps, rate, sigma), 4)
    assert abs(law.accuracy(1.0) - found.value) < 4 * found.error + 0.0005


def test_crowded_coordinates_with_little_noise_stay_finite() -> None:
    """Likelihoods of few included canaries underflow beside those of many; their order survives."""
    stated = dpsgd(3, 0.1, 0.4)
    values = np.array([64.0, 10.0, -1.0])
    ratios = laws._log_ratios(values, 64, stated)
    terms = (values[:, None, None] - np.arange(65) / 2) * np.arange(65) / stated.noise_multiplier**2
    with np.errstate(divide="ignore"):
        exact = special.logsumexp(terms + np.log(binomial_law(64, 0.1)[1:]), axis=-1)
    assert ratios == pytest.approx(exact, rel=1e-9)
    assert np.isfinite(law_of_losses(stated, 64, too_small=50.0).losses).all()


# Bounds of played audits against the bounds of the library, on the same evidence.


@pytest.mark.parametrize(
    "rule",
    [
        Ranked(),
        Around(121),
        Soft(),
        pytest.param(Matched(DpSgdFamily(100, 0.1)), marks=pytest.mark.full),
    ],
    ids=lambda rule: type(rule).__name__,
)
@pytest.mark.parametrize(
    ("training", "canaries", "per_coordinate", "delta"),
    [
        (USUAL, 1000, 1, 1e-5),
        (dpsgd(100, 0.1, 4.28), 2000, 2, 1e-5),
        (dpsgd(100, 0.1, 0.6), 500, 1, 1e-5),
        pytest.param(dpsgd(100, 0.1, 0.6), 1000, 1, 1e-2, marks=pytest.mark.full),
    ],
    ids=["usual", "small bounds", "large bounds", "large delta"],
)
def test_bounds_are_those_of_the_library(
    training: DpSgd,
    canaries: int,
    per_coordinate: int,
    delta: float,
    rule: Ranked | Around | Soft | Matched,
) -> None:
    """To the step of the claims that are tested; the run of `Soft` may skip a claim that ends it."""
    rng, verdicts = np.random.default_rng(0), Verdicts(delta, 0.05)
    seen = [
        rule(game.losses, rng).reveal(game.bits)
        for game in games(law_of_losses(training, per_coordinate), canaries, 30, rng)
    ]
    exact = np.array([lower_bound(one, delta, adjacency="add-remove").epsilon for one in seen])
    low, high = ([verdicts.bound(one, within) for one in seen] for within in (0.0, 0.999))
    assert np.mean((low <= exact + 1e-9) & (exact <= np.array(high) + 0.021)) >= 0.9
    assert np.mean([low, high]) == pytest.approx(exact.mean(), rel=0.03, abs=0.01)
    claim = float(np.median(exact))
    above = np.array([verdicts.above(claim, one) for one in seen])
    assert np.mean(above != (exact > claim)) <= 0.1


def test_remembered_verdicts_are_those_of_fresh_evidence() -> None:
    rng, remembered = np.random.default_rng(0), Verdicts(1e-5, 0.05)
    for game in games(law_of_losses(USUAL, 1), 300, 60, rng):
        seen = Ranked()(game.losses, rng).reveal(game.bits)
        assert remembered.bound(seen, 0.5) == Verdicts(1e-5, 0.05).bound(seen, 0.5)


@pytest.mark.parametrize(
    ("training", "canaries", "delta"),
    [
        (USUAL, 1000, 1e-5),
        (dpsgd(1, 1.0, 0.7), 12, 0.0),
        pytest.param(dpsgd(1, 1.0, 0.6), 600, 1e-5, marks=pytest.mark.full),
        pytest.param(dpsgd(1, 1.0, 3.0), 100_000, 1e-5, marks=pytest.mark.full),
        pytest.param(dpsgd(1, 1.0, 0.7), 1000, 1e-2, marks=pytest.mark.full),
    ],
    ids=["usual", "few", "one step", "many", "large delta"],
)
def test_the_planned_number_of_guesses_is_a_good_one(training: DpSgd, canaries: int, delta: float) -> None:
    """No other of a few numbers has a mean bound that is larger by more than 3%, and `Ranked` shows less."""

    def mean(rule: Ranked | Around) -> float:
        return expected_bound(training, canaries, delta=delta, rule=rule).mean

    planned = planned_rule(training, canaries, delta=delta)
    assert isinstance(planned, Around)
    k = planned.k
    others = {min(round(k * factor), canaries) for factor in (0.5, 0.7, 1.4, 2.0)}
    assert max(mean(Around(other)) for other in others) <= 1.03 * mean(Around(k))
    assert mean(Ranked()) < mean(Around(k))


def test_where_high_scores_alone_tell_every_order_is_looked_at() -> None:
    """At low sampling rates, few canaries are ever seen."""
    training = dpsgd(100, 0.01, 0.5)
    assert planned_rule(training, 10_000, delta=1e-5) == Ranked()
    both_tails = expected_bound(training, 10_000, delta=1e-5, rule=Around(400)).mean
    assert both_tails < 0.9 * expected_bound(training, 10_000, delta=1e-5).mean


def test_a_number_of_guesses_is_for_one_number_of_canaries() -> None:
    """Where the number of canaries is left open, it is refused; others have a number as far from the best."""
    with pytest.raises(InputError, match=r"per_coordinate must be given for Around\(k=20\)"):
        plan(2.0, 1e-5, 100, 0.1, coordinates=100, rule=Around(20))
    made = plan(2.0, 1e-5, 100, 0.1, canaries=400, rule=Around(23), too_small=())
    assert made.audit.rule == "Around(k=23)"
    means = [choice.expected.mean for choice in made.growth]
    assert means == sorted(means)
    assert best_up_to_chance(made.elements[0], made.elements)


# Expected bounds against simulated games.

QUICK = (Setting(8, 1e-5, 10, 0.5, 1000, 1, Ranked(), 45),)
FULL = (
    Setting(8, 1e-6, 10, 0.8, 4000, 8, Soft(), 70),
    Setting(8, 1e-5, 5, 0.8, 3000, 4, Ranked(), 45),
    Setting(2, 1e-5, 100, 0.1, 1000, 1, Ranked(), 1500),
    Setting(1, 1e-5, 100, 0.1, 2000, 1, Ranked(), 1500),
    Setting(1, 1e-5, 1000, 0.1, 500, 1, Soft(), 4000),
    Setting(8, 1e-5, 1000, 0.01, 1000, 1, Ranked(), 500),
    Setting(8, 1e-6, 100, 0.01, 10_000, 1, Soft(), 300),
    Setting(4, 1e-5, 10, 0.5, 2000, 4, Ranked(), 600),
    Setting(4, 1e-6, 1, 1.0, 5000, 2, Soft(), 600),
    Setting(2, 1e-5, 100, 0.1, 8000, 8, Ranked(), 400),
    Setting(2, 0.0, 100, 0.1, 2000, 8, Soft(), 800),
    Setting(8, 1e-5, 1, 1.0, 10_000, 1, Ranked(), 200),
    Setting(1, 1e-5, 10, 1.0, 3000, 3, Ranked(), 1500),
    Setting(3, 1e-5, 300, 0.02, 500, 5, Soft(), 2500),
    Setting(2, 1e-5, 100, 0.1, 1000, 1, Around(121), 1500),
    Setting(8, 1e-5, 1, 1.0, 600, 1, Around(101), 200),
    Setting(4, 1e-5, 10, 0.5, 2000, 4, Around(180), 600),
)


@pytest.mark.parametrize(
    "setting", [*QUICK, *(pytest.param(one, marks=pytest.mark.full) for one in FULL)], ids=name
)
def test_expected_bound_is_within_five_percent_of_simulation(setting: Setting) -> None:
    """To 5% and three standard errors of the plan, which plays 400 audits itself.

    The simulation's own standard error is below 2.2%: another seed fails in at most 1 of 30 settings.
    Deviation and 90% range are held to four standard errors of both, the former's with a kurtosis of up to 5.
    """
    planned, bounds = setting.planned(), setting.simulated(seed=1)
    simulated = float(bounds.mean())
    assert bounds.std() / math.sqrt(setting.trials) < 0.022 * simulated
    near = 0.05 * simulated + 3 * planned.deviation / math.sqrt(CAREFUL)
    assert planned.mean == pytest.approx(simulated, abs=near)
    root = math.sqrt(1 / (1 / setting.trials + 1 / CAREFUL))
    assert planned.deviation == pytest.approx(bounds.std(), rel=4 / root + 0.02)
    beyond = 4 * math.sqrt(0.05 * 0.95) / root + 0.015
    assert np.mean(bounds > planned.high + 0.005) == pytest.approx(0.05, abs=beyond)
    assert np.mean(bounds < planned.low - 0.005) <= 0.05 + beyond


@pytest.mark.parametrize(
    ("per_coordinate", "too_small"), [pytest.param(1, 3.0, marks=pytest.mark.full), (2, 3.2)]
)
def test_power_against_noise_that_is_too_small(per_coordinate: int, too_small: float) -> None:
    """Recorded runs with less noise than stated, 30 of them: four standard errors, 1 false alarm in 16,000."""
    steps, rate, sigma = USUAL.steps, USUAL.sample_rate, USUAL.noise_multiplier
    design = Dirac(1000, per_coordinate)
    refuted = []
    for seed in range(30):
        rng, bits = np.random.default_rng(seed), hidden_bits(design.count, seed)
        included = (bits.reshape(per_coordinate, -1) > 0).sum(axis=0)
        shape = (steps, design.coordinates)
        seen = rng.binomial(included, rate, shape) + rng.normal(scale=sigma / too_small, size=shape)
        table = log_likelihoods_of(seen, per_coordinate, rate, sigma)
        run = Recording(
            design=design,
            bits=bits,
            sums=seen.sum(axis=0),
            table=table,
            steps=steps,
            sample_rate=rate,
            noise_multiplier=sigma,
            injection="sum",
            seed=seed,
        )
        refuted.append(run.bound(1e-5).refutes(ApproximateDP(2.0, 1e-5)))
    power = refutation_power(USUAL, 2.0, too_small, 1000, per_coordinate, 1e-5)
    assert 0.05 < power < 0.95
    assert abs(power - np.mean(refuted)) < 4 * math.sqrt(power * (1 - power) / 30)


# Whole plans.


def test_plan_for_a_number_of_canaries() -> None:
    made = plan(2, 1e-5, 100, 0.1, canaries=400, too_small=(2.0, 4.0))
    assert made.audit.noise_multiplier == pytest.approx(2.4224, abs=1e-3)
    assert (made.audit.canaries, made.audit.per_coordinate, made.audit.coordinates, made.advised) == (
        400,
        1,
        400,
        1,
    )
    assert made.audit.rule == "Ranked()"
    assert made.expected == made.rules["Ranked()"]
    assert list(made.rules) == ["Ranked()", "Around(k=93)", "Soft()"]
    assert made.rules["Ranked()"].mean < made.rules["Around(k=93)"].mean
    assert made.best_rule == "Soft()"
    assert [choice.per_coordinate for choice in made.elements] == [1, 2, 4, 8]
    assert {choice.canaries for choice in made.elements} == {400}
    assert best_up_to_chance(made.elements[0], made.elements)
    assert [choice.canaries for choice in made.growth] == [100, 200, 400, 800, 1600, 4000]
    means = [choice.expected.mean for choice in made.growth]
    assert means == sorted(means)
    assert means[-1] < 2
    assert made.expected.low <= made.expected.mean <= made.expected.high
    assert [fault.factor for fault in made.faults] == [2.0, 4.0]
    assert made.faults[0].epsilon == pytest.approx(5.57, abs=0.02)
    assert made.faults[0].power["Ranked()"] < 0.1
    assert made.faults[1].power["Ranked()"] > 0.6
    assert made.refuted_from is not None
    assert 2 < made.refuted_from < 4.3
    accuracies = [one.accuracy for one in made.limits]
    assert 0.5 < accuracies[0] < accuracies[1] < accuracies[2] < 1
    assert json.loads(json.dumps(made.to_dict(), allow_nan=False))["best_rule"] == "Soft()"
    text = str(made)
    assert "by Ranked(), if training keeps the claim" in text
    assert "conformance" in text
    assert max(map(len, text.splitlines())) <= 130


@pytest.mark.full
def test_plan_for_a_number_of_coordinates() -> None:
    """Few coordinates: several canaries to each are advised, and all of them carry canaries."""
    made = plan(8, 1e-5, 5, 0.5, coordinates=60, too_small=())
    assert made.advised == made.audit.per_coordinate > 1
    assert (made.audit.canaries, made.audit.coordinates) == (60 * made.advised, 60)
    assert [choice.canaries for choice in made.elements] == [
        60 * choice.per_coordinate for choice in made.elements
    ]
    assert made.expected.mean > made.elements[0].expected.mean
    assert (made.audit.rule, made.factor, made.faults) == ("Ranked()", None, ())
    assert f"with 60 coordinates: {made.advised} has the largest expected bound" in str(made)


def test_plan_with_its_own_noise_and_pure_claims() -> None:
    made = plan(1, 0.0, 10, 1.0, canaries=200, per_coordinate=5, noise_multiplier=3.0, too_small=(64.0,))
    assert (made.audit.noise_multiplier, made.faults[0].epsilon) == (3.0, None)
    assert (made.audit.coordinates, made.audit.per_coordinate) == (40, 5)
    assert [choice.per_coordinate for choice in made.elements] == [1, 2, 4, 5, 8]
    assert "its epsilon" not in str(made)


def test_a_plan_is_the_same_every_time() -> None:
    one = expected_bound(USUAL, 300, 2, 1e-5)
    laws_again = law_of_losses(USUAL, 2)
    assert expected_bound(USUAL, 300, 2, 1e-5) == one
    assert (laws_again.losses == law_of_losses(USUAL, 2).losses).all()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epsilon": 0}, "epsilon must be positive and finite, got 0"),
        ({"epsilon": math.inf}, "epsilon must be positive and finite, got inf"),
        ({"delta": 0.0}, "delta must be strictly between 0 and 1, got 0.0"),
        ({"delta": 2.0, "noise_multiplier": 1.0}, "delta must be between 0 and 1, got 2.0"),
        ({"steps": 0}, "steps must be an integer of at least 1, got 0"),
        ({"sample_rate": 1.5}, "sample_rate must be above 0 and at most 1, got 1.5"),
        ({"noise_multiplier": 0.0}, "noise_multiplier must be between 0.001 and 1,000,000, got 0.0"),
        ({"canaries": 0}, "canaries must be an integer between 1 and 1000000, got 0"),
        ({"canaries": 10**7}, "canaries must be an integer between 1 and 1000000, got 10000000"),
        (
            {"canaries": 3, "per_coordinate": 4},
            "per_coordinate must be an integer between 1 and canaries = 3, got 4",
        ),
        ({"per_coordinate": 65}, "per_coordinate must be an integer between 1 and 64, got 65"),
        ({"coordinates": 0}, "coordinates must be an integer between 1 and 1000000, got 0"),
        ({"canaries": 10, "coordinates": 10}, "canaries must be left out where coordinates are given"),
        ({"confidence": 1.0}, "confidence must be strictly between 0 and 1, got 1.0"),
        (
            {"rule": Surest(10)},
            "rule must be Ranked(), Around(k), Soft() or Matched(...) for a plan, got Surest(k=10)",
        ),
        ({"rule": Around(1001)}, "k must be an integer between 1 and canaries = 1000, got 1001"),
        ({"black_box": True, "coordinates": 10}, "canaries must have weights of their own"),
        ({"black_box": True, "rule": Soft()}, "rule must go by ranks where only the finished model is seen"),
        ({"too_small": (0.5,)}, "too_small must be between 1 and 1000, got 0.5"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_errors(changed: dict[str, Any], message: str) -> None:
    settings: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5, "steps": 100, "sample_rate": 0.1, **changed}
    with pytest.raises(InputError) as caught:
        plan(**settings)
    assert message in str(caught.value)


@pytest.mark.full
@pytest.mark.parametrize(
    ("training", "coordinates", "rule", "crowds", "trials"),
    [
        ((2.0, 1e-5, 100, 0.1), 300, Ranked(), (1, 2, 3, 4, 6, 8, 12, 16, 24, 32), 400),
        ((4.0, 1e-5, 10, 0.5), 400, Soft(), (1, 2, 3, 4, 6, 8, 12), 300),
        ((8.0, 1e-5, 1, 1.0), 500, Ranked(), (1, 2, 3, 4, 6, 8), 300),
        ((1.0, 1e-5, 100, 0.05), 500, Ranked(), (1, 2, 4, 8, 16, 32, 48), 400),
    ],
    ids=["usual", "soft", "one step", "little"],
)
def test_advice_is_within_ten_percent_of_the_best_by_brute_force(
    training: tuple[float, float, int, float],
    coordinates: int,
    rule: Ranked | Soft,
    crowds: tuple[int, ...],
    trials: int,
) -> None:
    """Simulated games for every number to a coordinate; standard errors of 1 to 3%."""
    advised = plan(*training, coordinates=coordinates, rule=rule, too_small=()).advised
    found = {
        crowd: float(
            Setting(*training, crowd * coordinates, crowd, rule, trials).simulated(seed=crowd).mean()
        )
        for crowd in sorted({*crowds, advised})
    }
    assert found[advised] >= 0.9 * max(found.values()), (advised, found)


def test_noise_that_does_not_keep_the_claim_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"must keep the claim epsilon = 1 .* got 0.8, which gives epsilon = 5"
    ):
        plan(1.0, 1e-5, 20, 0.1, noise_multiplier=0.8)


@pytest.mark.full
def test_a_plan_that_no_outcome_could_fulfil_says_so() -> None:
    """5,000 right guesses of 5,000 at delta 1e-6 prove 7.2; a claim of 8 stands whatever is seen."""
    made = plan(8.0, 1e-6, 10, 0.1, canaries=5000, too_small=(2.0,))
    assert 7 < made.perfect < 8
    assert "NONE can be refuted by Ranked(): if every guess were right, it would prove only" in str(made)


@pytest.fixture(scope="module")
def small_plan() -> Plan:
    return plan(2.0, 1e-5, 100, 0.1, canaries=100, too_small=())


def test_a_plan_for_a_family_shows_no_limit_of_other_bounds(small_plan: Plan) -> None:
    assert "  limit " in str(small_plan)
    assert "  limit " not in str(replace(small_plan, audit=replace(small_plan.audit, rule="Matched")))


@pytest.mark.parametrize(
    ("coordinates", "per_coordinate", "said"),
    [
        (1000, 1, "conformance test detects half the noise in the same run\n"),
        (250, 4, "conformance test detects half the noise in the same run\n"),
        (16, 16, "if the model has some hundred weights without canaries\n"),
    ],
)
def test_a_plan_says_whether_conformance_will_see_half_the_noise(
    small_plan: Plan, coordinates: int, per_coordinate: int, said: str
) -> None:
    """And it does: 20 runs of the smallest design, where most pass, and of the others, where none does."""
    made = replace(
        small_plan,
        audit=replace(small_plan.audit, coordinates=coordinates, per_coordinate=per_coordinate),
    )
    assert said in f"{made}\n"
    rng, sigma = np.random.default_rng(0), made.audit.noise_multiplier
    passed = 0
    for _ in range(20):
        included = rng.binomial(per_coordinate, 0.5, coordinates)
        sums = rng.binomial(100 * included, 0.1) + rng.normal(scale=10 * sigma / 2, size=coordinates)
        passed += of_dirac(
            sums, included, Stated(steps=100, sample_rate=0.1, noise_multiplier=sigma)
        ).conforms
    assert passed > 10 if "if the model" in said else passed == 0


class TestCorrelatedNoise:
    """Losses are drawn from the mechanism; the rest is as for DP-SGD."""

    TRAINING = Correlated(
        Strategy.toeplitz([1.0, 0.5, 0.375, 0.3125], 16), CyclicPoisson(groups=4, rate=0.5), 1.0
    )

    def test_without_correlation_it_is_the_plan_of_dp_sgd(self) -> None:
        """131,072 losses give a mean bound within 0.03 of what the exact law gives."""
        plain = Correlated(Strategy.toeplitz([1.0], 20), CyclicPoisson(1, 0.3), 1.2)
        expected = expected_bound(dpsgd(20, 0.3, 1.2), 1000, delta=1e-5)
        assert expected_bound(plain, 1000, delta=1e-5).mean == pytest.approx(expected.mean, abs=0.03)
        power = refutation_power(dpsgd(20, 0.3, 1.2), 3.0, 1.6, 1000, delta=1e-5)
        assert refutation_power(plain, 3.0, 1.6, 1000, delta=1e-5) == pytest.approx(power, abs=0.04)
        assert 0.02 < power < 0.98

    @pytest.mark.parametrize("rule", [Ranked(), Around(100), Soft()], ids=repr)
    def test_expected_bounds_are_those_of_games(self, rule: Ranked | Around | Soft) -> None:
        """Means of 40 games; four standard errors."""
        games = play_many(self.TRAINING, None, rule, 500, 40, rng=0)
        bounds = [game.bound(1e-5).epsilon for game in games]
        error = np.std(bounds, ddof=1) / math.sqrt(len(bounds))
        planned = expected_bound(self.TRAINING, 500, delta=1e-5, rule=rule)
        assert abs(np.mean(bounds) - planned.mean) <= 4 * error

    def test_what_does_not_fit_is_refused(self) -> None:
        with pytest.raises(InputError, match="per_coordinate must be 1 where noise is correlated"):
            expected_bound(self.TRAINING, 500, 2, 1e-5)
        with pytest.raises(InputError, match=r"rule must be Ranked\(\), Around\(k\) or Soft\(\)"):
            expected_bound(self.TRAINING, 500, delta=1e-5, rule=Matched("gaussian"))
