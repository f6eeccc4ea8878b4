"""Packages that only some uses need: who lacks one is told in one line which extra brings it."""

from collections.abc import Iterator
from contextlib import contextmanager

from canaria._core.errors import InputError


class MissingExtraError(InputError, ImportError):
    """Raised if a package is not installed that this use needs; the message says how to install it."""


@contextmanager
def needed_for(use: str, extra: str) -> Iterator[None]:
    """Import packages of an extra within this.

    A package that is installed and does not load is no missing extra: its own error says more.

    Args:
        use: What needs them, as the start of a sentence.
        extra: The extra that brings them.

    Raises:
        MissingExtraError: If one of them is not installed.

    Example:
        >>> with needed_for("a table", "arrow"):
        ...     import no_such_package
        Traceback (most recent call last):
        canaria._core.extras.MissingExtraError: a table needs no_such_package: pip install "canaria[arrow]"

    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or str(error)).partition(".")[0]
        raise MissingExtraError(f'{use} needs {package}: pip install "canaria[{extra}]"') from None
