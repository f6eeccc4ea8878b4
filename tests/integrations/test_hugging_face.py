"""Canaries in models of Hugging Face, and the callback, under a real Trainer."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from canaria import InputError
from canaria.integrations.hugging_face import CanaryAudit
from canaria.integrations.opacus import with_canary_head
from canaria.training import Watch
from tests.integrations.trainers import Sentences, gpt2, llama, made, with_adapters

pytestmark = pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing.*:FutureWarning")
MODELS = {
    "llama": llama,
    "llama with LoRA": lambda: with_adapters(llama()),
    "gpt2 with LoRA": lambda: with_adapters(gpt2()),
}


def audited(
    name: str, folder: Path, seed: int = 0, *, ghost: bool = False, noise: float = 0.2, **how: Any
) -> CanaryAudit:
    torch.manual_seed(seed)
    model, rows = with_canary_head(MODELS[name](), Sentences(), 400)
    callback = CanaryAudit(injection="head", canaries=400, rng=seed, **how)
    built = made(model, rows, folder, callback, ghost=ghost, noise=noise)
    built.trainer.train()
    return callback


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 5))])
@pytest.mark.parametrize("ghost", [False, True], ids=["hooks", "ghost"])
@pytest.mark.parametrize("name", MODELS)
def test_head_exercises_the_clipper_of_models_that_compute_their_loss(
    name: str, ghost: bool, seed: int, tmp_path: Path
) -> None:
    found = audited(name, tmp_path, seed, ghost=ghost).audit.conformance()
    assert found.p_value > 1e-3, found
    assert found.weight == pytest.approx(1.0, abs=0.2)


def test_a_row_that_is_clipped_to_twice_the_norm_is_found(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, rows = with_canary_head(with_adapters(llama()), Sentences(), 400)
    callback = CanaryAudit(injection="head", canaries=400, rng=0)
    built = made(model, rows, tmp_path, callback, noise=0.5)
    optimizer = built.trainer.optimizer
    clip = optimizer.clip_and_accumulate

    def looser() -> None:
        optimizer.max_grad_norm = 2.0
        clip()
        optimizer.max_grad_norm = 1.0

    optimizer.clip_and_accumulate = looser
    built.trainer.train()
    found = callback.audit.conformance()
    assert found.p_value < 1e-6
    assert any("clip norm" in one for one in callback.audit.report(delta=1e-5).contradictions)


class TestHead:
    """What the head asks of models and batches, in a line each."""

    def test_model_stays_what_it_is(self) -> None:
        model = llama().eval()
        batch = {"input_ids": Sentences().tokens[:3]}
        before = model(**batch).logits
        headed, rows = with_canary_head(model, Sentences(), 10)
        assert headed is model
        assert (model(**batch).logits == before).all()
        places = np.argsort(rows.rows)
        assert rows[places[0]]["canary"] == -1
        assert rows[places[len(Sentences()) + 4]]["canary"] == 4

    def test_canary_rows_have_a_gradient_in_the_embedding_alone(self) -> None:
        model, rows = with_canary_head(llama().train(), Sentences(), 10)
        canaries = model.canaria_canaries
        canaries.included.fill_(1.0)
        canaries.scale.strength = 10.0
        row = rows[np.argsort(rows.rows)[len(Sentences()) + 4]]
        batch = {name: torch.as_tensor(row[name])[None] for name in row}
        model(**batch).loss.backward()
        for name, parameter in model.named_parameters():
            touched = parameter.grad is not None and bool((parameter.grad != 0).any())
            assert touched == name.startswith("canaria_canaries"), name
        assert [int(part.weight.grad.nonzero()[0, 0]) for part in canaries.parts] == [4, 4]

    def test_batches_must_say_who_is_a_canary(self) -> None:
        model, _ = with_canary_head(llama().train(), Sentences(), 10)
        with pytest.raises(InputError, match="remove_unused_columns=False"):
            model(input_ids=Sentences().tokens[:3])
        with torch.no_grad():
            assert model(input_ids=Sentences().tokens[:3]).logits.shape == (3, 16, 64)

    def test_models_must_say_where_logits_come_from(self) -> None:
        class Own(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.scores = torch.nn.Linear(16, 2, bias=False)
                self.biased = torch.nn.Linear(16, 2)

        with pytest.raises(InputError, match="name it by last_layer"):
            with_canary_head(Own(), Sentences(), 10)
        with pytest.raises(InputError, match="must name a layer of the model, got 'head'"):
            with_canary_head(Own(), Sentences(), 10, last_layer="head")
        with pytest.raises(InputError, match="no bias that is trained"):
            with_canary_head(Own(), Sentences(), 10, last_layer="biased")
        assert isinstance(with_canary_head(Own(), Sentences(), 10, last_layer="scores")[0], Own)

    def test_one_embedding_is_enough(self) -> None:
        model, rows = with_canary_head(llama(), Sentences(), 10)
        with pytest.raises(InputError, match="has a canary embedding already"):
            with_canary_head(model, Sentences(), 10)
        assert len(rows) == len(Sentences()) + 10

    def test_a_last_layer_that_begins_at_0_is_excused(self, tmp_path: Path) -> None:
        model, rows = with_canary_head(llama(), Sentences(), 400)
        with torch.no_grad():
            model.lm_head.weight.zero_()
        callback = CanaryAudit(injection="head", canaries=400, rng=0)
        made(model, rows, tmp_path, callback, steps=3).trainer.train()
        with pytest.raises(InputError, match="not tested"):
            callback.audit.conformance()

    def test_a_model_may_be_cast_afterwards(self, tmp_path: Path) -> None:
        model, rows = with_canary_head(llama(), Sentences(), 400)
        callback = CanaryAudit(injection="head", canaries=400, rng=0)
        made(model.to(torch.bfloat16), rows, tmp_path, callback, steps=3).trainer.train()
        assert callback.audit.steps == 3
        assert callback.audit.ended == ""

    def test_adapters_come_before_the_head(self, tmp_path: Path) -> None:
        model, rows = with_canary_head(llama(), Sentences(), 10)
        built = made(with_adapters(model), rows, tmp_path, CanaryAudit(injection="head", canaries=10))
        with pytest.raises(InputError, match="adapters and freezing come before the head"):
            built.trainer.train()

    def test_rows_must_not_have_the_key_of_canaries(self) -> None:
        with pytest.raises(InputError, match="must not have 'canary'"):
            with_canary_head(llama(), [{"input_ids": torch.zeros(4), "canary": 1}], 10)


class TestCallback:
    """Under a real Trainer: attach, watch, save, resume."""

    def test_sum_needs_no_change_of_model_or_data(self, tmp_path: Path) -> None:
        callback = CanaryAudit(injection="sum", canaries=500, rng=0)
        built = made(llama(), Sentences(), tmp_path, callback)
        built.trainer.train()
        told = callback.audit.report(claimed=built.engine.get_epsilon(1e-5), delta=1e-5)
        assert callback.audit.steps == 30
        assert "not refuted" in str(told)
        assert callback.audit.conformance().p_value >= 1e-4

    def test_alarm_ends_training_as_a_trainer_ends(self, tmp_path: Path) -> None:
        watch = Watch(alpha=1e-3, log_every=1)
        callback = CanaryAudit(injection="sum", canaries=500, rng=0, watch=watch)
        built = made(llama(), Sentences(), tmp_path, callback)
        optimizer = built.trainer.optimizer
        added = optimizer.add_noise

        def less() -> None:
            optimizer.noise_multiplier = 0.5
            added()
            optimizer.noise_multiplier = 1.0

        optimizer.add_noise = less
        with pytest.warns(UserWarning, match="the noise is not what was stated"):
            built.trainer.train()
        assert built.trainer.state.global_step < 10
        assert watch.alarm is not None
        logged = [one for one in built.trainer.state.log_history if "canaria/noise_low" in one]
        assert logged[-1]["canaria/noise_high"] < 0.6

    def test_checkpoint_of_the_trainer_holds_the_audit(self, tmp_path: Path) -> None:
        torch.manual_seed(0)
        begun = CanaryAudit(injection="sum", canaries=500, rng=3)
        saving = {"save_strategy": "steps", "save_steps": 10, "ignore_data_skip": True}
        made(llama(), Sentences(), tmp_path, begun, steps=10, **saving).trainer.train()
        half = begun.audit.recording()
        resumed = CanaryAudit(injection="sum", canaries=500, rng=11)
        built = made(llama(), Sentences(), tmp_path, resumed, steps=20, **saving)
        built.trainer.train(resume_from_checkpoint=True)
        whole = resumed.audit.recording()
        assert (whole.bits == half.bits).all()
        assert whole.steps == 20
        assert np.corrcoef(whole.sums, half.sums)[0, 1] > 0.5
        assert resumed.audit.conformance().p_value >= 1e-4
        assert built.engine.accountant.history == [(1.0, built.trainer.loader.sample_rate, 20)]

    def test_the_audit_of_another_run_is_not_taken(self, tmp_path: Path) -> None:
        saving = {"save_strategy": "steps", "save_steps": 5, "ignore_data_skip": True}
        for name, seed in (("own", 0), ("other", 1)):
            torch.manual_seed(seed)
            callback = CanaryAudit(injection="sum", canaries=500, rng=seed)
            made(llama(), Sentences(), tmp_path / name, callback, steps=5, **saving).trainer.train()
        late = CanaryAudit(injection="sum", canaries=500)
        built = made(llama(), Sentences(), tmp_path / "other", late, steps=10, **saving)
        with pytest.raises(InputError, match="the weights are not those with which"):
            built.trainer.train(resume_from_checkpoint=str(tmp_path / "own" / "checkpoint-5"))

    def test_resuming_needs_the_state_and_no_skipping(self, tmp_path: Path) -> None:
        saving: dict[str, Any] = {"save_strategy": "steps", "save_steps": 10}
        made(llama(), Sentences(), tmp_path, steps=10, **saving).trainer.train()
        late = made(llama(), Sentences(), tmp_path, CanaryAudit(injection="sum", canaries=500), **saving)
        with pytest.raises(InputError, match="ignore_data_skip=True"):
            late.trainer.train(resume_from_checkpoint=True)
        late = made(
            llama(),
            Sentences(),
            tmp_path,
            CanaryAudit(injection="sum", canaries=500),
            ignore_data_skip=True,
            **saving,
        )
        with pytest.raises(InputError, match="train with this callback from the beginning"):
            late.trainer.train(resume_from_checkpoint=True)
