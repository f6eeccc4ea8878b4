"""Faults that canaries hardly see: more rows than were drawn, a part of the sum beside the noise, and others.

Each fault once passed with "training matches what was stated". Correct training is accused by each of these
tests with probability at most 1e-5.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from tests.integrations.small import DELTA, Training

Loop = Callable[[Training], object]


def steps_of(train: Training, batch: Callable[[Any, Any], tuple[Any, Any]], epochs: int = 2) -> Training:
    """Training whose batches are changed before the forward pass."""
    for _ in range(epochs):
        for drawn in train.loader:
            features, labels = batch(*drawn)
            train.optimizer.zero_grad()
            nn.functional.cross_entropy(train.model(features), labels).backward()
            train.optimizer.step()
    return train


def noise_changed(train: Training, change: Callable[[Any], None]) -> Training:
    """Training in which `change` is called for each parameter after noise was added."""
    add_noise = train.optimizer.add_noise

    def changed() -> None:
        add_noise()
        for parameter in train.optimizer.params:
            change(parameter)

    train.optimizer.add_noise = changed
    return train.train()


def of_one_length(parameter: Any) -> None:
    total = parameter.summed_grad.view_as(parameter)
    noise = parameter.grad - total
    parameter.grad = total + noise * noise.numel() ** 0.5 / noise.norm()


def a_little_less(parameter: Any) -> None:
    total = parameter.summed_grad.view_as(parameter)
    parameter.grad = total + 0.95 * (parameter.grad - total)


def cut(parameter: Any) -> None:
    total = parameter.summed_grad.view_as(parameter)
    parameter.grad = total + (parameter.grad - total).clamp(-3, 3)  # deviations, of 1


def in_half(parameter: Any) -> None:
    total = parameter.summed_grad.view_as(parameter)
    parameter.grad = (total.half() + (parameter.grad - total).half()).float()


def larger_sum(parameter: Any) -> None:
    parameter.grad = parameter.grad + 0.5 * parameter.summed_grad.view_as(parameter)


def other_momentum(train: Training) -> None:
    """Something is added to the momentum of Adam; a real program would add raw gradients."""
    for parameter in train.optimizer.params:
        train.optimizer.state[parameter]["exp_avg"] += 0.01 * torch.ones_like(parameter)


def with_adam(train: Training, between: Loop) -> Training:
    return Training(kind=lambda p: torch.optim.Adam(p, lr=0.01)).attach().train(between=between)


def in_a_hook(train: Training, change: Callable[[Any, Any], None]) -> Training:
    """Something is changed by a hook that runs between the noise and the update."""
    optimizer = train.optimizer.original_optimizer

    def hook(*_: object) -> None:
        for parameter in train.optimizer.params:
            change(optimizer, parameter)

    optimizer.register_step_pre_hook(hook)
    return train.train()


def weights(_: Any, parameter: Any) -> None:
    parameter.data -= 0.1


def list_in_state(optimizer: Any, parameter: Any) -> None:
    optimizer.state[parameter].setdefault("kept", []).append(torch.ones(3))


def filled_up(features: Any, labels: Any) -> tuple[Any, Any]:
    """Batches of fewer rows than expected repeat some, and are not larger than others are."""
    places = torch.arange(max(50, len(labels))) % len(labels)
    return features[places], labels[places]


def all_drawn_first(train: Training) -> Training:
    """All batches of a pass are drawn before the first step, and taken in another order."""
    for _ in range(2):
        for features, labels in reversed(list(train.loader)):
            train.optimizer.zero_grad()
            nn.functional.cross_entropy(train.model(features), labels).backward()
            train.optimizer.step()
    return train


TWICE = "a step had"
FAULTS: dict[str, tuple[Callable[[Training], Training], str]] = {
    "rows twice": (lambda t: steps_of(t, lambda x, y: (x.repeat(2, 1), y.repeat(2))), TWICE),
    "all rows": (lambda t: steps_of(t, lambda x, y: t.rows.tensors), TWICE),
    "rows kept for later": (
        lambda t: steps_of(t, lambda x, y: (torch.cat([x, t.rows[:20][0]]), torch.cat([y, t.rows[:20][1]]))),
        TWICE,
    ),
    "small batches filled up": (lambda t: steps_of(t, filled_up), TWICE),
    "a larger sum": (lambda t: noise_changed(t, larger_sum), "noisy sums hold more of the rows"),
    "noise of one length": (lambda t: noise_changed(t, of_one_length), "always has the same length"),
    "a little less noise": (lambda t: noise_changed(t, a_little_less), "0.9"),
    "noise that is cut": (lambda t: noise_changed(t, cut), "beyond 3 deviations"),
    "noise added in half precision": (lambda t: noise_changed(t, in_half), "added in half precision"),
    "weights in a hook": (lambda t: in_a_hook(t, weights), "by something other than the private optimizer"),
    "a list in the state": (lambda t: in_a_hook(t, list_in_state), "the state of the optimizer"),
    "momentum": (lambda t: with_adam(t, other_momentum), "the state of the optimizer"),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 20))])
@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_whole_sums_are_found(fault: str, seed: int) -> None:
    train, words = FAULTS[fault]
    result = train(Training(seed=seed).attach(rng=seed)).audit.report(delta=DELTA)
    said = [one for one in str(result).splitlines() if one.startswith("training ")]
    assert any(words in one for one in said), said
    assert result.alarming


def restored(train: Training) -> None:
    """Goes back to the state of an earlier step, as after a step that was too large."""
    optimizer = train.optimizer.original_optimizer
    if train.steps % 5 == 1:
        train.kept = copy.deepcopy(optimizer.state_dict())  # type: ignore[attr-defined]
    elif train.steps % 5 == 3:
        optimizer.load_state_dict(copy.deepcopy(train.kept))  # type: ignore[attr-defined]


def read(train: Training) -> None:
    for parameter in train.optimizer.params:
        train.optimizer.state[parameter].get("exp_avg", torch.zeros(1)).norm()


def shrunk(parameter: Any) -> None:
    """Noisy gradients are made smaller, which needs no privacy."""
    parameter.grad = parameter.grad * 0.7


def reset(train: Training) -> None:
    if train.steps % 7 == 0:
        train.optimizer.original_optimizer.state.clear()


def restarted(train: Training) -> None:
    """Goes back to the state before the first step."""
    if train.steps == 1:
        empty = torch.optim.Adam(train.net.parameters(), lr=0.01).state_dict()
        train.optimizer.original_optimizer.load_state_dict(empty)


def other_key(train: Training) -> None:
    train.optimizer.original_optimizer.state["global step"] = train.steps


def padded(features: Any, labels: Any) -> tuple[Any, Any]:
    """Rows without a gradient fill the batch up; their features are 0, as is the weight of their loss."""
    more = -len(labels) % 8
    return torch.cat([features, torch.zeros(more, 20)]), torch.cat([labels, labels.new_full((more,), -100)])


CORRECT: dict[str, Callable[[Training], Training]] = {
    "state cleared": lambda t: with_adam(t, reset),
    "state as at the start": lambda t: with_adam(t, restarted),
    "a number in the state": lambda t: with_adam(t, other_key),
    "all batches first": all_drawn_first,
    "padding": lambda t: steps_of(t, padded),
    "state restored": lambda t: with_adam(t, restored),
    "state read": lambda t: with_adam(t, read),
    "rows left out by what is in them": lambda t: steps_of(t, lambda x, y: (x[x[:, 0] < 1], y[x[:, 0] < 1])),
    "evaluated between": lambda t: t.train(between=lambda one: next(iter(one.loader))),
}


@pytest.mark.parametrize("seed", [0, *(pytest.param(one, marks=pytest.mark.full) for one in range(1, 20))])
@pytest.mark.parametrize("training", CORRECT)
def test_correct_training_is_not_accused(training: str, seed: int) -> None:
    result = CORRECT[training](Training(seed=seed).attach(rng=seed)).audit.report(delta=DELTA)
    words = (
        "a step had",
        "noisy sums hold",
        "the same length",
        "state of the optimizer",
        "is only",
        "beyond",
    )
    assert not [one for one in result.contradictions if any(map(one.__contains__, words))]


def test_a_state_that_was_read_before_the_first_step_is_no_step() -> None:
    train = Training(kind=lambda p: torch.optim.Adam(p, lr=0.01))
    read(train)
    assert train.attach().train(epochs=1).audit.steps == 20


def with_public(features: Any, labels: Any) -> tuple[Any, Any]:
    return torch.cat([features, torch.randn(10, 20)]), torch.cat([labels, torch.zeros(10, dtype=torch.long)])


def test_public_rows_are_declared() -> None:
    (said,) = steps_of(Training().attach(), with_public).audit.report(delta=DELTA).contradictions
    assert "if they are generated or public, say public_rows=" in said
    declared = Training().attach(public_rows=10)
    assert not steps_of(declared, with_public).audit.report(delta=DELTA).contradictions
    declared = Training().attach(public_rows=9)
    assert steps_of(declared, with_public).audit.report(delta=DELTA).contradictions


def test_an_optimizer_beside_the_private_one_is_named() -> None:
    train = Training().attach()
    shift = torch.zeros(20, requires_grad=True)
    beside = torch.optim.Adam([shift])
    for features, labels in train.loader:
        train.optimizer.zero_grad()
        nn.functional.cross_entropy(train.model(features + shift), labels).backward()
        train.optimizer.step()
        beside.step()
    result = train.audit.report(claimed=3.0, delta=DELTA)
    assert "another optimizer made 19 steps on weights outside of the audited model" in str(result)
    assert "weights (another optimizer trained too, see the note)" in str(result)
    assert "training matches" not in str(result)
    train.audit.detach()
    beside.step()
    assert "made 19 steps" in str(train.audit.report(claimed=3.0, delta=DELTA))


@pytest.mark.parametrize("loss", [1e-20, 1e-26, 1e-40])
def test_tiny_sums_are_no_sums_that_grew(loss: float) -> None:
    """A model that is sure of itself has such gradients. Their squares underflow."""
    for seed in range(2):
        train = Training(seed=seed).attach(rng=seed, canaries=5)
        for features, labels in train.loader:
            train.optimizer.zero_grad()
            (loss * nn.functional.cross_entropy(train.model(features), labels)).backward()
            train.optimizer.step()
        assert not train.audit.report(delta=DELTA).contradictions


def test_shrunken_noisy_gradients_hold_no_more_of_the_rows() -> None:
    result = noise_changed(Training().attach(), shrunk).audit.report(delta=DELTA)
    assert not [one for one in result.contradictions if "noisy sums hold" in one]
