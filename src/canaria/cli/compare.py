"""`canaria compare`: results side by side."""

from pathlib import Path
from typing import Annotated

import typer

from canaria.cli._options import AsJson
from canaria.cli._output import one_line_warnings, require_free
from canaria.cli._progress import working


def compare(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE...", help="Result files (from --json or save()); - for stdin."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write it here: .html, .md, .txt, .csv or .svg.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Put results side by side, as a table and a forest plot.

    Every bound is recomputed from its evidence first. The largest of several bounds is not a bound; to
    combine audits of one model use together in Python.

    Example: canaria compare before.json after.json -o compare.csv
    """
    import json

    from canaria._core.errors import shown
    from canaria.files.verify import read_checked
    from canaria.report.comparison import compare as side_by_side
    from canaria.report.formats import require_comparable, write_comparison

    require_free(out, files)
    if out is not None:
        require_comparable(out)
    with one_line_warnings(), working("recomputing bounds"):
        comparison = side_by_side([read_checked(file).result for file in files], files)
    if out is not None:
        write_comparison(out, comparison, title)
    if as_json:
        typer.echo(json.dumps([row.to_dict() for row in comparison.rows], allow_nan=False))
    elif out is not None:
        typer.echo(f"comparison written to {shown(str(out))[1:-1]}")
    else:
        typer.echo(str(comparison))
