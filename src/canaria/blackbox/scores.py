"""Membership scores from the answers of a model. Higher means "trained on"."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError


def loss_scores(answers: npt.ArrayLike, labels: npt.ArrayLike, *, logits: bool = False) -> Floats:
    """The log probability that the model gives to the labels (its negative loss).

    Args:
        answers: One row per canary and one column per class: probabilities, or logits if `logits` is True.
        labels: The label of each canary, as the index of a column.
        logits: Whether the answers are logits.

    Example:
        >>> loss_scores([[0.5, 0.5], [0.1, 0.9]], [0, 1]).round(3).tolist()
        [-0.693, -0.105]
    """
    table, columns = _checked(answers, labels)
    if logits:
        logs = special.log_softmax(table, axis=1)
    else:
        if table.min() < 0 or np.abs(table.sum(axis=1) - 1).max() > 1e-3:
            raise InputError(
                "answers must be probabilities (rows that add up to 1); say logits=True for logits"
            )
        logs = np.log(np.maximum(table, np.finfo(np.float64).tiny))
    return np.asarray(logs[np.arange(len(columns)), columns])


def margin_scores(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """The logit of the label minus the largest logit of the other classes.

    Args:
        logits: One row per canary and one column per class.
        labels: The label of each canary, as the index of a column.

    Example:
        >>> margin_scores([[2.0, 0.5], [0.0, 3.0]], [0, 0]).tolist()
        [1.5, -3.0]
    """
    table, columns = _checked(logits, labels)
    rows = np.arange(len(columns))
    others = table.copy()
    others[rows, columns] = -np.inf
    return np.asarray(table[rows, columns] - others.max(axis=1))


def logit_scores(logits: npt.ArrayLike, labels: npt.ArrayLike) -> Floats:
    """The logit of the label minus the mean of all, less the average of that for canaries with this label.

    It is for canaries that are alike but for weights of their own. A model may favour a class for all of
    them, which says nothing about a single one. A loss saturates where a logit does not.

    Args:
        logits: One row per canary and one column per class.
        labels: The label of each canary, as the index of a column.

    Example:
        >>> logit_scores([[2.0, 0.0], [0.0, 3.0], [1.0, 3.0]], [0, 0, 1]).tolist()
        [1.25, -1.25, 0.0]
    """
    table, columns = _checked(logits, labels)
    above = table[np.arange(len(columns)), columns] - table.mean(axis=1)
    counts = np.maximum(np.bincount(columns), 1)
    return np.asarray(above - (np.bincount(columns, weights=above) / counts)[columns])


def token_scores(model: Any, tokens: npt.ArrayLike, *, at_once: int = 64) -> Floats:
    """The log probability that a language model gives to each text (its negative loss, summed over tokens).

    Args:
        model: A causal language model of Hugging Face Transformers, or any module that returns logits.
        tokens: One row of token numbers per text.
        at_once: The number of texts that the model reads at once.

    Example:
        >>> import torch
        >>> def model(input_ids):  # two tokens, of which the second is three times as likely
        ...     return torch.log(torch.tensor([0.25, 0.75])).expand(*input_ids.shape, 2)
        >>> token_scores(model, [[0, 1, 1], [0, 0, 1]]).round(3).tolist()
        [-0.575, -1.674]
    """
    import torch

    rows = torch.as_tensor(np.asarray(tokens))
    device = next((one.device for one in getattr(model, "parameters", list)()), torch.device("cpu"))
    found = []
    with torch.no_grad():
        for some in torch.split(rows.to(device), at_once):
            answer = model(input_ids=some)
            logits = getattr(answer, "logits", answer)[:, :-1].double()
            likely = torch.log_softmax(logits, dim=-1).gather(-1, some[:, 1:, None])
            found.append(likely.sum(dim=(1, 2)).cpu())
    return np.asarray(torch.cat(found))


def difference_scores(scores: npt.ArrayLike, reference: npt.ArrayLike) -> Floats:
    """Scores minus those of a reference model without canaries, to correct for how hard each canary is.

    Args:
        scores: One score per canary.
        reference: The score that the reference model gives to each canary.

    Example:
        >>> difference_scores([1.0, 2.0], [0.5, 2.5]).tolist()
        [0.5, -0.5]
    """
    own, other = checks.vector("scores", scores), checks.vector("reference", reference)
    checks.same_length("reference", len(other), "scores", len(own))
    return own - other


def _checked(answers: npt.ArrayLike, labels: npt.ArrayLike) -> tuple[Floats, Integers]:
    table, columns = np.asarray(answers, dtype=np.float64), np.asarray(labels)
    if table.ndim != 2 or table.shape[1] < 2 or not np.isfinite(table).all():
        raise InputError(
            f"answers must be finite, one row per canary and a column per class, got {table.shape}"
        )
    checks.same_length("labels", len(columns), "answers", len(table))
    whole = columns.ndim == 1 and np.issubdtype(columns.dtype, np.integer)
    if not whole or columns.min() < 0 or columns.max() >= table.shape[1]:
        raise InputError(f"labels must be columns of answers, 0 to {table.shape[1] - 1}")
    return table, columns.astype(np.int64)
