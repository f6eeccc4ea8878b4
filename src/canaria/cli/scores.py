"""`canaria scores`: a bound from a file of scores."""

from typing import Annotated

import typer

from canaria.cli._options import Adjacency, AsJson, Claimed, Confidence, Delta
from canaria.cli._output import finish


def scores(
    file: Annotated[
        str, typer.Argument(help="CSV or JSON lines with columns score and included; - is stdin.")
    ],
    delta: Delta = 0.0,
    confidence: Confidence = 0.95,
    claimed: Claimed = None,
    rule: Annotated[
        str,
        typer.Option(help="ranked, tails:K, top:K, threshold:T, soft (scores are losses) or online."),
    ] = "ranked",
    seed: Annotated[int, typer.Option(min=0, help="Breaks ties among equal scores.")] = 0,
    adjacency: Annotated[
        Adjacency,
        typer.Option(help="replace: another record stands in for an excluded canary."),
    ] = "add-remove",
    as_json: AsJson = False,
) -> None:
    """Lower bound on epsilon from scores, higher meaning "included more likely".

    Example: canaria scores scores.csv --delta 1e-5 --claimed 2
    """
    from canaria._validate import InputError
    from canaria.audit import audit_scores
    from canaria.rules import AdaptiveRule, parse_rule
    from canaria.score_files import read_scores

    chosen = parse_rule(rule)
    if isinstance(chosen, AdaptiveRule):
        raise InputError(f"rule {rule} is for games (canaria run); scores take ranked, soft, online, ...")
    values, included = read_scores(file)
    finish(
        lambda: audit_scores(values, included, delta, confidence, chosen, rng=seed, adjacency=adjacency),
        claimed,
        as_json,
        seed=seed,
    )
