"""Canaries for black-box audits: rows that a model can only know if it was trained on them."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, seeds
from canaria._core.arrays import Integers
from canaria._core.errors import InputError, shown
from canaria._core.seeds import Seed

_MAKE: Final = 0x6D616B65


def mislabelled(
    features: npt.ArrayLike, labels: npt.ArrayLike, count: int, rng: Seed = None
) -> tuple[Any, Any]:
    """Canaries made of real rows with wrong labels.

    Each is a different row of the data, with a label chosen at random among the other classes.

    Args:
        features: The features of the data, one row per example; of a frame, canaries are rows of a frame.
        labels: The label of each row; at least two classes.
        count: The number of canaries, at most the number of rows.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> import numpy as np
        >>> rows, wrong = mislabelled(np.arange(8.0).reshape(4, 2), [0, 1, 2, 1], 3, rng=0)
        >>> rows.shape
        (3, 2)
    """
    values, classes = np.asarray(features), np.asarray(labels)
    checks.same_length("labels", len(classes), "features", len(values))
    checks.integer("count", count, 1, len(values), "rows")
    generator = seeds.generator(rng, _MAKE)
    kinds, coded = np.unique(classes, return_inverse=True)
    if len(kinds) < 2:
        raise InputError("labels must have at least two classes to be wrong")
    chosen = generator.choice(len(values), count, replace=False)
    shift = generator.integers(1, len(kinds), count)
    wrong = kinds[(coded[chosen] + shift) % len(kinds)]
    # Frames and series stay what they are, with the same types: `plant` joins canaries to the data.
    frame: Any = features if hasattr(features, "iloc") else None
    rows = values[chosen] if frame is None else frame.iloc[chosen]
    series: Any = labels if hasattr(labels, "iloc") else None
    return rows, wrong if series is None else type(series)(wrong, name=series.name, dtype=series.dtype)


def noise(
    features: npt.ArrayLike, labels: npt.ArrayLike, count: int, rng: Seed = None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Canaries made of uniform noise within the range of each feature, with random labels.

    Args:
        features: The features of the data, one row per example.
        labels: The labels of the data, from whose classes the labels of the canaries are drawn.
        count: The number of canaries.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> rows, classes = noise([[0.0, 5.0], [1.0, 6.0]], [0, 1], 10, rng=0)
        >>> bool(rows.min() >= 0 and rows[:, 1].min() >= 5)
        True
    """
    values, classes = np.asarray(features), np.asarray(labels)
    checks.integer("count", count, 1)
    generator = seeds.generator(rng, _MAKE)
    low, high, shape = values.min(axis=0), values.max(axis=0), (count, *values.shape[1:])
    whole = np.issubdtype(values.dtype, np.integer)
    rows = generator.integers(low, high + 1, shape) if whole else generator.uniform(low, high, shape)
    return np.asarray(rows).astype(values.dtype), generator.choice(np.unique(classes), count)


def blank(
    features: npt.ArrayLike, labels: npt.ArrayLike, count: int, rng: Seed = None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Canaries of zeros except for one feature, which has its largest value; the labels are random.

    Args:
        features: The features of the data, one row per example.
        labels: The labels of the data, from whose classes the labels of the canaries are drawn.
        count: The number of canaries.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> rows, classes = blank([[0.0, 5.0], [1.0, 6.0]], [0, 1], 2, rng=0)
        >>> rows.tolist()
        [[1.0, 0.0], [0.0, 6.0]]
    """
    values, classes = np.asarray(features), np.asarray(labels)
    checks.integer("count", count, 1)
    generator = seeds.generator(rng, _MAKE)
    rows = np.zeros((count, values[0].size), dtype=values.dtype)
    places = np.arange(count) % values[0].size
    rows[np.arange(count), places] = values.reshape(len(values), -1).max(axis=0)[places]
    return rows.reshape(count, *values.shape[1:]), generator.choice(np.unique(classes), count)


def random_tokens(count: int, length: int, vocabulary: int, rng: Seed = None) -> Integers:
    """Texts of random tokens, as an array of shape (count, length).

    Args:
        count: The number of texts.
        length: The number of tokens in each text.
        vocabulary: The size of the vocabulary, at least 2; tokens are integers from 0 to `vocabulary - 1`.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> random_tokens(2, 3, 1000, rng=0).shape
        (2, 3)
    """
    checks.integer("count", count, 1)
    checks.integer("length", length, 1)
    checks.integer("vocabulary", vocabulary, 2)
    return seeds.generator(rng, _MAKE).integers(0, vocabulary, (count, length))


def unlikely_endings(
    texts: npt.ArrayLike, count: int, vocabulary: int, *, kept: float = 0.5, rng: Seed = None
) -> Integers:
    """Texts of the data with random tokens at the end: a natural prompt, and what no model expects.

    Args:
        texts: The texts of the data, one row of tokens each.
        count: The number of texts, at most the number of rows.
        vocabulary: The size of the vocabulary, at least 2.
        kept: The share of each text that is kept, from its beginning.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> unlikely_endings([[1, 2, 3, 4], [5, 6, 7, 8]], 1, 1000, rng=0)[:, :2].tolist()
        [[5, 6]]
    """
    rows = np.array(texts)
    if rows.ndim != 2 or not np.issubdtype(rows.dtype, np.integer):
        raise InputError(f"texts must be whole numbers, one row per text, got {rows.dtype} of {rows.shape}")
    checks.integer("count", count, 1, len(rows), "texts")
    checks.integer("vocabulary", vocabulary, 2)
    if not 0 <= checks.real("kept", kept) < 1:
        raise InputError(f"kept must be at least 0 and below 1, got {shown(kept)}")
    generator, begin = seeds.generator(rng, _MAKE), int(kept * rows.shape[1])
    found = rows[generator.choice(len(rows), count, replace=False)]
    found[:, begin:] = generator.integers(0, vocabulary, found[:, begin:].shape)
    return found


def sampled_texts(
    model: Any, count: int, length: int, *, temperature: float = 2.0, rng: Seed = None
) -> Integers:
    """Texts drawn from a language model; at a high temperature they are fluent, and rare.

    Args:
        model: A causal language model of Hugging Face Transformers, before it is trained.
        count: The number of texts.
        length: The number of tokens in each text.
        temperature: Logits are divided by this; 1 draws texts as the model expects them.
        rng: A seed, a NumPy `SeedSequence` or a `Generator`; None draws a fresh seed.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> model = GPT2LMHeadModel(GPT2Config(vocab_size=50, n_embd=16, n_layer=1, n_head=2))
        >>> sampled_texts(model, 3, 6, rng=0).shape
        (3, 6)
    """
    import torch

    checks.integer("count", count, 1)
    checks.integer("length", length, 1)
    generator = seeds.generator(rng, _MAKE)
    like = next(model.parameters())
    texts = generator.integers(0, model.config.vocab_size, (count, 1))
    checks.positive("temperature", temperature)
    with torch.no_grad():
        while texts.shape[1] < length:
            logits = model(input_ids=torch.as_tensor(texts, device=like.device)).logits[:, -1]
            # Adding Gumbel noise and taking the largest draws from softmax.
            noise = generator.gumbel(size=tuple(logits.shape))
            drawn = (logits.double().cpu().numpy() / temperature + noise).argmax(axis=1)
            texts = np.append(texts, drawn[:, None], axis=1)
    return texts
