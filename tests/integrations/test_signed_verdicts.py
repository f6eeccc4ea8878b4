"""A green verdict means that nothing which the audit could have known contradicts it.

Every fault here once passed with "training matches what was stated" and exit code 0. Every correct training
here does something that looks like a fault and is none.
"""

import copy
import warnings
from typing import Any

import numpy as np
import opacus.optimizers.optimizer as opacus_noise
import pytest
import torch
from torch import nn
from torch.utils.data import ConcatDataset, Subset, TensorDataset

from canaria.evidence import AuditWarning
from canaria.integrations.opacus import auditing
from canaria.integrations.opacus._samplers import copies_of_rows
from tests.integrations.small import DELTA, Training


@pytest.fixture(scope="module")
def correct() -> Training:
    return Training().attach().train()


class TestClaims:
    def test_more_epochs_than_were_claimed(self, correct: Training) -> None:
        """The claim is for one epoch; training made two."""
        once = Training().attach().train(epochs=1).engine.get_epsilon(DELTA)
        result = correct.report(once)
        assert result.alarming
        assert str(result).splitlines()[0].startswith("training was NOT what was stated: the claim is ε = ")
        assert "but 40 steps with noise multiplier 1 and sample rate 0.05 have ε ≥" in result.verdict
        assert "matches" not in str(result)

    def test_a_claim_at_another_delta(self, correct: Training) -> None:
        assert correct.report(correct.engine.get_epsilon(1e-2)).alarming

    def test_noise_that_falls_without_a_word(self) -> None:
        def scheduled(training: Training) -> None:
            training.optimizer.noise_multiplier = 1.0 - 0.015 * training.steps

        start = Training().attach().train().engine.get_epsilon(DELTA)
        training = Training().attach().train(between=scheduled)
        result = training.report(start)
        assert "noise multiplier 0.415 to 1" in result.contradictions[0]
        # The accountant was told of every step: its own claim holds.
        assert not training.report().contradictions

    def test_an_accountant_of_ones_own_that_was_not_told(self) -> None:
        training = Training().attach()
        training.optimizer.step_hook = None
        assert training.train().report(1.0).alarming

    def test_a_claim_by_a_tighter_accountant_holds(self, correct: Training) -> None:
        """The engine's accountant is not the tightest; claims may be rounded."""
        run = correct.audit.recording()
        tight = run.promise_of(1.0).epsilon_at(DELTA)
        assert not correct.report(tight).alarming
        assert not correct.report(round(tight, 2)).alarming


class TestWeights:
    def test_a_layer_under_a_plain_optimizer(self) -> None:
        training = Training(frozen_head=True).attach()
        result = training.train(between=lambda this: this.plain.step()).report()
        assert result.alarming
        assert (
            "1.weight, 1.bias changed during training without being trained by the private" in result.verdict
        )

    def test_plain_steps_between_private_epochs(self) -> None:
        training = Training().attach().train(epochs=1)
        training.model.disable_hooks()
        features, labels = training.rows.tensors
        nn.functional.cross_entropy(training.net(features), labels).backward()
        torch.optim.SGD(training.net.parameters(), lr=0.1).step()
        training.model.enable_hooks()
        result = training.train(epochs=1).report()
        assert "changed after step 20 by something other than the private optimizer" in result.verdict
        assert result.alarming

    @pytest.mark.parametrize("known", [True, False])
    def test_a_nudge_of_one_weight(self, known: bool) -> None:
        def nudge(training: Training) -> None:
            if training.steps == 17:
                training.body[0].weight.data[3, 3] += 1e-6

        training = Training()
        training.attach(model=training.model if known else None).train(between=nudge)
        result = training.report()
        name = "0.0.weight" if known else "parameter 1 of 4 (64 x 20)"
        assert f"{name} changed after step 17" in result.contradictions[0]
        assert ("weights" in result.coverage.split("not tested")[0]) is known

    def test_no_upper_end_where_something_else_moved(self) -> None:
        def nudge(training: Training) -> None:
            training.body[0].bias.data += 1e-3

        training = Training().attach().train(between=nudge)
        last = training.audit.report(training.engine.get_epsilon(DELTA), DELTA).rungs[-1]
        assert last.most is None
        assert "0.0.bias changed" in last.withdrawn

    def test_correct_habits_are_not_accused(self) -> None:
        """Averages swapped in for an evaluation, a schedule, a return to an earlier checkpoint."""
        training = Training().attach()
        average = copy.deepcopy(training.net.state_dict())
        schedule = torch.optim.lr_scheduler.StepLR(training.optimizer, 5)
        kept: dict[str, Any] = {}

        def habits(this: Training) -> None:
            for name, value in this.net.state_dict().items():
                average[name].lerp_(value, 0.1)
            own = copy.deepcopy(this.net.state_dict())
            this.net.load_state_dict(average)
            this.net.load_state_dict(own)
            schedule.step()
            if this.steps == 10:
                kept.update(own)
            if this.steps == 15:
                this.net.load_state_dict(kept)

        training.net.load_state_dict(training.net.state_dict())
        result = training.train(between=habits).report()
        assert not result.alarming
        assert not result.contradictions

    def test_weights_that_change_at_the_end_are_noted(self) -> None:
        """They may be averages, so there is no alarm; but they may have been trained further."""
        training = Training().attach().train(epochs=1)
        training.body[0].weight.data += 1.0
        result = training.report()
        assert result.remarks[0].startswith(
            "0.0.weight changed after the last private step, which leaks without limit unless"
        )
        assert "matches what was stated" not in str(result)
        last = training.audit.report(2.0, DELTA).rungs[-1]
        assert last.most is None
        assert last.withdrawn.startswith("0.0.weight changed")

    def test_weights_that_the_step_hook_changes(self) -> None:
        """Between the moment when the audit reads the gradient and the update."""
        training = Training().attach()
        weight, count = training.body[0].weight, training.optimizer.step_hook
        training.optimizer.attach_step_hook(lambda own: (count(own), weight.data.add_(weight.summed_grad)))
        (fault,) = training.train(epochs=1).report().contradictions
        assert fault.startswith("0.0.weight changed after step 1 by something other than the private")

    def test_frozen_weights_that_change_are_noted(self) -> None:
        training = Training(frozen_head=True, trainable_head=False)
        training.attach(canaries=200).train(epochs=1, between=lambda this: this.head.weight.data.add_(1.0))
        (note,) = training.report().remarks
        assert note.startswith("1.weight, not trained by the private optimizer, changed during training")

    @pytest.mark.parametrize("by", ["in place", "data", "step hook"])
    def test_gradients_that_another_hook_changes(self, by: str) -> None:
        training = Training().attach()
        weight = training.body[0].weight

        def mixed(*_: Any) -> None:
            (weight.grad.data if by == "data" else weight.grad).add_(weight.summed_grad)

        if by == "step hook":
            count = training.optimizer.step_hook
            training.optimizer.attach_step_hook(lambda own: (count(own), mixed()))
        else:
            training.optimizer.original_optimizer.register_step_pre_hook(mixed)
        result = training.train(epochs=1).report()
        (fault,) = result.contradictions
        assert fault.startswith("a hook of the optimizer changed gradients after noise was added, first in")
        assert result.alarming

    @pytest.mark.parametrize(
        "kind",
        [
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, foreach=True),
            lambda p: torch.optim.Adagrad(p, lr=0.1),
            lambda p: torch.optim.Adam(p, lr=0.01, foreach=True, weight_decay=0.1),
        ],
        ids=["nesterov", "adagrad", "adam"],
    )
    def test_optimizers_may_change_gradients_in_their_own_step(self, kind: Any) -> None:
        result = Training(kind=kind).attach().train().report()
        assert not result.alarming
        assert result.remarks == ()

    def test_functions_of_the_weights_are_declared(self) -> None:
        """Clamping discloses nothing; the audit cannot know, so the program says so."""

        def clamped(training: Training) -> None:
            training.body[0].weight.data.clamp_(-0.1, 0.1)

        told = Training().attach(changes_weights=True).train(between=clamped).report()
        assert not told.alarming
        assert told.remarks[0].startswith(
            "0.0.weight changed after step 1 by something other than the private"
        )
        assert "matches" not in str(told)
        (fault,) = Training().attach().train(between=clamped).report().contradictions
        assert fault.endswith("if so, say changes_weights=True when you attach")

    def test_what_was_noted_before_a_checkpoint_stays(self) -> None:
        def clamped(training: Training) -> None:
            training.body[0].weight.data.clamp_(-0.1, 0.1)

        training = Training().attach(changes_weights=True).train(epochs=1, between=clamped)
        state = training.audit.state_dict()
        training.audit.detach()
        training.attach(changes_weights=True, state=state).train(epochs=1)
        assert "changed after step 1 by something other" in training.report().remarks[0]

    def test_an_audit_that_ended_by_itself_is_not_green(self) -> None:
        def past(training: Training) -> None:
            if training.steps == 10:
                training.optimizer.original_optimizer.step()

        with pytest.warns(AuditWarning, match="the audit ended"):
            training = Training().attach().train(between=past)
        result = training.report()
        assert result.alarming
        assert "the audit ended before training did" in str(result).splitlines()[0]

    def test_buffers_have_a_message_of_their_own(self) -> None:
        training = Training()
        training.net.register_buffer("running_mean", torch.zeros(3))
        training.attach().train(between=lambda this: this.net.running_mean.add_(1.0))
        result = training.report()
        assert not result.alarming
        assert result.remarks == (
            "running_mean changed during training: buffers get no noise, so ε does not cover them",
        )
        assert str(result).splitlines()[0].startswith("note: running_mean")


class TestSettings:
    def test_a_clip_norm_that_the_data_decide_is_noted(self) -> None:
        def by_data(training: Training) -> None:
            training.optimizer.max_grad_norm = 1.0 + 0.1 * (training.steps % 3)

        result = Training().attach().train(between=by_data).report()
        assert result.remarks[0].startswith("the clip norm changed 39 times (1 to 1.2), which leaks")
        assert "matches" not in str(result)

    def test_a_large_delta_is_noted(self, correct: Training) -> None:
        assert correct.report(5.0, 0.02).remarks == (
            "δ = 0.02 is not below 1/1000: it permits publishing a row chosen at random",
        )

    def test_rows_that_are_listed_several_times_are_noted(self) -> None:
        rows = Subset(Training().rows, [*range(1000), *range(50), *range(50)])
        assert copies_of_rows(rows) == 3
        assert copies_of_rows(ConcatDataset([rows, rows])) == 6
        assert copies_of_rows(ConcatDataset([rows.dataset, Subset(rows.dataset, range(9))])) == 2
        assert copies_of_rows(ConcatDataset([rows.dataset, TensorDataset(torch.zeros(3))])) == 1
        assert copies_of_rows(Subset(ConcatDataset([rows, rows]), range(1000))) == 1


class TestNoise:
    def test_noise_in_half_precision(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = opacus_noise._generate_noise
        monkeypatch.setattr(opacus_noise, "_generate_noise", lambda *a, **k: own(*a, **k).half().float())
        found = [Training(seed=seed).attach(rng=seed).train(1).audit.conformance() for seed in range(3)]
        assert all(one.p_value < 1e-9 for one in found)
        assert all(list(one.failures) == ["ties"] for one in found)

    @pytest.mark.parametrize("bits", [8, 10, 12])
    def test_few_seeds(self, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
        coins = np.random.default_rng(bits)

        def seeded(std: float, reference: Any, generator: Any = None, secure_mode: bool = False) -> Any:
            own = torch.Generator().manual_seed(int(coins.integers(2**bits)))
            return torch.normal(0.0, std, reference.shape, generator=own)

        monkeypatch.setattr(opacus_noise, "_generate_noise", seeded)
        result = Training().attach().train(epochs=4).report()
        assert "pairs of noise tensors begin with the same values" in result.verdict
        assert result.alarming

    def test_more_noise_than_stated_is_told_from_less(self, monkeypatch: pytest.MonkeyPatch) -> None:
        own = opacus_noise._generate_noise
        monkeypatch.setattr(opacus_noise, "_generate_noise", lambda *a, **k: 1.5 * own(*a, **k))
        result = Training().attach().train().report()
        assert "(costs accuracy if this is noise, and leaks if it is data)" in result.verdict
        assert "noise multiplier 1.5, stated 1" in result.verdict
        assert "leaks more" not in result.verdict

    def test_noise_in_every_fourth_step(self) -> None:
        training = Training().attach()
        own = training.optimizer.add_noise

        def sometimes() -> None:
            own()
            if training.steps % 4:
                for p in training.optimizer.params:
                    p.grad = p.summed_grad.clone()

        training.optimizer.add_noise = sometimes
        result = training.train().report()
        assert "from step 2 on, 30 of 40 steps have no noise: ε is unbounded" in str(result).splitlines()[0]
        assert result.alarming


class Preconditioned(torch.optim.SGD):
    """Divides by the size of the sum before noise; `harmless` only asks for its shape."""

    harmless = False

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            for parameter in group["params"]:
                clean = parameter.summed_grad
                parameter.grad /= clean.shape.numel() if self.harmless else 1 + clean.abs()
        return super().step(closure)


@pytest.mark.parametrize("harmless", [True, False])
def test_an_update_that_reads_gradients_without_noise_is_noted(harmless: bool) -> None:
    kind = type("Own", (Preconditioned,), {"harmless": harmless})
    text = str(Training(kind=lambda p: kind(p, lr=0.1)).attach().train(epochs=1).report())
    assert ("the wrapped optimizer read gradients without noise, first in step 1" in text) != harmless
    assert ("training matches" in text) == harmless


class TestCoverage:
    def test_the_headline_says_what_was_tested(self, correct: Training) -> None:
        result = correct.report()
        lines = str(result).splitlines()
        assert lines[1] == (
            "tested: sampling, noise, accounting, weights; not tested: clipping (canaries join the sum after it), "
            "isolation (whether a row changes what others contribute: see check_isolation), other uses of the "
            "data (preprocessing, repeated or kept rows, first weights, chosen settings and checkpoints, "
            "later training), randomness (a full, secret seed)"
        )
        assert lines.index(lines[1]) < next(i for i, line in enumerate(lines) if "matches" in line)

    def test_trainings_that_were_not_audited_are_listed(self) -> None:
        with auditing(canaries=300, rng=0) as audit:
            first = Training().train()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Opacus notices the new data set
                Training(seed=1, noise=0.25, engine=first.engine).train(epochs=1)
        (result,) = audit.reports(delta=DELTA, rungs=False)
        assert any("another training of this program was not audited" in one for one in result.contradictions)
        assert result.alarming
