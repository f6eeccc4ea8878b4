"""How far one row moves a step, asked of steps whose sensitivity is known."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from canaria import InputError
from canaria._core.arrays import Floats
from canaria.preflight import check_sensitivity

ROWS = np.random.default_rng(0).normal(size=(12, 5))


def clip(rows: Floats, norm: float = 1.0) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows * np.minimum(1.0, norm / np.maximum(lengths, 1e-300))


def test_a_clipped_sum_holds_at_its_own_norm() -> None:
    found = check_sensitivity(lambda rows: clip(rows, 0.3).sum(0), ROWS, norm=0.3, rng=0)
    assert found.holds
    assert found.moved == pytest.approx(0.3, rel=1e-4)
    assert "One row moves the result by at most 1.00 norms: 12 rows" in str(found)


@pytest.mark.parametrize("norm", [1e-9, 1e9])
def test_the_unit_of_the_norm_does_not_matter(norm: float) -> None:
    assert check_sensitivity(lambda rows: clip(rows, norm).sum(0), ROWS * norm, norm=norm, rng=0).holds


@pytest.mark.parametrize(
    ("name", "step", "moved"),
    [
        ("clipped to twice the norm", lambda rows: clip(rows, 2.0).sum(0), 2.0),
        ("clipped number by number", lambda rows: rows.clip(-1, 1).sum(0), math.sqrt(5)),
        ("not clipped", lambda rows: rows.sum(0), 1e4 * np.linalg.norm(ROWS, axis=1).max()),
        ("each of two arrays clipped", lambda rows: [clip(rows).sum(0), clip(rows).sum(0)], math.sqrt(2)),
    ],
)
def test_a_row_that_moves_too_far_is_found(name: str, step: Any, moved: float) -> None:
    found = check_sensitivity(step, ROWS * 9, norm=1.0, rng=0)
    assert not found.holds, name
    assert found.moved == pytest.approx(moved * (9 if name == "not clipped" else 1), rel=1e-4)
    assert "moves the result by" in str(found)


def test_a_divisor_that_counts_the_rows_is_found() -> None:
    found = check_sensitivity(lambda rows: 12 * clip(rows + 2).mean(0), ROWS, norm=1.0, rng=0)
    assert not found.holds


def test_a_step_that_stops_at_missing_numbers_says_so() -> None:
    found = check_sensitivity(lambda rows: clip(rows).sum(0), ROWS, norm=1.0, rng=0)
    assert found.holds
    assert "Row 0 with missing numbers makes the result infinite or nan: check rows before" in str(found)

    def careful(rows: Floats) -> Floats:
        if np.isnan(rows).any():
            raise ValueError("missing")
        return clip(rows).sum(0)

    found = check_sensitivity(careful, ROWS, norm=1.0, rng=0)
    assert "makes the step raise ValueError('missing')" in str(found)


def test_a_step_in_half_precision_is_not_accused_of_its_rounding() -> None:
    rows = torch.as_tensor(ROWS).bfloat16()

    def step(batch: torch.Tensor) -> torch.Tensor:
        return (batch / batch.float().norm(dim=1, keepdim=True).clamp(min=1).bfloat16()).sum(0)

    assert check_sensitivity(step, rows, norm=1.0, rows=8, rng=0).holds


@pytest.mark.parametrize("per_row", [True, False])
def test_gradients_of_torch_in_dicts_of_tensors(per_row: bool) -> None:
    """A loss of rows of tokens (whole numbers, which stay as they are) and of weights for each row."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 1))
    batch = {"tokens": torch.randint(0, 9, (6, 3)), "weight": torch.rand(6, 1)}

    def gradients(rows: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        model.zero_grad()
        (model(rows["tokens"]) * rows["weight"]).sum().backward()
        found = [weights.grad.clone() for weights in model.parameters() if weights.grad is not None]
        if per_row or len(rows["tokens"]) == 1:
            length = math.sqrt(sum(float(one.square().sum()) for one in found))
            found = [one / max(1.0, length) for one in found]
        return found

    def step(rows: dict[str, torch.Tensor]) -> list[torch.Tensor]:
        if not per_row:
            return gradients(rows)
        each = [
            gradients({k: part[i : i + 1] for k, part in rows.items()}) for i in range(len(rows["weight"]))
        ]
        return [torch.stack(parts).sum(0) for parts in zip(*each, strict=True)]

    assert check_sensitivity(step, batch, norm=1.0, rng=0).holds is per_row


def test_noise_in_the_step_is_refused_and_the_global_generators_are_kept() -> None:
    before = torch.get_rng_state()
    with pytest.raises(InputError, match="two runs of step on one batch differ"):
        check_sensitivity(lambda rows: clip(rows).sum(0) + torch.randn(5).numpy(), ROWS, norm=1.0, rng=0)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (ROWS[:1], "batch must have at least 2 rows"),
        ((ROWS, ROWS[:5]), "as many in each of its parts"),
        ({}, "batch must"),
        ("rows", "batch must hold arrays, tensors or lists"),
        (3, "batch must"),
    ],
)
def test_an_unusable_batch_is_named(batch: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_sensitivity(lambda rows: np.zeros(2), batch, norm=1.0)


def test_a_step_may_change_its_batch() -> None:
    def step(rows: Floats) -> Floats:
        rows *= 0.5
        return clip(rows).sum(0)

    before = ROWS.copy()
    assert check_sensitivity(step, ROWS, norm=1.0, rng=0).holds
    assert np.array_equal(before, ROWS)


def test_negative_rows_are_clipped_too() -> None:
    def step(rows: Floats) -> Floats:
        return np.where(rows.sum(1, keepdims=True) > 0, clip(rows), rows).sum(0)

    assert not check_sensitivity(step, np.abs(ROWS) / 9, norm=1.0, rng=0).holds


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (lambda rows: [], "must return the clipped sum"),
        (lambda rows: clip(rows).sum(0) + 1e9, "rounding hides"),
    ],
)
def test_a_result_that_shows_nothing_is_named(step: Any, said: str) -> None:
    with pytest.raises(InputError, match=said):
        check_sensitivity(step, ROWS, norm=1.0)


def test_complex_results_keep_both_parts() -> None:
    assert not check_sensitivity(lambda rows: 9j * clip(rows).sum(0), ROWS, norm=1.0, rng=0).holds


def test_a_result_that_is_not_finite_is_named() -> None:
    with pytest.raises(InputError, match="not finite on the given batch"):
        check_sensitivity(lambda rows: np.array([np.inf]), ROWS, norm=1.0)
