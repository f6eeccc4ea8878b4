"""Progress of long work: the time left or spent, and how to resume after an interruption."""

import sys
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import TYPE_CHECKING, Any, Final

import typer

from canaria._core import progress

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from canaria.lab.store import Store

PATIENCE: Final = 2.0
"""Seconds before a clock is shown for work that is usually quick."""


@contextmanager
def blocks(
    settings: dict[str, Any], out: str, *, workers: int | None, dask: str | None, resume: bool
) -> Iterator[tuple["Store", "Executor | None", Callable[[int, int], None]]]:
    """The store of finished blocks, the executor for the others, and a callback for the progress bar."""
    from canaria._core.errors import InputError
    from canaria.lab.engines import WorkerLostError, engine
    from canaria.lab.store import Store

    resumed = f"finished blocks are in {out}, go on with --resume"
    try:
        with engine(workers, dask) as executor:
            store = Store.open(out, settings, resume)
            with _bar() as update:
                yield store, executor, update
    except KeyboardInterrupt:
        typer.echo(f"canaria: interrupted; {resumed}", err=True)
        raise typer.Exit(130) from None
    except WorkerLostError as error:
        raise InputError(f"{error}; {resumed}") from None


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """A progress bar with the time left, on standard error. Warnings are single lines above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("blocks"), BarColumn(), MofNCompleteColumn(), TextColumn("time left"))
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
    with warnings.catch_warnings(), bar:
        warnings.showwarning = _one_line
        task = bar.add_task("blocks", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@contextmanager
def working(on: str) -> Iterator[None]:
    """On a terminal, show the time spent, but only for work that takes more than two seconds."""
    if not sys.stderr.isatty():
        yield
        return
    stages = deque([on], maxlen=1)
    with ExitStack() as shown, progress.heard_by(lambda stage: stages.append(f"{on}: {stage}")):
        late = Timer(PATIENCE, lambda: shown.enter_context(_clock(stages, time.monotonic() - PATIENCE)))
        late.daemon = True
        late.start()
        try:
            yield
        finally:
            late.cancel()
            late.join()


@contextmanager
def _clock(stages: deque[str], since: float) -> Iterator[None]:
    """A clock beside the last stage, which work in another thread may change at any time."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.fields[stages][0]}", markup=False), TimeElapsedColumn())
    clock = Progress(*columns, console=Console(stderr=True), transient=True)
    clock.add_task("", total=None, stages=stages)
    clock.tasks[0].start_time = since
    with clock:
        yield


def _one_line(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"canaria: warning: {message}", err=True)
