"""Options of the built-in mechanisms."""

from typing import Annotated

import typer

Epsilon = Annotated[float | None, typer.Option(help="Privacy level of the mechanism.")]
Sigma = Annotated[float | None, typer.Option(help="Standard deviation of the Gaussian noise.")]
Chance = Annotated[float | None, typer.Option("--p", help="Probability that all-or-nothing reveals all.")]
Size = Annotated[int | None, typer.Option(help="Elements per set.")]
Elements = Annotated[int, typer.Option("--n", help="Number of elements (hidden bits).")]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
