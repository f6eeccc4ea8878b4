"""`canaria report`: results explained, as a page or in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from canaria.cli._options import AsJson
from canaria.cli._output import one_line_warnings, require_free
from canaria.cli._progress import working


def report(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="Result files (from --json or save()); - for stdin.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write it here: .html, .md or .txt.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Title of the report.")] = None,
    as_json: AsJson = False,
) -> None:
    """Explain results: as an HTML page, Markdown or text.

    Every bound is recomputed from its evidence first. Without -o, the report is printed to the terminal.

    Example: canaria report result.json -o report.html
    """
    import json

    from canaria._core.errors import shown
    from canaria.files.verify import read_checked
    from canaria.report.formats import require_known, write_report
    from canaria.report.section import explain, told_apart

    require_free(out, files)
    if out is not None:
        require_known(out)
    with one_line_warnings(), working("recomputing bounds"):
        stored = [read_checked(file) for file in files]
        names = told_apart([result.name for result, _ in stored], files)
        sections = [
            explain(result, record["checksum"], name)
            for (result, record), name in zip(stored, names, strict=True)
        ]
    if out is not None:
        write_report(out, sections, title)
    if as_json:
        written = [section.to_dict() for section in sections]
        typer.echo(
            json.dumps({"page": None if out is None else str(out), "sections": written}, allow_nan=False)
        )
    elif out is not None:
        typer.echo(f"report written to {shown(str(out))[1:-1]}")
    else:
        from canaria.report.terminal import show

        show(sections)
