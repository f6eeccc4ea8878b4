"""Isolation of rows in real models, with every way of clipping."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import torch
from jax import numpy as jnp
from jax_privacy.clipping import clipped_grad
from opacus import GradSampleModule, PrivacyEngine
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.adaptive_clipping.adaptive_clipping_utils import PrivacyEngineAdaptiveClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from transformers import BatchEncoding, LlamaConfig, LlamaForCausalLM

from canaria import InputError
from canaria.integrations import jax_privacy, opacus

pytestmark = [
    pytest.mark.filterwarnings("ignore:optax.global_norm is deprecated"),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated"),
]

FEATURES, CLASSES, ROWS = 8, 3, 12


def features(rows: int = ROWS) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(rows, FEATURES, generator=generator)
    return inputs, torch.randint(0, CLASSES, (rows,), generator=generator)


def mlp(*between: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 16), *between, nn.ReLU(), nn.Linear(16, CLASSES))


def private(model: nn.Module, mode: str = "hooks", norm: float = 1.0) -> tuple[Any, Any, Any]:
    """A private model, optimizer and criterion."""
    made = PrivacyEngine().make_private(
        module=model,
        optimizer=torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(*features()), batch_size=4),
        noise_multiplier=1.0,
        max_grad_norm=norm,
        grad_sample_mode=mode,
    )
    return made[0], made[1], made[2] if mode == "ghost" else nn.CrossEntropyLoss()


def loss_by(criterion: Callable[[Tensor, Tensor], Any]) -> Callable[[Any, Any], Any]:
    return lambda model, batch: criterion(model(batch[0]), batch[1])


def contrastive(answers: Tensor, labels: Tensor) -> Tensor:
    unit = nn.functional.normalize(answers, dim=1)
    return nn.functional.cross_entropy(unit @ unit.roll(1, 1).T / 0.1, torch.arange(len(unit)))


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost", "ew"])
@pytest.mark.parametrize("layer", [nn.LayerNorm, nn.GroupNorm, nn.Dropout])
def test_layers_that_see_one_row_are_isolated(mode: str, layer: Any) -> None:
    made = {nn.LayerNorm: (16,), nn.GroupNorm: (4, 16), nn.Dropout: (0.3,)}[layer]
    model, optimizer, criterion = private(mlp(layer(*made)), mode)
    found = opacus.check_isolation(model, optimizer, loss_by(criterion), features(), rng=0)
    assert found.holds, found


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ghost"])
def test_batch_norm_is_found_and_named(mode: str) -> None:
    """Opacus refuses it unless it is told not to look."""
    model = mlp(nn.BatchNorm1d(16, affine=False))
    model, optimizer, criterion = unchecked(model, mode)
    found = opacus.check_isolation(model, optimizer, loss_by(criterion), features(), rng=0)
    assert not found.holds
    assert "1 (BatchNorm1d)" in found.cause
    assert "GroupNorm" in found.cause


def unchecked(model: nn.Module, mode: str) -> tuple[Any, Any, Any]:
    """Private, past the engine's validator, which looks for layers that it knows."""
    stated: Any = {"noise_multiplier": 1.0, "max_grad_norm": 1.0, "expected_batch_size": 4}
    if mode != "ghost":
        wrapped = GradSampleModule(model, strict=False, force_functorch=mode == "functorch")
        descent = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        return wrapped, DPOptimizer(descent, **stated), nn.CrossEntropyLoss()
    ghost = GradSampleModuleFastGradientClipping(model, strict=False, max_grad_norm=1.0)
    optimizer = DPOptimizerFastGradientClipping(torch.optim.SGD(ghost.parameters(), lr=0.1), **stated)
    return ghost, optimizer, DPLossFastGradientClipping(ghost, optimizer, nn.CrossEntropyLoss())


@pytest.mark.parametrize("mode", ["hooks", "functorch", "ew"])
def test_a_contrastive_loss_is_found(mode: str) -> None:
    model, optimizer, _ = private(mlp(), mode)
    found = opacus.check_isolation(model, optimizer, loss_by(contrastive), features(), rng=0)
    assert not found.holds
    assert found.sensitivity > 1
    assert "contrastive" in found.cause


def test_a_sum_that_the_optimizer_takes_for_a_mean_is_found() -> None:
    model, optimizer, _ = private(mlp())
    found = opacus.check_isolation(
        model, optimizer, loss_by(nn.CrossEntropyLoss(reduction="sum")), features(), rng=0
    )
    assert "number of rows" in found.cause


def test_a_layer_of_ones_own_is_named() -> None:
    class Centred(nn.Module):
        def forward(self, rows: Tensor) -> Tensor:
            return rows - rows.mean(0)

    model, optimizer, criterion = private(mlp(Centred()))
    found = opacus.check_isolation(model, optimizer, loss_by(criterion), features(), rng=0)
    assert "1 (Centred)" in found.cause


def llama(**settings: Any) -> nn.Module:
    torch.manual_seed(0)
    shape = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = LlamaConfig(vocab_size=64, attn_implementation="eager", **shape, **settings)
    return LlamaForCausalLM(config).train()


def texts(rows: int = ROWS, length: int = 96) -> dict[str, Tensor]:
    """One long text, padded short ones, some tokens more frequent than others."""
    torch.manual_seed(1)
    tokens = 1 + (torch.rand(rows, length) ** 4 * 63).long()
    lengths = torch.randint(4, 9, (rows, 1))
    lengths[0] = length
    mask = (torch.arange(length) < lengths).long()
    labels = tokens.masked_fill(mask == 0, -100)
    return {"input_ids": tokens * mask, "attention_mask": mask, "labels": labels}


def mean_over_tokens(model: Any, batch: dict[str, Tensor]) -> Tensor:
    loss: Tensor = model(**batch).loss
    return loss


def mean_over_rows(model: Any, batch: dict[str, Tensor]) -> Tensor:
    answers = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"][:, 1:]
    losses = nn.functional.cross_entropy(answers[:, :-1].transpose(1, 2), labels, reduction="none")
    return (losses.sum(1) / (labels >= 0).sum(1)).mean()


def lora(**settings: Any) -> nn.Module:
    config = LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **settings)
    made: nn.Module = get_peft_model(llama(), config)
    return made


def test_the_usual_loss_of_a_padded_batch_is_found() -> None:
    model, optimizer, _ = private(llama(), norm=4.0)
    found = opacus.check_isolation(model, optimizer, mean_over_tokens, texts(), rng=0)
    assert found.sensitivity > 1.3
    assert found.rows[int(found.moved.argmax())] == 0
    assert "number of tokens" in found.cause


@pytest.mark.parametrize(
    "model", [llama, lambda: llama(attention_dropout=0.2), lambda: lora(lora_dropout=0.1)]
)
def test_a_loss_by_rows_is_isolated(model: Callable[[], nn.Module]) -> None:
    """Also with dropout inside of attention, which is no layer."""
    made, optimizer, _ = private(model(), norm=4.0)
    found = opacus.check_isolation(made, optimizer, mean_over_rows, texts(), rng=0)
    assert found.holds, found


def test_the_usual_loss_of_a_padded_batch_is_found_with_lora() -> None:
    model, optimizer, _ = private(lora(), norm=0.3)
    found = opacus.check_isolation(model, optimizer, mean_over_tokens, texts(), rng=0)
    assert found.sensitivity > 1.3
    assert "number of tokens" in found.cause


def test_nothing_is_left_behind() -> None:
    """A training step after the check is bit for bit the one without it."""

    def one_step(checked: bool) -> list[Tensor]:
        model, optimizer, criterion = private(mlp(nn.Dropout(0.5)))
        loss = loss_by(criterion)
        if checked:
            torch.manual_seed(3)
            opacus.check_isolation(model, optimizer, loss, features(), rng=0)
        else:
            torch.manual_seed(3)
        loss(model, features()).backward()
        optimizer.step()
        return [p.detach().clone() for p in model.parameters()] + [torch.get_rng_state()]

    assert all(torch.equal(a, b) for a, b in zip(one_step(True), one_step(False), strict=True))


def test_buffers_modes_and_waiting_gradients_are_as_before_even_after_an_error() -> None:
    model, optimizer, criterion = unchecked(mlp(nn.BatchNorm1d(16, affine=False), nn.Dropout(0.5)), "hooks")
    loss_by(criterion)(model, features()).backward()
    waiting = [p.grad_sample.clone() for p in optimizer.params]
    buffers = [buffer.clone() for buffer in model.buffers()]
    calls = []

    def breaks(model: Any, batch: Any) -> Any:
        calls.append(1)
        if len(calls) > 3:
            model(batch[0])
            raise RuntimeError("broken")
        return loss_by(criterion)(model, batch)

    with pytest.raises(RuntimeError, match="broken"):
        opacus.check_isolation(model, optimizer, breaks, features(), rng=0)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(p.grad_sample, held) for p, held in zip(optimizer.params, waiting, strict=True))
    assert all(torch.equal(one, held) for one, held in zip(model.buffers(), buffers, strict=True))
    optimizer.zero_grad()
    loss_by(criterion)(model, features()).backward()
    assert all(len(p.grad_sample) == ROWS for p in optimizer.params)


@pytest.mark.parametrize("rows", [16, 256])
@pytest.mark.parametrize("how", ["bfloat16", "float16", "autocast"])
def test_rough_arithmetic_accuses_nobody(how: str, rows: int) -> None:
    model, optimizer, criterion = private(mlp() if how == "autocast" else mlp().to(getattr(torch, how)))

    def loss(model: Any, batch: Any) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=how == "autocast"):
            return criterion(model(batch[0].to(next(model.parameters()).dtype)), batch[1])

    found = opacus.check_isolation(model, optimizer, loss, features(rows), rng=0)
    assert found.holds, found


@pytest.mark.parametrize("rows", [16, 2048])
def test_weights_of_classes_are_found_in_batches_of_any_size(rows: int) -> None:
    """The mean is divided by the weights of the batch; in a large one, one row does little to another."""
    model, optimizer, _ = private(mlp(), norm=20.0)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 30.0]))
    found = opacus.check_isolation(model, optimizer, loss_by(weighted), features(rows), rng=0)
    assert not found.holds
    assert "divided by a number that depends on its rows" in found.cause


def test_batches_of_tokenizers_stay_what_they_are() -> None:
    model, optimizer, _ = private(llama(), norm=4.0)

    def loss(model: Any, batch: Any) -> Any:
        return mean_over_rows(model, batch.to("cpu"))

    assert opacus.check_isolation(model, optimizer, loss, BatchEncoding(texts(6, 12)), rows=3, rng=0).holds


def test_adaptive_clipping_cannot_be_asked_and_is_left_as_it_is() -> None:
    model = mlp()
    model, optimizer, criterion, _ = PrivacyEngineAdaptiveClipping().make_private(
        module=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        criterion=nn.CrossEntropyLoss(),
        data_loader=DataLoader(TensorDataset(*features()), batch_size=4),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        grad_sample_mode="ghost",
        target_unclipped_quantile=0.5,
        min_clipbound=0.1,
        max_clipbound=10.0,
        clipbound_learning_rate=0.5,
        max_clipbound_multiplier=2.0,
        unclipped_num_std=1.0,
        loss_reduction="mean",
    )
    with pytest.raises(InputError, match="adaptive clipping"):
        opacus.check_isolation(model, optimizer, loss_by(criterion), features())
    assert optimizer.max_grad_norm == model.max_grad_norm == 1.0
    assert not hasattr(optimizer, "_adjusted_noise_multiplier")


def test_a_loss_that_draws_random_numbers_cannot_be_asked() -> None:
    model, optimizer, criterion = private(mlp())

    def noisy(model: Any, batch: Any) -> Any:
        return criterion(model(batch[0] + torch.randn_like(batch[0])), batch[1])

    with pytest.raises(InputError, match="differs from call to call"):
        opacus.check_isolation(model, optimizer, noisy, features())


def test_what_cannot_be_asked_is_said_in_a_line() -> None:
    model, optimizer, criterion = private(mlp())
    with pytest.raises(InputError, match="same length, got lengths"):
        opacus.check_isolation(model, optimizer, loss_by(criterion), (features()[0], features(5)[1]))
    with pytest.raises(InputError, match="at least 3 rows"):
        opacus.check_isolation(model, optimizer, loss_by(criterion), features(2))
    with pytest.raises(InputError, match=r"call model.train\(\)"):
        opacus.check_isolation(model.eval(), optimizer, loss_by(criterion), features())
    with pytest.raises(InputError, match="the private one"):
        opacus.check_isolation(model, optimizer.original_optimizer, loss_by(criterion), features())


def cross_entropy(weights: jax.Array, rows: jax.Array, labels: jax.Array) -> jax.Array:
    return -jnp.take_along_axis(jax.nn.log_softmax(rows @ weights), labels[:, None], 1).mean()


CLIPPED = clipped_grad(cross_entropy, l2_clip_norm=1.0, batch_argnums=(1, 2))


def arrays() -> tuple[jax.Array, jax.Array, jax.Array]:
    inputs, labels = features()
    weights = np.random.default_rng(0).normal(size=(FEATURES, CLASSES))
    return jnp.asarray(weights, jnp.float32), jnp.asarray(inputs.numpy()), jnp.asarray(labels.numpy())


def test_clipped_gradients_of_jax_privacy_are_isolated() -> None:
    found = jax_privacy.check_isolation(jax.jit(CLIPPED), *arrays(), clip_norm=CLIPPED, rows=4, rng=0)
    assert found.holds, found


def test_rows_normalised_by_the_batch_are_found_in_jax() -> None:
    def centred(weights: jax.Array, rows: jax.Array, labels: jax.Array) -> jax.Array:
        return CLIPPED(weights, (rows - rows.mean(0)) / rows.std(0), labels)

    found = jax_privacy.check_isolation(jax.jit(centred), *arrays(), clip_norm=CLIPPED, rows=4, rng=0)
    assert found.sensitivity > 1.2
    assert "normalisation over the batch" in found.cause


def test_a_clipped_mean_is_found_in_jax() -> None:
    def mean_clipped(weights: jax.Array, rows: jax.Array, labels: jax.Array) -> jax.Array:
        mean = jax.grad(cross_entropy)(weights, rows, labels)
        return mean * jnp.minimum(1.0, 0.1 / jnp.linalg.norm(mean)) * len(rows)

    assert jax_privacy.check_isolation(jax.jit(mean_clipped), *arrays(), clip_norm=0.1, rng=0).sensitivity > 2
    with pytest.raises(InputError, match="clip_norm must be given"):
        jax_privacy.check_isolation(mean_clipped, *arrays())
