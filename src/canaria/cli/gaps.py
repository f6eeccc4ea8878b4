"""`canaria gaps`: the part of a mechanism's ε that one run can show, and the three gaps to the rest."""

from typing import Annotated, Any, Final

import typer

from canaria.cli._options import AsJson, Chance, Elements, Epsilon, Seed, Sigma, Size
from canaria.cli._progress import working


def gaps(
    mechanism: Annotated[
        str, typer.Argument(metavar="MECHANISM", help="Name of the mechanism; see --list.")
    ] = "",
    n: Elements = 100,
    k: Annotated[int | None, typer.Option("--k", help="Number of guesses. Default: all elements.")] = None,
    epsilon: Epsilon = None,
    sigma: Sigma = None,
    p: Chance = None,
    size: Size = None,
    trials: Annotated[int, typer.Option(help="Simulated games, where no exact formula is known.")] = 10_000,
    seed: Seed = 0,
    show: Annotated[bool, typer.Option("--list", help="List the mechanisms and their options.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show how much one run can reveal, and its three gaps.

    Example: canaria gaps count-in-sets --size 4 --n 400 --k 100
    """
    import json

    from canaria._core.errors import InputError
    from canaria.mechanisms import MECHANISMS, parse_mechanism
    from canaria.theory import gaps as find_gaps

    if show:
        listing = {name: [f"--{option}" for option in options] for name, (_, options) in MECHANISMS.items()}
        lines = [" ".join([name, *options]) for name, options in listing.items()]
        typer.echo(json.dumps(listing) if as_json else "\n".join(lines))
        return
    if not mechanism:
        raise InputError("name a MECHANISM; canaria gaps --list shows them")
    audited = parse_mechanism(mechanism, epsilon=epsilon, sigma=sigma, p=p, size=size)
    with working("computing the gaps"):
        found = find_gaps(audited, n, k, trials, seed)
    data = {"mechanism": mechanism, **found.to_dict(), "seed": seed}
    title = f"{audited!r}, n = {found.n}, k = {found.k} ({found.efficacy.how})"
    typer.echo(json.dumps(data, allow_nan=False) if as_json else "\n".join([title, *_table(data)]))


_MEANINGS: Final = {
    "efficacy": "best expected accuracy",
    "elements": "guesses spent on less exposed elements",
    "outputs": "the output seen is not the worst",
    "interference": "other hidden bits blur each element",
    "epsilon": "the privacy level",
}


def _table(data: dict[str, Any]) -> list[str]:
    """One line for each step from the efficacy to epsilon."""
    lines = [f"  {'':<13} {'accuracy':>9} {'error':>8} {'in ε':>8}"]
    for name, meaning in _MEANINGS.items():
        error = data.get(f"{name}_error", 0.0)
        shown = f"{error:>8.2g}" if error > 1e-12 else f"{'exact':>8}"
        in_epsilon = float(data[f"{name}_epsilon"])
        lines.append(f"  {name:<13} {data[name]:>9.4f} {shown} {in_epsilon:>8.3f}   {meaning}")
    return lines
