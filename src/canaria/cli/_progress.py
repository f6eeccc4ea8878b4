"""What long work shows: the time left or taken, and how to go on where it is interrupted."""

import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import Any, Final

import typer

PATIENCE: Final = 2.0
"""Seconds before anything is shown of work that is usually quick."""


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
    from rich.progress import MofNCompleteColumn

    with warnings.catch_warnings(), _bar("blocks", MofNCompleteColumn()) as update:
        warnings.showwarning = _one_line
        yield update


@contextmanager
def reading() -> Iterator[Callable[[int, int], None]]:
    """A bar of the bytes read, on standard error, from the third second on: most files need none."""
    with ExitStack() as stack:
        yield _LateBar(stack).update


class _LateBar:
    """Appears once the work has taken long enough to be wondered at."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack, self._start = stack, time.monotonic()
        self._update: Callable[[int, int], None] | None = None

    def update(self, done: int, total: int) -> None:
        """Show how much is done."""
        if self._update is None and time.monotonic() - self._start > PATIENCE:
            from rich.progress import DownloadColumn

            self._update = self._stack.enter_context(_bar("reading", DownloadColumn(), transient=True))
        if self._update is not None:
            self._update(done, total)


@contextmanager
def _bar(of: str, counted: Any, *, transient: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error: what is done, how much in the given column, and the time left."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(of), BarColumn(), counted, TextColumn("time left"), TimeRemainingColumn())
    screen = Console(stderr=True)
    hidden = transient and not screen.is_terminal
    with Progress(*columns, console=screen, transient=transient, disable=hidden) as bar:
        task = bar.add_task(of, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def working(on: str) -> Iterator[None]:
    """The time taken so far, on a terminal, from the third second on: most work needs less."""
    if not sys.stderr.isatty():
        yield
        return
    with ExitStack() as shown:
        late = Timer(PATIENCE, lambda: shown.enter_context(_clock(on, time.monotonic() - PATIENCE)))
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()


@contextmanager
def _clock(on: str, since: float) -> Iterator[None]:
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    clock = Progress(*columns, console=Console(stderr=True), transient=True)
    clock.add_task(on, total=None)
    clock.tasks[0].start_time = since
    with clock:
        yield


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"canaria: warning: {message}", err=True)
