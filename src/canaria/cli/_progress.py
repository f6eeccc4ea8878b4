"""What long work shows: a bar with the time left, and how to go on where it is interrupted."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer


@contextmanager
def resumable(out: str) -> Iterator[None]:
    """Say how to go on when work whose finished blocks are in `out` is interrupted, or loses a worker."""
    from canaria._core.errors import InputError
    from canaria.lab.engines import WorkerLostError

    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"canaria: interrupted; {_how_to_go_on(out)}", err=True)
        raise typer.Exit(130) from None
    except WorkerLostError as error:
        raise InputError(f"{error}; {_how_to_go_on(out)}") from None


def _how_to_go_on(out: str) -> str:
    return f"finished blocks are in {out}, go on with --resume"


@contextmanager
def progress() -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left, on standard error; warnings are single lines above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("blocks"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
    )
    with warnings.catch_warnings(), Progress(*columns, console=Console(stderr=True)) as bar:
        warnings.showwarning = _one_line
        task = bar.add_task("blocks", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"canaria: warning: {message}", err=True)
