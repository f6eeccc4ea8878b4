"""Trainings about which an audit once said something wrong, or nothing: each has its test."""

import copy
import functools
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from opacus import PrivacyEngine
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from canaria import InputError
from canaria.evidence import AuditWarning
from canaria.integrations.opacus import attach, auditing, with_canary_head, with_canary_rows
from canaria.integrations.opacus._items import mapped
from canaria.testing import assert_private_training
from tests.integrations.digits import DELTA, Private, audited, digits, private

TOKENS = 12


class TestAccumulatedBatches:
    @pytest.mark.parametrize("injection", ["sum", "rows", "head"])
    def test_more_than_one_batch_to_a_step_is_reported(self, injection: str) -> None:
        """By signal_skip_step, as many recipes do; the accountant counts one batch."""
        made = private(injection)
        audit = attach(made.optimizer, made.loader, injection=injection, canaries=1000, rng=0)
        for _ in range(2):
            for k, (rows, labels) in enumerate(made.loader):
                made.optimizer.signal_skip_step(do_skip=k % 2 == 0)
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
        report = audit.report(2.0, DELTA)
        assert report.alarming
        assert "batches were accumulated without BatchMemoryManager" in report.verdict

    @pytest.mark.parametrize("physical", [None, 13])
    def test_batches_that_are_split_are_not(self, physical: int | None) -> None:
        audit, _ = audited("sum", steps=20, physical=physical)
        assert audit.recording().contradictions == ()

    @pytest.mark.filterwarnings("ignore:os.fork")
    def test_workers_that_fetch_ahead_are_not(self) -> None:
        made = private("sum")
        loader = DataLoader(made.loader.dataset, batch_sampler=made.loader.batch_sampler, num_workers=1)
        audit = attach(made.optimizer, loader, injection="sum", canaries=1000, rng=0)
        for k, (rows, labels) in enumerate(loader):
            made.criterion(made.model(rows), labels).backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
            if k == 4:
                break
        assert audit.recording().contradictions == ()


def evaluated(made: Private) -> None:
    with torch.no_grad():
        for rows, _ in made.loader:
            made.model(rows)


@pytest.mark.parametrize("injection", ["sum", "rows"])
def test_evaluation_on_the_private_loader_is_no_contradiction(injection: str) -> None:
    made = private(injection)
    audit = attach(made.optimizer, made.loader, injection=injection, canaries=1000, rng=0)
    for _ in range(3):
        next(iter(made.loader))
        made.one_pass()
        evaluated(made)
    assert audit.recording().contradictions == ()


def test_training_that_goes_on_without_the_audit_is_no_contradiction() -> None:
    """After it was detached, and after it ended by itself."""
    audit, made = audited("sum", steps=20)
    audit.detach()
    made.one_pass()
    assert audit.recording().contradictions == ()
    assert "detached after step" in audit.report(2.0, DELTA).facts["unseen"]
    audit, made = audited("sum", steps=20)
    next(made.model.parameters()).requires_grad_(False)
    with pytest.warns(AuditWarning, match="was frozen"):
        made.one_pass()
    made.one_pass()
    (why,) = audit.recording().contradictions
    assert why.startswith("the audit ended before training did")


def test_evaluation_does_not_hide_another_loader() -> None:
    made = private("sum")
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
    for _ in range(2):
        evaluated(made)
        for rows, labels in DataLoader(made.loader.dataset, batch_size=40):
            made.criterion(made.model(rows), labels).backward()
            made.optimizer.step()
            made.optimizer.zero_grad()
    assert "did not draw" in audit.report(2.0, DELTA).verdict


@pytest.mark.parametrize("injection", ["sum", "head"])
def test_another_loader_than_the_one_attached_is_reported(injection: str) -> None:
    made = private(injection)
    audit = attach(made.optimizer, made.loader, injection=injection, canaries=1000, rng=0)
    for rows, labels in DataLoader(made.loader.dataset, batch_size=140):
        made.criterion(made.model(rows), labels).backward()
        made.optimizer.step()
        made.optimizer.zero_grad()
    assert "the attached data loader did not draw" in audit.report(2.0, DELTA).verdict


def test_a_state_is_not_changed_by_what_comes_after() -> None:
    """Or a checkpoint that is kept in memory would hold steps that it does not count."""
    audit, made = audited("sum", steps=20)
    state = audit.state_dict()
    kept = copy.deepcopy(state)
    made.one_pass()
    made.one_pass()
    found, expected = (mapped(lambda one: getattr(one, "tolist", lambda: one)(), s) for s in (state, kept))
    assert found == expected


class Casting(nn.Module):
    """A layer in double precision."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.layer = nn.Linear(width, out, dtype=torch.float64)

    def forward(self, rows: Tensor) -> Tensor:
        return self.layer(rows.double()).float()


@pytest.mark.parametrize("injection", ["sum", "rows", "head"])
def test_parameters_of_several_precisions_are_not_accused(injection: str) -> None:
    """In any order; their totals were once those of others."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), Casting(16, 8), nn.ReLU(), nn.Linear(8, 10))
    dataset: Any = digits(200)
    if injection == "rows":
        dataset = with_canary_rows(dataset, 200)
    if injection == "head":
        model, dataset = with_canary_head(model, dataset, 200)
    model, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=len(dataset) // 10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    audit = attach(optimizer, loader, injection=injection, canaries=200, rng=0)
    while audit.steps < 30:
        for rows, labels in loader:
            nn.functional.cross_entropy(model(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert audit.conformance().p_value >= 1e-4
    assert audit.recording().contradictions == ()


class TestTheAccountant:
    @pytest.mark.parametrize(
        ("told", "said"),
        [
            (lambda step, noise, rate: (noise, rate / 10), "told sample rate 0.01 where it is 0.1"),
            (lambda step, noise, rate: (3 * noise, rate), "told noise multiplier 7.2672 where it is 2.4224"),
            (
                lambda step, noise, rate: None if step % 4 else (noise, rate),
                "counted 5 steps, the audit saw 20",
            ),
        ],
    )
    def test_it_must_be_told_what_was_done(self, told: Any, said: str) -> None:
        made = private("sum")
        accountant, step = made.engine.accountant, 0

        def hook(optimizer: Any) -> None:
            nonlocal step
            settings = told(step, optimizer.noise_multiplier, 0.1)
            step += 1
            if settings is not None:
                accountant.step(noise_multiplier=settings[0], sample_rate=settings[1])

        made.optimizer.step_hook = hook
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
        while audit.steps < 20:
            made.one_pass()
        report = audit.report(2.0, DELTA)
        assert said in report.verdict
        assert report.alarming
        with pytest.raises(AssertionError, match="was NOT what was stated"):
            assert_private_training(audit, 2.0, DELTA, conformance=False)

    def test_what_is_right_is_not_reported(self) -> None:
        audit, made = audited("sum", steps=20)
        made.optimizer.noise_multiplier = 3.0
        made.one_pass()
        assert audit.recording().contradictions == ()

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    def test_the_noise_of_the_next_step_may_be_set_in_the_step_hook(self, mode: str) -> None:
        """After this step's noise was added and told."""
        made = private("sum", mode=mode)
        accountant = made.engine.accountant

        def hook(optimizer: Any) -> None:
            accountant.step(noise_multiplier=optimizer.noise_multiplier, sample_rate=0.1)
            optimizer.noise_multiplier *= 0.9

        made.optimizer.step_hook = hook
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        while audit.steps < 30:
            made.one_pass()
        assert audit.recording().contradictions == ()
        assert audit.conformance().p_value >= 1e-4

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    @pytest.mark.parametrize("halved", ["noise_multiplier", "max_grad_norm"])
    def test_what_holds_while_noise_is_added_is_not_what_is_stated(self, halved: str, mode: str) -> None:
        """Put around `add_noise` after the audit was attached, so that it sees it halved."""
        made = private("sum", mode=mode)
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        added = made.optimizer.add_noise

        def less() -> None:
            stated = getattr(made.optimizer, halved)
            setattr(made.optimizer, halved, stated / 2)
            added()
            setattr(made.optimizer, halved, stated)

        made.optimizer.add_noise = less
        while audit.steps < 30:
            made.one_pass()
        assert audit.conformance().p_value <= 1e-6

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    @pytest.mark.parametrize("before", [True, False])
    def test_noise_is_for_the_norm_that_rows_are_clipped_to(self, before: bool, mode: str) -> None:
        """Another norm holds while noise is added, until gradients are scaled; attached before, or after."""
        made = private("sum", mode=mode)
        if before:
            audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        added, scaled = made.optimizer.add_noise, made.optimizer.scale_grad

        def less() -> None:
            made.optimizer.max_grad_norm /= 2
            added()

        def as_before() -> None:
            scaled()
            made.optimizer.max_grad_norm *= 2

        made.optimizer.add_noise, made.optimizer.scale_grad = less, as_before
        if not before:
            audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        while audit.steps < 30:
            made.one_pass()
        assert audit.conformance().p_value <= 1e-6

    @pytest.mark.parametrize("injection", ["sum", "head"])
    @pytest.mark.parametrize("both", [True, False])
    def test_by_ghost_it_is_the_model_that_clips(self, both: bool, injection: str) -> None:
        """A schedule that lowers the optimizer's norm lowers the noise; rows are clipped to the model's."""
        made = private(injection, mode="ghost")
        how: dict[str, Any] = {"injection": injection, "canaries": 1000, "rng": 0, "model": made.model}
        audit = attach(made.optimizer, made.loader, **how)
        while audit.steps < 30:
            made.one_pass()
            made.optimizer.max_grad_norm *= 0.9
            made.model.max_grad_norm *= 0.9 if both else 1
        assert (audit.conformance().p_value >= 1e-4) == both

    def test_of_several_models_it_is_the_optimizer_s(self) -> None:
        other, made = private("sum", mode="ghost", clip=5.0), private("sum", mode="ghost")
        model = nn.ModuleList([other.model, made.model])
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0, model=model)
        while audit.steps < 30:
            made.one_pass()
        assert audit.conformance().p_value >= 1e-4

    def test_a_norm_of_gradients_that_were_thrown_away_is_forgotten(self) -> None:
        """As by a look at norms before training, clipped to ten times as much."""
        made = private("sum")
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        rows, labels = next(iter(DataLoader(digits(100), batch_size=100)))
        made.optimizer.max_grad_norm = 10.0
        made.criterion(made.model(rows), labels).backward()
        made.optimizer.clip_and_accumulate()
        made.optimizer.zero_grad()
        made.optimizer.max_grad_norm = 1.0
        while audit.steps < 30:
            made.one_pass()
        assert audit.conformance().p_value >= 1e-4

    def test_another_model_is_refused(self) -> None:
        made = private("sum", mode="ghost")
        with pytest.raises(InputError, match="model must be the one that make_private returned"):
            attach(made.optimizer, made.loader, injection="sum", canaries=100, model=nn.Linear(2, 2))

    def test_programs_are_held_against_the_norm_of_their_model(self) -> None:
        with auditing(canaries=1000, rng=0) as program:
            made = private("sum", mode="ghost")
            for _ in range(3):
                made.one_pass()
                made.optimizer.max_grad_norm *= 0.9
        report = program.report(2.0, DELTA)
        assert report.alarming
        assert "Training does NOT match what was stated: noise multiplier" in report.verdict

    @pytest.mark.parametrize("around", [lambda hook: hook, functools.partial, lambda hook: hook.__call__])
    def test_the_accountant_is_found_behind_other_hooks(self, around: Any) -> None:
        """Noise is halved while it is added, and as stated again when the accountant is told."""
        made = private("sum")
        added, told = made.optimizer.add_noise, around(made.optimizer.step_hook)

        def less() -> None:
            made.optimizer.noise_multiplier /= 2
            added()

        def hook(optimizer: Any) -> None:
            optimizer.noise_multiplier *= 2
            told(optimizer)

        made.optimizer.add_noise, made.optimizer.step_hook = less, hook
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        made.one_pass()
        said = "told noise multiplier 2.4224 where it is 1.2112"
        assert said in audit.report(2.0, DELTA).verdict

    def test_of_several_accountants_it_is_the_one_that_opacus_tells(self) -> None:
        """An earlier training's, of which a hook asks what is spent."""
        earlier, made = private("sum"), private("sum")
        earlier.one_pass()
        own, spent = made.optimizer.step_hook, earlier.engine.accountant.get_epsilon

        def hook(optimizer: Any) -> None:
            own(optimizer)
            assert spent(delta=DELTA) > 0

        made.optimizer.step_hook = hook
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        made.one_pass()
        assert audit.recording().contradictions == ()

    def test_what_a_hook_holds_is_not_followed_for_ever(self) -> None:
        made = private("sum")
        made.optimizer.step_hook = Mock()
        attach(made.optimizer, made.loader, injection="sum", canaries=500, rng=0)
        made.one_pass()

    def test_the_optimizer_resumed_after_attaching_is_reported(self) -> None:
        """Adam has a state; without one, the accountant disagrees."""
        before, made = audited("sum", steps=20, adam=True)
        kept = made.optimizer.state_dict()
        made = private("sum", adam=True)
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
        made.optimizer.load_state_dict(kept)
        with pytest.warns(AuditWarning, match="resumed after the audit was attached"):
            made.one_pass()
        with pytest.raises(InputError, match="nothing was seen after step 0"):
            audit.report(2.0, DELTA)
        made = private("sum")
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
        made.engine.accountant.history = [(before.noise_multiplier, 0.1, 20)]
        made.one_pass()
        assert "the accountant counted 30 steps, the audit saw 10" in audit.report(2.0, DELTA).verdict


class TestErrorsWhileTraining:
    def test_training_goes_on_and_the_report_says_what_it_did_not_see(self) -> None:
        """An empty batch that the script skips, with injection="rows"."""
        made = private("rows", canaries=100)
        audit = attach(made.optimizer, made.loader, injection="rows", canaries=100, rng=0)
        made.one_pass()
        with pytest.warns(AuditWarning, match="the audit ended, training goes on"):
            self.skip_a_batch(made)
        report = audit.report(2.0, DELTA)
        assert "nothing was seen after step 13" in report.facts["unseen"]
        assert audit.steps == 13

    @staticmethod
    def skip_a_batch(made: Private) -> None:
        for k, (rows, labels) in enumerate(made.loader):
            if k != 3:
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()

    def test_an_audit_that_ended_goes_on_as_ended(self) -> None:
        """A parameter was frozen; the checkpoint of that training is resumed."""
        audit, made = audited("rows", canaries=100, steps=10)
        next(made.model.parameters()).requires_grad_(False)
        with pytest.warns(AuditWarning, match="a parameter that carries canaries was frozen"):
            made.one_pass()
        again = private("rows", canaries=100)
        again.engine.accountant.load_state_dict(made.engine.accountant.state_dict())
        with pytest.warns(AuditWarning, match="had already ended: nothing was seen after step 10"):
            resumed = attach(
                again.optimizer, again.loader, injection="rows", canaries=100, state=audit.state_dict()
            )
        again.one_pass()
        assert resumed.report(2.0, DELTA).facts["unseen"] == audit.ended

    def test_an_audit_that_was_detached_goes_on(self) -> None:
        audit, made = audited("sum", canaries=100, steps=10)
        audit.detach()
        again = private("sum", canaries=100)
        again.engine.accountant.load_state_dict(made.engine.accountant.state_dict())
        resumed = attach(
            again.optimizer, again.loader, injection="sum", canaries=100, state=audit.state_dict()
        )
        again.one_pass()
        assert resumed.steps == 20

    def test_or_it_is_an_error(self) -> None:
        made = private("rows", canaries=100)
        attach(made.optimizer, made.loader, injection="rows", canaries=100, rng=0, on_error="raise")
        rows, labels = digits(400)[:8]
        made.criterion(made.model(rows), labels).backward()
        with pytest.raises(InputError, match="every batch must go through"):
            made.optimizer.step()

    def test_it_must_be_one_of_these(self) -> None:
        made = private("sum")
        with pytest.raises(InputError, match="on_error must be 'warn' or 'raise'"):
            attach(made.optimizer, made.loader, injection="sum", canaries=9, on_error="ignore")


class EachRow(nn.Module):
    """Cross-entropy of each row, to be averaged."""

    reduction = "mean"

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(answers, labels, reduction="none")


@pytest.mark.parametrize("injection", ["sum", "head"])
def test_ghost_adaptive_clipping_adds_the_noise_that_it_says(injection: str) -> None:
    """More than the accountant is told, as the count of unclipped rows takes its share."""
    torch.manual_seed(0)
    model: Any = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    dataset: Any = digits(400)
    if injection == "head":
        model, dataset = with_canary_head(model, dataset, 1000)
    engine = PrivacyEngineAdaptiveClipping(accountant="rdp")
    model, optimizer, criterion, loader = engine.make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        data_loader=DataLoader(dataset, batch_size=len(dataset) // 10),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
        criterion=EachRow(),
        target_unclipped_quantile=0.5,
        min_clipbound=0.1,
        clipbound_learning_rate=0.2,
    )
    audit = attach(optimizer, loader, injection=injection, canaries=1000, rng=0)
    while audit.steps < 50:
        for rows, labels in loader:
            criterion(model(rows), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
    report = audit.report(engine.get_epsilon(DELTA), DELTA)
    assert report.conformance is not None
    assert report.conformance.p_value > 1e-4
    assert report.contradictions == ()
    assert audit.noise_multiplier > 1.001


@pytest.mark.parametrize(("norms", "said"), [([1.0], ""), ([0.1, 10.0], "or clip norms of steps, differ")])
def test_clip_norms_that_jump_leave_canaries_unclipped(norms: list[float], said: str) -> None:
    """A head scales them by the norm of the step before; that after the last step does not matter."""
    made = private("head", canaries=200)
    audit = attach(made.optimizer, made.loader, injection="head", canaries=200, rng=0)
    for step, (rows, labels) in enumerate(made.loader):
        made.optimizer.max_grad_norm = norms[step % len(norms)]
        made.criterion(made.model(rows), labels).backward()
        made.optimizer.step()
        made.optimizer.zero_grad()
    made.optimizer.max_grad_norm = 100.0
    assert said in audit.recording().excuse
    assert bool(said) == bool(audit.recording().excuse)


class Tokens(nn.Module):
    """A model of sequences, with an answer for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, 8)
        self.answers = nn.Linear(8, TOKENS)

    def forward(self, rows: Tensor) -> Tensor:
        answers: Tensor = self.answers(self.embedding(rows))
        return answers


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
@pytest.mark.parametrize(("length", "steps"), [(32, 24), (256, 24), (1024, 8)])
@pytest.mark.parametrize("kind", ["SGD", pytest.param("AdamW", marks=pytest.mark.full)])
def test_canaries_of_long_sequences_are_clipped(length: int, steps: int, mode: str, kind: str) -> None:
    """Cross-entropy averaged over T tokens has a gradient of norm 1 / sqrt(T)."""
    torch.manual_seed(length)
    rows = torch.randint(0, TOKENS, (40, length))
    model, dataset = with_canary_head(Tokens(), TensorDataset(rows, rows), 80)
    criterion: Any = nn.CrossEntropyLoss()
    if mode == "ghost":
        criterion = nn.CrossEntropyLoss(reduction="mean")
    engine = PrivacyEngine(accountant="rdp")
    made = engine.make_private(
        module=model,
        optimizer=getattr(torch.optim, kind)(model.parameters(), lr=0.1 if kind == "SGD" else 0.001),
        data_loader=DataLoader(dataset, batch_size=30),
        noise_multiplier=0.2,
        max_grad_norm=1.0,
        grad_sample_mode=mode,
        **({"criterion": PerRow()} if mode == "ghost" else {}),
    )
    if mode == "ghost":
        private_model, optimizer, criterion, loader = made
    else:
        private_model, optimizer, loader = made
    audit = attach(optimizer, loader, injection="head", canaries=80, rng=0)
    while audit.steps < steps:
        for tokens, labels in loader:
            answers = private_model(tokens)
            if mode == "ghost":
                criterion(answers, labels).backward()
            else:
                criterion(answers.flatten(0, 1), labels.flatten()).backward()
            optimizer.step()
            optimizer.zero_grad()
    found = audit.conformance()
    assert found.p_value > 1e-4
    assert found.weight == pytest.approx(1, abs=0.3)
    assert audit.recording().contradictions == ()


class PerRow(nn.Module):
    """Cross-entropy averaged over the tokens of each row."""

    reduction = "mean"

    def forward(self, answers: Tensor, labels: Tensor) -> Tensor:
        losses = nn.functional.cross_entropy(answers.transpose(1, 2), labels, reduction="none").mean(dim=1)
        return losses if self.reduction == "none" else losses.mean()
