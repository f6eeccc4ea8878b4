"""Options that several verbs share."""

from pathlib import Path
from typing import Annotated, Literal

import typer

Adjacency = Literal["add-remove", "replace"]
Delta = Annotated[float | None, typer.Option(help="Delta (default: 0); required with --claimed.")]
Confidence = Annotated[float, typer.Option(help="Confidence level of the bound.")]
ClaimedEpsilon = Annotated[float | None, typer.Option(help="Claimed epsilon; exit code 1 if refuted.")]
Claimed = Annotated[
    str | None,
    typer.Option(metavar="CLAIM", help="Epsilon, or like zcdp:rho=1; exit code 1 if refuted."),
]
Family = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Test a family of claims: gaussian, laplace or dpsgd:steps=T,sample_rate=Q."
    ),
]
Out = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Also write a result file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Epsilon = Annotated[float | None, typer.Option(help="Privacy level of the mechanism.")]
Sigma = Annotated[float | None, typer.Option(help="Standard deviation of the Gaussian noise.")]
Chance = Annotated[float | None, typer.Option("--p", help="Probability that all-or-nothing reveals all.")]
Size = Annotated[int | None, typer.Option(help="Elements per set.")]
Elements = Annotated[int, typer.Option("--n", help="Number of elements (hidden bits).")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Workers = Annotated[int | None, typer.Option(help="Number of local processes. Default: all cores.")]
Dask = Annotated[str | None, typer.Option(help="Address of a Dask scheduler.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume an interrupted run.")]
