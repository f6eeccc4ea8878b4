"""Misuse of the Opacus audit gets one clear error."""

import numpy as np
import pytest
import torch
from opacus import PrivacyEngine
from opacus.optimizers.fsdpoptimizer_fast_gradient_clipping import FSDPOptimizerFastGradientClipping
from torch import nn
from torch.utils.data import TensorDataset

from canaria import InputError
from canaria.integrations.opacus import attach, with_canary_head, with_canary_rows
from canaria.training import TrainingDivergedError
from tests.integrations.digits import digits, private


class TestMisuse:
    def test_after_training_began(self) -> None:
        made = private("sum")
        made.one_pass()
        with pytest.raises(InputError, match="before training begins"):
            attach(made.optimizer, made.loader, injection="sum", canaries=100)

    def test_new_optimizer_of_an_engine_that_has_trained(self) -> None:
        made = private("sum")
        engine = PrivacyEngine(accountant="rdp")
        engine.accountant.step(noise_multiplier=1.0, sample_rate=0.1)
        made.optimizer.attach_step_hook(engine.accountant.get_optimizer_hook_fn(sample_rate=0.1))
        with pytest.raises(InputError, match="accountant has counted 1 steps that no canary was in"):
            attach(made.optimizer, made.loader, injection="sum", canaries=100)

    def test_without_poisson_sampling(self) -> None:
        made = private("sum", poisson=False)
        with pytest.raises(InputError, match="sample by Poisson"):
            attach(made.optimizer, made.loader, injection="sum", canaries=100)

    def test_more_canaries_than_coordinates_allow(self) -> None:
        made = private("sum")
        with pytest.raises(InputError, match="take at most 2420 canaries"):
            attach(made.optimizer, made.loader, injection="sum", canaries=5000, per_coordinate=2)

    def test_optimizer_that_is_not_private(self) -> None:
        made = private("sum")
        with pytest.raises(InputError, match="private one that make_private returns, got SGD"):
            attach(made.optimizer.original_optimizer, made.loader, injection="sum", canaries=100)

    def test_clipping_per_layer_needs_a_layer_with_room(self) -> None:
        made = private("sum", clipping="per_layer", clip=[1.0] * 4)
        with pytest.raises(InputError, match="the largest has 1024; take at most 1024 canaries"):
            attach(made.optimizer, made.loader, injection="sum", canaries=1025)

    def test_head_with_clipping_per_layer(self) -> None:
        made = private("head", canaries=100, clipping="per_layer", clip=[1.0] * 6)
        with pytest.raises(InputError, match="use 'sum' or 'rows'"):
            attach(made.optimizer, made.loader, injection="head", canaries=100)

    def test_norms_of_layers_that_change(self) -> None:
        made = private("sum", clipping="per_layer", clip=[1.0] * 4)
        attach(made.optimizer, made.loader, injection="sum", canaries=100, on_error="raise")
        made.one_pass()
        made.optimizer.max_grad_norms[0] = 2.0
        with pytest.raises(InputError, match="the clip norms of layers changed"):
            made.one_pass()

    def test_twice(self) -> None:
        made = private("sum")
        attach(made.optimizer, made.loader, injection="sum", canaries=100)
        with pytest.raises(InputError, match="audited already"):
            attach(made.optimizer, made.loader, injection="sum", canaries=100)

    @pytest.mark.parametrize("injection", ["rows", "head"])
    def test_data_set_whose_length_depends_on_the_bits(self, injection: str) -> None:
        made = private("sum")
        with pytest.raises(InputError, match="a length that depends on the bits would reveal them"):
            attach(made.optimizer, made.loader, injection=injection, canaries=100)
        made = private(injection, canaries=90)
        with pytest.raises(InputError, match="got 90 canary rows"):
            attach(made.optimizer, made.loader, injection=injection, canaries=100)

    def test_rows_with_ghost_clipping(self) -> None:
        made = private("rows", canaries=100, mode="ghost")
        with pytest.raises(InputError, match="needs per-sample gradients"):
            attach(made.optimizer, made.loader, injection="rows", canaries=100)

    def test_unknown_way(self) -> None:
        made = private("sum")
        for unknown in ("row", "clients"):  # clients are Flower's
            with pytest.raises(
                InputError, match=f"injection must be 'rows', 'sum' or 'head', got '{unknown}'"
            ):
                attach(made.optimizer, made.loader, injection=unknown, canaries=100)

    def test_half_precision_would_round_the_canaries(self) -> None:
        made = private("rows", canaries=100)
        made.optimizer.param_groups[0]["params"][0].data = made.optimizer.params[0].data.bfloat16()
        with pytest.raises(InputError, match="bfloat16 would round"):
            attach(made.optimizer, made.loader, injection="rows", canaries=100)

    def test_rows_in_another_memory_format_carry_marks(self) -> None:
        pictures = torch.randn(80, 3, 8, 8).to(memory_format=torch.channels_last)
        rows = TensorDataset(pictures, torch.randint(0, 3, (80,)))
        model, headed = with_canary_head(nn.Sequential(nn.Flatten(), nn.Linear(192, 3)), rows, 50)
        places = np.argsort(headed.rows)
        canary, real = headed[places[80]][0], headed[places[0]][0]
        assert canary.shape == real.shape
        answers = model(torch.stack([real, canary]))
        assert answers[0].any()
        assert not answers[1].any()

    def test_head_of_another_size(self) -> None:
        made = private("head", canaries=100)
        with pytest.raises(InputError, match="with_canary_head with Dirac"):
            attach(made.optimizer, made.loader, injection="head", canaries=100, per_coordinate=2)

    def test_parameter_frozen_in_between(self) -> None:
        made = private("sum")
        attach(made.optimizer, made.loader, injection="sum", canaries=1000, on_error="raise")
        made.one_pass()
        next(made.model.parameters()).requires_grad_(False)
        with pytest.raises(InputError, match="was frozen"):
            made.one_pass()

    def test_step_past_the_audit(self) -> None:
        made = private("sum")
        attach(made.optimizer, made.loader, injection="sum", canaries=100, on_error="raise")
        with pytest.raises(InputError, match="a step bypassed the audit"):
            made.optimizer.original_optimizer.step()

    def test_real_row_that_looks_like_a_canary(self) -> None:
        rows = torch.zeros(5, 6, dtype=torch.int64)
        rows[3, 0] = -7
        _, marked = with_canary_head(torch.nn.Linear(6, 2), TensorDataset(rows), 10)
        places = np.argsort(marked.rows)
        assert len(marked[places[5]]) == 1
        with pytest.raises(InputError, match="row 3 begins with -7, which marks a canary"):
            marked[places[3]]
        with pytest.raises(InputError, match="rows must be tensors"):
            with_canary_head(torch.nn.Linear(6, 2), ["words"], 10)
        with pytest.raises(InputError, match="must have parameters"):
            with_canary_head(torch.nn.ReLU(), TensorDataset(rows), 10)

    def test_diverged_training(self) -> None:
        made = private("sum")
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=100)
        with torch.no_grad():
            next(made.model.parameters()).fill_(float("nan"))
        made.one_pass()
        with pytest.raises(TrainingDivergedError, match="not finite"):
            audit.bound()

    def test_sharded_optimizer(self) -> None:
        made = private("sum", mode="ghost")
        made.optimizer.__class__ = FSDPOptimizerFastGradientClipping
        with pytest.raises(InputError, match="sharded over all processes by their first axis"):
            attach(made.optimizer, made.loader, injection="sum", canaries=100)

    def test_no_step_seen(self) -> None:
        made = private("sum")
        audit = attach(made.optimizer, made.loader, injection="sum", canaries=100)
        with pytest.raises(InputError, match="no training step was seen"):
            audit.bound()

    def test_accumulated_gradients(self) -> None:
        made = private("sum")
        attach(made.optimizer, made.loader, injection="sum", canaries=100, on_error="raise")
        made.model.allow_grad_accumulation()
        rows, labels = digits(400)[:8]
        for _ in range(2):
            made.criterion(made.model(rows), labels).backward()
        with pytest.raises(InputError, match="use BatchMemoryManager"):
            made.optimizer.step()

    def test_batches_that_the_sampler_did_not_draw(self) -> None:
        made = private("rows", canaries=100)
        attach(made.optimizer, made.loader, injection="rows", canaries=100, on_error="raise")
        rows, labels = digits(400)[:8]
        made.criterion(made.model(rows), labels).backward()
        with pytest.raises(InputError, match="every batch must go through"):
            made.optimizer.step()

    def test_batch_of_which_rows_are_left_out(self) -> None:
        made = private("rows", canaries=100)
        attach(made.optimizer, made.loader, injection="rows", canaries=100, on_error="raise")
        rows, labels = next(iter(made.loader))
        made.criterion(made.model(rows[:-2]), labels[:-2]).backward()
        with pytest.raises(InputError, match="did not reach the optimizer"):
            made.optimizer.step()

    def test_empty_data_set(self) -> None:
        with pytest.raises(InputError, match="at least one row"):
            with_canary_rows([], 5)
