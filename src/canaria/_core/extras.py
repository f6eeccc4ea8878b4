"""Optional packages. If one is missing, the error names the extra that installs it."""

from collections.abc import Iterator
from contextlib import contextmanager

from canaria._core.errors import InputError


class MissingExtraError(InputError, ImportError):
    """Raised if a package that is needed is not installed; the message says how to install it."""


@contextmanager
def needed_for(use: str, extra: str) -> Iterator[None]:
    """Import packages of an extra within this context; `use` is the start of a sentence.

    If a package is installed but fails to load, its own error is raised, because it says more.

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
