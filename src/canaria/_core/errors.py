"""Errors with one-line messages: what was given, what is allowed, and what was probably meant."""

import difflib
from collections.abc import Iterable
from typing import Final

_SHOWN: Final = 60
"""The longest value that an error message quotes in full."""


class CanariaError(Exception):
    """The base class of all errors that canaria raises on purpose. The message is one line."""


class InputError(CanariaError, ValueError):
    """Raised for an argument, a file or a command that cannot be used.

    Every function raises it for arguments that are not what its documentation asks for. `Raises` lists only
    further reasons.

    Example:
        >>> from canaria import Counts, InputError
        >>> try:
        ...     Counts(12, 10, 10)
        ... except InputError as error:
        ...     print(error)
        correct must be an integer between 0 and taken = 10, got 12
    """

    __module__ = "canaria"


class TrainingDivergedError(CanariaError, ArithmeticError):
    """Raised if the noisy sums of a training run are not finite, so that there is nothing to audit.

    Example:
        ```python
        try:
            audit.report(claimed=2.0, delta=1e-5)
        except TrainingDivergedError as error:
            print(error)  # train again, with a smaller learning rate
        ```
    """

    __module__ = "canaria.training"


class NoiseAlarmError(CanariaError, RuntimeError):
    """Raised to stop a watched training run whose noise differs from what was stated.

    Example:
        ```python
        audit.watch(alpha=1e-3, on_alarm="stop")
        try:
            train(model, optimizer, loader)
        except NoiseAlarmError as alarm:
            print(alarm)  # the noise that was seen, and the noise that was stated
        ```
    """

    __module__ = "canaria.training"


class AuditWarning(UserWarning):
    """Issued if an audit shows less than its user may expect.

    Example:
        >>> import warnings
        >>> import numpy as np
        >>> from canaria import audit_scores
        >>> included = np.random.default_rng(0).integers(0, 2, 500)
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     bound = audit_scores(-1.0 * included, included, rng=0)  # losses, not scores: upside down
        >>> bound.epsilon, [warning.category.__name__ for warning in caught]
        (0.0, ['AuditWarning'])
    """

    __module__ = "canaria.evidence"


def shown(value: object) -> str:
    """Render a value on one line, cut to a length that fits in an error message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"


def printable(text: str) -> str:
    """Text without control characters, which could move the cursor of a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


def nearest(word: object, known: Iterable[str]) -> str:
    """A suggestion to append to an error message; empty if no known word is similar.

    >>> nearest("xor-in-pair", ["xor", "xor-in-pairs"])
    "; did you mean 'xor-in-pairs'?"
    """
    close = difflib.get_close_matches(str(word), known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
