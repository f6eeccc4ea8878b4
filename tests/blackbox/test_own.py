"""Canaries with weights of their own: what they are, and that bounds from the finished model are valid."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from opacus import GradSampleModule, PrivacyEngine
from peft import LoraConfig, get_peft_model
from scipy import special, stats
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MambaConfig,
    MambaForCausalLM,
)

from canaria import audit_scores, plant
from canaria._core.errors import InputError
from canaria.blackbox import own_columns, own_tokens, own_units
from canaria.blackbox.scores import (
    logit_scores,
    margin_scores,
    quantile_scores,
    token_scores,
    weight_scores,
)
from canaria.claims import DpSgd, GaussianDP

DELTA = 1e-5


def llama(*, tied: bool = False) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    made = LlamaConfig(vocab_size=50, tie_word_embeddings=tied, attn_implementation="eager", **sizes)
    return LlamaForCausalLM(made).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)).eval()  # tied


def mamba() -> Any:
    """A model that asks its output layer for `weight`."""
    torch.manual_seed(0)
    return MambaForCausalLM(
        MambaConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, state_size=4)
    ).eval()


MODELS = {"untied": llama, "tied": lambda: llama(tied=True), "gpt2": gpt2, "mamba": mamba}


@pytest.mark.parametrize("kind", MODELS)
def test_own_tokens_change_no_answer_about_other_texts(kind: str, tmp_path: Any) -> None:
    model, texts = MODELS[kind](), torch.arange(1, 21).view(2, 10)
    before = model(input_ids=texts).logits
    canaries = own_tokens(model, 5, 8, rng=0)
    after = model(input_ids=texts).logits
    assert torch.allclose(after[..., :50], before, atol=1e-6)
    assert not after[..., 50:].any()  # nor do real texts reach the new tokens
    assert [set(row) for row in canaries.tolist()] == [{50 + one} for one in range(5)]
    assert model.get_input_embeddings().weight[50:].std() > 5
    model.tie_weights()
    model.save_pretrained(tmp_path)  # as a Trainer does, which refuses tensors that are shared unexpectedly


@pytest.mark.parametrize("kind", MODELS)
def test_the_gradient_of_a_canary_is_one_direction_in_its_own_row(kind: str) -> None:
    model = MODELS[kind]()
    canaries = torch.tensor(own_tokens(model, 4, 8, rng=0))
    model(input_ids=canaries[2:3], labels=canaries[2:3]).loss.backward()
    squares = sum(float(one.grad.square().sum()) for one in model.parameters() if one.grad is not None)
    own = model.get_output_embeddings().own_tokens.weight.grad
    assert float(own[2].square().sum()) > 0.95 * squares


@pytest.mark.filterwarnings("ignore")  # of Opacus and peft
def test_own_tokens_are_trained_with_lora() -> None:
    """Beside adapters, with Opacus; the final loss alone shows most of what 20 full steps may tell."""
    torch.manual_seed(0)
    model, texts = llama(), np.random.default_rng(0).integers(0, 50, (100, 8))
    canaries = own_tokens(model, 300, 8, rng=0)
    how: Any = {"target_modules": ["q_proj", "v_proj"], "modules_to_save": ["own_tokens"]}
    adapted = get_peft_model(model, LoraConfig(r=2, **how)).train()
    planted = plant(texts, canaries, form="zero-out", rng=0)
    data = TensorDataset(torch.tensor(planted.dataset), torch.tensor(planted.weights, dtype=torch.float32))
    private, optimizer, loader = PrivacyEngine().make_private(
        module=adapted,
        optimizer=torch.optim.SGD([one for one in adapted.parameters() if one.requires_grad], lr=2.0),
        data_loader=DataLoader(data, batch_size=len(data)),
        noise_multiplier=3.0,
        max_grad_norm=1.0,
    )
    for _ in range(20):
        for batch, weights in loader:
            optimizer.zero_grad()
            logits = private(input_ids=batch).logits[:, :-1].transpose(1, 2)
            (cross_entropy(logits, batch[:, 1:], reduction="none").mean(1) * weights).mean().backward()
            optimizer.step()
    bound = planted.bound(token_scores(adapted.eval(), canaries), DELTA, rng=0, family="gaussian").epsilon
    truth = DpSgd(noise_multiplier=3.0, sample_rate=1.0, steps=20).epsilon_at(DELTA)
    assert 0.3 * truth < bound <= truth


def test_token_scores_are_the_losses_of_the_model() -> None:
    model, texts = llama(), torch.arange(40).view(5, 8)
    losses = [float(model(input_ids=one[None], labels=one[None]).loss.detach()) for one in texts]
    assert token_scores(model, texts.numpy(), at_once=2) == pytest.approx(-7 * np.array(losses), abs=1e-4)


def test_own_columns_are_own() -> None:
    features, labels = np.random.default_rng(0).normal(size=(30, 4)), np.array(["a", "b"] * 15)
    wide, (rows, classes) = own_columns(features, labels, 6, size=3.0, rng=0)
    assert np.array_equal(wide[:, :4], features)
    assert not wide[:, 4:].any()
    assert not rows[:, :4].any()
    assert np.array_equal(rows[:, 4:], 3 * np.eye(6))
    assert set(classes) <= {"a", "b"}


def logistic(rows: Any, signs: Any, weights: Any, noise: float, steps: int, rng: Any) -> Any:
    """DP-SGD with full batches, by hand: weights after so many steps of clipped gradients with noise."""
    model = np.zeros(rows.shape[1])
    for _ in range(steps):
        slopes = special.expit(-(rows @ model) * signs) * signs
        gradients = slopes[:, None] * rows
        gradients *= (weights / np.maximum(np.linalg.norm(gradients, axis=1), 1))[:, None]
        model += 0.1 * (gradients.sum(axis=0) + rng.normal(scale=noise, size=len(model)))
    return model


def audited(seed: int, count: int, steps: int, noise: float) -> tuple[Any, Any, Any]:
    """What was planted, and scores of the canaries: by the answers, and by their own weights."""
    rng = np.random.default_rng(seed)
    table, signs = rng.normal(size=(100, 5)), rng.choice([-1, 1], 100)
    wide, canaries = own_columns(table, signs, count, rng=rng)
    planted = plant((wide, signs), canaries, rng, form="zero-out")
    model = logistic(*planted.dataset, planted.weights, noise, steps, rng)
    rows, own = canaries
    logits = np.column_stack([np.zeros(count), rows @ model])
    return planted, margin_scores(logits, (own > 0).astype(int)), model[5:] * own


def test_answers_show_as_much_as_weights() -> None:
    planted, answers, weights = audited(0, 400, 20, 3.0)
    shown, inside = (planted.bound(one, DELTA, rng=0).epsilon for one in (answers, weights))
    assert shown > 0.8 * inside > 0.8


def test_correct_training_is_not_over_claimed() -> None:
    """200 audits of one step, whose mechanism is exactly Gaussian. False-alarm rate 1e-4."""
    truth = GaussianDP(1.0).epsilon_at(DELTA)
    wrong = []
    for seed in range(200):
        planted, answers, _ = audited(seed, 100, 1, 1.0)
        wrong.append(planted.bound(answers, DELTA, rng=0, family="gaussian").epsilon > truth)
    assert stats.binom.sf(sum(wrong) - 1, 200, 0.05) > 1e-4


def with_tokens() -> Any:
    model = llama()
    own_tokens(model, 3)
    return model


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(196, 8), nn.Tanh(), nn.Linear(8, 3))


def test_own_units_answer_to_their_canaries_alone() -> None:
    model, rng = small(), np.random.default_rng(0)
    pictures = torch.tensor(rng.random((2000, 1, 14, 14)), dtype=torch.float32)
    pictures[:1000] = pictures[:1000].round()  # the largest contrast
    before = model(pictures)
    wide, (rows, labels) = own_units(model, (1, 14, 14), 100, rng=0)
    canaries = torch.tensor(rows, dtype=torch.float32)
    units = torch.relu(canaries.flatten(1) @ wide.detectors.T - wide.silence)
    assert torch.equal(wide(pictures), before)
    assert not torch.relu(pictures.flatten(1) @ wide.detectors.T - wide.silence).any()
    assert torch.allclose(units, 100 * torch.eye(100), atol=0.1)
    assert 0 <= rows.min() < rows.max() <= 1
    assert set(labels) == {0, 1, 2}
    stored = torch.relu((255 * canaries).round().flatten(1) / 255 @ wide.detectors.T - wide.silence)
    assert ((stored > 50) == torch.eye(100, dtype=torch.bool)).all()  # as bytes


def one_step(model: nn.Module, loss: Callable[..., Any], rows: Any, weights: Any, noise: float) -> nn.Module:
    """The model after one step of DP-SGD on all rows, by hand, so that the mechanism is exactly Gaussian."""
    state = {name: one.detach() for name, one in model.named_parameters()}
    gradients = vmap(grad(lambda state, *row: loss(model, state, *row)), (None, *[0] * len(rows)))(
        state, *rows
    )
    squares = sum(one.flatten(1).square().sum(1) for one in gradients.values())
    factors = torch.tensor(weights, dtype=torch.float32) / squares.sqrt().clamp(min=1)
    with torch.no_grad():
        for name, one in model.named_parameters():
            one.sub_(torch.tensordot(factors, gradients[name], 1) + noise * torch.randn_like(one), alpha=0.1)
    return model.eval()


def of_class(model: nn.Module, state: Any, row: Any, label: Any) -> Any:
    return cross_entropy(functional_call(model, state, (row[None],)), label[None])


def of_next(model: nn.Module, state: Any, text: Any) -> Any:
    logits = functional_call(model, state, (), {"input_ids": text[None], "use_cache": False}).logits[0, :-1]
    return cross_entropy(logits, text[1:])


def pictures_audited(seed: int, noise: float) -> tuple[Any, Any]:
    rng, count = np.random.default_rng(seed), 100
    model, (rows, labels) = own_units(small(), (1, 14, 14), count, rng=rng)
    real = rng.random((30, 1, 14, 14)), rng.integers(0, 3, 30)
    planted = plant(real, (rows, labels), rng, form="zero-out")
    data = torch.tensor(planted.dataset[0], dtype=torch.float32), torch.tensor(planted.dataset[1])
    torch.manual_seed(seed)
    model = one_step(model, of_class, data, planted.weights, noise)
    answers = model(torch.tensor(rows, dtype=torch.float32)).detach().numpy()
    return planted, logit_scores(answers, labels)


def texts_audited(seed: int, noise: float) -> tuple[Any, Any]:
    rng, model = np.random.default_rng(seed), llama()
    canaries = own_tokens(model, 100, 4, rng=rng)
    planted = plant(rng.integers(0, 50, (20, 4)), canaries, rng, form="zero-out")
    torch.manual_seed(seed)
    model = one_step(model, of_next, (torch.tensor(planted.dataset),), planted.weights, noise)
    return planted, token_scores(model, canaries)


class Ratings(nn.Module):
    """Users and items, of which the last 100 are the canaries' own."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(20, 8), nn.Embedding(130, 8)
        with torch.no_grad():
            self.items.weight[30:] = 0

    def forward(self, pairs: Any) -> Any:
        return (self.users(pairs[..., 0]) * self.items(pairs[..., 1])).sum(-1)


def ratings_audited(seed: int, noise: float) -> tuple[Any, Any]:
    torch.manual_seed(seed)
    rng, model = np.random.default_rng(seed), Ratings()
    pairs = np.column_stack([rng.integers(0, 20, 100), 30 + np.arange(100)])
    real = np.column_stack([rng.integers(0, 20, 60), rng.integers(0, 30, 60)]), rng.normal(size=60)
    planted = plant(real, (pairs, np.full(100, 5.0)), rng, form="zero-out")
    data = torch.tensor(planted.dataset[0]), torch.tensor(planted.dataset[1], dtype=torch.float32)
    model = one_step(model, of_rating, data, planted.weights, noise)
    return planted, model(torch.tensor(pairs)).detach().numpy()


def of_rating(model: nn.Module, state: Any, pair: Any, rating: Any) -> Any:
    return (functional_call(model, state, (pair,)) - rating) ** 2


@pytest.mark.parametrize("audited", [pictures_audited, texts_audited, ratings_audited])
@pytest.mark.parametrize("audits", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_models_with_own_weights_are_not_over_claimed(audited: Any, audits: int) -> None:
    """One step, whose mechanism is exactly Gaussian. False-alarm rate 1e-4; half of epsilon is shown."""
    truth = GaussianDP(1.0).epsilon_at(DELTA)
    shown = []
    for seed in range(audits):
        planted, scores = audited(seed, 1.0)
        shown.append(planted.bound(scores, DELTA, rng=0, family="gaussian").epsilon)
    assert stats.binom.sf(np.sum(np.array(shown) > truth) - 1, audits, 0.05) > 1e-4
    assert np.mean(shown) > 0.25 * truth


def test_changes_of_weights_show_as_much_as_answers() -> None:
    """Of canaries with own units, by the gradient of each at the weights before training."""
    rng = np.random.default_rng(0)
    model, (rows, labels) = own_units(small(), (1, 14, 14), 300, rng=0)
    planted = plant((rng.random((30, 1, 14, 14)), rng.integers(0, 3, 30)), (rows, labels), 0, form="zero-out")
    data = torch.tensor(planted.dataset[0], dtype=torch.float32), torch.tensor(planted.dataset[1])
    before = copy.deepcopy(model)
    after = one_step(model, of_class, data, planted.weights, 0.5)
    canaries = torch.tensor(rows, dtype=torch.float32), torch.tensor(labels)

    def loss(net: nn.Module, row: Any, label: Any) -> Any:
        return cross_entropy(net(row), label)

    scores = weight_scores(before, after, loss, canaries)
    answers = logit_scores(after(canaries[0]).detach().numpy(), labels)
    wrapped = weight_scores(before, GradSampleModule(after), loss, canaries)
    assert np.array_equal(wrapped, scores)
    inside, shown = (planted.bound(one, DELTA, rng=0).epsilon for one in (scores, answers))
    assert inside >= 0.9 * shown > 0.9
    nested = nn.ModuleDict(
        {"_orig_mod": nn.ModuleDict({"module": after})}
    )  # as torch.compile and DDP name it
    wrapped = weight_scores(before, nested, loss, canaries)
    assert np.array_equal(wrapped, scores)
    with pytest.raises(InputError, match="final must have the parameters of initial"):
        weight_scores(before, small(), loss, canaries)
    with pytest.raises(InputError, match="final must be another object than initial"):
        weight_scores(before, before, loss, canaries)
    with pytest.raises(InputError, match="initial must have parameters that are trained"):
        weight_scores(small().requires_grad_(False), small(), loss, canaries)


def test_own_units_leave_modes_and_copies_alone() -> None:
    model = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(196).eval(), nn.Linear(196, 3)).train()
    model[1].eval()
    wide, (rows, _) = own_units(model, (1, 14, 14), 5, rng=0)
    assert [part.training for part in model] == [True, False, True]
    again = pickle.loads(pickle.dumps(copy.deepcopy(wide)))
    wide.eval()
    again.eval()
    canaries = torch.tensor(rows, dtype=torch.float32)
    assert torch.equal(wide(canaries), again(canaries))


def test_quantile_scores_remove_what_makes_a_row_hard() -> None:
    """Rows differ by 3 deviations in how hard they are, and by one deviation if they were trained on."""
    rng, bits = np.random.default_rng(0), np.random.default_rng(1).integers(0, 2, 500)
    hard, others = rng.normal(size=(500, 2)), rng.normal(size=(2000, 2))
    scores = 3 * hard[:, 0] + 2 * bits + rng.normal(size=500)
    known = 3 * others[:, 0] + rng.normal(size=2000)
    compared = quantile_scores(scores, hard, known, others)
    plain, better = (audit_scores(one, bits, rng=0).epsilon for one in (scores, compared))
    assert better > 2 * plain
    with pytest.raises(InputError, match="others must have at least 20 scores, got 5"):
        quantile_scores(scores, hard, known[:5], others[:5])


def test_logit_scores_forget_which_class_a_model_favours() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3))
    labels = np.arange(50) % 3
    biased = logits + np.array([5.0, 0.0, -5.0])
    assert logit_scores(biased, labels) == pytest.approx(logit_scores(logits, labels))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: own_columns(np.zeros(5), np.zeros(5), 2), "features must have one row per example"),
        (lambda: own_columns(np.zeros((5, 2)), [0, 1], 2), "labels"),
        (lambda: own_columns(np.zeros((2, 2)), [0, 1], 0), "count must be"),
        (lambda: own_tokens(llama(), 3, 1), "length must be"),
        (lambda: own_tokens(llama().model, 3), "model must have an output layer"),
        (lambda: own_units(small(), (3, 3), 3), "shape must have at least 64 numbers, got 9"),
        (lambda: own_units(small(), (196,), 3, low=1.0), "high must be above low"),
        (lambda: own_units(nn.Conv2d(1, 2, 3), (1, 14, 14), 3), "model must return one logit per class"),
        (lambda: own_units(nn.Linear(196, 1), (196,), 3), "of two classes or more"),
        (lambda: own_units(nn.Flatten(), (196,), 3), "model must have parameters"),
        (lambda: own_tokens(with_tokens(), 3), "model has tokens for canaries already"),
    ],
)
def test_what_cannot_be_used_is_named(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
