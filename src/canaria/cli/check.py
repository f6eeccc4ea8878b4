"""`canaria check`: look for a release that tells neighbouring data sets apart too well."""

from pathlib import Path
from typing import Annotated

import typer

from canaria.cli._options import Adjacency, AsJson, Out
from canaria.cli._output import finish, require_result_file
from canaria.cli._progress import working


def check(
    function: Annotated[
        str, typer.Argument(metavar="MODULE:FUNCTION", help="fit(data, rng), in a module or a file here.")
    ],
    data: Annotated[str, typer.Option("--data", metavar="FILE", help="CSV, Parquet or .npy.")],
    epsilon: Annotated[str, typer.Option(metavar="CLAIM", help="Epsilon, or a claim like zcdp:rho=1.")],
    delta: Annotated[float, typer.Option(help="Delta of an epsilon.")] = 0.0,
    unit: Annotated[str | None, typer.Option(metavar="COLUMN", help="Names the protected user.")] = None,
    adjacency: Annotated[
        Adjacency, typer.Option(metavar="KIND", help="add-remove or replace.")
    ] = "add-remove",
    timing: Annotated[bool, typer.Option("--timing", help="The running time is released, too.")] = False,
    runs: Annotated[int, typer.Option(min=50, help="Most runs of the function.")] = 300,
    seconds: Annotated[float | None, typer.Option(min=0, help="Time for all runs.")] = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the bound.")] = 0.99,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Check what a function releases, on neighbours of a table.

    Exit code 1 if the claim is refuted.

    Example: canaria check release:fit --data people.csv --epsilon 1
    """
    from canaria.claims import parse_claim
    from canaria.cli._load import load_function, read_table
    from canaria.game import check_release

    require_result_file(out, [data])
    fit = load_function(function)
    with working("reading data"):
        rows = read_table("--data", Path(data))
    finish(
        lambda: check_release(
            fit,
            rows,
            claim=parse_claim(epsilon, delta),
            adjacency=adjacency,
            unit=unit,
            timing=timing,
            runs=runs,
            seconds=seconds,
            confidence=confidence,
            rng=seed,
        ),
        as_json,
        out,
        on="checking",
    )
