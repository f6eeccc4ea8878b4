"""`canaria bound`: a bound from counts."""

from typing import Annotated, Literal

import typer

from canaria.cli._options import Adjacency, AsJson, Claimed, Confidence, Delta, Family, Out
from canaria.cli._output import claim_of, finish, require_result_file


def bound(
    correct: Annotated[int, typer.Option(help="Number of correct guesses.")],
    guesses: Annotated[int, typer.Option(help="Number of guesses made; must be fixed in advance.")],
    elements: Annotated[int, typer.Option(help="Number of elements (hidden bits), guessed or not.")],
    delta: Delta = None,
    confidence: Confidence = 0.95,
    method: Annotated[
        Literal["exact", "steinke"],
        typer.Option(metavar="NAME", help="exact, or steinke (the bound of Steinke et al. 2023)."),
    ] = "exact",
    claimed: Claimed = None,
    adjacency: Annotated[
        Adjacency | None,
        typer.Option(metavar="KIND", help="Of audit and claim: add-remove or replace. Default: unspecified."),
    ] = None,
    one_sided: Annotated[
        bool, typer.Option("--one-sided", help="All guesses have one sign, fixed in advance.")
    ] = False,
    family: Family = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compute a bound from a number of correct guesses.

    Example: canaria bound --correct 73 --guesses 100 --elements 1000
    """
    from canaria._core.checks import integer
    from canaria._core.errors import InputError
    from canaria.bounds import Result, lower_bound
    from canaria.claims.families import parse_family
    from canaria.evidence import Counts, PublishedCounts

    require_result_file(out)
    claim = claim_of(claimed, delta, adjacency, family)
    if one_sided and method != "exact":
        raise InputError("--one-sided goes with --method exact")
    integer("--elements", elements, 1)
    integer("--guesses", guesses, 0, elements, "--elements")
    integer("--correct", correct, 0, guesses, "--guesses")
    counts = (correct, guesses, elements)
    evidence = Counts(*counts, one_sided) if method == "exact" else PublishedCounts(*counts)

    def compute() -> Result:
        bound = lower_bound(
            evidence,
            delta or 0.0,
            confidence,
            adjacency=adjacency or "unspecified",
            family=None if family is None else parse_family(family),
        )
        return bound.result(claim, name="counts")

    finish(compute, as_json, out)
