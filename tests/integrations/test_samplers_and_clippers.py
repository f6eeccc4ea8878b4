"""Samplers that are not Poisson's and clippers that do not clip as stated: each is found or reported."""

import re
from typing import Any

import pytest
import torch
from opacus.utils.uniform_sampler import UniformWithReplacementSampler
from torch.utils.data import DataLoader, SubsetRandomSampler

from canaria import InputError
from canaria.integrations.opacus import Audit, attach
from canaria.training.canaries.sampling import Sampling
from tests.integrations.digits import DELTA, audited, private


class Reordered(UniformWithReplacementSampler):
    """Calls itself a Poisson sampler, and shuffles, or draws the same in every pass."""

    kind = "shuffled"

    def __iter__(self) -> Any:
        batches = list(super().__iter__())
        if self.kind == "shuffled":
            order = torch.randperm(self.num_samples).tolist()
            size = self.num_samples // len(batches)
            batches = [order[k * size : (k + 1) * size] for k in range(len(batches))]
        if self.kind == "repeating":
            self.first = getattr(self, "first", batches)
            batches = self.first
        yield from batches


@pytest.mark.parametrize("injection", ["sum", "rows", "head"])
@pytest.mark.parametrize("kind", ["shuffled", "repeating"])
def test_other_batches_from_a_poisson_sampler_are_found(injection: str, kind: str) -> None:
    made = private(injection)
    sampler = made.loader.batch_sampler
    sampler.__class__, sampler.kind = Reordered, kind
    audit = attach(made.optimizer, made.loader, injection=injection, canaries=1000, rng=0)
    while audit.steps < 100:
        made.one_pass()
    found = audit.conformance()
    assert found.parts["sampling"] <= 1e-9
    assert not found.conforms
    assert "rows" in found.answer or "in common" in found.answer


def test_a_row_twice_in_a_batch_is_reported() -> None:
    made = private("sum")
    audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
    assert audit.draws.drawn() is not None
    for batch in ([3, 4], [5, 5]):
        audit.draws._batches.add(batch, audit.draws._batches.begin())
    made.one_pass()
    assert "drawn twice for one batch" in audit.report(2.0, DELTA).verdict


class TestTheClipper:
    """Each parameter is clipped to C by itself, so that a row weighs up to the root of their number."""

    @staticmethod
    def by_layer(optimizer: Any) -> None:
        def broken() -> None:
            for p in optimizer.params:
                sample = p.grad_sample.flatten(1)
                factors = (optimizer.max_grad_norm / (sample.norm(dim=1) + 1e-6)).clamp(max=1.0)
                total = (factors @ sample).view_as(p)
                p.summed_grad = total if p.summed_grad is None else p.summed_grad + total

        optimizer.clip_and_accumulate = broken

    @pytest.mark.parametrize(("injection", "weight"), [("rows", "1.41|1.73"), ("head", "1.41")])
    @pytest.mark.parametrize(("mode", "per_coordinate"), [("hooks", 1), ("functorch", 1), ("hooks", 8)])
    def test_parameters_that_are_clipped_apart_are_reported(
        self, injection: str, weight: str, mode: str, per_coordinate: int
    ) -> None:
        audit, _ = audited(
            injection, steps=20, tamper=self.by_layer, mode=mode, per_coordinate=per_coordinate
        )
        (said,) = audit.recording().contradictions
        assert re.search(f"canaries weighed ({weight})", said)
        assert "are not clipped to the clip norm as a whole" in audit.report(2.0, DELTA).verdict

    def test_what_was_reported_is_not_forgotten_at_a_checkpoint(self) -> None:
        audit, made = audited("head", steps=20, tamper=self.by_layer)
        state = audit.state_dict()
        audit.detach()
        del made.optimizer.clip_and_accumulate
        resumed = attach(made.optimizer, made.loader, injection="head", canaries=1000, state=state)
        made.one_pass()
        assert "canaries weighed 1.41" in resumed.report(2.0, DELTA).verdict

    @pytest.mark.parametrize("injection", ["rows", "head"])
    def test_no_clipping_at_all_is_reported(self, injection: str) -> None:
        def unclipped(optimizer: Any) -> None:
            optimizer.max_grad_norm, stated = 1e6, optimizer.max_grad_norm
            clip = optimizer.clip_and_accumulate

            def broken() -> None:
                optimizer.max_grad_norm = 1e6
                clip()
                optimizer.max_grad_norm = stated

            optimizer.max_grad_norm, optimizer.clip_and_accumulate = stated, broken

        audit, _ = audited(injection, steps=20, tamper=unclipped)
        assert "canaries weighed" in audit.report(2.0, DELTA).verdict


class TestSamplersAsTheyAre:
    """Canaries of `head` meet no real row, so any sampler can be audited (Theorem 33)."""

    @staticmethod
    def audited(sampling: str | Sampling, *, shuffled: bool, mode: str = "hooks", seed: int = 0) -> Audit:
        made = private("head", poisson=not shuffled, mode=mode, seed=seed, sigma=1.0)
        if shuffled:
            made.loader = DataLoader(made.loader.dataset, batch_size=140, shuffle=True)
        audit = attach(
            made.optimizer, made.loader, injection="head", canaries=1000, sampling=sampling, rng=seed
        )
        while audit.steps < 100:
            made.one_pass()
        return audit

    @pytest.mark.parametrize("mode", ["hooks", "ghost"])
    def test_shuffled_batches_conform_to_what_they_are(self, mode: str) -> None:
        audit = self.audited("shuffled", shuffled=True, mode=mode)
        result = audit.report(delta=DELTA)
        assert result.conformance is not None
        assert result.conformance.p_value > 1e-3
        assert result.contradictions == ()
        assert result.rungs == ()
        assert "(shuffled batches)" in result.facts["training"]
        assert result.bound.epsilon > 1

    def test_shuffled_batches_are_not_what_the_accountant_takes_them_for(self) -> None:
        found = self.audited("poisson", shuffled=True).conformance()
        assert found.p_value < 1e-6
        assert "they look shuffled, 10 batches to a pass" in found.answer

    def test_poisson_is_not_shuffled(self) -> None:
        audit = self.audited("shuffled", shuffled=False)
        assert "shuffled batches are stated, but a row was drawn twice" in audit.report(2.0, DELTA).verdict

    @pytest.mark.parametrize("stated", [1, 4])
    def test_accumulated_draws(self, stated: int) -> None:
        """Four Poisson draws make a step; accounted as one, that is a contradiction."""
        made = private("head", sigma=2.0, batches=8)
        audit = attach(
            made.optimizer,
            made.loader,
            injection="head",
            canaries=1000,
            sampling=Sampling("poisson", accumulated=stated),
            rng=0,
        )
        while audit.steps < 25:
            for number, (rows, labels) in enumerate(made.loader):
                made.optimizer.signal_skip_step(do_skip=number % 4 < 3)
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
        result = audit.report(delta=DELTA, rungs=False)
        assert result.conformance is not None
        if stated == 4:
            assert result.contradictions == ()
            assert result.conformance.p_value > 1e-3
        else:
            assert "without a step of their own" in result.contradictions[0]
            assert result.conformance.parts["weight"] < 1e-6

    def test_a_checkpoint_within_a_pass(self) -> None:
        made = private("head", poisson=False, sigma=1.0)
        audit = attach(
            made.optimizer, made.loader, injection="head", canaries=1000, sampling="shuffled", rng=0
        )
        made.one_pass()
        state = audit.state_dict()
        assert state["sampling"] == "shuffled batches"
        audit.load_state_dict(state)
        assert audit.steps == 10

    def test_other_injections_need_poisson(self) -> None:
        made = private("sum")
        for injection in ("sum", "rows"):
            with pytest.raises(InputError, match="goes with injection='head'"):
                attach(made.optimizer, made.loader, injection=injection, canaries=100, sampling="shuffled")
        made = private("head", per_coordinate=2)
        with pytest.raises(InputError, match="one canary per coordinate"):
            attach(
                made.optimizer,
                made.loader,
                injection="head",
                canaries=1000,
                per_coordinate=2,
                sampling="shuffled",
            )

    @pytest.mark.parametrize("peeking", ["before", "within", "evaluating", "dropping", "uneven"])
    def test_correct_loops_of_many_kinds_are_not_accused(self, peeking: str) -> None:
        """Loaders are looked into in between, evaluated on, drop their last batch, or have a small one."""
        made = private("head", poisson=False, sigma=1.0)
        size = {"dropping": 150, "uneven": 150}.get(peeking, 140)
        made.loader = DataLoader(
            made.loader.dataset, batch_size=size, shuffle=True, drop_last=peeking == "dropping"
        )
        audit = attach(
            made.optimizer, made.loader, injection="head", canaries=1000, sampling="shuffled", rng=0
        )
        for _ in range(3):
            if peeking == "before":
                next(iter(made.loader))
        for _ in range(6):
            for number, (rows, labels) in enumerate(made.loader):
                if peeking == "within" and number == 3:
                    next(iter(made.loader))
                if peeking == "evaluating" and number == 5:
                    assert len(list(made.loader)) == 10
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
        result = audit.report(delta=DELTA)
        assert result.contradictions == ()
        assert result.conformance is not None
        assert result.conformance.p_value > 1e-3

    def test_passes_that_are_left_early_are_not_judged(self) -> None:
        made = private("head", poisson=False, sigma=1.0)
        audit = attach(
            made.optimizer, made.loader, injection="head", canaries=1000, sampling="shuffled", rng=0
        )
        for _ in range(4):
            for number, (rows, labels) in enumerate(made.loader):
                if number == 8:
                    break
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
        result = audit.report(delta=DELTA)
        assert result.conformance is None
        assert "left before their end" in result.facts["conformance"]
        assert result.contradictions == ()

    def test_rows_that_are_never_drawn_are_refused(self) -> None:
        made = private("head", poisson=False)
        some = SubsetRandomSampler(range(300, 1400))
        loader = DataLoader(made.loader.dataset, batch_size=140, sampler=some)
        with pytest.raises(InputError, match="data_loader must sample from all 1400 rows"):
            attach(made.optimizer, loader, injection="head", canaries=1000, sampling="shuffled")

    @pytest.mark.parametrize("wrong", [{"batch_size": None}, {"batch_sampler": [[1, 2], [3]]}])
    def test_loaders_without_a_sampler_are_one_line(self, wrong: dict[str, Any]) -> None:
        made = private("head", poisson=False)
        loader = DataLoader(made.loader.dataset, **wrong)
        with pytest.raises(InputError, match="whose number of batches is known"):
            attach(made.optimizer, loader, injection="head", canaries=1000, sampling="shuffled")

    def test_a_poisson_loader_that_is_looked_into_is_not_accused(self) -> None:
        made = private("sum")
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=1000, rng=0)
        for _ in range(3):
            for number, (rows, labels) in enumerate(made.loader):
                if number == 3:
                    next(iter(made.loader))
                made.criterion(made.model(rows), labels).backward()
                made.optimizer.step()
                made.optimizer.zero_grad()
        assert audit.report(delta=DELTA, rungs=False).contradictions == ()
