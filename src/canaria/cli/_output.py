"""Output of results: a few lines for people, JSON for programs, an exit code for both."""

import os
import shlex
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import typer
from typer.core import TyperGroup

from canaria.cli._progress import working

if TYPE_CHECKING:
    from canaria.bounds.result import Result
    from canaria.claims import Claim

_NOT_RESULTS: Final = (".html", ".htm", ".md", ".txt", ".csv", ".svg", ".pdf")
_TYPED: Final = ContextVar[str]("typed")


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print the warnings of a computation on standard error, one line each, without duplicates."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"canaria: warning: {message}", err=True)


def require_free(out: Path | None, inputs: Iterable[str] = ()) -> None:
    """Refuse an output that would replace an input or cannot be written, before anything is computed."""
    from canaria._core.errors import InputError, shown

    if out is None:
        return
    if str(out) == "-":
        raise InputError("--out must name a file, got '-'; without --out, the output goes to standard output")
    if any(file != "-" and _same_file(Path(file), out) for file in inputs):
        raise InputError(f"--out must not be one of the files that are read, got {shown(str(out))}")
    if not os.path.isdir(out.parent):
        raise InputError(f"--out must be in a folder that exists, got {shown(str(out))}")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except (OSError, ValueError):
        return False


def require_result_file(out: Path | None, inputs: Iterable[str] = ()) -> None:
    """Refuse a result file that cannot be written, or whose ending is that of another format."""
    from canaria._core.errors import InputError, shown

    require_free(out, inputs)
    if out is not None and out.suffix.lower() in _NOT_RESULTS:
        raise InputError(
            f"--out writes a result file (.json), got {shown(str(out))}; for a page: canaria report "
            "result.json -o report.html"
        )


def finish(
    compute: Callable[[], "Result"], as_json: bool, out: Path | None, on: str = "computing the bound"
) -> NoReturn:
    """Compute, write and print a result, and exit with code 1 if the claim is refuted."""
    with one_line_warnings(), working(on):
        result = replace(compute(), command=command_line())
    if out is not None:
        result.save(out)
    typer.echo(result.to_json() if as_json else str(result))
    raise typer.Exit(1 if result.refuted else 0)


def claim_of(
    claimed: str | None, delta: float | None, adjacency: str | None, family: str | None = None
) -> "Claim | None":
    """The claim to test, with its delta and adjacency. With a family, the family's claim at that ε."""
    from canaria._core.errors import InputError
    from canaria.claims import ApproximateDP, parse_claim
    from canaria.claims.base import for_neighbours
    from canaria.claims.families import parse_family

    if claimed is None:
        return None
    if delta is None:
        raise InputError(
            "--claimed needs --delta, the delta of the claim: --delta 1e-5, say, or --delta 0 for pure DP"
        )
    named = parse_claim(claimed, delta)
    if family is not None:
        if not isinstance(named, ApproximateDP):
            raise InputError(f"--family goes with an epsilon as --claimed, not with {claimed}")
        named = parse_family(family).at(named.epsilon, delta)
    return for_neighbours(named, adjacency)


class Verbs(TyperGroup):
    """The group of verbs. It records the command line, also if `app` is called from Python."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The options, with one line of help about shell completion instead of three."""
        options: list[Any] = super().get_params(ctx)
        for option in options:
            option.hidden = option.hidden or option.name == "show_completion"
        return options

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Record the words before they are parsed."""
        _TYPED.set(shlex.join(["canaria", *args]))
        return super().parse_args(ctx, args)


def command_line() -> str:
    """The command that the user typed."""
    return _TYPED.get()
