"""`canaria scores`: a bound from a file of scores."""

from pathlib import Path
from typing import Annotated

import typer

from canaria.cli._options import Adjacency, AsJson, Claimed, Confidence, Delta, Family
from canaria.cli._output import claim_of, command_line, finish


def scores(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="CSV or JSON Lines file with columns score and included; - for stdin."
        ),
    ],
    delta: Delta = None,
    confidence: Confidence = 0.95,
    claimed: Claimed = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="ranked (the default without --family), tails:K, top:K, surest:K, threshold:T, soft, online."
        ),
    ] = None,
    family: Family = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for breaking ties.")] = 0,
    adjacency: Annotated[
        Adjacency,
        typer.Option(metavar="KIND", help="add-remove or replace."),
    ] = "add-remove",
    as_json: AsJson = False,
) -> None:
    """Compute a bound from scores (higher: more likely included).

    Example: canaria scores scores.csv --delta 1e-5 --claimed 2
    Example: canaria scores scores.csv --delta 1e-5 --family gaussian
    """
    from canaria._core.errors import InputError
    from canaria.game.score_files import read_scores
    from canaria.results.result import Result
    from canaria.rules import AdaptiveRule, parse_rule

    chosen = None if rule is None else parse_rule(rule)
    if isinstance(chosen, AdaptiveRule):
        raise InputError(f"rule {rule} is for games (canaria run); scores take ranked, soft, online, ...")
    values, included = read_scores(file)
    claim = claim_of(claimed, delta, family)

    def compute() -> Result:
        return Result.of_scores(
            values,
            included,
            claim,
            delta=delta,
            confidence=confidence,
            rule=chosen,
            rng=seed,
            adjacency=adjacency,
            family=family,
            name="scores from standard input" if file == "-" else f"scores in {Path(file).name}",
            command=command_line(),
        )

    finish(compute, as_json)
