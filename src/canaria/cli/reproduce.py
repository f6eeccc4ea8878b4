"""`canaria reproduce`: the paper's figures, and ours."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from canaria.cli._mechanism_options import Seed
from canaria.cli._options import AsJson


def reproduce(
    names: Annotated[list[str] | None, typer.Argument(help="Experiments; all, if none is named.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, few repetitions.")] = False,
    trials: Annotated[int | None, typer.Option(help="Repetitions of every point.")] = None,
    workers: Annotated[int | None, typer.Option(help="Local processes; all cores, if not given.")] = None,
    dask: Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")] = None,
    out: Annotated[str, typer.Option(help="Folder for data and pictures.")] = "canaria-figures",
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")] = False,
    show: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Reproduce the figures of the paper, and ours.

    Example: canaria reproduce elements --quick --out figures
    """
    import json

    from canaria.experiments import EXPERIMENTS
    from canaria.experiments.reproduce import plan
    from canaria.experiments.reproduce import reproduce as run
    from canaria.parallel import engine
    from canaria.store import Store

    if show:
        about = {name: experiment.about for name, experiment in EXPERIMENTS.items()}
        listing = "\n".join(f"{name:<24} {text}" for name, text in about.items())
        typer.echo(json.dumps(about, ensure_ascii=False) if as_json else listing)
        return
    planned = plan(names or [], quick, trials, seed)
    try:
        with engine(workers, dask) as executor:
            store = Store.open(out, planned.settings(), resume)
            with _progress() as tell:
                written = run(planned, store, executor, tell)
    except KeyboardInterrupt:
        typer.echo(f"canaria: interrupted; finished blocks are in {out}, go on with --resume", err=True)
        raise typer.Exit(130) from None
    paths = [str(path) for path in written]
    typer.echo(json.dumps(paths) if as_json else "\n".join(paths))


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left, on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("blocks"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("time left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("blocks", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
