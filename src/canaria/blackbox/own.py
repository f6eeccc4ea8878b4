"""Canaries with weights of their own, for audits that see only the finished model.

A claim about DP-SGD holds for any initial weights. So the auditor may add weights to a model before training,
as long as they do not depend on private data. If a weight has a gradient for one canary alone, the sum of its
gradients over training is the canary's number of steps plus noise, and no other row disturbs it. The model's
answer to the canary then shows almost as much as the weights themselves.

The coins are tossed later, by `plant`, so neither canaries nor weights can depend on them.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError
from canaria._core.seeds import Seed

_COLUMNS: Final = 0x6F776E63
_TOKENS: Final = 0x6F776E74
_UNITS: Final = 0x6F776E75
_LEAST_FEATURES: Final = 64
"""With fewer features, the patterns of canaries are too similar: units would answer to several."""
_CONTRAST: Final = 0.5
"""Canaries use this share of the range of a feature, so that rounding to bytes or clamping does no harm."""
_OWN: Final = 0.05
"""The share of a canary's pattern that is its own. All else is common to the canaries.

Layers that all rows share answer nearly the same to nearly equal canaries. What these layers learn, which
would otherwise drown what a unit adds, is then a constant, which `logit_scores` subtracts.
"""
_DEVIATIONS: Final = 8.0
"""How many standard deviations a real row of the largest contrast is away from reaching a unit."""


def own_columns(
    features: npt.ArrayLike, labels: npt.ArrayLike, count: int, *, size: float = 10.0, rng: Seed = None
) -> tuple[Floats, tuple[Floats, npt.NDArray[Any]]]:
    """Canaries for tables: each has a column of its own, which is 0 in all other rows.

    A categorical column with a category for each canary does the same after one-hot encoding. In a network,
    set the weights of the new columns to 0 before training, `first.weight.data[:, -count:] = 0`: otherwise
    much of a canary's gradient goes into later layers, whose weights all rows share.

    Args:
        features: The features of the data, one row per example.
        labels: The class of each row.
        count: The number of canaries.
        size: The value of a canary in its column. Weights of the column get almost all of a canary's gradient
            if this is large compared with the other features.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Returns:
        The features with the new columns, and the canaries to plant: their features and random labels.

    Example:
        >>> from canaria.blackbox import own_columns
        >>> wide, (rows, classes) = own_columns([[0.5, 1.0], [0.1, 0.3]], [0, 1], 3, rng=0)
        >>> wide.shape, rows.tolist()[1]
        ((2, 5), [0.0, 0.0, 0.0, 10.0, 0.0])
    """
    values, classes = np.asarray(features, dtype=np.float64), np.asarray(labels)
    if values.ndim != 2:
        raise InputError(f"features must have one row per example and one column each, got {values.shape}")
    checks.same_length("labels", len(classes), "features", len(values))
    checks.integer("count", count, 1)
    width, drawn = values.shape[1], seeds.generator(rng, _COLUMNS)
    rows = np.zeros((count, width + count))
    rows[np.arange(count), width + np.arange(count)] = checks.nonnegative("size", size)
    wide = np.concatenate([values, np.zeros((len(values), count))], axis=1)
    return wide, (rows, drawn.choice(np.unique(classes), count))


def own_tokens(model: Any, count: int, length: int = 32, *, size: float = 10.0, rng: Seed = None) -> Integers:
    """Canaries for language models: adds a token for each, and repeats it.

    A new token has a large initial embedding, so that it stays what it is whatever the other layers learn,
    and a zero row in the output layer. Its canary's gradient is then one direction in that row alone. These
    rows are a layer called `own_tokens`: with LoRA, name it in `modules_to_save`, so that it is trained. Tied
    embeddings are untied, so that the model can be saved. Call this before you make the optimizer.

    Args:
        model: A causal language model of Hugging Face Transformers.
        count: The number of canaries.
        length: The number of tokens in each text.
        size: The standard deviation of a number in the embedding of a new token.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Returns:
        The canaries to plant: one row of token numbers each.

    Example:
        >>> from transformers import LlamaConfig, LlamaForCausalLM
        >>> from canaria.blackbox import own_tokens
        >>> small = LlamaConfig(vocab_size=50, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        ...                     num_attention_heads=2)
        >>> model = LlamaForCausalLM(small)
        >>> own_tokens(model, 3, 4, rng=0).tolist()
        [[50, 50, 50, 50], [51, 51, 51, 51], [52, 52, 52, 52]]
        >>> model(input_ids=model.dummy_inputs["input_ids"]).logits.shape[-1]
        53
    """
    import torch

    from canaria.blackbox._layers import OwnHead

    checks.integer("count", count, 1)
    checks.integer("length", length, 2)
    if model.get_output_embeddings() is None or model.config.is_encoder_decoder:
        raise InputError("model must have an output layer over tokens, as causal language models do")
    if isinstance(model.get_output_embeddings(), OwnHead):
        raise InputError("model has tokens for canaries already; call own_tokens once, for all of them")
    known = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(known + count, mean_resizing=False)
    incoming, outgoing = model.get_input_embeddings(), model.get_output_embeddings()
    drawn = seeds.generator(rng, _TOKENS).normal(scale=size, size=(count, incoming.weight.shape[1]))
    with torch.no_grad():
        incoming.weight[known:] = torch.as_tensor(drawn).to(incoming.weight)
    if outgoing.weight is incoming.weight:
        outgoing.weight = torch.nn.Parameter(incoming.weight.detach().clone())
        model.config.tie_word_embeddings = False
    model.set_output_embeddings(OwnHead(outgoing, known, count, outgoing.weight.shape[1]))
    return np.repeat(known + np.arange(count)[:, None], length, axis=1)


def own_units(
    model: Any,
    shape: Sequence[int],
    count: int,
    *,
    low: float = 0.0,
    high: float = 1.0,
    gain: float = 100.0,
    rng: Seed = None,
) -> tuple[Any, tuple[Floats, Integers]]:
    """Canaries for pictures and other rows of many numbers: adds a hidden unit for each beside a classifier.

    Canaries are patterns of noise that hardly differ. Each unit answers to its own canary and to nothing
    else, and the weights from units to classes start at 0, so that the model's answers do not change. Train
    the returned model in place of yours. Call this before you make the optimizer.

    Args:
        model: A torch module that turns rows of this shape into one logit per class.
        shape: The shape of a row as the model reads it, such as (1, 28, 28); at least 64 numbers.
        count: The number of canaries.
        low: The smallest value of a feature, known without looking at private data.
        high: The largest value of a feature.
        gain: The answer of a unit to its canary. Weights of the unit get almost all of the canary's gradient
            if this is large compared with what other layers answer.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Returns:
        The model with the units, and the canaries to plant: their rows and random labels.

    Example:
        >>> from torch import nn
        >>> from canaria.blackbox import own_units
        >>> net = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
        >>> wide, (rows, labels) = own_units(net, (1, 28, 28), 30, rng=0)
        >>> rows.shape, wide.own_units.weight.shape
        ((30, 1, 28, 28), torch.Size([10, 30]))
    """
    import torch

    from canaria.blackbox._layers import OwnUnits

    checks.integer("count", count, 1)
    features = int(np.prod(shape))
    if features < _LEAST_FEATURES:
        raise InputError(
            f"shape must have at least {_LEAST_FEATURES} numbers, got {features}: units would answer to "
            "several rows; use own_columns for small tables"
        )
    if not low < high:
        raise InputError(f"high must be above low = {low}, got {high}")
    drawn, middle, half = seeds.generator(rng, _UNITS), (low + high) / 2, _CONTRAST * (high - low) / 2
    common = (1 - _OWN) * drawn.choice([-1.0, 1.0], features)
    own = _OWN * drawn.choice([-1.0, 1.0], (count, features))
    own -= np.outer(own @ common, common) / (common @ common)
    rows = (middle + half * (common + own)).reshape(count, *shape)
    into, silence = _detectors(common, own)
    # Units read the features as they are: u = (x - middle) / half.
    into = gain * into / half
    silence = gain * silence + middle * into.sum(axis=1)
    like = next(model.parameters(), None)
    if like is None:
        raise InputError("model must have parameters")
    training = [part for part in model.modules() if part.training]
    with torch.no_grad():
        answers = model.eval()(torch.as_tensor(rows[:2]).to(like))
    for part in training:  # not `train()`, which would wake parts that the program holds still
        part.training = True
    if not isinstance(answers, torch.Tensor) or answers.ndim != 2 or answers.shape[1] < 2:
        raise InputError(
            "model must return one logit per class for each row, as a tensor, of two classes or more"
        )
    classes = answers.shape[1]
    wide = OwnUnits(model, torch.as_tensor(into).to(like), torch.as_tensor(silence).to(like), classes)
    return wide, (rows, drawn.integers(0, classes, count))


def _detectors(common: Floats, own: Floats) -> tuple[Floats, Floats]:
    """Weights and thresholds of units of which each is 1 for its canary and silent for other rows.

    For a row u, let z = (own, u - common) / |own|^2 and c = (common, u) / |common|^2. A unit computes

        2 z - 1 - 2 m (1 - c).

    Its own canary has z = 1, and every canary has c = 1, since own and common are orthogonal. Other canaries
    have z = 0, but for products of independent signs, and so are at -1. A real row has c = 0, but for a
    deviation of 1 / sqrt(d): its z may be far from 0, with a deviation of up to 1 / (_CONTRAST _OWN sqrt(d)),
    of which m is a multiple.
    """
    most = _DEVIATIONS / (_CONTRAST * _OWN * np.sqrt(len(common)))
    apart = 2 * own / np.square(own).sum(axis=1, keepdims=True)
    shared = 2 * most * common / np.square(common).sum()
    return apart + shared, apart @ common + 1 + 2 * most
