"""`canaria run`: play games against a mechanism."""

from typing import Annotated

import typer

from canaria.cli._mechanism_options import Chance, Elements, Epsilon, Seed, Sigma, Size
from canaria.cli._options import AsJson, Confidence, Delta
from canaria.cli._output import one_line_warnings


def run(
    mechanism: Annotated[str, typer.Argument(help="A name (canaria gaps --list) or module:function.")],
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
    from canaria.cli._games import play_named, show_games

    options = {"epsilon": epsilon, "sigma": sigma, "p": p, "size": size}
    with one_line_warnings():
        games = play_named(mechanism, options, score, rule, n, trials, adaptive, seed)
        bounds = [game.bound(delta, confidence) for game in games]
    details = {"mechanism": mechanism, "n": n, "adaptive": adaptive, "seed": seed}
    typer.echo(show_games(bounds, details, as_json))
