"""`canaria validate`: how often an auditor claims more than the truth."""

from typing import Annotated, Any, Literal

import typer

from canaria.cli._options import AsJson, Confidence, Dask, Resume, Seed, Workers


def validate(
    auditors: Annotated[
        list[str] | None,
        typer.Argument(metavar="AUDITOR", help="Name (see --list) or module:function. Default: all."),
    ] = None,
    audits: Annotated[
        int | None, typer.Option(help="Audits per case. Default: 1000; without AUDITOR: 100.")
    ] = None,
    claims: Annotated[
        int | None, typer.Option(help="True claims tested per case. Default: 0; without AUDITOR: 2000.")
    ] = None,
    known: Annotated[
        Literal["nothing", "earlier", "others"],
        typer.Option(metavar="BITS", help="Bits the auditor's scores may use: nothing, earlier or others."),
    ] = "nothing",
    case: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Run only this case; repeatable.")
    ] = None,
    confidence: Confidence = 0.95,
    workers: Workers = None,
    dask: Dask = None,
    out: Annotated[str, typer.Option(help="Folder for the results.")] = "canaria-validity",
    resume: Resume = False,
    show: Annotated[bool, typer.Option("--list", help="List cases and auditors.")] = False,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """Measure how often an auditor claims more than epsilon.

    Example: canaria validate mymodule:audit --audits 1000
    """
    import json

    from canaria._core.errors import InputError, nearest
    from canaria.cli._load import load_function
    from canaria.cli._progress import blocks
    from canaria.lab.charts import require_charts
    from canaria.lab.validity import AUDITORS, CASES, Foreign, laboratory

    if show:
        about = {name: found.about for name, found in CASES.items()}
        listing = [*(f"{name:<20} {text}" for name, text in about.items()), "", *AUDITORS]
        plain = json.dumps({"cases": about, "auditors": list(AUDITORS)}, ensure_ascii=False)
        typer.echo(plain if as_json else "\n".join(listing))
        return
    chosen: list[Any] = []
    for name in auditors or ():
        try:
            foreign = ":" in name and name not in AUDITORS
            chosen.append(Foreign(name, load_function(name), known=known) if foreign else name)
        except InputError as error:
            raise InputError(f"{error}{nearest(name, AUDITORS)}") from None
    usual = (1000, 0) if chosen else (100, 2000)
    planned = laboratory(
        chosen,
        case or (),
        usual[0] if audits is None else audits,
        usual[1] if claims is None else claims,
        confidence,
        seed,
    )
    require_charts()
    with blocks(planned.settings(), out, workers=workers, dask=dask, resume=resume) as where:
        matrix, store = planned.run(*where), where[0]
        for name, content in matrix.files().items():
            store.write(name, content)
    typer.echo(matrix.to_json() if as_json else f"{matrix}\n\nEvery cell, and heat maps: {out}")
    raise typer.Exit(1 if matrix.over_claiming or matrix.failing else 0)
