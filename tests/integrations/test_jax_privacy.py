"""Audits attached to real JAX Privacy training.

Many runs share one compiled step: a run differs from another by the keys in its state, an audit by its bits,
places and draws too.
"""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of
from jax_privacy.clipping import clipped_grad
from jax_privacy.noise_addition import gaussian_privatizer
from scipy import stats
from sklearn.datasets import load_digits

from canaria import InputError, Tails
from canaria.accounting import dpsgd_epsilon
from canaria.integrations.jax_privacy import Audit, AuditState, Dense, Dirac, attach
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.training import Recording

SIGMA, RATE, STEPS, DELTA = 2.4224, 0.1, 100, 1e-5
STATED: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": SIGMA, "sample_rate": RATE}
ROWS, LARGEST_BATCH = 400, 80
SILENT = optax.identity()
"""A privatizer without noise."""
pytestmark = pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated")


@pytest.fixture(autouse=True, scope="module")
def compile_fast() -> Iterator[None]:
    """Runs are short: most of the time goes into compiling them."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def network() -> dict[str, jax.Array]:
    """64 - 16 - 10, 1,210 weights, biases in the last row."""
    first, second = jax.random.split(jax.random.key(0))
    return {
        "hidden": 0.1 * jax.random.normal(first, (65, 16)),
        "out": 0.1 * jax.random.normal(second, (17, 10)),
    }


def with_one(rows: jax.Array) -> jax.Array:
    return jnp.concatenate([rows, jnp.ones((*rows.shape[:-1], 1))], axis=-1)


def loss(params: Any, rows: jax.Array, labels: jax.Array) -> jax.Array:
    answers = with_one(jnp.tanh(with_one(rows) @ params["hidden"])) @ params["out"]
    return optax.softmax_cross_entropy_with_integer_labels(answers, labels).mean()


def digits() -> tuple[jax.Array, jax.Array]:
    rows, labels = load_digits(return_X_y=True)
    return jnp.asarray(rows[:ROWS] / 16, jnp.float32), jnp.asarray(labels[:ROWS])


def batches(examples: int, steps: int, seed: int, largest: int = LARGEST_BATCH) -> np.ndarray:
    """Indices of Poisson batches by JAX Privacy, padded with -1."""
    drawn = CyclicPoissonSampling(RATE, steps).batch_iterator(examples, rng=seed)
    return np.stack([pad_to_multiple_of(batch, largest) for batch in drawn])


def started(audit: Audit, params: Any, seed: Any, stddev: float) -> AuditState:
    """A fresh run of the audit, with keys of its own."""
    noise, draws = jax.random.split(jax.random.key(seed))
    return audit.privatizer.init(params)._replace(
        noise_state=gaussian_privatizer(stddev=stddev, prng_key=noise).init(params),
        key=jax.random.key_data(draws),
    )


def small_runs(runs: int, stddev: float, steps: int = STEPS, **options: Any) -> list[Recording]:
    """Runs of one audit, without real gradients."""
    params = jnp.zeros(1000)
    audit = attach(
        gaussian_privatizer(stddev=stddev), params, **{**STATED, "canaries": 1000, "rng": 0, **options}
    )

    def run(seed: Any) -> AuditState:
        begun = started(audit, params, seed, stddev)
        return scanned(lambda state: audit.privatizer.update(params, state)[1], begun, steps)

    return recordings(audit, jax.jit(jax.vmap(run))(jnp.arange(runs)), runs)


def stepped(audit: Audit, grads: Any, steps: int) -> AuditState:
    """The state after steps with the same gradients."""
    update = audit.privatizer.update

    def run(state: AuditState) -> AuditState:
        return jax.lax.scan(lambda now, _: (update(grads, now)[1], None), state, length=steps)[0]

    return jax.jit(run)(audit.privatizer.init(grads))


def recordings(audit: Audit, states: AuditState, runs: int) -> list[Recording]:
    return [audit.recording(jax.tree.map(lambda leaf, run=run: leaf[run], states)) for run in range(runs)]


def included_on(audit: Audit, record: Recording) -> np.ndarray:
    """How many canaries are included on each coordinate."""
    width = audit.design.coordinates
    return np.bincount(np.arange(audit.design.count) % width, weights=record.bits > 0, minlength=width)


def silent(params: Any, grads: Any, steps: int = 3, **options: Any) -> tuple[Audit, Recording, list[Any]]:
    """Steps without noise in which every included canary takes part: what goes in comes out."""
    audit = attach(SILENT, params, **{**STATED, "sample_rate": 1.0, "canaries": 20, "rng": 0, **options})
    state, released = audit.privatizer.init(params), []
    for _ in range(steps):
        noisy, state = audit.privatizer.update(grads, state)
        released.append(noisy)
    return audit, audit.recording(state), released


def test_mean_bound_is_the_simulated_one() -> None:
    """A network trained 20 times, sum score, 100 guesses: 0.484 in simulation. False alarms: 4 standard errors."""
    rows, labels = digits()
    params = network()
    bounds = []
    for seed in range(4):
        grad = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))
        privatizer = gaussian_privatizer(stddev=SIGMA, prng_key=seed)
        audit = attach(privatizer, params, canaries=1000, rng=seed, **{**STATED, "clip_norm": grad})
        optimizer = optax.sgd(0.02)

        def step(
            carry: Any, chosen: Any, grad: Any = grad, audit: Audit = audit, optimizer: Any = optimizer
        ) -> Any:
            params, state, moments = carry
            total = grad(params, rows[chosen], labels[chosen], is_padding_example=chosen < 0)
            noisy, state = audit.privatizer.update(sum_of_clipped_grads=total, noise_state=state)
            updates, moments = optimizer.update(noisy, moments)
            return (optax.apply_updates(params, updates), state, moments), None

        def run(
            seed: Any, chosen: Any, step: Any = step, audit: Audit = audit, optimizer: Any = optimizer
        ) -> Any:
            begun = (params, started(audit, params, seed, SIGMA), optimizer.init(params))
            return jax.lax.scan(step, begun, chosen)[0]

        seeds = 5 * seed + np.arange(5)
        chosen = np.stack([batches(ROWS, STEPS, run) for run in seeds])
        trained, states, _ = jax.jit(jax.vmap(run))(seeds, chosen)
        after = jax.vmap(lambda params: loss(params, rows, labels))(trained)
        assert (after < 0.7 * loss(params, rows, labels)).all()
        bounds += [
            record.bound(DELTA, score="sum", rule=Tails(100)).epsilon
            for record in recordings(audit, states, 5)
        ]
    error = np.std(bounds, ddof=1) / np.sqrt(len(bounds))
    assert abs(np.mean(bounds) - 0.484) <= 4 * error


def test_table_is_the_likelihood_of_the_noisy_sums() -> None:
    """Every weight carries canaries, so that the places are known."""
    grads = {"a": jnp.linspace(-3.0, 3.0, 50).reshape(5, 10), "b": jnp.ones(())}
    privatizer = gaussian_privatizer(stddev=0.5 * SIGMA, prng_key=3)
    options = {**STATED, "clip_norm": 0.5, "canaries": 153, "per_coordinate": 3}
    audit = attach(privatizer, grads, rng=1, **options)
    state, seen = audit.privatizer.init(grads), []
    for _ in range(20):
        noisy, state = audit.privatizer.update(grads, state)
        seen.append((ravel_pytree(noisy)[0] - ravel_pytree(grads)[0]) / 0.5)
    record = audit.recording(state)
    expected = log_likelihoods_of(np.array(seen), 3, RATE, SIGMA)
    assert np.allclose(record.table, expected - expected[:, :1], atol=1e-4)
    assert np.allclose(record.sums, np.sum(seen, axis=0), atol=1e-4)


def test_real_gradients_do_not_show_in_the_scores() -> None:
    params = network()
    seen = []
    for size in (0.0, 20.0):
        grads = jax.tree.map(
            lambda leaf, size=size: size * jnp.sin(7 * jnp.arange(leaf.size)).reshape(leaf.shape), params
        )
        audit = attach(
            gaussian_privatizer(stddev=SIGMA, prng_key=0),
            params,
            canaries=600,
            per_coordinate=2,
            rng=0,
            **STATED,
        )
        state = audit.privatizer.init(params)
        seen.append(audit.recording(scanned(lambda now: audit.privatizer.update(grads, now)[1], state, 20)))
    assert (seen[0].bits == seen[1].bits).all()
    assert np.abs(seen[0].sums - seen[1].sums).max() <= 1e-4
    assert np.abs(seen[0].table - seen[1].table).max() <= 1e-4


def test_eager_jit_and_scan_are_one() -> None:
    params = {"a": jnp.zeros((20, 5)), "b": jnp.zeros(11)}
    audit = attach(
        gaussian_privatizer(stddev=SIGMA, prng_key=0), params, canaries=200, per_coordinate=4, rng=0, **STATED
    )
    update = audit.privatizer.update
    eager = compiled = audit.privatizer.init(params)
    step = jax.jit(update)
    for _ in range(6):
        eager = update(params, eager)[1]
        compiled = step(params, compiled)[1]
    rolled = jax.jit(lambda state: scanned(lambda now: update(params, now)[1], state, 6))(
        audit.privatizer.init(params)
    )
    records = [audit.recording(state) for state in (eager, compiled, rolled)]
    for other in records[1:]:
        assert np.abs(other.sums - records[0].sums).max() <= 1e-5
        assert np.abs(other.table - records[0].table).max() <= 1e-5
    assert [record.steps for record in records] == [6, 6, 6]


@pytest.mark.parametrize(
    "design", [Dirac(20), Dirac(20, 4), Dirac(5, 4), Dirac(21, 2), Dense(30, 12)], ids=repr
)
def test_included_canaries_weigh_one_clip_norm(design: Any) -> None:
    params = {"a": jnp.zeros((7, 5)), "b": jnp.zeros(40)}
    audit, record, _ = silent(params, params, canaries=design, clip_norm=0.3)
    if isinstance(design, Dense):
        expected = (record.bits > 0) @ design.gradients()
    else:
        expected = included_on(audit, record)
    assert np.allclose(record.sums, 3 * expected, atol=1e-5)
    assert record.losses(np.zeros(design.count, np.int8)).shape == (design.count,)


def test_canaries_join_at_equal_distances_and_nothing_else_changes() -> None:
    """Scalars and empty arrays are among the weights."""
    grads = {
        "a": jnp.arange(77.0).reshape(7, 11),
        "b": jnp.zeros(()),
        "c": jnp.zeros((0, 3)),
        "d": -jnp.arange(24.0),
    }
    audit, record, released = silent(grads, grads, steps=1, canaries=Dirac(34 * 16, 16))
    added = ravel_pytree(released[0])[0] - ravel_pytree(grads)[0]
    places = np.flatnonzero(added)
    assert (included_on(audit, record) > 0).all()
    assert (np.diff(places) == 3).all()
    assert np.allclose(added[places], record.sums)
    offsets = {
        int(
            np.flatnonzero(
                silent(grads, grads, 1, canaries=Dirac(544, 16), rng=seed)[2][0]["d"] != grads["d"]
            )[0]
        )
        for seed in range(12)
    }
    assert len(offsets) == 3


def test_canaries_take_part_at_the_sample_rate() -> None:
    """And never if excluded. Two-sided binomial test, false-alarm rate 1e-4."""
    params = jnp.zeros(1000)
    audit = attach(SILENT, params, canaries=1000, rng=0, **STATED)
    record = audit.recording(
        scanned(lambda now: audit.privatizer.update(params, now)[1], audit.privatizer.init(params), STEPS)
    )
    included = record.bits > 0
    assert (record.sums[~included] == 0).all()
    assert stats.binomtest(int(record.sums.sum()), STEPS * int(included.sum()), RATE).pvalue >= 1e-4


def test_correct_training_conforms() -> None:
    """P-values of 30 runs, Kolmogorov-Smirnov: false-alarm rate 1e-4; no bound above the true epsilon by 4 SE."""
    records = small_runs(30, SIGMA, steps=20, canaries=1000, per_coordinate=2)
    assert stats.kstest([record.conformance().p_value for record in records], "uniform").pvalue >= 1e-4
    truth = dpsgd_epsilon(SIGMA, DELTA, 20, RATE, "pld")
    over = sum(record.bound(DELTA).epsilon > truth for record in records)
    assert stats.binom.sf(over - 1, len(records), 0.05) >= 1e-4


def test_halved_noise_is_flagged_and_a_third_of_it_is_refuted() -> None:
    """Claimed epsilon 2, which the stated noise gives; scores go by the noise that is seen."""
    assert dpsgd_epsilon(SIGMA, DELTA, STEPS, RATE, "rdp") == pytest.approx(2, abs=0.01)
    halved = small_runs(1, SIGMA / 2)[0].conformance()
    assert halved.p_value < 1e-6
    assert halved.noise == pytest.approx(SIGMA / 2, rel=0.1)
    assert sum(record.bound(DELTA).refutes(2.0) for record in small_runs(20, SIGMA / 3)) >= 18


def test_adaptive_bounds_with_several_canaries_per_coordinate() -> None:
    """Revealed bits help: paired over the same 6 runs, by 4 standard errors."""
    records = small_runs(
        6, 1.0, steps=30, canaries=4000, per_coordinate=4, noise_multiplier=1.0, sample_rate=0.5
    )
    assert records[0].sums.shape == (1000,)
    gains = [record.bound(DELTA, adaptive=True).epsilon - record.bound(DELTA).epsilon for record in records]
    assert np.mean(gains) >= 4 * np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_dense_canaries() -> None:
    """Conformance tests the whole chain (false-alarm rate 1e-4); with little noise they are told apart."""
    records = small_runs(4, SIGMA, steps=20, canaries=Dense(200, 500))
    assert min(record.conformance().p_value for record in records) >= 1e-4 / 4
    assert records[0].table is None
    clear = small_runs(1, 0.5, steps=20, canaries=Dense(200, 900), noise_multiplier=0.5, sample_rate=1.0)[0]
    assert clear.bound(DELTA).epsilon > 2
    assert clear.bound(DELTA, adaptive=True).epsilon > 2


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
def test_low_precision(kind: Any) -> None:
    """Canaries together never weigh more than they should, however coarse the sum is."""
    grads = {"a": jnp.linspace(-30, 30, 500).astype(kind), "b": jnp.linspace(280, 290, 500)}
    audit, record, released = silent(grads, grads, canaries=1000, clip_norm=1.1)
    assert jax.tree.map(lambda leaf: leaf.dtype, released[0]) == jax.tree.map(lambda leaf: leaf.dtype, grads)
    weights = record.sums / 3 / np.maximum(included_on(audit, record), 1)
    assert weights.max() <= 1 + 1e-4
    assert weights[record.bits > 0].min() >= 0.85
    coarse = jax.tree.map(lambda leaf: (leaf + 300).astype(jnp.bfloat16), grads)
    assert silent(coarse, coarse, canaries=1000, clip_norm=1.1)[1].sums.max() / 3 <= 1 + 1e-4


def test_low_precision_conforms() -> None:
    """With noise drawn in single precision: false-alarm rate 1e-4."""
    params = jnp.linspace(-5, 5, 1000).astype(jnp.bfloat16)
    privatizer = gaussian_privatizer(stddev=SIGMA, prng_key=0, dtype=jnp.float32)
    audit = attach(privatizer, params, canaries=1000, rng=0, **STATED)
    state = scanned(lambda now: audit.privatizer.update(params, now)[1], audit.privatizer.init(params), STEPS)
    assert audit.conformance(state).p_value >= 1e-4


def test_double_precision_is_kept() -> None:
    with jax.enable_x64(True):
        grads = jnp.linspace(0, 1, 100, dtype=jnp.float64) / 3
        audit, record, released = silent(grads, grads, canaries=50)
        changed = np.abs(released[0] - grads) > 0.5
        assert released[0].dtype == jnp.float64
        assert (np.asarray(released[0])[~changed] == np.asarray(grads)[~changed]).all()
        assert np.allclose(record.sums, 3 * included_on(audit, record), atol=1e-12)


def test_state_travels_in_a_chain_with_arguments_for_others() -> None:
    """As optax composes it; `value` reaches the audited transformation."""
    given = []

    def update(updates: Any, state: Any, params: Any = None, *, value: Any = None, **_: Any) -> Any:
        given.append((params, value))
        return updates, state

    watching = optax.GradientTransformationExtraArgs(SILENT.init, update)
    params = jnp.ones(40)
    audit = attach(watching, params, canaries=40, rng=0, **STATED)
    chain = optax.chain(audit.privatizer, optax.adam(0.1))
    state = chain.init(params)
    _, state = chain.update(jnp.zeros(40), state, params, value=3)
    assert audit.recording(state).steps == 1
    assert given == [(params, 3)]


def test_checkpoint_of_all_leaves(tmp_path: Any) -> None:
    """Saved after 5 steps as plain arrays, restored into a new audit with the same rng: the same scores."""
    params = {"a": jnp.zeros((9, 9)), "b": jnp.zeros(19)}
    grads = jax.tree.map(jnp.ones_like, params)

    def fresh() -> tuple[Audit, Any]:
        privatizer = gaussian_privatizer(stddev=SIGMA, prng_key=jax.random.PRNGKey(0))
        audit = attach(privatizer, params, canaries=200, per_coordinate=2, rng=8, **STATED)
        return audit, jax.jit(audit.privatizer.update)

    whole, step = fresh()
    state = whole.privatizer.init(params)
    for passed in range(10):
        if passed == 5:
            np.savez(tmp_path / "state.npz", *jax.tree.leaves(state))
        _, state = step(grads, state)

    again, step = fresh()
    saved = np.load(tmp_path / "state.npz")
    resumed = jax.tree.unflatten(jax.tree.structure(again.privatizer.init(params)), saved.values())
    for _ in range(5):
        _, resumed = step(grads, resumed)
    first, second = whole.recording(state), again.recording(resumed)
    assert (first.bits == second.bits).all()
    assert np.array_equal(first.sums, second.sums)
    assert np.array_equal(first.table, second.table)
    assert first.steps == second.steps == 10
    assert whole.bound(state, DELTA).epsilon == again.bound(resumed, DELTA).epsilon


def test_clip_norm_is_what_clipped_grad_knows() -> None:
    """A row adds at most clip_norm / normalize_by, or 1 / normalize_by."""
    for rescale, expected in ((False, 0.03), (True, 0.1)):
        grad = clipped_grad(loss, l2_clip_norm=0.3, normalize_by=10.0, rescale_to_unit_norm=rescale)
        audit = attach(SILENT, jnp.zeros(9), canaries=9, **{**STATED, "clip_norm": grad})
        assert audit.clip_norm == pytest.approx(expected)


def test_report_says_what_was_audited() -> None:
    params = jnp.zeros(300)
    audit = attach(gaussian_privatizer(stddev=SIGMA, prng_key=0), params, canaries=300, rng=0, **STATED)
    _, state = audit.privatizer.update(params, audit.privatizer.init(params))
    report = audit.report(state, claimed=2.0, delta=DELTA, rule=Tails(50))
    assert report.refuted is False
    assert "way 'sum'" in str(report)
    assert "add-remove adjacency" in str(report)
    assert report.conformance == audit.conformance(state)
    assert audit.conformance(state, noise_multiplier=2 * SIGMA).p_value < 1e-6


class TestHead:
    def trained(
        self, canaries: Any = 400, steps: int = 60, stddev: float = SIGMA, seed: int = 0, **clipping: Any
    ) -> tuple[Audit, AuditState]:
        """Training whose sampler, per-row gradients and clipper handle the canaries."""
        rows, labels = digits()
        privatizer = gaussian_privatizer(stddev=stddev, prng_key=seed)
        audit = attach(privatizer, network(), way="head", canaries=canaries, rng=seed, **STATED)
        headed, params = audit.with_canary_head(loss, network())
        grad = clipped_grad(headed, batch_argnums=(1, 2), **{"l2_clip_norm": 1.0, **clipping})

        def step(carry: Any, batch: Any) -> Any:
            params, state = carry
            which, chosen = batch
            total = grad(params, (which, rows[chosen]), labels[chosen], is_padding_example=chosen < 0)
            noisy, state = audit.privatizer.update(total, state)
            return (optax.tree.add_scale(params, -0.02, noisy), state), None

        chosen = audit.rows(batches(ROWS + audit.design.count, steps, seed, 140), ROWS)
        begun = (params, audit.privatizer.init(params))
        (params, state), _ = jax.jit(lambda begun, chosen: jax.lax.scan(step, begun, chosen))(begun, chosen)
        assert loss(params.model, rows, labels) < 0.9 * loss(network(), rows, labels)
        return audit, state

    def test_correct_training_conforms(self) -> None:
        """False-alarm rate 1e-4."""
        audit, state = self.trained()
        found = audit.conformance(state)
        assert found.p_value >= 1e-4
        assert found.weight == pytest.approx(1, abs=0.3)
        assert "per-sample gradients" in str(audit.report(state, delta=DELTA))

    def test_a_clipper_at_twice_the_norm_is_flagged(self) -> None:
        """What the sum way cannot see: rows of norm 10 come out as 2."""
        audit, state = self.trained(l2_clip_norm=2.0)
        assert audit.conformance(state).weight == pytest.approx(2, abs=0.3)
        assert audit.conformance(state).p_value < 1e-6

    @pytest.mark.parametrize("design", [Dirac(20), Dirac(10, 4), Dense(20, 9)], ids=repr)
    @pytest.mark.parametrize("kind", [jnp.float32, jnp.bfloat16])
    def test_rows_and_canaries_each_have_their_own_gradient(self, design: Any, kind: Any) -> None:
        """Clipped to one clip norm; excluded ones and the model's part are untouched; auxiliary values pass."""
        rows, labels = digits()
        params = jax.tree.map(lambda leaf: leaf.astype(kind), network())
        audit = attach(SILENT, params, way="head", canaries=design, rng=0, **{**STATED, "clip_norm": 0.5})
        headed, both = audit.with_canary_head(lambda *args: (loss(*args), args[2]), params)
        which, chosen = audit.rows(np.arange(30 + design.count), 30)
        batch = (rows[chosen], labels[chosen])
        grad = clipped_grad(headed, batch_argnums=(1, 2), has_aux=True, l2_clip_norm=0.5, dtype=jnp.float32)
        total, aux = grad(both, (which, batch[0]), batch[1])
        plain = clipped_grad(loss, batch_argnums=(1, 2), l2_clip_norm=0.5, dtype=jnp.float32)
        expected = plain(params, batch[0][:30], batch[1][:30])
        assert jax.tree.all(jax.tree.map(lambda a, b: jnp.allclose(a, b, atol=1e-5), total.model, expected))
        assert (aux.aux == batch[1]).all()
        state = audit.privatizer.init(both)
        record = audit.recording(audit.privatizer.update(total, state)[1])
        if isinstance(design, Dense):
            units = (record.bits > 0) @ design.gradients()
        else:
            units = included_on(audit, record)
        assert np.allclose(record.sums, units, atol=1e-4 if kind == jnp.float32 else 2e-2)

    def test_rows(self) -> None:
        audit = attach(SILENT, jnp.zeros(3), way="head", canaries=5, **STATED)
        which, chosen = audit.rows([2, 3, 7, 0, -1], 3)
        assert which.tolist() == [-1, 0, 4, -1, -1]
        assert chosen.tolist() == [2, 0, 1, 0, -1]
        with pytest.raises(InputError, match="below 8, 3 real rows and 5 canaries, got 8"):
            audit.rows([8], 3)
        with pytest.raises(InputError, match="real must be an integer of at least 1, got 0"):
            audit.rows([8], 0)

    def test_goes_with_its_way(self) -> None:
        audit = attach(SILENT, jnp.zeros(30), canaries=5, **STATED)
        with pytest.raises(InputError, match="goes with way='head', got way='sum'"):
            audit.with_canary_head(loss, jnp.zeros(30))

    def test_parameters_without_the_head(self) -> None:
        audit = attach(SILENT, jnp.zeros(30), way="head", canaries=5, **STATED)
        with pytest.raises(InputError, match=r"params must have .* with the canary head beside"):
            audit.privatizer.init(jnp.zeros(30))


class TestMisuse:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"clip_norm": 0.0}, "clip_norm must be positive and finite, got 0.0"),
            ({"clip_norm": np.inf}, "clip_norm must be positive and finite, got inf"),
            ({"clip_norm": "1"}, "clip_norm must be a number, got '1'"),
            ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0 and finite, got -1.0"),
            ({"noise_multiplier": np.nan}, "noise_multiplier must be a number, got nan"),
            ({"sample_rate": 0.0}, "sample_rate must be above 0 and at most 1, got 0.0"),
            ({"sample_rate": 1.5}, "sample_rate must be above 0 and at most 1, got 1.5"),
            ({"canaries": 0}, "canaries must be an integer of at least 1, got 0"),
            ({"canaries": 31}, "canaries need 31 coordinates, but params hold 30 weights; take at most 30"),
            ({"canaries": 61, "per_coordinate": 2}, "take at most 60 canaries, or more per coordinate"),
            ({"canaries": Dense(5, 50)}, "canaries need 50 coordinates"),
            ({"canaries": Dense(5, 9), "per_coordinate": 2}, "a design holds its own"),
            ({"way": "rows"}, "way must be 'sum' or 'head', got 'rows'"),
            ({"rng": -1}, "rng must be an integer between 0"),
            (
                {"params": {"count": np.arange(30)}},
                "params must hold arrays of floating-point numbers, got array",
            ),
            ({"params": {}}, "params must hold arrays of floating-point numbers, got {}"),
            ({"privatizer": gaussian_privatizer}, "must be an optax.GradientTransformation .* got partial"),
        ],
        ids=str,
    )
    def test_arguments(self, wrong: dict[str, Any], message: str) -> None:
        given = {"privatizer": SILENT, "params": {"w": jnp.zeros((3, 10))}, "canaries": 20, **STATED, **wrong}
        with pytest.raises(InputError, match=message) as caught:
            attach(**given)
        assert "\n" not in str(caught.value)

    def audit(self, **options: Any) -> Audit:
        return attach(SILENT, jnp.zeros(30), **{**STATED, "canaries": 30, "rng": 0, **options})

    def test_no_step_seen(self) -> None:
        audit = self.audit()
        with pytest.raises(InputError, match="no training step was seen"):
            audit.bound(audit.privatizer.init(jnp.zeros(30)))

    @pytest.mark.parametrize("state", [(), None, 3, SILENT.init(jnp.zeros(30))], ids=repr)
    def test_state_without_an_audit(self, state: Any) -> None:
        with pytest.raises(InputError, match=r"must hold that of one audited privatizer .* got 0"):
            self.audit().bound(state)

    def test_states_of_two_audits(self) -> None:
        states = [self.audit(rng=rng).privatizer.init(jnp.zeros(30)) for rng in (0, 1)]
        with pytest.raises(InputError, match="got 2 in 'list'"):
            self.audit().bound(states)

    @pytest.mark.parametrize("other", [{"rng": 1}, {"sample_rate": 0.2}, {"per_coordinate": 2}], ids=str)
    def test_state_of_another_audit(self, other: dict[str, Any]) -> None:
        begun = self.audit(**other).privatizer
        _, state = begun.update(jnp.zeros(30), begun.init(jnp.zeros(30)))
        with pytest.raises(InputError, match="the state is of another audit"):
            self.audit().bound(state)

    def test_gradients_of_another_model(self) -> None:
        audit = self.audit()
        state = audit.privatizer.init(jnp.zeros(30))
        with pytest.raises(InputError, match="sum_of_clipped_grads must have the arrays"):
            audit.privatizer.update(jnp.zeros((3, 10)), state)
