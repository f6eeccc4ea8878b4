"""`canaria run`: play games against a mechanism."""

from dataclasses import replace
from typing import Annotated

import typer

from canaria.cli._options import (
    AsJson,
    Chance,
    Claimed,
    Confidence,
    Delta,
    Elements,
    Epsilon,
    Out,
    Seed,
    Sigma,
    Size,
)
from canaria.cli._output import claim_of, command_line, one_line_warnings, require_result_file
from canaria.cli._progress import working


def run(
    mechanism: Annotated[
        str, typer.Argument(metavar="MECHANISM", help="Name (see gaps --list) or module:function.")
    ],
    n: Elements,
    score: Annotated[
        str | None, typer.Option(help="Score for your own mechanism, as module:function.")
    ] = None,
    adaptive: Annotated[
        bool, typer.Option("--adaptive", help="Tell the guesser past bits (built-in mechanisms only).")
    ] = False,
    rule: Annotated[
        str | None, typer.Option(help="See canaria scores; plus: all, bet, budget:K[:T].")
    ] = None,
    trials: Annotated[int, typer.Option(help="Games to play; prints the mean bound.")] = 1,
    delta: Delta = None,
    confidence: Confidence = 0.95,
    claimed: Claimed = None,
    epsilon: Epsilon = None,
    sigma: Sigma = None,
    p: Chance = None,
    size: Size = None,
    seed: Seed = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Audit a mechanism: toss coins, run it, guess, bound.

    Example: canaria run xor-in-pairs --n 200 --adaptive
    """
    import json

    from canaria._core.errors import InputError
    from canaria._core.rounding import rounded_down
    from canaria.cli._games import audited_mechanism, play_named, result_of

    require_result_file(out)
    if claimed is not None and trials != 1:
        raise InputError("--claimed applies to a single game; leave out --trials")
    if out is not None and trials != 1:
        raise InputError("--out writes the result of a single game; leave out --trials")
    options = {"epsilon": epsilon, "sigma": sigma, "p": p, "size": size}
    audited = audited_mechanism(mechanism, options, adaptive)
    claim = claim_of(claimed, delta, audited.adjacency)
    with one_line_warnings(), working("playing"):
        first, *others = play_named(audited, score, rule, n, trials, adaptive, seed)
        result = result_of(
            audited, first, adaptive, claim=claim, delta=delta, confidence=confidence, name=mechanism
        )
        result = replace(result, seed=seed, command=command_line())
        bounds = [result.bound, *(game.bound(delta or 0.0, confidence) for game in others)]
    if out is not None:
        result.save(out)
    if trials == 1:
        typer.echo(result.to_json() if as_json else str(result))
        raise typer.Exit(1 if result.refuted else 0)
    mean = sum(bound.epsilon for bound in bounds) / trials
    if as_json:
        rows = [bound.to_dict() for bound in bounds]
        details = {"mechanism": mechanism, "n": n, "adaptive": adaptive, "seed": seed}
        typer.echo(json.dumps({**details, "mean": mean, "bounds": rows}, allow_nan=False))
        return
    right, taken = (sum(bound.tally[k] for bound in bounds) for k in (0, 1))
    typer.echo(
        f"mean of the bounds of {trials} games: {rounded_down(mean)} ({right} of {taken} guesses right)"
    )
    typer.echo(f"the first game: {result}")
