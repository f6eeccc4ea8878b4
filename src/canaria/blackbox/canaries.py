"""Canaries for black-box audits: rows that a model can only know if it was trained on them."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from canaria._core import checks, seeds
from canaria._core.arrays import Integers
from canaria._core.errors import InputError
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
