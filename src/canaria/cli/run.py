"""`canaria run`: play games against a mechanism."""

from typing import Annotated

import typer

from canaria.cli._mechanism_options import Chance, Elements, Epsilon, Seed, Sigma, Size
from canaria.cli._options import AsJson, Confidence, Delta


def run(
    mechanism: Annotated[str, typer.Argument(help="A name (see canaria gaps) or module:function.")],
    n: Elements,
    score: Annotated[str | None, typer.Option(help="module:function of (output, known).")] = None,
    adaptive: Annotated[bool, typer.Option("--adaptive", help="Reveal bits round by round.")] = False,
    rule: Annotated[
        str | None,
        typer.Option(help="all, bet, budget:K, budget:K:T, surest:K, or a rule of canaria scores."),
    ] = None,
    trials: Annotated[int, typer.Option(help="Games to play.")] = 1,
    delta: Delta = 0.0,
    confidence: Confidence = 0.95,
    epsilon: Epsilon = None,
    sigma: Sigma = None,
    p: Chance = None,
    size: Size = None,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Audit a mechanism: hide bits, run it once per game, guess, bound.

    Example: canaria run xor-in-pairs --n 200 --adaptive
    """
    import json

    from canaria.cli._load import load_function
    from canaria.game import play_many
    from canaria.mechanisms import Function, parse_mechanism
    from canaria.rules import parse_rule

    options = {"epsilon": epsilon, "sigma": sigma, "p": p, "size": size}
    own = ":" in mechanism
    audited = Function(load_function(mechanism)) if own else parse_mechanism(mechanism, **options)
    games = play_many(
        audited,
        load_function(score) if score else None,
        parse_rule(rule) if rule else None,
        n,
        trials,
        audited.rounds(n) if adaptive else None,
        seed,
    )
    bounds = [game.bound(delta, confidence) for game in games]
    mean = sum(bound.epsilon for bound in bounds) / trials
    if as_json:
        record = {"mechanism": mechanism, "n": n, "adaptive": adaptive, "seed": seed, "mean": mean}
        record["bounds"] = [bound.to_dict() for bound in bounds]
        typer.echo(json.dumps(record, allow_nan=False))
        return
    typer.echo(str(bounds[0]) if trials == 1 else f"mean bound of {trials} games: ε ≥ {mean:.4f}")
    if trials > 1:
        right = sum(bound.tally.correct for bound in bounds)
        taken = sum(bound.tally.taken for bound in bounds)
        typer.echo(f"  {right} of {taken} guesses right; first game: {bounds[0]}")
