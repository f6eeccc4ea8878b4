"""`canaria gaps`: what one run can show of a mechanism, and what it cannot."""

from typing import Annotated

import typer

from canaria.cli._mechanism_options import Chance, Elements, Epsilon, Seed, Sigma, Size
from canaria.cli._options import AsJson


def gaps(
    mechanism: Annotated[str, typer.Argument(help="For example xor, count-in-sets, local-laplace.")],
    n: Elements,
    k: Annotated[int | None, typer.Option("--k", help="Guesses taken; all, if not given.")] = None,
    epsilon: Epsilon = None,
    sigma: Sigma = None,
    p: Chance = None,
    size: Size = None,
    trials: Annotated[int, typer.Option(help="Simulated games where nothing exact is known.")] = 10_000,
    seed: Seed = 0,
    as_json: AsJson = False,
) -> None:
    """The efficacy of one-run auditing and the three gaps that separate it from epsilon.

    Example: canaria gaps count-in-sets --size 4 --n 400 --k 100
    """
    import json

    from canaria.mechanisms import parse_mechanism
    from canaria.theory import gaps as find_gaps

    audited = parse_mechanism(mechanism, epsilon=epsilon, sigma=sigma, p=p, size=size)
    found = find_gaps(audited, n, k, trials, seed)
    data = {"mechanism": mechanism, **found.to_dict(), "seed": seed}
    if as_json:
        typer.echo(json.dumps(data, allow_nan=False))
        return
    rows = [
        ("efficacy", "best expected accuracy", data["efficacy"], data["efficacy_epsilon"]),
        ("elements", "guesses spent on less exposed elements", data["elements"], data["elements_epsilon"]),
        ("outputs", "the output seen is not the worst", data["outputs"], data["outputs_epsilon"]),
        (
            "interference",
            "other hidden bits blur each element",
            data["interference"],
            data["interference_epsilon"],
        ),
        ("epsilon", "the privacy level", data["epsilon"], data["epsilon_epsilon"]),
    ]
    typer.echo(f"{audited!r}, n = {found.n}, k = {found.k} ({found.efficacy.how})")
    typer.echo(f"  {'':<13} {'accuracy':>9} {'in ε':>8}")
    for name, meaning, accuracy, in_epsilon in rows:
        typer.echo(f"  {name:<13} {accuracy:>9.4f} {float(in_epsilon):>8.3f}   {meaning}")
    if found.efficacy.error:
        typer.echo(f"  standard error of the efficacy: {found.efficacy.error:.2g}")
