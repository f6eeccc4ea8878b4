"""`canaria split` and `canaria gate`: split a table by coins, and test what was released from one part."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from canaria.cli._load import read_table
from canaria.cli._options import AsJson, Confidence, Out
from canaria.cli._output import finish, require_result_file

if TYPE_CHECKING:
    from canaria.blackbox import Gate
    from canaria.bounds import Result

_COIN = "included"

Unit = Annotated[str | None, typer.Option(metavar="COLUMN", help="Names the protected user.")]


def split(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="All private rows: CSV or Parquet.")],
    train: Annotated[Path, typer.Option(metavar="FILE", help="Gets the rows to release from.")],
    coins: Annotated[Path, typer.Option(metavar="FILE", help="Gets the coins; keep it for the gate.")],
    unit: Unit = None,
) -> None:
    """Split a table by coins, to release from one part.

    Example: canaria split people.csv --train train.csv --coins coins.csv
    """
    from canaria._core.errors import InputError
    from canaria.blackbox import split as split_table

    for place in (train, coins):
        if place.exists():
            raise InputError(f"{place} exists already; name a new file")
    rows = read_table("TABLE", table)  # says if pandas is missing
    import pandas as pd

    included, gate = split_table(rows, unit=unit)
    if train.suffix == ".parquet":
        included.to_parquet(train)
    else:
        included.to_csv(train, index=False)
    pd.DataFrame({_COIN: gate.included.astype(int)}).to_csv(coins, index=False)
    typer.echo(f"{len(included)} of {len(rows)} rows are in {train}; {coins} has the coins, keep it secret")


def gate(
    table: Annotated[Path, typer.Option(metavar="FILE", help="All private rows: CSV or Parquet.")],
    released: Annotated[Path, typer.Option(metavar="FILE", help="What was made from the train file.")],
    coins: Annotated[Path, typer.Option(metavar="FILE", help="The coins of `canaria split`.")],
    epsilon: Annotated[float | None, typer.Option(min=0, help="Claimed epsilon.")] = None,
    delta: Annotated[float, typer.Option(help="Claimed delta.")] = 0.0,
    unit: Unit = None,
    confidence: Confidence = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Test a released table by the coins of `canaria split`.

    Exit code 1 if the claim is refuted.

    Example: canaria gate --table people.csv --released synthetic.csv --coins coins.csv --epsilon 1
    """
    require_result_file(out, [str(table), str(released), str(coins)])
    rows, other = read_table("--table", table), read_table("--released", released)
    kept = _gate(rows, read_table("--coins", coins), unit)

    def compute() -> "Result":
        return kept.bound(other, epsilon=epsilon, delta=delta, confidence=confidence, rng=seed)

    finish(compute, as_json, out, on="measuring distances")


def _gate(rows: Any, coins: Any, unit: str | None) -> "Gate":
    """The gate of a table, with coins from a file."""
    from canaria._core import checks
    from canaria._core.errors import InputError
    from canaria.blackbox.gate import Gate, units_of

    if list(coins.columns) != [_COIN] or len(coins) != len(rows):
        raise InputError(f"--coins must have one column, {_COIN!r}, and the {len(rows)} rows of the table")
    included = checks.two_valued(_COIN, coins[_COIN]).astype(bool)
    units = units_of(rows, unit)
    if len(set(zip(units.tolist(), included.tolist(), strict=True))) > len(set(units.tolist())):
        raise InputError("--coins must have one coin for all rows of a unit; give --unit as to canaria split")
    return Gate(table=rows, included=included, units=units)
