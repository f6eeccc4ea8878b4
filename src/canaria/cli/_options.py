"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Adjacency = Literal["add-remove", "replace"]
Delta = Annotated[float | None, typer.Option(help="Delta (default: 0); required with --claimed.")]
Confidence = Annotated[float, typer.Option(help="Confidence level of the bound.")]
Claimed = Annotated[
    float | None,
    typer.Option(help="Claimed epsilon; exit code 1 if refuted."),
]
Family = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Test a family of claims: gaussian, laplace or dpsgd:steps=T,sample_rate=Q.",
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Also write a result file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
