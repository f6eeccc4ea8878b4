"""`canaria report`: results explained, as a page or in the terminal."""

from pathlib import Path
from typing import Annotated

import typer

from canaria.cli._options import AsJson


def report(
    files: Annotated[list[str], typer.Argument(help="Result files (what --json prints); - is stdin.")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write an HTML page here.")] = None,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Explain results, as a page or in the terminal.

    Every bound is recomputed from its evidence first. Without -o the report is printed.

    Example: canaria report result.json -o report.html
    """
    import json

    from canaria.cli._output import one_line_warnings
    from canaria.report.section import explain
    from canaria.result_files import read_checked

    with one_line_warnings():
        sections = [explain(read_checked(file)) for file in files]
    if out is not None:
        from canaria.report.page import page
        from canaria.store import write_atomically

        write_atomically(out, page(sections, title).encode())
    if as_json:
        told = [section.to_dict() for section in sections]
        typer.echo(json.dumps({"page": None if out is None else str(out), "sections": told}, allow_nan=False))
    elif out is not None:
        typer.echo(f"report written to {out}")
    else:
        from canaria.report.terminal import show

        for section in sections:
            show(section)
