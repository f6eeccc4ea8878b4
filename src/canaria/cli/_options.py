"""Options that several verbs share."""

from typing import Annotated, Literal

import typer

Adjacency = Literal["add-remove", "replace"]
Delta = Annotated[float, typer.Option(help="The delta of the claim; 0 for pure DP.")]
Confidence = Annotated[float, typer.Option(help="How sure the bound shall be.")]
Claimed = Annotated[
    float | None,
    typer.Option(help="The epsilon that is claimed; exit code 1 if it is refuted."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
