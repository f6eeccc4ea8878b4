"""`canaria plan`: the expected outcome of an audit of DP-SGD, before it is run."""

from typing import Annotated

import typer

from canaria.cli._options import AsJson, Confidence
from canaria.cli._progress import working


def plan(
    epsilon: Annotated[float, typer.Option(help="Claimed epsilon of the training run.")],
    delta: Annotated[float, typer.Option(help="The delta of the claim.")],
    steps: Annotated[int, typer.Option(help="Number of training steps.")],
    sample_rate: Annotated[float, typer.Option(help="Chance that a row is in a batch.")],
    canaries: Annotated[int | None, typer.Option(help="Number of canaries. Default: 1000.")] = None,
    per_coordinate: Annotated[
        int | None,
        typer.Option(
            help="Canaries per weight. Default: 1, or the optimal number if --coordinates is given."
        ),
    ] = None,
    coordinates: Annotated[
        int | None, typer.Option(help="Model weights available, instead of --canaries.")
    ] = None,
    noise_multiplier: Annotated[float | None, typer.Option(help="Default: computed from the claim.")] = None,
    rule: Annotated[str, typer.Option(help="Guessing rule: ranked, around:K, soft or matched.")] = "ranked",
    too_small: Annotated[
        list[float] | None,
        typer.Option(metavar="FACTOR", help="Also predict for noise / FACTOR; repeatable."),
    ] = None,
    black_box: Annotated[
        bool, typer.Option("--black-box", help="Only the finished model is seen; canaries have own weights.")
    ] = False,
    confidence: Confidence = 0.95,
    as_json: AsJson = False,
) -> None:
    """Predict what an audit of DP-SGD will show.

    Example: canaria plan --epsilon 2 --delta 1e-5 --steps 100 --sample-rate 0.1
    """
    import json

    from canaria.claims.families import DpSgdFamily
    from canaria.rules import Matched, parse_rule
    from canaria.training.plan import TOO_SMALL
    from canaria.training.plan import plan as make_plan

    matched = rule == "matched"
    with working("planning"):
        made = make_plan(
            epsilon,
            delta,
            steps,
            sample_rate,
            canaries=canaries,
            per_coordinate=per_coordinate,
            coordinates=coordinates,
            noise_multiplier=noise_multiplier,
            confidence=confidence,
            rule=Matched(DpSgdFamily(steps, sample_rate), confidence) if matched else parse_rule(rule),
            too_small=TOO_SMALL if too_small is None else tuple(too_small),
            black_box=black_box,
        )
    typer.echo(json.dumps(made.to_dict(), allow_nan=False) if as_json else str(made))
