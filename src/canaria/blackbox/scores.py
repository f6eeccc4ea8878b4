"""Membership scores from the answers of a model. Higher means "trained on"."""

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
