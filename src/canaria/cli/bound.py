"""`canaria bound`: a bound from counts."""

from typing import Annotated, Literal

import typer

from canaria.cli._options import Adjacency, AsJson, Claimed, Confidence, Delta
from canaria.cli._output import finish


def bound(
    correct: Annotated[int, typer.Option(help="How many guesses were right.")],
    guesses: Annotated[int, typer.Option(help="How many guesses were taken; fixed in advance.")],
    elements: Annotated[int, typer.Option(help="How many hidden bits there were.")],
    delta: Delta = 0.0,
    confidence: Confidence = 0.95,
    method: Annotated[
        Literal["exact", "steinke"],
        typer.Option(help="The exact bound, or the published one for comparison."),
    ] = "exact",
    claimed: Claimed = None,
    adjacency: Annotated[
        Adjacency | None, typer.Option(help="What the audit was about, to be recorded.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lower bound on epsilon from a number of right guesses.

    Example: canaria bound --correct 73 --guesses 100 --elements 1000 --delta 1e-5
    """
    from canaria.bound import lower_bound
    from canaria.evidence import Counts, PublishedCounts

    evidence = (Counts if method == "exact" else PublishedCounts)(correct, guesses, elements)
    finish(
        lambda: lower_bound(evidence, delta, confidence, adjacency=adjacency or "unspecified"),
        claimed,
        as_json,
    )
