"""`canaria reproduce`: the figures of the paper, and additional ones."""

from typing import Annotated

import typer

from canaria.cli._options import AsJson, Dask, Resume, Seed, Workers
from canaria.cli._progress import blocks


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME", help="Experiments to run (see --list). Default: all."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few points, few repetitions.")] = False,
    trials: Annotated[int | None, typer.Option(help="Repetitions of every point.")] = None,
    workers: Workers = None,
    dask: Dask = None,
    out: Annotated[str, typer.Option(help="Folder for data and figures.")] = "canaria-figures",
    resume: Resume = False,
    show: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Reproduce the figures of Keinan et al. (2025).

    Example: canaria reproduce elements --quick --out figures
    """
    import json

    from canaria.lab.charts import require_charts
    from canaria.lab.figures import EXPERIMENTS
    from canaria.lab.figures.reproduce import reproduce as run
    from canaria.lab.figures.reproduce import select

    if show:
        about = {name: experiment.about for name, experiment in EXPERIMENTS.items()}
        listing = "\n".join(f"{name:<24} {text}" for name, text in about.items())
        typer.echo(json.dumps(about, ensure_ascii=False) if as_json else listing)
        return
    selected = select(names or [], quick, trials, seed)
    require_charts()
    with blocks(selected.settings(), out, workers=workers, dask=dask, resume=resume) as where:
        written = run(selected, *where)
    paths = [str(path) for path in written]
    typer.echo(json.dumps(paths) if as_json else "\n".join(paths))
