"""How a result is shown: a few lines for people, JSON for programs, an exit code for both."""

import shlex
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

import typer

if TYPE_CHECKING:
    from canaria.claims import ApproximateDP
    from canaria.results.result import Result


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


def claim_of(claimed: float | None, delta: float | None) -> "ApproximateDP | None":
    """The claim that a bound is held against; its delta is part of it."""
    from canaria._core.checks import nonnegative
    from canaria._core.errors import InputError
    from canaria.claims import ApproximateDP

    if claimed is None:
        return None
    if delta is None:
        raise InputError(
            "--claimed needs --delta, the delta of the claim: --delta 1e-5, say, or --delta 0 for pure DP"
        )
    return ApproximateDP(nonnegative("claimed", claimed), delta)


def command_line() -> str:
    """What the user typed."""
    return shlex.join(["canaria", *sys.argv[1:]])
