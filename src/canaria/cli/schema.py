"""`canaria schema`: the format of result files."""

from typing import Annotated

import typer


def schema(as_json: Annotated[bool, typer.Option("--json", help="Print it on one line.")] = False) -> None:
    """Print the JSON Schema of result files.

    Example: canaria schema > result.schema.json
    """
    import json
    from importlib.resources import files

    text = files("canaria.files").joinpath("result.schema.json").read_text(encoding="utf-8")
    typer.echo(json.dumps(json.loads(text)) if as_json else text.rstrip())
