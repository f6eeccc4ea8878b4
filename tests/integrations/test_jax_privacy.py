"""Audits attached to real JAX Privacy training.

Many runs share one compiled function: a run differs from another by the keys in its state, an audit by its
bits and places too.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.flatten_util import ravel_pytree
from jax_privacy.batch_selection import CyclicPoissonSampling, pad_to_multiple_of
from jax_privacy.clipping import clipped_grad
from jax_privacy.matrix_factorization import streaming_matrix, toeplitz
from jax_privacy.noise_addition import gaussian_privatizer, matrix_factorization_privatizer
from scipy import stats
from sklearn.datasets import load_digits

from canaria import InputError
from canaria.claims import ApproximateDP
from canaria.claims.accounting import dpsgd_epsilon
from canaria.integrations.jax_privacy import Audit, AuditState, Dense, Dirac, attach
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.rules import Tails
from canaria.training.recording import Recording

SIGMA, RATE, STEPS, DELTA = 2.4224, 0.1, 100, 1e-5
STATED: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": SIGMA, "sample_rate": RATE}
ROWS = 300
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


def logistic() -> dict[str, jax.Array]:
    """1,200 weights."""
    return {"weights": jnp.zeros((120, 10))}


def loss(params: Any, rows: jax.Array, labels: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(rows @ params["weights"], labels).mean()


def digits() -> tuple[jax.Array, jax.Array]:
    """120 random features of each image, and its label."""
    images, labels = load_digits(return_X_y=True)
    mixed = images[:ROWS] / 16 @ np.random.default_rng(0).normal(size=(64, 120))
    return jnp.asarray(np.tanh(mixed / 2), jnp.float32), jnp.asarray(labels[:ROWS])


def batches(examples: int, steps: int, seed: int, largest: int) -> np.ndarray:
    """Indices of Poisson batches by JAX Privacy, padded with -1."""
    drawn = CyclicPoissonSampling(RATE, steps).batch_iterator(examples, rng=seed)
    return np.stack([pad_to_multiple_of(batch, largest) for batch in drawn])


def attached(params: Any, noise_key: Any, stddev: Any = SIGMA, **options: Any) -> Audit:
    privatizer = gaussian_privatizer(stddev=stddev, prng_key=noise_key)
    return attach(privatizer, params, **{**STATED, "canaries": 1000, "rng": 0, **options})


def started(audit: Audit, params: Any, draws: Any) -> AuditState:
    """A fresh run of the audit, with draws of its own."""
    return audit.privatizer.init(params)._replace(key=jax.random.key_data(draws))


def stepped(audit: Audit, grads: Any, state: AuditState, steps: int) -> AuditState:
    """The state after steps with the same gradients."""
    update = audit.privatizer.update
    return jax.lax.scan(lambda now, _: (update(grads, now)[1], None), state, length=steps)[0]


def records_of(audit: Audit, states: AuditState) -> list[Recording]:
    """Of the states of several runs at once."""
    seen = jax.device_get(states._replace(noise_state=()))
    return [audit.recording(jax.tree.map(lambda leaf, r=run: leaf[r], seen)) for run in range(len(seen.mark))]


def small_runs(stddevs: Any, steps: int = STEPS, **options: Any) -> list[Recording]:
    """Runs of one audit without real gradients, one for each level of noise."""
    params = jnp.zeros(1000)

    def run(seed: Any, stddev: Any) -> AuditState:
        noise, draws = jax.random.split(jax.random.key(seed))
        audit = attached(params, noise, stddev, **options)
        return stepped(audit, params, started(audit, params, draws), steps)

    states = jax.jit(jax.vmap(run))(np.arange(len(stddevs)), np.asarray(stddevs, np.float32))
    stated = options.get("noise_multiplier", SIGMA)  # inside of `run` the noise is traced, and not known
    return records_of(attached(params, 0, stated, **options), states)


class Trained(NamedTuple):
    """A run with real gradients in which every weight carries canaries, so that their places are known."""

    audit: Audit
    grads: Any
    states: list[AuditState]
    seen: np.ndarray


def attached_again(grads: Any) -> Audit:
    key = jax.random.PRNGKey(3)
    return attached(grads, key, 0.5 * SIGMA, clip_norm=0.5, canaries=150, per_coordinate=3)


@pytest.fixture(scope="module")
def trained() -> Trained:
    grads = {"a": jnp.linspace(-3.0, 3.0, 49).reshape(7, 7), "b": jnp.ones(())}
    audit = attached_again(grads)
    step = jax.jit(audit.privatizer.update)
    states, seen = [audit.privatizer.init(grads)], []
    for _ in range(20):
        noisy, state = step(grads, states[-1])
        states.append(state)
        seen.append((ravel_pytree(noisy)[0] - ravel_pytree(grads)[0]) / 0.5)
    return Trained(audit, grads, states, np.array(seen))


def silent(grads: Any, steps: int = 3, **options: Any) -> tuple[Audit, Recording, Any]:
    """Steps without noise in which every included canary takes part, and what the last one releases."""
    audit = attach(SILENT, grads, **{**STATED, "sample_rate": 1.0, "canaries": 20, "rng": 0, **options})
    state, step = audit.privatizer.init(grads), jax.jit(audit.privatizer.update)
    for _ in range(steps):
        released, state = step(grads, state)
    return audit, audit.recording(state), released


def units(record: Recording) -> np.ndarray:
    """The sum of all included canaries."""
    design, included = record.design, record.bits > 0
    if isinstance(design, Dense):
        return included @ design.gradients()
    where = np.arange(design.count) % design.coordinates
    return np.bincount(where, weights=included, minlength=design.coordinates)


@pytest.mark.full
def test_mean_bound_is_the_simulated_one() -> None:
    """Logistic regression, trained 10 times, sum score, 100 guesses: 0.484 in simulation. False alarms: 4 standard errors."""
    rows, labels = digits()
    begun = logistic()
    grad = clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))
    optimizer = optax.sgd(0.02)

    def step(audit: Audit, carry: Any, chosen: Any) -> Any:
        params, state, moments = carry
        total = grad(params, rows[chosen], labels[chosen], is_padding_example=chosen < 0)
        noisy, state = audit.privatizer.update(sum_of_clipped_grads=total, noise_state=state)
        updates, moments = optimizer.update(noisy, moments)
        return (optax.apply_updates(params, updates), state, moments), None

    def runs(rng: int, seeds: np.ndarray) -> list[Recording]:
        options = {"clip_norm": grad, "rng": rng}

        def run(seed: Any, chosen: Any) -> Any:
            noise, draws = jax.random.split(jax.random.key(seed))
            audit = attached(begun, noise, **options)
            start = (begun, started(audit, begun, draws), optimizer.init(begun))
            params, state, _ = jax.lax.scan(lambda *now: step(audit, *now), start, chosen)[0]
            return loss(params, rows, labels), state

        chosen = np.stack([batches(ROWS, STEPS, seed, 60) for seed in seeds])
        after, states = jax.jit(jax.vmap(run))(seeds, chosen)
        assert (after < 0.7 * np.log(10)).all()
        return records_of(attached(begun, 0, **options), states)

    bounds = [record.bound(DELTA, score="sum", rule=Tails(100)).epsilon for record in runs(0, np.arange(10))]
    error = np.std(bounds, ddof=1) / np.sqrt(len(bounds))
    assert abs(np.mean(bounds) - 0.484) <= 4 * error


def test_table_is_the_likelihood_of_the_noisy_sums(trained: Trained) -> None:
    record = trained.audit.recording(trained.states[-1])
    expected = log_likelihoods_of(trained.seen, 3, RATE, SIGMA)
    assert np.allclose(record.table, expected - expected[:, :1], atol=1e-4)
    assert np.allclose(record.sums, trained.seen.sum(axis=0), atol=1e-4)
    assert record.steps == 20


def test_real_gradients_do_not_show_in_the_scores() -> None:
    params = jnp.linspace(-1, 1, 700)
    audit = attached(params, 0, canaries=1000, per_coordinate=2)
    run = jax.jit(lambda grads: stepped(audit, grads, audit.privatizer.init(params), 20))
    with_real, without = (audit.recording(run(size * params)) for size in (20.0, 0.0))
    assert np.abs(with_real.sums - without.sums).max() <= 1e-4
    assert np.abs(with_real.table - without.table).max() <= 1e-4


def test_jit_and_scan_are_one(trained: Trained) -> None:
    audit, grads, states, _ = trained
    rolled = audit.recording(jax.jit(lambda state: stepped(audit, grads, state, 20))(states[0]))
    by_hand = audit.recording(states[-1])
    assert np.abs(rolled.sums - by_hand.sums).max() <= 1e-5
    assert np.abs(rolled.table - by_hand.table).max() <= 1e-5
    assert rolled.steps == by_hand.steps


@pytest.mark.parametrize("design", [Dirac(21, 2), Dirac(5, 4), Dense(30, 12)], ids=repr)
def test_included_canaries_weigh_one_clip_norm(design: Any) -> None:
    """Also where canaries do not fill the coordinates, or share fewer than they may."""
    _, record, _ = silent({"a": jnp.zeros((7, 5)), "b": jnp.zeros(40)}, canaries=design, clip_norm=0.3)
    assert np.allclose(record.sums, 3 * units(record), atol=1e-5)
    assert record.losses(np.zeros(design.count, np.int8)).shape == (design.count,)


def test_canaries_are_scattered_over_every_array_and_nothing_else_changes() -> None:
    """Scalars and empty arrays are among the weights."""
    grads = {
        "a": jnp.arange(77.0).reshape(7, 11),
        "b": jnp.zeros(()),
        "c": jnp.zeros((0, 3)),
        "d": -jnp.arange(24.0),
    }
    _, record, released = silent(grads, steps=1, canaries=Dirac(34 * 20, 20), rng=2)
    added = np.asarray(ravel_pytree(released)[0] - ravel_pytree(grads)[0])
    places = np.flatnonzero(added)
    assert (units(record) > 0).all()
    inside = [places[(first <= places) & (places < last)] for first, last in ((0, 77), (77, 78), (78, 102))]
    assert tuple(map(len, inside)) == record.layers
    assert np.diff(inside[0]).max() > 2
    assert np.allclose(added[places], record.sums)


def test_canaries_take_part_at_the_sample_rate() -> None:
    """And never if excluded. Binomial test, false-alarm rate 1e-4."""
    params = jnp.zeros(1000)
    audit = attach(SILENT, params, canaries=1000, rng=0, **STATED)
    record = audit.recording(stepped(audit, params, audit.privatizer.init(params), STEPS))
    included = record.bits > 0
    assert (record.sums[~included] == 0).all()
    assert stats.binomtest(int(record.sums.sum()), STEPS * int(included.sum()), RATE).pvalue >= 1e-4


def test_correct_training_is_not_accused() -> None:
    """30 runs: p-values uniform, few bounds above the true epsilon. False-alarm rate 1e-4 each."""
    records = small_runs([SIGMA] * 30, steps=20, per_coordinate=2)
    assert stats.kstest([record.conformance().p_value for record in records], "uniform").pvalue >= 1e-4
    truth = dpsgd_epsilon(SIGMA, DELTA, 20, RATE, "pld")
    over = sum(record.bound(DELTA).epsilon > truth for record in records)
    assert stats.binom.sf(over - 1, len(records), 0.05) >= 1e-4


def test_halved_noise_is_flagged_and_a_third_of_it_is_refuted() -> None:
    """Claimed: epsilon 2, by the stated noise. Scores go by the noise that is seen."""
    assert dpsgd_epsilon(SIGMA, DELTA, STEPS, RATE, "rdp") == pytest.approx(2, abs=0.01)
    first, *thirds = small_runs([SIGMA / 2] + 10 * [SIGMA / 3])
    halved = first.conformance()
    assert halved.p_value < 1e-6
    assert halved.noise == pytest.approx(SIGMA / 2, rel=0.1)
    assert sum(record.bound(DELTA).refutes(ApproximateDP(2.0, DELTA)) for record in thirds) >= 9


@pytest.mark.full
def test_adaptive_bounds_with_several_canaries_per_coordinate() -> None:
    """Revealed bits help: paired over the same 6 runs, by 4 standard errors."""
    options = {"canaries": 4000, "per_coordinate": 4, "noise_multiplier": 1.0, "sample_rate": 0.5}
    records = small_runs([1.0] * 6, steps=30, **options)
    assert records[0].table.shape == (1000, 5)
    gains = [record.bound(DELTA, adaptive=True).epsilon - record.bound(DELTA).epsilon for record in records]
    assert np.mean(gains) >= 4 * np.std(gains, ddof=1) / np.sqrt(len(gains))


def test_dense_canaries() -> None:
    """Conformance tests the whole chain, false-alarm rate 1e-4; with little noise they are told apart."""
    options = {"canaries": Dense(200, 900), "noise_multiplier": 0.5, "sample_rate": 0.5}
    records = small_runs([0.5] * 4, steps=20, **options)
    assert min(record.conformance().p_value for record in records) >= 1e-4 / 4
    assert records[0].table is None
    assert records[0].bound(DELTA).epsilon > 2
    assert records[0].bound(DELTA, adaptive=True).epsilon > 2


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
def test_low_precision_would_round_canaries_away(kind: Any) -> None:
    grads = jnp.linspace(-400, 400, 1000).astype(kind)
    with pytest.raises(InputError, match="would round away; cast the sum to float32"):
        silent(grads, canaries=1000)


def test_canaries_never_weigh_more_beside_large_sums() -> None:
    """Rounding to the nearest would make some canaries of 1.1 weigh more beside real sums of 10^7."""
    grads = jnp.linspace(-1e7, 1e7, 1000)
    _, record, _ = silent(grads, canaries=1000, clip_norm=1.1)
    weights = record.sums[record.bits > 0] / 3
    assert weights.max() <= 1 + 1e-4


def test_training_in_bfloat16_conforms_once_sums_are_cast() -> None:
    """Real sums of 1,000 clip norms, in which bfloat16 would lose every canary; false-alarm rate 1e-4."""
    params = jnp.linspace(-1000, 1000, 1000).astype(jnp.bfloat16)
    privatizer = gaussian_privatizer(stddev=SIGMA, prng_key=0)
    audit = attach(privatizer, params, canaries=1000, rng=0, **STATED)
    state = stepped(audit, params.astype(jnp.float32), audit.privatizer.init(params), STEPS)
    assert audit.conformance(state).p_value >= 1e-4


def test_double_precision_is_kept() -> None:
    with jax.enable_x64(True):
        grads = jnp.linspace(0, 1, 100) / 3
        _, record, released = silent(grads, canaries=50)
        changed = np.abs(released - grads) > 0.5
        assert released.dtype == jnp.float64
        assert (released == grads)[~changed].all()
        assert np.allclose(record.sums, 3 * units(record), rtol=0, atol=1e-12)


def test_state_travels_in_a_chain_and_arguments_reach_the_audited() -> None:
    given = []

    def update(updates: Any, state: Any, params: Any = None, *, value: Any = None) -> Any:
        given.append((params, value))
        return updates, state

    params = jnp.ones(40)
    watching = optax.GradientTransformationExtraArgs(SILENT.init, update)
    audit = attach(watching, params, canaries=40, rng=0, **STATED)
    chain = optax.chain(audit.privatizer, optax.sgd(0.1))
    step = jax.jit(lambda state, value: chain.update(params, state, params, value=value)[1])
    assert audit.recording(step(chain.init(params), 3)).steps == 1
    assert [(params.shape, value.shape) for params, value in given] == [((40,), ())]


def test_checkpoint_is_the_leaves_of_the_state(trained: Trained, tmp_path: Path) -> None:
    """Saved after 15 steps as plain arrays, restored into a new audit with the same rng: the same scores."""
    audit, grads, states, _ = trained
    np.savez(tmp_path / "state.npz", *jax.tree.leaves(states[15]))

    again = attached_again(grads)
    saved = np.load(tmp_path / "state.npz").values()
    state = jax.tree.unflatten(jax.tree.structure(again.privatizer.init(grads)), saved)
    step = jax.jit(again.privatizer.update)
    for _ in range(5):
        _, state = step(grads, state)
    first, second = audit.recording(states[-1]), again.recording(state)
    assert (first.bits == second.bits).all()
    assert np.array_equal(first.sums, second.sums)
    assert np.array_equal(first.table, second.table)
    assert audit.bound(states[-1], DELTA).to_dict() == again.bound(state, DELTA).to_dict()


def test_clip_norm_is_what_clipped_grad_knows() -> None:
    """A row adds at most clip_norm / normalize_by, or 1 / normalize_by."""
    for rescale, expected in ((False, 0.03), (True, 0.1)):
        grad = clipped_grad(loss, l2_clip_norm=0.3, normalize_by=10.0, rescale_to_unit_norm=rescale)
        audit = attach(SILENT, jnp.zeros(9), canaries=9, **{**STATED, "clip_norm": grad})
        assert audit.clip_norm == pytest.approx(expected)


def test_report_says_what_was_audited(trained: Trained) -> None:
    audit, state = trained.audit, trained.states[-1]
    report = audit.report(state, claimed=2.0, delta=DELTA, rule=Tails(50))
    assert report.refuted is False
    assert "injected by 'sum'" in str(report)
    assert "adjacency   add-remove" in str(report)
    assert report.conformance == audit.conformance(state)
    assert audit.conformance(state, noise_multiplier=10 * SIGMA).p_value < 1e-6


PLANNED = 12


def carried(audit: Audit, params: Any) -> AuditState:
    step, state = jax.jit(audit.privatizer.update), audit.privatizer.init(params)
    for _ in range(PLANNED):
        _, state = step(params, state)
    return state


def not_jitted(audit: Audit, params: Any) -> AuditState:
    state = audit.privatizer.init(params)
    for _ in range(PLANNED):
        _, state = audit.privatizer.update(params, state)
    return state


def in_branches(audit: Audit, params: Any) -> AuditState:
    """Two updates in the code of a step, of which one runs."""
    update, state = audit.privatizer.update, audit.privatizer.init(params)

    @jax.jit
    def step(state: Any, even: Any) -> Any:
        return jax.lax.cond(
            even,
            lambda: update(params, state)[1],
            lambda: update(jax.tree.map(jnp.negative, params), state)[1],
        )

    for number in range(PLANNED):
        state = step(state, number % 2 == 0)
    return state


def not_carried(audit: Audit, params: Any) -> AuditState:
    step, begun = jax.jit(audit.privatizer.update), audit.privatizer.init(params)
    for _ in range(PLANNED):
        _, state = step(params, begun)
    return state


def captured(audit: Audit, params: Any) -> AuditState:
    """The state is a constant of the compiled step."""
    begun = audit.privatizer.init(params)
    step = jax.jit(lambda grads: audit.privatizer.update(grads, begun)[1])
    return [step(params) for _ in range(PLANNED)][-1]


def scanned_without_carry(audit: Audit, params: Any) -> AuditState:
    begun = audit.privatizer.init(params)
    return jax.lax.scan(lambda *_: (audit.privatizer.update(params, begun)[1], None), begun, length=PLANNED)[
        0
    ]


def begun_in_each_epoch(audit: Audit, params: Any) -> AuditState:
    for _ in range(3):
        state = stepped(audit, params, audit.privatizer.init(params), PLANNED // 3)
    return state


def not_carried_nor_jitted(audit: Audit, params: Any) -> AuditState:
    begun = audit.privatizer.init(params)
    return [audit.privatizer.update(params, begun)[1] for _ in range(PLANNED)][-1]


def forked(audit: Audit, params: Any) -> AuditState:
    """Every step releases two sums with one noise; its state has seen all steps."""

    def step(state: Any, _: Any) -> Any:
        first, _ = audit.privatizer.update(params, state)
        second, state = audit.privatizer.update(jax.tree.map(jnp.negative, params), state)
        return state, (first, second)

    return jax.lax.scan(step, audit.privatizer.init(params), length=PLANNED)[0]


NOT_CARRIED, AGAIN = "the noise state is not carried from step to step", "used in several updates"


@pytest.mark.parametrize(
    ("loop", "faults"),
    [
        (carried, []),
        (not_jitted, []),
        (in_branches, []),
        (not_carried, [f"1 of 12 stated steps was seen: {NOT_CARRIED}"]),
        (captured, [f"1 of 12 stated steps was seen: {NOT_CARRIED}"]),
        (scanned_without_carry, [f"1 of 12 stated steps was seen: {NOT_CARRIED}"]),
        (begun_in_each_epoch, [f"4 of 12 stated steps were seen: {NOT_CARRIED}"]),
        (not_carried_nor_jitted, [f"1 of 12 stated steps was seen: {NOT_CARRIED}", AGAIN]),
        (forked, [AGAIN]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_noise_states_must_be_carried(loop: Any, faults: list[str]) -> None:
    """The state of a training that adds the same noise again looks like that of a short and correct one."""
    params = {"weights": jnp.ones((30, 20)), "bias": jnp.ones(20)}
    audit = attached(params, 0, canaries=300, steps=PLANNED)
    state = loop(audit, params)
    found = audit.report(state, claimed=9.0, delta=DELTA, rungs=False)
    assert len(found.contradictions) == len(faults)
    assert all(fault in said for fault, said in zip(faults, found.contradictions, strict=True))
    assert found.alarming is bool(faults)


def test_training_may_be_stopped_and_must_not_go_on() -> None:
    params = jnp.zeros(400)
    audit = attached(params, 0, canaries=300, steps=PLANNED)
    short = stepped(audit, params, audit.privatizer.init(params), 5)
    found = audit.report(short, delta=DELTA, rungs=False, unfinished=True)
    assert found.contradictions == ()
    assert "5 of 12 stated steps were seen" in str(found)
    long = audit.report(stepped(audit, params, short, 9), delta=DELTA, rungs=False, unfinished=True)
    assert long.contradictions == ("training made 14 steps, where 12 are stated",)
    not_stated = attached(params, 0, canaries=300)
    found = not_stated.report(
        stepped(not_stated, params, not_stated.privatizer.init(params), 5), delta=DELTA, rungs=False
    )
    assert "steps (their number is not stated; give steps)" in str(found)
    assert found.remarks[0].startswith("the number of steps is not stated (attach with steps=)")
    assert "matches what was stated" not in str(found)


def test_more_noise_than_stated_is_not_called_a_leak() -> None:
    """As in the example of JAX Privacy: its noise is for replacing a row, its accountant for adding one."""
    params = jnp.zeros(1000)
    for times in (2.0, 40.0):
        audit = attached(params, 0, times * SIGMA, steps=PLANNED)
        state = stepped(audit, params, audit.privatizer.init(params), PLANNED)
        found = audit.report(state, claimed=2.0, delta=DELTA, rungs=False)
        assert not found.alarming
        assert f"adds {times:g} times the noise that noise_multiplier=2.422 needs" in str(found)
        assert ("the sensitivity of replacing a row is twice" in str(found)) is (times == 2)
    audit = attached(params, 0, SIGMA / 2, steps=PLANNED)
    state = stepped(audit, params, audit.privatizer.init(params), PLANNED)
    said, seen = audit.recording(state).contradictions
    assert said.startswith("the privatizer adds 0.5 times the stated noise: its standard deviation is 1.211")
    assert seen.startswith("the noise is only 0.503 times")


class TestHead:
    @pytest.mark.full
    def test_conformance_is_about_the_sampler_and_the_clipper(self) -> None:
        """Clipping to 1 conforms (false-alarm rate 1e-4), clipping to 2 where 1 is stated does not."""
        rows, labels = digits()
        sigma, begun = 0.5, logistic()
        audit = attached(begun, 0, sigma, noise_multiplier=sigma, injection="head", canaries=400)
        headed, params = audit.with_canary_head(loss, begun)

        def run(norm: Any, batches: Any) -> Any:
            grad = clipped_grad(headed, batch_argnums=(1, 2), l2_clip_norm=norm)

            def step(carry: Any, batch: Any) -> Any:
                (params, state), (which, chosen) = carry, batch
                padding = chosen < 0
                total = grad(params, (which, rows[chosen]), labels[chosen], is_padding_example=padding)
                noisy, state = audit.privatizer.update(total, state)
                return (optax.tree.add_scale(params, -0.02, noisy), state), None

            (trained, state), _ = jax.lax.scan(step, (params, audit.privatizer.init(params)), batches)
            return loss(trained.model, rows, labels), state

        chosen = audit.rows(batches(ROWS + 400, 60, 0, 120), ROWS)
        after, states = jax.jit(jax.vmap(run, (0, None)))(jnp.array([1.0, 2.0]), chosen)
        assert (after < 0.7 * np.log(10)).all()
        right, wrong = records_of(audit, states)
        assert right.conformance().p_value >= 1e-4
        assert right.conformance().weight == pytest.approx(1, abs=0.3)
        assert wrong.conformance().p_value < 1e-6
        assert wrong.conformance().weight == pytest.approx(2, abs=0.3)
        assert wrong.bound(DELTA).epsilon > right.bound(DELTA).epsilon
        assert "per-sample gradients, the clipper" in str(right.report(delta=DELTA))

    @pytest.mark.parametrize("design", [Dirac(10, 4), Dense(20, 9)], ids=str)
    def test_canaries_come_out_as_one_clip_norm(self, design: Any) -> None:
        """Real rows have no part in the head; auxiliary values pass."""
        rows, labels = digits()
        params = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), logistic())
        audit = attach(
            SILENT, params, injection="head", canaries=design, rng=0, **{**STATED, "clip_norm": 0.5}
        )
        headed, both = audit.with_canary_head(lambda *args: (loss(*args), args[2]), params)
        assert [own.dtype for own in both.canaries] == [jnp.float32, jnp.float32]
        which, chosen = audit.rows(np.arange(30 + design.count), 30)
        options = {"batch_argnums": (1, 2), "l2_clip_norm": 0.5, "has_aux": True, "dtype": jnp.float32}
        grad = jax.jit(clipped_grad(headed, **options))
        total, aux = grad(both, (which, rows[chosen]), labels[chosen])
        assert (aux.aux == labels[chosen]).all()
        record = audit.recording(jax.jit(audit.privatizer.update)(total, audit.privatizer.init(both))[1])
        assert np.allclose(record.sums, units(record), atol=1e-2)

    @pytest.mark.parametrize(
        "rescaled",
        [
            {"l2_clip_norm": 1.0, "normalize_by": 100.0},
            {"l2_clip_norm": 100.0, "rescale_to_unit_norm": True},
            {"l2_clip_norm": 0.01, "rescale_to_unit_norm": True},
            {"l2_clip_norm": 300.0},
        ],
        ids=str,
    )
    def test_canaries_are_clipped_also_where_the_sum_is_rescaled(self, rescaled: dict[str, Any]) -> None:
        rows, labels = digits()
        stated = clipped_grad(loss, batch_argnums=(1, 2), **rescaled)
        options = {**STATED, "clip_norm": stated, "injection": "head", "canaries": 20, "rng": 0}
        audit = attach(SILENT, logistic(), **options)
        headed, both = audit.with_canary_head(loss, logistic())
        which, chosen = audit.rows(np.arange(50), 30)
        grad = jax.jit(clipped_grad(headed, batch_argnums=(1, 2), **rescaled))
        total = grad(both, (which, rows[chosen]), labels[chosen])
        record = audit.recording(jax.jit(audit.privatizer.update)(total, audit.privatizer.init(both))[1])
        assert np.allclose(record.sums, units(record), atol=1e-3)

    def test_parameters_that_are_clipped_apart_are_reported(self) -> None:
        """Each to the clip norm, so that a row weighs more."""
        rows, labels = digits()
        audit = attach(SILENT, logistic(), injection="head", canaries=20, rng=0, **STATED)
        headed, both = audit.with_canary_head(loss, logistic())
        which, chosen = audit.rows(np.arange(50), 30)

        def apart(which: Any, row: Any, label: Any) -> Any:
            grads = jax.grad(headed)(both, (which[None], row[None]), label[None])
            return jax.tree.map(lambda leaf: leaf / jnp.maximum(jnp.linalg.norm(leaf), 1.0), grads)

        def found(total: Any) -> tuple[str, ...]:
            state = audit.privatizer.update(total, audit.privatizer.init(both))[1]
            return audit.recording(state).contradictions

        each = jax.jit(jax.vmap(apart))(jnp.asarray(which), rows[chosen], labels[chosen])
        (said,) = found(jax.tree.map(lambda leaf: leaf.sum(axis=0), each))
        assert "canaries weighed 1.41 clip norms" in said
        grad = jax.jit(clipped_grad(headed, batch_argnums=(1, 2), l2_clip_norm=1.0))
        assert found(grad(both, (which, rows[chosen]), labels[chosen])) == ()

    def test_gradients_of_the_model_are_those_of_the_real_rows(self) -> None:
        rows, labels = digits()
        audit = attach(SILENT, logistic(), injection="head", canaries=20, rng=0, **STATED)
        headed, both = audit.with_canary_head(loss, logistic())
        which, chosen = audit.rows(np.arange(50), 30)
        options = {"batch_argnums": (1, 2), "l2_clip_norm": 1.0}
        total = jax.jit(clipped_grad(headed, **options))(both, (which, rows[chosen]), labels[chosen])
        plain = jax.jit(clipped_grad(loss, **options))(both.model, rows[:30], labels[:30])
        assert np.allclose(ravel_pytree(total.model)[0], ravel_pytree(plain)[0], atol=1e-5)

    def test_rows(self) -> None:
        audit = attach(SILENT, jnp.zeros(3), injection="head", canaries=5, **STATED)
        which, chosen = audit.rows([2, 3, 7, 0, -1], 3)
        assert which.tolist() == [-1, 0, 4, -1, -1]
        assert chosen.tolist() == [2, 0, 1, 0, -1]
        with pytest.raises(InputError, match="below 8, 3 real rows and 5 canaries, got 8"):
            audit.rows([8], 3)
        with pytest.raises(InputError, match="real must be an integer of at least 1, got 0"):
            audit.rows([8], 0)

    def test_goes_with_its_way(self) -> None:
        audit = attach(SILENT, jnp.zeros(30), canaries=5, **STATED)
        with pytest.raises(InputError, match="goes with injection='head', got injection='sum'"):
            audit.with_canary_head(loss, jnp.zeros(30))

    def test_parameters_without_the_head(self) -> None:
        audit = attach(SILENT, jnp.zeros(30), injection="head", canaries=5, **STATED)
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
            ({"sample_rate": 1e-10}, "injection='sum' needs a sample_rate of at least 2"),
            ({"canaries": 0}, "canaries must be an integer of at least 1, got 0"),
            ({"canaries": 31}, "canaries need 31 coordinates, but params hold 30 weights; take at most 30"),
            ({"canaries": 61, "per_coordinate": 2}, "take at most 60 canaries, or more per coordinate"),
            ({"canaries": Dense(5, 50)}, "canaries need 50 coordinates"),
            ({"canaries": Dense(5, 9), "per_coordinate": 2}, "a design holds its own"),
            ({"injection": "rows"}, "injection must be 'sum' or 'head', got 'rows'"),
            ({"rng": -1}, "rng must be an integer between 0"),
            (
                {"params": {"count": np.arange(30)}},
                "params must hold arrays of floating-point numbers, got array",
            ),
            ({"params": {}}, "params must hold arrays of floating-point numbers, got {}"),
            ({"privatizer": gaussian_privatizer}, "must be an optax.GradientTransformation .* got partial"),
        ],
        ids=lambda value: ", ".join(value) if isinstance(value, dict) else "",
    )
    def test_arguments(self, wrong: dict[str, Any], message: str) -> None:
        given = {"privatizer": SILENT, "params": {"w": np.zeros((3, 10))}, "canaries": 20, **STATED, **wrong}
        with pytest.raises(InputError, match=message) as caught:
            attach(**given)
        assert "\n" not in str(caught.value)

    def audit(self, **options: Any) -> tuple[Audit, AuditState]:
        audit = attach(SILENT, jnp.zeros(30), **{**STATED, "canaries": 30, "rng": 0, **options})
        return audit, audit.privatizer.init(jnp.zeros(30))

    def test_no_step_seen(self) -> None:
        audit, state = self.audit()
        with pytest.raises(InputError, match="no training step was seen"):
            audit.bound(state)

    @pytest.mark.parametrize("state", [(), None, 3, SILENT.init(0)], ids=repr)
    def test_state_without_an_audit(self, state: Any) -> None:
        with pytest.raises(InputError, match=r"must hold that of one audited privatizer .* got 0"):
            self.audit()[0].bound(state)

    @pytest.mark.parametrize("around", [lambda p: p, lambda p: optax.chain(p, optax.identity())])
    def test_audited_twice(self, around: Any) -> None:
        """The outer audit would take the canaries of the inner one for noise, and accuse correct training."""
        outer = attach(around(self.audit()[0].privatizer), jnp.zeros(30), canaries=30, rng=1, **STATED)
        with pytest.raises(InputError, match="privatizer is audited already"):
            outer.privatizer.init(jnp.zeros(30))

    def test_states_of_two_audits(self) -> None:
        audit, state = self.audit()
        with pytest.raises(InputError, match="got 2 in 'list'"):
            audit.bound([state, self.audit(rng=1)[1]])

    @pytest.mark.parametrize("other", [{"rng": 1}, {"sample_rate": 0.2}, {"per_coordinate": 2}], ids=str)
    def test_state_of_another_audit(self, other: dict[str, Any]) -> None:
        with pytest.raises(InputError, match="the state is of another audit"):
            self.audit()[0].bound(self.audit(**other)[1])

    def test_gradients_of_another_model(self) -> None:
        audit, state = self.audit()
        with pytest.raises(InputError, match="sum_of_clipped_grads must have the arrays"):
            audit.privatizer.update(jnp.zeros((3, 10)), state)


@pytest.mark.parametrize(
    "matrix",
    [
        np.tril(np.full((40, 40), 0.2)) + 0.8 * np.eye(40),
        streaming_matrix.prefix_sum(),
        toeplitz.inverse_as_streaming_matrix(jnp.array([1.0, 0.5, 0.25])),
        streaming_matrix.diagonal(jnp.array([1.0, 2.0])),
    ],
    ids=["dense", "prefix sums", "banded", "changing"],
)
def test_correlated_noise_is_refused(matrix: Any) -> None:
    """It was accused always; independent noise by a matrix is not refused."""
    stated = {"clip_norm": 1.0, "noise_multiplier": 1.0, "sample_rate": 0.1}
    privatizer = matrix_factorization_privatizer(matrix, stddev=1.0, prng_key=0)
    with pytest.raises(InputError, match="correlated over the steps"):
        attach(privatizer, jnp.zeros(400), canaries=100, **stated)
    for plain in (np.eye(40), streaming_matrix.identity()):
        attach(matrix_factorization_privatizer(plain, stddev=1.0), jnp.zeros(400), canaries=100, **stated)
