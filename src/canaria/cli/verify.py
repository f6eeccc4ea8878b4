"""`canaria verify`: recompute stored bounds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from canaria.cli._options import AsJson
from canaria.cli._progress import working

if TYPE_CHECKING:
    from canaria.bounds import Result
    from canaria.files import Check


def verify(
    files: Annotated[list[str], typer.Argument(metavar="FILE...", help="Result files; - for stdin.")],
    as_json: AsJson = False,
) -> None:
    """Recompute stored bounds; exit code 1 if one does not hold.

    A file that was edited after it was saved does not hold either. One that holds proves that its bound
    follows from its evidence, not that the evidence is real.

    Example: canaria verify results/*.json
    """
    import json

    from canaria.files import check, read_result

    confirmed = True
    for file in files:
        with working(f"recomputing {Path(file).name}"):
            stored = read_result(file)
        found = check(stored)
        confirmed = confirmed and found.holds
        if as_json:
            typer.echo(json.dumps({"file": file, **found.to_dict()}, allow_nan=False))
        else:
            subject = "the stored bound" if len(files) == 1 else f"{file}: the stored bound"
            typer.echo(_told(found, stored.result, subject))
    raise typer.Exit(0 if confirmed else 1)


def _told(found: "Check", result: "Result", subject: str) -> str:
    from canaria._core.rounding import percent, rounded_down
    from canaria.files.verify import CHANGED

    verdict = "is confirmed" if found.bound_holds else "is NOT confirmed"
    but = ", but the file was changed after it was written" if found.changed and found.bound_holds else ""
    of_family = f", for the family of {found.family}," if found.family else ""
    given = f"its evidence gives ε ≥ {rounded_down(found.recomputed)}"
    at = f"at δ = {result.bound.delta:g} with {percent(result.bound.confidence)}% confidence"
    lines = [f"{subject} ε ≥ {rounded_down(found.stored)} {at}{of_family} {verdict}{but}", *found.faults]
    lines.append(f"{given}, if the assumptions of the result are true" if found.bound_holds else given)
    lines += [f"it records that training was NOT what was stated: {one}" for one in result.contradictions]
    lines += [CHANGED] if found.changed else []
    return "\n  ".join(lines)
