"""Options that several verbs share."""

from typing import Annotated, Literal

import typer

Adjacency = Literal["add-remove", "replace"]
Delta = Annotated[float | None, typer.Option(help="Delta; required with --claimed, otherwise 0.")]
Confidence = Annotated[float, typer.Option(help="Confidence level of the bound.")]
Claimed = Annotated[
    float | None,
    typer.Option(help="Claimed epsilon; exit code 1 if refuted."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
