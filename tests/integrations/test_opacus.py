"""Audits attached to real Opacus training."""

from typing import Any

import numpy as np
import pytest
import torch
from opacus.schedulers import ExponentialNoise
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from scipy import stats

from canaria import InputError
from canaria.claims import ApproximateDP
from canaria.claims.accounting import dpsgd_epsilon
from canaria.integrations.opacus import Dense, attach
from canaria.mechanisms.dpsgd import log_likelihoods_of
from canaria.rules import Bet, Tails
from tests.integrations.digits import DELTA, SIGMA, audited, private

torch.set_num_threads(1)
by_seeds = pytest.mark.parametrize("seeds", [3, pytest.param(20, marks=pytest.mark.full)])
each_way = pytest.mark.parametrize("injection", ["sum", "rows", "head"])


@pytest.mark.parametrize(
    ("injection", "seeds"),
    [
        ("sum", 3),
        *(pytest.param(one, 3, marks=pytest.mark.full) for one in ("rows", "head")),
        *(pytest.param(one, 20, marks=pytest.mark.full) for one in ("sum", "rows", "head")),
    ],
)
def test_mean_bound_is_the_simulated_one(injection: str, seeds: int) -> None:
    """Sum score, 100 guesses, epsilon 2: 0.484 in simulation. False alarms: 4 standard errors."""
    bounds = [
        audited(injection, seed=seed)[0].bound(DELTA, score="sum", rule=Tails(100)).epsilon
        for seed in range(seeds)
    ]
    error = np.std(bounds, ddof=1) / np.sqrt(len(bounds))
    assert abs(np.mean(bounds) - 0.484) <= 4 * error


@each_way
def test_real_rows_do_not_show_in_the_scores(injection: str) -> None:
    """Same bits, draws and noise, with and without the real rows' gradients."""
    seen = [audited(injection, seed=3, real_weight=weight, steps=50)[0].recording() for weight in (1.0, 0.0)]
    assert (seen[0].bits == seen[1].bits).all()
    assert np.abs(seen[0].sums - seen[1].sums).max() <= 1e-4
    assert np.abs(seen[0].table - seen[1].table).max() <= 1e-4


@pytest.mark.parametrize(
    ("injection", "options"),
    [
        ("sum", {"mode": "functorch"}),
        ("sum", {"mode": "ghost"}),
        ("sum", {"physical": 17}),
        ("sum", {"mode": "ghost", "physical": 17}),
        ("sum", {"loss_reduction": "sum", "real_weight": 0.0}),
        ("rows", {"mode": "functorch"}),
        ("rows", {"physical": 17}),
        ("head", {"mode": "functorch"}),
        ("head", {"mode": "ghost"}),
        ("head", {"physical": 17}),
    ],
    ids=str,
)
def test_modes_of_opacus_give_the_same_scores(injection: str, options: dict[str, Any]) -> None:
    """Per-sample gradients by hooks, functorch or ghost clipping, whole or split batches: one answer."""
    plain = audited(injection, steps=20, seed=1)[0].recording()
    other = audited(injection, steps=20, seed=1, **options)[0].recording()
    assert np.abs(plain.sums - other.sums).max() <= 1e-4


@each_way
def test_adam_and_clip_norms_scale_out(injection: str) -> None:
    plain = audited(injection, steps=20, seed=1)[0].recording()
    other = audited(injection, steps=20, seed=1, adam=True, clip=0.25)[0].recording()
    assert np.abs(plain.sums - other.sums).max() <= 1e-4


@each_way
def test_several_canaries_per_coordinate_and_dense_ones(injection: str) -> None:
    """Conformance is a test of the whole chain: false-alarm rate 1e-4."""
    shared = audited(injection, canaries=1000, per_coordinate=4, steps=30)[0]
    assert shared.recording().sums.shape == (250,)
    assert shared.conformance().p_value >= 1e-4
    if injection != "head":
        dense = audited(injection, canaries=Dense(200, 400), steps=30)[0]
        assert dense.conformance().p_value >= 1e-4
        assert dense.recording().table is None


def test_accumulated_table_is_the_likelihood_of_the_noisy_sums() -> None:
    made = private("sum", canaries=300)
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=300, per_coordinate=3, rng=0)
    seen: list[np.ndarray] = []
    keep = audit._steps.accumulator.add

    def watched(*step: Any, **how: Any) -> None:
        keep(*step, **how)
        kept = audit._steps.accumulator
        seen.append(-kept._held[(kept.steps - 1) % len(kept._held), :100].numpy())

    audit._steps.accumulator.add = watched
    for _ in range(4):
        made.one_pass()
    expected = log_likelihoods_of(np.array(seen), 3, 0.1, SIGMA)
    record = audit.recording()
    assert np.allclose(record.table, expected - expected[:, :1], atol=1e-4)
    assert np.allclose(record.sums, np.sum(seen, axis=0), atol=1e-4)


def test_accountant_goes_on_counting() -> None:
    audit, made = audited("sum", steps=30)
    ((noise, rate, steps),) = made.engine.accountant.history
    assert (noise, rate, steps) == (SIGMA, pytest.approx(0.1), audit.steps)


@each_way
def test_detached_optimizer_is_as_before(injection: str) -> None:
    audit, made = audited(injection, steps=10)
    before = audit.recording().sums
    audit.detach()
    audit.detach()
    made.one_pass()
    assert (audit.recording().sums == before).all()
    assert made.optimizer.add_noise.__self__ is made.optimizer
    assert made.optimizer.clip_and_accumulate.__self__ is made.optimizer
    assert type(made.loader.batch_sampler) is UniformWithReplacementSampler


@each_way
def test_resumed_run_gives_the_same_bits_and_scores(injection: str) -> None:
    """Interrupted at a checkpoint after two passes, gone on in a new process's objects."""
    whole, _ = audited(injection, steps=40, seed=5, per_coordinate=2, canaries=400)
    begun, made = audited(injection, steps=20, seed=5, per_coordinate=2, canaries=400)
    saved = {
        "audit": begun.state_dict(),
        "model": made.model.state_dict(),
        "random": torch.get_rng_state(),
    }
    again = private(injection, canaries=400, per_coordinate=2, seed=99)
    again.model.load_state_dict(saved["model"])
    with pytest.raises(InputError, match="accountant has counted 0 steps, the audit 20"):
        attach(
            again.optimizer,
            again.loader,
            injection=injection,
            canaries=400,
            per_coordinate=2,
            state=saved["audit"],
        )
    again.engine.accountant.load_state_dict(made.engine.accountant.state_dict())
    resumed = attach(
        again.optimizer,
        again.loader,
        injection=injection,
        canaries=400,
        per_coordinate=2,
        rng=1234,
        state=saved["audit"],
    )
    torch.set_rng_state(saved["random"])
    while resumed.steps < 40:
        again.one_pass()
    assert (resumed.recording().bits == whole.recording().bits).all()
    assert np.array_equal(resumed.recording().table, whole.recording().table)
    assert (
        resumed.bound(DELTA) == whole.bound(DELTA)
        or resumed.bound(DELTA).epsilon == whole.bound(DELTA).epsilon
    )


def test_state_of_another_audit_is_refused() -> None:
    begun, _ = audited("sum", steps=10, canaries=100)
    other = private("sum")
    for state, message in (
        (begun.state_dict(), "design"),
        ({"version": 5}, "design"),
        ({"version": 3}, "version"),
    ):
        with pytest.raises(InputError, match=message):
            attach(other.optimizer, other.loader, injection="sum", canaries=200, state=state)
    attach(other.optimizer, other.loader, injection="sum", canaries=200)


def test_state_of_an_audit_of_another_model_is_refused() -> None:
    """And nothing stays attached, whatever went wrong."""
    begun, _ = audited("sum", steps=10, canaries=100)
    other = private("sum", hidden=8)
    state = begun.state_dict()
    broken = {**state, "trained weights": 610, "seen": {**state["seen"], "seed": None}}
    for state, wrong, message in (
        (begun.state_dict(), InputError, "has trained weights = 1210, but this audit 610"),
        (broken, TypeError, "NoneType"),
    ):
        other.engine.accountant.history = [(begun.noise_multiplier, 0.1, 10)]
        with pytest.raises(wrong, match=message):
            attach(other.optimizer, other.loader, injection="sum", canaries=100, state=state)
    other.engine.accountant.history = []
    attach(other.optimizer, other.loader, injection="sum", canaries=100)


@each_way
def test_empty_batches_are_audited_too(injection: str) -> None:
    """Poisson batches of 30 rows at rate 1/50 are empty every second time."""
    audit, _ = audited(injection, canaries=10, rows=20, batches=50, steps=50)
    assert np.isfinite(audit.recording().sums).all()


def test_noise_left_out_of_a_layer_is_seen() -> None:
    def silence(optimizer: Any) -> None:
        generate = optimizer.add_noise

        def broken() -> None:
            generate()
            for p in optimizer.params[-2:]:
                p.grad = p.summed_grad.view_as(p).clone()

        optimizer.add_noise = broken

    audit, _ = audited("rows", tamper=silence, hidden=32)
    found = audit.conformance()
    assert found.p_value < 1e-6
    assert "parameter 3 of 4" in found.answer
    assert audit.bound(DELTA).refutes(ApproximateDP(2.0, DELTA))


def test_noise_left_out_of_some_steps_is_seen() -> None:
    def silence(optimizer: Any) -> None:
        generate, steps = optimizer.add_noise, iter(range(10**6))

        def broken() -> None:
            generate()
            if next(steps) % 10 == 6:
                for p in optimizer.params:
                    p.grad = p.summed_grad.view_as(p).clone()

        optimizer.add_noise = broken

    found = audited("sum", tamper=silence)[0].conformance()
    assert found.parts["steps"] < 1e-6


def test_noise_scheduler_that_the_accountant_knows_of_conforms() -> None:
    made = private("sum", sigma=3.0)
    scheduler = ExponentialNoise(made.optimizer, gamma=0.8)
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
    for _ in range(6):
        made.one_pass()
        scheduler.step()
    assert made.engine.accountant.history[0][0] > made.engine.accountant.history[-1][0]
    assert audit.conformance().p_value >= 1e-4
    assert audit.recording().noise_changes


@pytest.mark.parametrize(
    ("injection", "canaries", "per_coordinate"), [("sum", 2000, 4), ("sum", Dense(400, 400), 1)]
)
def test_adaptive_is_no_worse_than_one_run(injection: str, canaries: Any, per_coordinate: int) -> None:
    """Same trainings, same kind of evidence (bets), six fixed seeds."""
    gains = []
    for seed in range(6):
        record = audited(
            injection, canaries=canaries, per_coordinate=per_coordinate, seed=seed, steps=60, sigma=1.0
        )[0].recording()
        gains.append(record.bound(adaptive=True, rule=Bet()).epsilon - record.bound(rule=Bet()).epsilon)
    assert np.mean(gains) > 0


@pytest.mark.parametrize("trainings", [16, pytest.param(200, marks=pytest.mark.full)])
def test_correct_training_is_not_accused(trainings: int) -> None:
    """Small trainings: bounds above the true epsilon in at most 5%, conformance p-values uniform.

    False-alarm rate 1e-4 each.
    """
    truth = dpsgd_epsilon(SIGMA, DELTA, 20, 0.1, "pld")
    accused, p_values = 0, []
    for seed in range(trainings):
        injection = ("sum", "rows", "sum", "head")[seed % 4]
        audit, _ = audited(injection, canaries=200, rows=100, hidden=8, steps=20, seed=seed)
        accused += audit.bound(DELTA).epsilon > truth
        p_values.append(audit.conformance().p_value)
    assert stats.binom.sf(accused - 1, trainings, 0.05) >= 1e-4
    assert stats.kstest(p_values, "uniform").pvalue >= 1e-4


@each_way
def test_halved_noise_is_flagged_by_conformance(injection: str) -> None:
    audit, _ = audited(injection, sigma=SIGMA / 2, stated=SIGMA)
    found = audit.conformance(steps=100, sample_rate=0.1, noise_multiplier=SIGMA)
    assert found.p_value < 1e-6
    assert found.noise == pytest.approx(SIGMA / 2, rel=0.1)
    assert not audit.report(claimed=2.0, delta=DELTA).conformance.conforms


def test_a_report_remembers_no_delta_and_a_claim_needs_its_own() -> None:
    """Held against the delta of the last bound, a true claim at delta = 0.02 was refuted."""
    audit, _ = audited("sum", steps=20, seed=1)
    audit.bound(0.0, 0.8)
    with pytest.raises(InputError, match=r"delta of the claim epsilon = 2\.0 must be given"):
        audit.report(claimed=2.0)
    assert audit.report(claimed=2.0, delta=0.02).bound.delta == 0.02
    assert (audit.report().bound.delta, audit.report().bound.confidence) == (0.0, 0.95)
    with pytest.raises(InputError, match=r"adjacency of the bound \(add-remove\)"):
        audit.report(claimed=2.0, delta=0.02, adjacency="replace")


@by_seeds
def test_a_third_of_the_noise_is_refuted(seeds: int) -> None:
    """Likelihood and `Ranked`, 1,000 canaries, claimed epsilon 2: in at least nine of ten trainings."""
    refuted = sum(
        audited("sum", sigma=SIGMA / 3, stated=SIGMA, seed=seed)[0]
        .bound(DELTA)
        .refutes(ApproximateDP(2.0, DELTA))
        for seed in range(seeds)
    )
    assert refuted >= 0.9 * seeds


def _canaries_unclipped(optimizer: Any) -> None:
    """Rows of norm 10 C pass the clipper."""
    clip = optimizer.clip_and_accumulate

    def broken() -> None:
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in optimizer.grad_samples]).norm(dim=0)
        spared = norms > 9.9 * optimizer.max_grad_norm
        clip()
        for p in optimizer.params:
            extra = p.grad_sample[spared]
            p.summed_grad += extra.sum(0) * (1 - 0.1)

    optimizer.clip_and_accumulate = broken


def test_scores_see_a_clipper_that_spares_canaries() -> None:
    """The canaries' ideal part is never put in the place of what came out."""
    right, wrong = (audited("rows", tamper=tamper, seed=2)[0] for tamper in (None, _canaries_unclipped))
    assert np.abs(right.recording().sums - wrong.recording().sums).max() > 10
    assert right.conformance().p_value >= 1e-4
    assert wrong.conformance().weight == pytest.approx(10, rel=0.2)
    assert wrong.bound(DELTA).refutes(ApproximateDP(2.0, DELTA))


@pytest.mark.parametrize("injection", ["rows", "head"])
def test_scores_see_a_sampler_at_twice_its_rate(injection: str) -> None:
    made = private(injection)
    audit = attach(made.optimizer, made.loader, injection=injection, canaries=1000, rng=0)
    made.loader.batch_sampler.sample_rate = 0.2
    while audit.steps < 50:
        made.one_pass()
    assert audit.conformance().weight == pytest.approx(2, rel=0.2)
    assert not audit.conformance().conforms
