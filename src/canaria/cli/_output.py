"""How a result is shown: a few lines for people, JSON for programs, an exit code for both."""

import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from canaria.results import Result


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print the warnings of a computation as single lines on standard error, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"canaria: warning: {message}", err=True)


def finish(compute: Callable[[], "Result"], as_json: bool) -> NoReturn:
    """Compute a result, show it, and leave with code 1 if the claim is refuted."""
    with one_line_warnings():
        result = compute()
    typer.echo(result.to_json() if as_json else str(result))
    raise typer.Exit(1 if result.refuted else 0)


def note_pure(claimed: float | None, delta: float | None) -> None:
    """Say so where a claim is read as one of pure DP because nobody gave its delta."""
    if claimed is not None and claimed >= 0 and delta is None:
        typer.echo("canaria: note: no --delta given, so the claim is read as pure DP (delta = 0)", err=True)


def command_line() -> str:
    """What the user typed."""
    return shlex.join(["canaria", *sys.argv[1:]])
