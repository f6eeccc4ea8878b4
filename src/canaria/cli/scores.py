"""`canaria scores`: a bound from a file of scores."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from canaria.cli._options import Adjacency, AsJson, Claimed, Confidence, Delta, Family, Out
from canaria.cli._output import claim_of, finish, require_result_file
from canaria.cli._progress import working

if TYPE_CHECKING:
    from canaria.game.score_files import Scores

HigherMeans = Literal["included", "excluded"]


def scores(
    file: Annotated[
        str, typer.Argument(metavar="FILE", help="CSV, TSV, JSON, .npz, .npy, Parquet; - for stdin.")
    ],
    delta: Delta = None,
    confidence: Confidence = 0.95,
    claimed: Claimed = None,
    rule: Annotated[
        str | None,
        typer.Option(
            help="ranked (the default without --family), around:K, tails:K, top:K, surest:K, threshold:T, "
            "soft, online."
        ),
    ] = None,
    family: Family = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed for breaking ties.")] = 0,
    adjacency: Annotated[
        Adjacency, typer.Option(metavar="KIND", help="Of audit and claim: add-remove or replace.")
    ] = "add-remove",
    score_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with the scores, if not guessed.")
    ] = None,
    included_column: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column with who was included.")
    ] = None,
    higher_means: Annotated[
        HigherMeans | None, typer.Option(metavar="KIND", help="included (default), or excluded: losses.")
    ] = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Compute a bound from scores (higher: more likely included).

    Example: canaria scores scores.csv --delta 1e-5 --claimed 2
    """
    from canaria._core.errors import InputError
    from canaria.bounds import Result
    from canaria.game import result_of_scores
    from canaria.rules import AdaptiveRule, parse_rule

    require_result_file(out, [file])
    chosen = None if rule is None else parse_rule(rule)
    if isinstance(chosen, AdaptiveRule):
        raise InputError(f"rule {rule} is for games (canaria run); scores take ranked, soft, online, ...")
    values, included = _read(file, score_column, included_column, higher_means)
    claim = claim_of(claimed, delta, adjacency, family)

    def compute() -> Result:
        return result_of_scores(
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
        )

    finish(compute, as_json, out)


def _read(
    file: str, score_column: str | None, included_column: str | None, higher_means: HigherMeans | None
) -> "Scores":
    """Read the file. Error messages name command-line options instead of arguments."""
    from canaria._core.errors import InputError
    from canaria.game.score_files import ColumnError, read_scores

    columns = {"score_column": score_column, "included_column": included_column}
    try:
        with working("reading scores"):
            return read_scores(file, higher_means=higher_means, **columns)
    except ColumnError as error:
        raise InputError(error.as_options()) from None
