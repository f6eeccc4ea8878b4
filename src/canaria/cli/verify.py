"""`canaria verify`: recompute a stored bound."""

from typing import Annotated

import typer

from canaria.cli._options import AsJson


def verify(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Result file; - for stdin.")],
    as_json: AsJson = False,
) -> None:
    """Recompute a stored bound; exit code 1 if not confirmed.

    Example: canaria verify result.json
    """
    import json

    from canaria._core.rounding import rounded_down
    from canaria.results import check, read_result

    found = check(read_result(file))
    if as_json:
        typer.echo(json.dumps(found.to_dict(), allow_nan=False))
    else:
        verdict = "holds" if found.holds else "does not hold"
        of_family = f", for the family of {found.family}," if found.family else ""
        typer.echo(f"the stored bound ε ≥ {rounded_down(found.stored)}{of_family} {verdict}")
        for line in found.faults or (f"its evidence gives ε ≥ {rounded_down(found.recomputed)}",):
            typer.echo(f"  {line}")
    raise typer.Exit(0 if found.holds else 1)
