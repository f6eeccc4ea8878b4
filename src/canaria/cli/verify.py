"""`canaria verify`: recompute stored bounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canaria.cli._options import AsJson
from canaria.cli._progress import working

if TYPE_CHECKING:
    from canaria.results import Check


def verify(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Result files; - for stdin.")],
    as_json: AsJson = False,
) -> None:
    """Recompute stored bounds; exit code 1 if one does not hold.

    Example: canaria verify result.json
    Example: canaria verify results/*.json --json
    """
    import json

    from canaria.results import check, read_result

    confirmed = True
    for file in files:
        with working(f"recomputing {Path(file).name}"):
            found = check(read_result(file))
        confirmed = confirmed and found.holds
        if as_json:
            typer.echo(json.dumps({"file": file, **found.to_dict()}, allow_nan=False))
        else:
            typer.echo(_told(found, "the stored bound" if len(files) == 1 else f"{file}: the stored bound"))
    raise typer.Exit(0 if confirmed else 1)


def _told(found: "Check", subject: str) -> str:
    from canaria._core.rounding import rounded_down
    from canaria.results.verify import CHANGED

    verdict = "holds" if found.bound_holds else "does not hold"
    of_family = f", for the family of {found.family}," if found.family else ""
    lines = [f"{subject} ε ≥ {rounded_down(found.stored)}{of_family} {verdict}"]
    lines += found.faults or (f"its evidence gives ε ≥ {rounded_down(found.recomputed)}",)
    lines += [CHANGED] if found.changed else []
    return "\n  ".join(lines)
