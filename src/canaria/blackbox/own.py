"""Canaries with weights of their own, for audits that see only the finished model.

A claim about DP-SGD holds for any initial weights. So the auditor may add weights to a model before training,
as long as they do not depend on private data. If a weight has a gradient for one canary alone, the sum of its
gradients over training is the canary's number of steps plus noise, and no other row disturbs it. The model's
answer to the canary then shows almost as much as the weights themselves.

The coins are tossed later, by `plant`, so neither canaries nor weights can depend on them.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, seeds
from canaria._core.arrays import Floats, Integers
from canaria._core.errors import InputError
from canaria._core.seeds import Seed

_COLUMNS: Final = 0x6F776E63
_TOKENS: Final = 0x6F776E74


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
    and a zero row in the output layer. Its canary's gradient is then one direction in that row alone. Tied
    embeddings are untied, since one matrix cannot be both. Call this before you make the optimizer.

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
        >>> model.get_output_embeddings().weight.shape
        torch.Size([53, 16])
    """
    import torch

    checks.integer("count", count, 1)
    checks.integer("length", length, 2)
    if model.get_output_embeddings() is None or model.config.is_encoder_decoder:
        raise InputError("model must have an output layer over tokens, as causal language models do")
    known = model.get_input_embeddings().weight.shape[0]
    model.resize_token_embeddings(known + count, mean_resizing=False)
    incoming, outgoing = model.get_input_embeddings(), model.get_output_embeddings()
    if outgoing.weight is incoming.weight:
        outgoing.weight = torch.nn.Parameter(incoming.weight.detach().clone())
        model.config.tie_word_embeddings = False
    drawn = seeds.generator(rng, _TOKENS).normal(scale=size, size=(count, incoming.weight.shape[1]))
    with torch.no_grad():
        incoming.weight[known:] = torch.as_tensor(drawn).to(incoming.weight)
        outgoing.weight[known:] = 0
        if getattr(outgoing, "bias", None) is not None:
            outgoing.bias[known:] = 0
    return np.repeat(known + np.arange(count)[:, None], length, axis=1)
