"""Membership scores from the answers of a model. Higher means "trained on"."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt
from scipy import special

from canaria._core import checks
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError

if TYPE_CHECKING:
    from torch import nn

_FEWEST_OTHERS: Final = 20
_WRAPPERS: Final = re.compile(r"^((_module|module|_orig_mod)\.)+")


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


def weight_scores(
    initial: "nn.Module", final: "nn.Module", loss: Callable[..., Any], rows: Sequence[Any]
) -> Floats:
    """How far training moved the weights along each canary's own gradient at the initial weights.

    It helps where canaries share their weights with all rows. For canaries with weights of their own,
    `logit_scores` showed more: later steps have other gradients.

    Args:
        initial: The model before training.
        final: The model after training, with the same parameters.
        loss: Called as `loss(initial, *parts)`, returns the loss of one canary.
        rows: The canaries as a sequence of tensors, such as inputs and labels, with one row for each.

    Example:
        >>> import torch
        >>> before, after = (torch.nn.Linear(2, 1, bias=False) for _ in range(2))
        >>> with torch.no_grad():
        ...     _ = before.weight.zero_(), after.weight.copy_(torch.tensor([[3.0, 1.0]]))
        >>> def squared(model, row, label):
        ...     return ((model(row) - label) ** 2).mean()
        >>> weight_scores(before, after, squared, (torch.eye(2), torch.ones(2, 1))).tolist()
        [3.0, 1.0]
    """
    import torch

    if initial is final:
        raise InputError("final must be another object than initial: copy the model before you train it")
    trained = {name: one for name, one in _named(initial) if one.requires_grad}
    changed = dict(_named(final))
    if not trained:
        raise InputError("initial must have parameters that are trained")
    if not trained.keys() <= changed.keys():
        raise InputError("final must have the parameters of initial, by the same names")
    moved = [changed[name].detach() - one.detach() for name, one in trained.items()]
    found = []
    for place in range(len(rows[0])):
        value = loss(initial, *(part[place : place + 1] for part in rows))
        gradient = torch.autograd.grad(value, list(trained.values()), allow_unused=True)
        pairs = [(one, more) for one, more in zip(gradient, moved, strict=True) if one is not None]
        along = sum(float(torch.sum(one * more)) for one, more in pairs)
        length = sum(float(one.square().sum()) for one, _ in pairs) ** 0.5
        found.append(-along / length if length else 0.0)
    return np.array(found)


def _named(model: "nn.Module") -> Iterator[tuple[str, Any]]:
    """The parameters of a model, by the names they have without wrappers, as of Opacus or DDP."""
    for name, parameter in model.named_parameters():
        yield _WRAPPERS.sub("", name), parameter


def quantile_scores(
    scores: npt.ArrayLike, features: npt.ArrayLike, others: npt.ArrayLike, other_features: npt.ArrayLike
) -> Floats:
    """How unusual each canary's score is among rows like it that the model was not trained on.

    A row that is easy for every model has a low loss, trained on or not. Quantiles of the score are fitted to
    rows that are not canaries, by gradient boosting (scikit-learn), and predicted for each canary.

    Args:
        scores: One score per canary.
        features: What is known of each canary without its coin, such as its loss by another model; one row
            each.
        others: Scores of rows that are not canaries, and were not trained on; at least 20.
        other_features: The same features of these rows.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> hard, canaries = rng.random((500, 1)), rng.random((4, 1))
        >>> trained = np.array([1.0, 0.0, 1.0, 0.0])
        >>> found = quantile_scores(trained - 9 * canaries[:, 0], canaries, -9 * hard[:, 0], hard)
        >>> (found > 1).tolist()
        [True, False, True, False]
    """
    from sklearn.ensemble import HistGradientBoostingRegressor  # type: ignore[import-untyped]

    own, known = checks.vector("scores", scores), checks.vector("others", others)
    about, about_others = (np.asarray(part, dtype=np.float64) for part in (features, other_features))
    checks.same_length("features", len(about), "scores", len(own))
    checks.same_length("other_features", len(about_others), "others", len(known))
    if len(known) < _FEWEST_OTHERS:
        raise InputError(f"others must have at least {_FEWEST_OTHERS} scores, got {len(known)}")
    low, middle, high = (
        HistGradientBoostingRegressor(loss="quantile", quantile=share).fit(about_others, known).predict(about)
        for share in (0.25, 0.5, 0.75)
    )
    # Fitted quantiles may cross; a part of the overall spread keeps the scale positive.
    least = 0.01 * (np.quantile(known, 0.75) - np.quantile(known, 0.25)) + np.finfo(np.float64).tiny
    return np.asarray((own - middle) / np.maximum(high - low, least))


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
