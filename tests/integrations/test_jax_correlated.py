"""Audits of real JAX Privacy trainings whose noise is correlated between steps."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import dp_accounting
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax_privacy.batch_selection import (
    BallsInBinsSampling,
    BMinSepSampling,
    CyclicPoissonSampling,
    FixedBatchSampling,
    PartitionType,
    pad_to_multiple_of,
)
from jax_privacy.clipping import clipped_grad
from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig, DPExecutionPlan
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, toeplitz
from jax_privacy.noise_addition import matrix_factorization_privatizer
from scipy import stats
from sklearn.datasets import load_digits

from canaria import InputError, play
from canaria.claims import DpSgd, families
from canaria.integrations.jax_privacy import Audit, AuditState, Dense, attach, attach_plan
from canaria.mechanisms import (
    BallsInBins,
    Correlated,
    CyclicPoisson,
    InOrder,
    LocalGaussian,
    MinSeparation,
    Strategy,
)
from canaria.rules import Around, Ranked, Soft
from canaria.training.plan import planned_rule
from canaria.training.recording import Recording

DELTA, STEPS = 1e-5, 24
COLUMN = np.array([1.0, 0.5, 0.375, 0.3125])
BANDS = Strategy.toeplitz(COLUMN, STEPS)
LAW = CyclicPoisson(groups=4, rate=0.5)
STATED: dict[str, Any] = {"clip_norm": 0.5, "noise_multiplier": 1.1, "strategy": BANDS, "sampling": LAW}
DEVIATION = 0.5 * Correlated(BANDS, LAW, 1.1).deviation
ROWS = 400
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")


@pytest.fixture(autouse=True, scope="module")
def compile_fast() -> Iterator[None]:
    """Runs are short: most of the time goes into compiling them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def bands(key: Any, column: Any = COLUMN, deviation: Any = DEVIATION) -> Any:
    noising = toeplitz.inverse_as_streaming_matrix(jnp.asarray(column, jnp.float32))
    return matrix_factorization_privatizer(noising, stddev=deviation, prng_key=key)


def small_runs(
    count: int, privatizer: Callable[..., Any], given: Any = None, **stated: Any
) -> list[Recording]:
    """Runs of one audit that differ by their noise, with real sums that change.

    `privatizer` makes what adds the noise of a key and of what is `given` for each run.
    """
    params = {"a": jnp.zeros((20, 30)), "b": jnp.zeros(25)}
    options = {"canaries": 200, "rng": 0, **STATED, **stated}
    sums = jax.tree.map(lambda leaf: jnp.linspace(-3, 3, leaf.size).reshape(leaf.shape), params)

    def run(seed: Any, own: Any) -> Any:
        audit = attach(privatizer(jax.random.key(seed), *own), params, **options)

        def step(state: Any, number: Any) -> Any:
            grads = jax.tree.map(lambda leaf: leaf * (1 + number % 3), sums)
            return audit.privatizer.update(grads, state)[1], None

        state = jax.lax.scan(step, audit.privatizer.init(params), jnp.arange(STEPS))[0]
        return state._replace(noise_state=())

    seen = jax.device_get(jax.jit(jax.vmap(run))(np.arange(count), given or ()))
    audit = attach(bands(0), params, **options)
    return [audit.recording(jax.tree.map(lambda leaf, r=one: leaf[r], seen)) for one in range(count)]


def noising(matrix: np.ndarray) -> np.ndarray:
    return np.linalg.inv(matrix).astype(np.float32)


DENSE = np.tril(np.random.default_rng(0).uniform(0.1, 1.0, (STEPS, STEPS))) + np.eye(STEPS)


@pytest.mark.parametrize(
    ("strategy", "law"),
    [
        (BANDS, LAW),
        (Strategy(DENSE), BallsInBins(6)),
        pytest.param(Strategy(DENSE), InOrder(6), marks=pytest.mark.full),
        pytest.param(BANDS, MinSeparation(4, 0.5), marks=pytest.mark.full),
        pytest.param(Strategy.buffered([0.9, 0.5], [0.3, 0.2], STEPS), InOrder(8), marks=pytest.mark.full),
    ],
    ids=["bands", "bins", "order", "distance", "buffers"],
)
def test_scores_are_the_losses_of_what_is_released(strategy: Strategy, law: Any) -> None:
    """Every weight carries a canary, so that its place is known; real sums have no part in them."""
    matrix = strategy.whiten(np.eye(STEPS))
    audited = Correlated(strategy, law.worst(strategy), 1.1)
    privatizer = matrix_factorization_privatizer(noising(matrix), stddev=0.5 * audited.deviation, prng_key=3)
    params = {"a": jnp.zeros((7, 7)), "b": jnp.zeros(())}
    audit = attach(
        privatizer, params, canaries=50, rng=0, **{**STATED, "strategy": strategy, "sampling": law}
    )
    state, step, seen = audit.privatizer.init(params), jax.jit(audit.privatizer.update), []
    for number in range(STEPS):
        grads = jax.tree.map(lambda leaf, n=number: leaf + n % 5, params)
        noisy, state = step(grads, state)
        seen.append((ravel_pytree(noisy)[0] - ravel_pytree(grads)[0]) / 0.5)
    record = audit.recording(state)
    assert record.losses(np.zeros(50, np.int8)) == pytest.approx(audited.losses(np.array(seen)), abs=1e-3)
    assert record.sums == pytest.approx(np.sum(seen, axis=0), abs=1e-3)
    taking = record.sums[record.bits < 0]
    assert stats.kstest(taking / (audited.deviation * strategy.spread_of_sums), "norm").pvalue >= 1e-4


FAULTS: dict[str, tuple[list[float], float]] = {
    "none": (COLUMN.tolist(), 1.0),
    "a band is missing": ([*COLUMN[:-1], 0.0], 1.0),
    "noise is independent": ([1.0, 0.0, 0.0, 0.0], 1.0),
    "no sensitivity": (COLUMN.tolist(), 1 / float(np.linalg.norm(COLUMN))),
    "0.9 of the noise": (COLUMN.tolist(), 0.9),
}
"""By which column noise is made, and how much of it."""


@pytest.fixture(scope="module")
def faulty() -> dict[str, list[Recording]]:
    """Three runs with every fault, compiled together."""
    columns, sizes = (np.repeat(np.array(part), 3, axis=0) for part in zip(*FAULTS.values(), strict=True))
    found = small_runs(
        len(sizes), bands, (columns.astype(np.float32), (DEVIATION * sizes).astype(np.float32))
    )
    return {name: found[3 * number :][:3] for number, name in enumerate(FAULTS)}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_found(fault: str, faulty: dict[str, list[Recording]]) -> None:
    """And correct training is not accused, with a false-alarm rate of 1e-3."""
    for record in faulty[fault]:
        found = record.conformance().p_value
        assert found >= 3e-4 if fault == "none" else found <= 1e-6


@pytest.mark.full
@pytest.mark.parametrize("kind", ["bands", "dense"])
def test_correct_trainings_have_uniform_p_values(kind: str) -> None:
    """50 runs, Kolmogorov and Smirnov, false-alarm rate 1e-4 each."""
    if kind == "bands":
        records = small_runs(50, bands)
    else:
        law, strategy = InOrder(6), Strategy(DENSE)
        deviation = 0.5 * Correlated(strategy, law, 1.1).deviation
        records = small_runs(
            50,
            lambda key: matrix_factorization_privatizer(noising(DENSE), stddev=deviation, prng_key=key),
            strategy=strategy,
            sampling=law,
        )
    assert stats.kstest([one.conformance().p_value for one in records], "uniform").pvalue >= 1e-4


def digits() -> tuple[jax.Array, jax.Array]:
    """200 random features of each image, and its label."""
    images, labels = load_digits(return_X_y=True)
    mixed = images[:ROWS] / 16 @ np.random.default_rng(0).normal(size=(64, 200))
    return jnp.asarray(np.tanh(mixed / 2), jnp.float32), jnp.asarray(labels[:ROWS])


def loss(params: Any, rows: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(rows @ params["weights"], labels).mean()


def train(audit: Audit, gradient: Any, batches: Any, params: Any, *, real: int = 0) -> tuple[Any, Any]:
    """Logistic regression on digits; with `real` rows and canary rows after them."""
    rows, labels = digits()

    def step(carry: Any, indices: Any) -> Any:
        (params, state), (which, chosen) = carry, indices
        given = (which, rows[chosen]) if real else rows[chosen]
        total = gradient(params, given, labels[chosen], is_padding_example=chosen < 0)
        noisy, state = audit.privatizer.update(total, state)
        return (optax.tree.add_scale(params, -0.05, noisy), state), None

    padded = np.stack([pad_to_multiple_of(batch, 128) for batch in batches])
    indices = audit.rows(padded, real or ROWS)
    start = (params, audit.privatizer.init(params))
    return jax.jit(lambda *given: jax.lax.scan(step, *given))(start, indices)[0]


def weights() -> dict[str, jax.Array]:
    return {"weights": jnp.zeros((200, 10))}


@functools.cache
def config(bands: int, steps: int, rate: float) -> BandMFExecutionPlanConfig:
    """JAX Privacy's own way to epsilon 8: its strategy, and its noise."""
    made = BandMFExecutionPlanConfig.default(
        num_bands=bands, iterations=steps, epsilon=8.0, delta=DELTA, sampling_prob=rate, noise_seed=0
    )
    told = made.plan.dp_event.event.event.noise_multiplier
    return replace(made, epsilon=None, delta=None, noise_multiplier=told)


def by_plan(bands: int, steps: int, rate: float, seed: int) -> Recording:
    """A training by a plan, with everything taken from it."""
    plan = replace(config(bands, steps, rate), noise_seed=seed).plan
    audit = attach_plan(plan, weights(), canaries=600, rng=seed)
    gradient = plan.clipped_grad(loss, batch_argnums=(1, 2))
    batches = plan.batch_selection_strategy.batch_iterator(ROWS, rng=seed)
    params, state = train(audit, gradient, batches, weights())
    assert loss(params, *digits()) < 0.5 * np.log(10)
    return audit.recording(state)


@functools.cache
def of_epochs(kind: str) -> tuple[Correlated, Any]:
    """Eight epochs in a fixed order, with a strategy that JAX Privacy made; and its noising matrix."""
    if kind == "dense":
        with jax.enable_x64(True):
            matrix = np.tril(np.asarray(dense.optimize(64, epochs=8, max_optimizer_steps=60)))
        strategy, matrix = Strategy(matrix), noising(matrix)
    else:
        decays, scales = [0.999, 0.784], [0.035, 0.538]
        buffers = buffered_toeplitz.BufferedToeplitz.build(decays, scales, dtype=jnp.float32)
        strategy, matrix = Strategy.buffered(decays, scales, 64), buffers.inverse_as_streaming_matrix()
    return Correlated(strategy, InOrder(8), 1 / families.Gaussian().at(8.0, DELTA).mu), matrix


def in_order(kind: str, seed: int) -> Recording:
    """A training of eight epochs."""
    training, matrix = of_epochs(kind)
    privatizer = matrix_factorization_privatizer(matrix, stddev=training.deviation, prng_key=seed)
    stated = {
        "clip_norm": 1.0,
        "noise_multiplier": training.noise_multiplier,
        "strategy": training.strategy,
        "sampling": training.participation,
    }
    audit = attach(privatizer, weights(), canaries=600, rng=seed, **stated)
    gradient = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))
    batches = [np.arange(ROWS)[step % 8 :: 8] for step in range(64)]
    params, state = train(audit, gradient, batches, weights())
    assert loss(params, *digits()) < 0.5 * np.log(10)
    return audit.recording(state)


TRAININGS: dict[str, Callable[[int], Recording]] = {
    "8 bands, half": lambda seed: by_plan(8, 64, 0.5, seed),
    "16 bands, all": lambda seed: by_plan(16, 128, 1.0, seed),
    "buffers": lambda seed: in_order("buffers", seed),
    "dense": lambda seed: in_order("dense", seed),
}


def mean_bound(records: list[Recording], rule: Around | Ranked | Soft | None) -> float:
    assert min(one.conformance().p_value for one in records) >= 1e-4
    return float(np.mean([one.bound(DELTA, rule=rule).epsilon for one in records]))


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "ranked", "soft"), [("8 bands, half", 1.35, 1.6), ("16 bands, all", 1.9, 2.2)]
)
def test_plans_for_epsilon_8(name: str, ranked: float, soft: float) -> None:
    """600 canaries, mean of 8 trainings."""
    records = [TRAININGS[name](seed) for seed in range(8)]
    assert ranked <= mean_bound(records, None) < 8
    assert soft <= mean_bound(records, Soft()) < 8


@pytest.mark.full
def test_epochs_for_epsilon_8() -> None:
    """600 canaries; mean of 64 trainings of each kind, all exactly the same Gaussian mechanism.

    The number of guesses is planned. Eight trainings have a standard error of 0.11.
    """
    kinds = ("buffers", "dense")
    (rule,) = {planned_rule(of_epochs(kind)[0], 600, delta=DELTA) for kind in kinds}
    records = [TRAININGS[kind](seed) for kind in kinds for seed in range(100, 164)]
    assert 2.7 <= mean_bound(records, rule) < 8
    assert 2.8 <= mean_bound(records, Soft()) < 8


@pytest.mark.parametrize("seeds", [1, pytest.param(8, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", ["buffers", pytest.param("dense", marks=pytest.mark.full)])
def test_epochs_in_order_show_the_share_of_a_plain_gaussian(name: str, seeds: int) -> None:
    """Epsilon 8, 600 canaries; the mean bound is that of 40 simulated ones, up to 4 standard errors."""
    records = [TRAININGS[name](seed) for seed in range(seeds)]
    plain = LocalGaussian(2 / families.Gaussian().at(8.0, DELTA).mu)
    for rule in (None, Soft()):
        games = [play(plain, n=600, rule=rule, rng=seed).bound(DELTA).epsilon for seed in range(40)]
        error = np.std(games, ddof=1) * np.sqrt(1 / seeds + 1 / len(games))
        assert abs(mean_bound(records, rule) - np.mean(games)) <= 4 * error


@pytest.mark.full
def test_how_much_a_plain_gaussian_shows() -> None:
    """What can be asked of epochs in order: epsilon 8, 600 canaries, means of 200 games.

    Soft guesses at delta 0 are the most powerful test of every claim, so no valid bound has a larger mean.
    Ranked guesses come close to it, if their number is planned.
    """
    plain = LocalGaussian(2 / families.Gaussian().at(8.0, DELTA).mu)

    def mean(rule: Around | Ranked | Soft, delta: float) -> float:
        games = [play(plain, n=600, rule=rule, rng=seed) for seed in range(200)]
        return float(np.mean([game.bound(delta).epsilon for game in games]))

    most = mean(Soft(), 0.0)
    planned = planned_rule(
        DpSgd(steps=1, sample_rate=1.0, noise_multiplier=1 / families.Gaussian().at(8.0, DELTA).mu),
        600,
        delta=DELTA,
    )
    assert 2.75 < most < 2.95
    assert 0 < most - mean(planned, DELTA) < 0.15


class TestPlan:
    def plan(self, **options: Any) -> DPExecutionPlan:
        given = {"iterations": STEPS, "strategy": COLUMN, "sampling_prob": 0.5, "noise_seed": 0, **options}
        told = {"epsilon": None, "delta": None, "noise_multiplier": 1.1}
        return BandMFExecutionPlanConfig(**told, **given).plan

    @pytest.mark.parametrize("normalised", [False, True])
    def test_everything_is_the_plan_s(self, normalised: bool) -> None:
        column = COLUMN / np.linalg.norm(COLUMN) if normalised else COLUMN
        plan = self.plan(
            column_normalize=normalised, strategy=column, l2_clip_norm=0.5, rescale_to_unit_norm=False
        )
        audit = attach_plan(plan, jnp.zeros(900), canaries=300, rng=0)
        assert audit.clip_norm == 0.5
        assert audit.noise_multiplier == pytest.approx(1.1, rel=1e-5)
        assert audit.correlation is not None
        training = audit.correlation.mechanism
        assert str(training.strategy) == "4 bands, 24 steps"
        assert training.participation == LAW
        if not normalised:
            assert training.strategy.back() == pytest.approx(BANDS.back(), abs=1e-4)
        assert training.strategy.squares[0] == pytest.approx(float(column @ column), rel=1e-4)

    def test_the_sampler_and_the_clipper_decide_with_a_head(self) -> None:
        """Rows and canaries are drawn by the plan's own sampler; false-alarm rate 1e-4."""
        plan = self.plan(
            partition_type=PartitionType.INDEPENDENT,
            accountant=dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE),
        )
        audit = attach_plan(plan, weights(), canaries=300, injection="head", rng=0)
        headed, params = audit.with_canary_head(loss, weights())
        gradient = plan.clipped_grad(headed, batch_argnums=(1, 2))
        batches = plan.batch_selection_strategy.batch_iterator(ROWS + 300, rng=0)
        _, state = train(audit, gradient, batches, params, real=ROWS)
        record = audit.recording(state)
        assert record.conformance().p_value >= 1e-4
        assert record.conformance().weight == pytest.approx(1, abs=0.5)
        assert record.bound(DELTA).epsilon > 0
        assert record.contradictions == ()

    def test_one_band_is_dp_sgd(self) -> None:
        audit = attach_plan(self.plan(strategy=np.ones(1)), jnp.zeros(900), canaries=300)
        assert audit.correlation is None
        assert audit.sample_rate == 0.5
        assert audit.noise_multiplier == pytest.approx(1.1)

    def test_what_the_accountant_was_not_told(self) -> None:
        sampling = CyclicPoissonSampling(0.7, STEPS + 4, cycle_length=4)
        changed = {"noise_addition_transform": bands(0, deviation=1.0), "batch_selection_strategy": sampling}
        params = jnp.zeros(900)
        audit = attach_plan(replace(self.plan(), **changed), params, canaries=300, rng=0)
        _, state = jax.jit(audit.privatizer.update)(params, audit.privatizer.init(params))
        noise, rate, rounds = audit.recording(state, unfinished=True).contradictions
        assert "told the noise multiplier 1.1, where that of the plan is 0.8" in noise
        assert "told the sample rate 0.5, where that of the plan is 0.7" in rate
        assert "told the number of rounds 6, where that of the plan is 7" in rounds

    @pytest.mark.parametrize(
        ("event", "contradicted"),
        [
            (dp_accounting.NoOpDpEvent(), True),
            (dp_accounting.GaussianDpEvent(100.0), True),
            (dp_accounting.GaussianDpEvent(0.2), False),
            (dp_accounting.UnsupportedDpEvent(), False),
        ],
        ids=["nothing", "much noise", "little noise", "not understood"],
    )
    def test_an_accountant_that_was_told_something_else(
        self, event: dp_accounting.DpEvent, contradicted: bool
    ) -> None:
        params = jnp.zeros(900)
        audit = attach_plan(replace(self.plan(), dp_event=event), params, canaries=300, rng=0)
        _, state = jax.jit(audit.privatizer.update)(params, audit.privatizer.init(params))
        found = audit.recording(state, unfinished=True).contradictions
        assert len(found) == contradicted
        assert all("the plan's accountant was told of ε = " in one for one in found)

    @pytest.mark.parametrize("strategy", [COLUMN, np.ones(1)], ids=["bands", "independent"])
    def test_a_plan_of_many_steps_with_one_seen(self, strategy: Any) -> None:
        params = jnp.zeros(900)
        audit = attach_plan(self.plan(strategy=strategy), params, canaries=300, rng=0)
        _, state = jax.jit(audit.privatizer.update)(params, audit.privatizer.init(params))
        (said,) = audit.recording(state).contradictions
        assert said.startswith("1 of 24 stated steps was seen: the noise state is not carried")
        assert audit.recording(state, unfinished=True).contradictions == ()

    def test_rows_that_an_even_split_leaves_out(self) -> None:
        audit = attach_plan(self.plan(), weights(), canaries=303, injection="head", rng=0)
        with pytest.raises(
            InputError, match=r"must be a multiple of the 4 groups, got 403: .* 3 would never"
        ):
            audit.rows([1], real=100)
        assert audit.rows([1, 101], real=101)[0].tolist() == [-1, 0]

    def test_a_noising_matrix_that_looks_ahead(self) -> None:
        full = np.eye(STEPS) + 0.1
        changed = {"noise_addition_transform": matrix_factorization_privatizer(full, stddev=1.0, prng_key=0)}
        with pytest.raises(InputError, match="must be square and lower triangular"):
            attach_plan(replace(self.plan(), **changed), jnp.zeros(900), canaries=300)

    @pytest.mark.parametrize(("column", "steps"), [([1.0, 1.2, 0.8, 1.1], 64), ([1.0, 1.5], 300)])
    def test_a_noising_matrix_that_grows(self, column: list[float], steps: int) -> None:
        plan = self.plan(iterations=steps, strategy=np.array(column))
        with pytest.raises(InputError, match="the strategy does not follow from it"):
            attach_plan(plan, jnp.zeros(900), canaries=300)

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"noise_addition_transform": optax.identity()}, "does not say what it adds"),
            ({"noise_addition_transform": 3}, "privatizer must be an optax"),
            ({"batch_selection_strategy": FixedBatchSampling(3, STEPS)}, "sampling must be InOrder"),
            (
                {"batch_selection_strategy": CyclicPoissonSampling(0.5, STEPS, 9, cycle_length=4)},
                "must not be truncated",
            ),
            (
                {"batch_selection_strategy": CyclicPoissonSampling(0.5, STEPS, cycle_length=3)},
                "at most 3 bands",
            ),
        ],
        ids=["silent", "no privatizer", "fixed", "truncated", "bands"],
    )
    def test_what_is_refused(self, changed: dict[str, Any], said: str) -> None:
        with pytest.raises(InputError, match=said):
            attach_plan(replace(self.plan(), **changed), jnp.zeros(900), canaries=300)

    def test_no_plan(self) -> None:
        with pytest.raises(InputError, match="must be a DPExecutionPlan, got int"):
            attach_plan(3, jnp.zeros(900), canaries=300)


@pytest.mark.parametrize(
    ("sampler", "law"),
    [
        (CyclicPoissonSampling(0.5, STEPS, cycle_length=4), LAW),
        (BallsInBinsSampling(STEPS, 6), BallsInBins(6)),
        (BMinSepSampling(0.5, STEPS, 4, warm_start=False), MinSeparation(4, 0.5, warm=False)),
    ],
    ids=["cyclic", "bins", "distance"],
)
def test_samplers_of_jax_privacy_are_laws(sampler: Any, law: Any) -> None:
    audit = attach(bands(0), jnp.zeros(900), canaries=300, **{**STATED, "sampling": sampler})
    assert audit.correlation is not None
    assert audit.correlation.mechanism.participation == law


class Followed(NamedTuple):
    """An audit, and its states from the first step on to some after the last."""

    audit: Audit
    states: list[AuditState]


def follow(deviation: float, steps: int) -> Followed:
    params = jnp.zeros(600)
    audit = attach(bands(0, deviation=deviation), params, canaries=200, rng=0, **STATED)
    states, step = [audit.privatizer.init(params)], jax.jit(audit.privatizer.update)
    for _ in range(steps):
        states.append(step(params, states[-1])[1])
    return Followed(audit, states)


@pytest.fixture(scope="module")
def followed() -> Followed:
    return follow(DEVIATION, STEPS + 3)


def test_training_that_is_stopped(followed: Followed) -> None:
    """The first steps alone; false-alarm rate 1e-4."""
    record = followed.audit.recording(followed.states[15])
    assert record.steps == 15
    assert record.conformance().p_value >= 1e-4
    assert record.noise_multiplier == pytest.approx(1.1)


def test_training_that_goes_on(followed: Followed) -> None:
    """The first steps count; that there were more is said."""
    exact, over = (followed.audit.recording(followed.states[steps]) for steps in (STEPS, STEPS + 3))
    assert np.array_equal(over.table, exact.table)
    assert np.array_equal(over.sums, exact.sums)
    assert exact.contradictions == ()
    assert over.contradictions == ("training made 27 steps, where 24 are stated",)


def test_watched(followed: Followed) -> None:
    """Whitened noise raises no alarm; half of it does."""
    for (audit, states), wrong in ((followed, False), (follow(DEVIATION / 2, 8), True)):
        watch = audit.watch(on_alarm=lambda reading: None)
        for state in states[1:]:
            audit.look(state)
        assert (watch.alarm is not None) == wrong
    with pytest.raises(InputError, match="delta needs independent noise"):
        followed.audit.watch(delta=DELTA)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"sampling": None}, "give strategy and sampling together"),
        ({"strategy": None}, "correlated over the steps"),
        ({"sample_rate": 0.1}, "instead of sample_rate"),
        ({"strategy": None, "sampling": None, "privatizer": optax.identity()}, "sample_rate must be given"),
        ({"sampling": "poisson"}, "sampling must be InOrder"),
        ({"sampling": BallsInBinsSampling(9, 4)}, "sampling makes 9 steps, and strategy is of 24"),
        ({"canaries": Dense(9, 20)}, "each with a weight of its own"),
        ({"per_coordinate": 2}, "each with a weight of its own"),
        ({"strategy": np.ones((3, 3))}, "lower triangular"),
        ({"noise_multiplier": 0.0}, "positive and finite"),
    ],
    ids=lambda one: one if isinstance(one, str) else "-".join(one),
)
def test_misuse(wrong: dict[str, Any], said: str) -> None:
    given = {"privatizer": bands(0), "params": jnp.zeros(900), "canaries": 300, **STATED, **wrong}
    with pytest.raises(InputError, match=said):
        attach(**given)


def test_state_of_another_strategy() -> None:
    params = jnp.zeros(600)
    first, second = (
        attach(bands(0), params, canaries=200, rng=0, **{**STATED, "sampling": law})
        for law in (LAW, CyclicPoisson(4, 0.6))
    )
    with pytest.raises(InputError, match="the state is of another audit"):
        first.bound(second.privatizer.init(params))
