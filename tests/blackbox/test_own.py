"""Canaries with weights of their own: what they are, and that bounds from the finished model are valid."""

from typing import Any

import numpy as np
import pytest
import torch
from scipy import special, stats
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from canaria import plant
from canaria._core.errors import InputError
from canaria.blackbox import own_columns, own_tokens
from canaria.blackbox.scores import margin_scores, token_scores
from canaria.claims import GaussianDP

DELTA = 1e-5


def llama(*, tied: bool = False) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, tie_word_embeddings=tied, **sizes)).eval()


def gpt2() -> Any:
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2)).eval()  # tied


@pytest.mark.parametrize("make", [llama, lambda: llama(tied=True), gpt2], ids=["untied", "tied", "gpt2"])
def test_own_tokens_change_no_answer_about_other_texts(make: Any) -> None:
    model, texts = make(), torch.arange(20).view(2, 10)
    before = model(input_ids=texts).logits
    canaries = own_tokens(model, 5, 8, rng=0)
    after = model(input_ids=texts).logits
    assert torch.equal(after[..., :50], before)
    assert not after[..., 50:].any()  # nor do real texts reach the new tokens
    assert [set(row) for row in canaries.tolist()] == [{50 + one} for one in range(5)]
    assert model.get_input_embeddings().weight is not model.get_output_embeddings().weight
    assert model.get_input_embeddings().weight[50:].std() > 5


def test_the_gradient_of_a_canary_is_one_direction_in_its_own_row() -> None:
    model = llama()
    canaries = torch.tensor(own_tokens(model, 4, 8, rng=0))
    model(input_ids=canaries[2:3], labels=canaries[2:3]).loss.backward()
    squares = {name: float(one.grad.square().sum()) for name, one in model.named_parameters()}
    row = float(model.lm_head.weight.grad[52].square().sum())
    assert row > 0.95 * sum(squares.values())


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


def test_centred_margins_forget_which_class_a_model_favours() -> None:
    logits = np.random.default_rng(0).normal(size=(50, 3))
    labels = np.arange(50) % 3
    biased = logits + np.array([5.0, 0.0, -5.0])
    scores = margin_scores(biased, labels, centred=True)
    assert [scores[labels == one].mean() for one in range(3)] == pytest.approx([0, 0, 0])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: own_columns(np.zeros(5), np.zeros(5), 2), "features must have one row per example"),
        (lambda: own_columns(np.zeros((5, 2)), [0, 1], 2), "labels"),
        (lambda: own_columns(np.zeros((2, 2)), [0, 1], 0), "count must be"),
        (lambda: own_tokens(llama(), 3, 1), "length must be"),
        (lambda: own_tokens(llama().model, 3), "model must have an output layer"),
    ],
)
def test_what_cannot_be_used_is_named(make: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        make()
