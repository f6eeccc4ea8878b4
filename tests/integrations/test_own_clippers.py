"""Clippers and samplers that a program wrote itself: correct ones are not accused, wrong ones are found.

False alarms: 1e-4 to a correct training, with seeds that are fixed.
"""

import copy
import math
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import BatchSampler, DataLoader, RandomSampler, Sampler

from canaria import InputError
from canaria.integrations.opacus import attach
from canaria.integrations.opacus._probes import faults_of_clipper
from canaria.training import Dense
from canaria.training.conformance.clipping import PROBES
from tests.integrations.digits import DELTA, audited, private
from tests.integrations.samplers import Poisson, Shuffled

CANARIES = 400


class Clipper:
    """Clips each gradient by factors of its own, and counts how often it is called."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, optimizer: Any) -> None:
        optimizer.batches_clipped = 0

        def clip() -> None:
            optimizer.batches_clipped += 1
            own = [p.grad_sample.flatten(1).norm(dim=1) for p in optimizer.params]
            whole = torch.stack(own).norm(dim=0)
            for p, norm in zip(optimizer.params, own, strict=True):
                p.grad_sample *= self.factors(optimizer, norm, whole).view(-1, *[1] * p.dim())
                total = p.grad_sample.sum(0)
                p.summed_grad = total if p.summed_grad is None else p.summed_grad + total

        optimizer.clip_and_accumulate = clip

    def factors(self, optimizer: Any, norm: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
        clip_norm = optimizer.max_grad_norm
        if self.kind == "automatic":
            return clip_norm / (whole + 0.01 * clip_norm)
        if self.kind == "by parameter":
            return (clip_norm / math.sqrt(len(optimizer.params)) / (norm + 1e-6)).clamp(max=1.0)
        if self.kind == "boosting":  # canaries, of 10 clip norms, are clipped correctly
            return clip_norm * torch.where(whole < 5 * clip_norm, 2.0, 1.0) / whole.clamp(min=1e-9)
        return torch.full_like(norm, 3.0)


class TestClippersOfTheProgram:
    @pytest.mark.parametrize("physical", [None, 17])
    @pytest.mark.parametrize("injection", ["rows", "head"])
    @pytest.mark.parametrize("kind", ["automatic", "by parameter"])
    def test_correct_ones_are_not_accused(self, kind: str, injection: str, physical: int | None) -> None:
        """Gradients are below the clip norm, to which automatic clipping scales them, or above it."""
        clip = 20.0 if kind == "automatic" else 0.2
        how: dict[str, Any] = {"steps": 30, "tamper": Clipper(kind), "physical": physical, "clip": clip}
        audit, made = audited(injection, canaries=CANARIES, sigma=0.5, **how)
        assert audit.recording().contradictions == ()
        assert audit.conformance().p_value >= 1e-4
        assert physical or made.optimizer.batches_clipped == audit.steps

    @pytest.mark.parametrize("later", [True, False])
    def test_without_clipping_they_are_found(self, later: bool) -> None:
        """Put in its place before the audit was attached, or after."""
        made = private("rows", canaries=CANARIES)
        unclipped = Clipper("unclipped")
        if not later:
            unclipped(made.optimizer)
        audit = attach(made.optimizer, made.loader, injection="rows", canaries=CANARIES, rng=0)
        if later:
            unclipped(made.optimizer)
        made.one_pass()
        assert "canaries weighed 30 clip norms" in audit.report(2.0, DELTA, rungs=False).verdict

    @pytest.mark.parametrize("batch", [1, len(PROBES), len(PROBES) + 2])
    def test_factors_of_a_real_batch_are_no_fault(self, batch: int) -> None:
        """A correct clipper that computes them elsewhere, for the rows of the last batch."""
        optimizer: Any = private("sum", canaries=CANARIES).optimizer
        factors = torch.full((batch,), 0.01)

        def clip() -> None:
            for p in optimizer.params:
                p.summed_grad = (factors.view(-1, *[1] * p.dim()) * p.grad_sample).sum(0)

        optimizer.clip_and_accumulate = clip
        assert faults_of_clipper(optimizer) == ()

    def test_trying_a_clipper_changes_nothing(self) -> None:
        """Nor do random numbers that it draws: weights are the same with and without a report."""

        def tamper(optimizer: Any) -> None:
            Clipper("automatic")(optimizer)
            own = optimizer.clip_and_accumulate

            def clip() -> None:
                own()
                for p in optimizer.params:
                    p.summed_grad = p.summed_grad * (torch.rand(()) < 2)

            optimizer.clip_and_accumulate = clip

        weights = []
        for reports in (False, True):
            made = private("sum", canaries=CANARIES)
            tamper(made.optimizer)
            audit = attach(made.optimizer, made.loader, injection="sum", canaries=CANARIES, rng=0)
            torch.manual_seed(1)
            made.one_pass()
            if reports:
                assert audit.recording().contradictions == ()
            made.one_pass()
            weights.append(made.optimizer.params[0].detach().clone())
        assert torch.equal(*weights)

    @pytest.mark.parametrize("injection", ["sum", "rows"])
    def test_rows_that_are_scaled_up_are_found(self, injection: str) -> None:
        audit, _ = audited(injection, canaries=CANARIES, steps=3, tamper=Clipper("boosting"))
        first = audit.report(2.0, DELTA, rungs=False).contradictions[0]
        assert first.startswith("the clipper made 2 clip norms of a gradient of ")

    @pytest.mark.parametrize("kind", ["automatic", "by parameter"])
    def test_half_of_the_noise_is_found_all_the_same(self, kind: str) -> None:
        def tamper(optimizer: Any) -> None:
            Clipper(kind)(optimizer)
            optimizer.noise_multiplier /= 2

        audit, made = audited("rows", canaries=CANARIES, steps=30, tamper=tamper, stated=2.4224)
        assert made.optimizer.noise_multiplier == 2.4224 / 2
        assert audit.conformance().p_value <= 1e-6

    def test_dense_canaries_that_weigh_less(self) -> None:
        audit, _ = audited("rows", canaries=Dense(200, 400), steps=30, tamper=Clipper("by parameter"))
        assert audit.conformance().p_value >= 1e-4
        assert "dense canaries overlap" in audit.report(2.0, DELTA, rungs=False).tested["clipping"]

    def test_a_checkpoint_knows_what_canaries_weighed(self) -> None:
        audit, _ = audited("rows", canaries=CANARIES, steps=20, tamper=Clipper("by parameter"))
        before = audit.recording().rounding
        audit.load_state_dict(audit.state_dict())
        after = audit.recording().rounding
        assert before is not None
        assert after is not None
        assert after.shift == pytest.approx(before.shift, abs=1e-5)


class TestGhostClipping:
    """With `sum` canaries are not clipped, but rows must not add more than a clip norm each."""

    @staticmethod
    def audited(fault: str, *, model: bool = True) -> Any:
        made = private("sum", canaries=CANARIES, mode="ghost", criterion=_Steep(reduction="mean"))
        if fault == "unclipped":
            made.model.get_clipping_coef = lambda: torch.ones_like(made.model.get_norm_sample())
        if fault == "raised":
            made.model.max_grad_norm = 50.0
        seen = made.model if model else None
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=CANARIES, rng=0, model=seen)
        made.one_pass()
        return audit.report(2.0, DELTA, rungs=False)

    @pytest.mark.parametrize("model", [True, False])
    @pytest.mark.parametrize("fault", ["none", "unclipped", "raised"])
    def test_rows_that_are_not_clipped_are_found(self, fault: str, model: bool) -> None:
        result = self.audited(fault, model=model)
        found = " ".join(result.contradictions)
        if fault == "none":
            assert found == ""
        elif fault == "unclipped" or not model:
            assert "clip norms per row" in found
        assert result.alarming == (fault != "none")
        assert ("model=model" in result.tested["clipping"]) != model

    @pytest.mark.parametrize("injection", ["sum", "head"])
    @pytest.mark.parametrize("change", ["none", "scaled", "replaced"])
    def test_sums_that_change_before_the_noise_are_noted(self, change: str, injection: str) -> None:
        """With ghost clipping they wait in `grad` for the optimizer."""
        made = private(injection, canaries=CANARIES, mode="ghost")
        audit = attach(
            made.optimizer, made.loader, injection=injection, canaries=CANARIES, rng=0, model=made.model
        )
        weight = made.optimizer.params[0]
        for rows, labels in made.loader:
            made.optimizer.zero_grad()
            made.criterion(made.model(rows), labels).backward()
            if change == "scaled":
                weight.grad *= 3
            elif change == "replaced":
                weight.grad = weight.grad + 1
            made.optimizer.step()
        text = str(audit.report(delta=DELTA, rungs=False))
        assert ("changed between clipping and noise, first in step 1" in text) == (change != "none")
        assert ("training matches" in text) == (change == "none")
        copied = copy.deepcopy(made.model)  # for averages of weights
        assert copied.enable_hooks.__self__ is copied
        audit.detach()
        assert "enable_hooks" not in vars(made.model)

    def test_a_method_of_the_program_s_own_is_put_back(self) -> None:
        made = private("sum", canaries=CANARIES, mode="ghost")
        own = made.model.enable_hooks = made.model.enable_hooks
        audit = attach(
            made.optimizer, made.loader, injection="sum", canaries=CANARIES, rng=0, model=made.model
        )
        assert made.model.enable_hooks is not own
        audit.detach()
        assert made.model.enable_hooks is own

    def test_a_model_that_is_not_seen_is_named(self) -> None:
        said = self.audited("none", model=False).tested["clipping"]
        assert "with ghost clipping the model clips" in said


class _Steep(torch.nn.CrossEntropyLoss):
    """Has gradients far above the clip norm."""

    def forward(self, answers: Any, labels: Any) -> Any:
        return 50 * super().forward(answers, labels)


class TestWhatIsRounded:
    def test_a_short_last_batch_and_a_pass_that_is_not_over(self) -> None:
        """A row is in the first of two batches with probability 0.71, since the last one is small."""
        made = private("head", poisson=False, sigma=0.1)
        loader = DataLoader(made.loader.dataset, batch_size=1000, shuffle=True)
        audit = attach(made.optimizer, loader, injection="head", canaries=1000, sampling="shuffled", rng=0)
        while audit.steps < 9:
            for rows, labels in loader:
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
                if audit.steps == 9:
                    break
        assert audit.conformance().p_value >= 1e-4

    @pytest.mark.parametrize("injection", ["sum", "rows", "head"])
    def test_noise_that_single_precision_rounds(self, injection: str) -> None:
        audit, _ = audited(injection, canaries=CANARIES, steps=20, sigma=3e-6)
        result = audit.report(delta=DELTA, rungs=False)
        assert result.conformance is None
        assert "times as large as the noise" in result.facts["conformance"]
        audit, _ = audited(injection, canaries=CANARIES, steps=20, sigma=3e-3)
        assert audit.conformance().p_value >= 1e-4

    def test_a_checkpoint_knows_what_was_rounded(self) -> None:
        audit, _ = audited("sum", canaries=CANARIES, steps=10, sigma=3e-6)
        before = audit.recording().excuse
        audit.load_state_dict(audit.state_dict())
        assert audit.recording().excuse == before != ""


class AuthorSampler(Sampler[list[int]]):
    """One row of each author that another sampler draws, in turn; as in dp-transformers."""

    def __init__(self, author_sampler: Any, author_mapping: list[list[int]]) -> None:
        self.author_mapping, self.author_sampler = author_mapping, author_sampler
        self.indices = [0] * len(author_mapping)

    def __len__(self) -> int:
        return len(self.author_sampler)

    def __iter__(self) -> Iterator[list[int]]:
        for authors in self.author_sampler:
            rows = [self.author_mapping[one][self.indices[one]] for one in authors]
            for one in authors:
                self.indices[one] = (self.indices[one] + 1) % len(self.author_mapping[one])
            yield rows


class TestSamplersOfTheProgram:
    @staticmethod
    def audited(sampler: Any, injection: str = "sum", *, steps: int = 60) -> Any:
        made = private(injection, canaries=CANARIES, poisson=False)
        made.loader = DataLoader(made.loader.dataset, batch_sampler=sampler)
        audit = attach(made.optimizer, made.loader, injection=injection, canaries=CANARIES, rng=0)
        torch.manual_seed(0)
        while audit.steps < steps:
            made.one_pass()
        return audit

    @pytest.mark.parametrize("injection", ["sum", "head"])
    def test_what_is_drawn_by_coins_conforms(self, injection: str) -> None:
        rows = 400 + CANARIES * (injection == "head")
        audit = self.audited(Poisson(rows, 10), injection)
        result = audit.report(delta=DELTA, rungs=False)
        assert audit.sample_rate == 0.1
        assert result.contradictions == ()
        assert result.conformance is not None
        assert result.conformance.parts["sampling"] > 1e-4
        assert result.conformance.p_value >= 1e-4

    def test_what_is_not_is_found(self) -> None:
        found = self.audited(Shuffled(400, 10)).conformance()
        assert found.parts["sampling"] <= 1e-6
        assert "they look shuffled" in found.causes["sampling"].text

    @pytest.mark.parametrize("authors", [400, 100])
    def test_authors_are_what_is_drawn(self, authors: int) -> None:
        """Each has one row, as where dp-transformers is given no authors, or four."""
        mapping = [list(range(first, 400, authors)) for first in range(authors)]
        drawing = UniformWithReplacementSampler(num_samples=authors, sample_rate=0.1)
        audit = self.audited(AuthorSampler(drawing, mapping))
        assert audit.sample_rate == 0.1
        drawn = audit.recording().drawn
        assert drawn is not None
        assert drawn.rows == authors
        assert audit.conformance().parts["sampling"] > 1e-4
        assert audit.recording().contradictions == ()

    def test_shuffled_authors_are_refused_before_training(self) -> None:
        mapping = [[row, row + 200] for row in range(200)]
        shuffled = BatchSampler(RandomSampler(mapping), batch_size=20, drop_last=True)
        with pytest.raises(InputError, match=r"must sample by Poisson.* got AuthorSampler"):
            self.audited(AuthorSampler(shuffled, mapping))

    def test_canary_rows_need_coins_for_certain(self) -> None:
        with pytest.raises(InputError, match="samplers of your own also with 'sum'"):
            self.audited(Poisson(800, 10), "rows")

    def test_one_without_a_length_is_refused(self) -> None:
        with pytest.raises(InputError, match="whose number of batches is known"):
            self.audited([[0, 1], [2, 3]])


class TestAdaptiveClipping:
    HOW: ClassVar[dict[str, Any]] = {
        "clipping": "adaptive",
        "target_unclipped_quantile": 0.5,
        "clipbound_learning_rate": 0.2,
        "max_clipbound": 1e8,
        "min_clipbound": 0.01,
        "unclipped_num_std": 5.0,
    }

    @pytest.mark.parametrize("seed", [0, 1])
    def test_correct_training_is_not_accused(self, seed: int) -> None:
        audit, made = audited("sum", canaries=CANARIES, steps=60, seed=seed, **self.HOW)
        assert float(made.optimizer.max_grad_norm) != 1.0
        assert audit.recording().contradictions == ()
        assert audit.conformance().p_value >= 1e-4
        assert audit.noise_multiplier > made.optimizer.noise_multiplier

    def test_noise_that_leaves_nothing_for_the_count_is_found(self) -> None:
        """As if it were flat: the multiplier that the accountant is told, not the larger one."""

        def tamper(optimizer: Any) -> None:
            optimizer.unclipped_num_std = 1.3
            added = optimizer.add_noise

            def flat() -> None:
                optimizer.unclipped_num_std, stated = 1e9, optimizer.unclipped_num_std
                added()
                optimizer.unclipped_num_std = stated

            optimizer.add_noise = flat

        audit, _ = audited("sum", canaries=CANARIES, steps=30, tamper=tamper, **self.HOW)
        assert audit.conformance().p_value <= 1e-6

    @pytest.mark.parametrize("injection", ["rows", "head"])
    def test_canary_rows_would_be_counted(self, injection: str) -> None:
        made = private(injection, canaries=CANARIES, **self.HOW)
        with pytest.raises(InputError, match="canary rows would count among them; use injection='sum'"):
            attach(made.optimizer, made.loader, injection=injection, canaries=CANARIES)


def test_methods_that_are_replaced_after_attaching_are_followed() -> None:
    made = private("sum")
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=CANARIES, rng=0, on_error="raise")
    own = type(made.optimizer)
    made.optimizer.add_noise = own.add_noise.__get__(made.optimizer)
    while audit.steps < 30:
        made.one_pass()
    assert audit.conformance().p_value >= 1e-4
    audit.detach()
    assert made.optimizer.add_noise.__func__ is own.add_noise
    assert made.optimizer.pre_step.__func__ is own.pre_step
