"""`canaria demo`: two real audits, one of a correct mechanism and one of a broken one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from canaria.cli._options import AsJson
from canaria.cli._progress import working

if TYPE_CHECKING:
    from canaria.bounds.result import Result

_PEOPLE: Final = 2000
_EPSILON: Final = 2.0
_DELTA: Final = 1e-5
_SEED: Final = 20250
_AUDITS: Final = {"noise as claimed": 1.0, "noise four times too small (a bug)": 0.25}


def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for results and report.")] = Path(
        "canaria-demo"
    ),
    as_json: AsJson = False,
) -> None:
    """Audit a correct and a broken release, and write a report.

    Example: canaria demo
    """
    import json

    from canaria._core.files import folder, write_atomically
    from canaria.report.page import page, require_page
    from canaria.report.section import explain

    require_page()
    with working("auditing"):
        results = [_audit(name, factor) for name, factor in _AUDITS.items()]
    place = folder(out)
    for result, name in zip(results, ("correct", "broken"), strict=True):
        result.save(place / f"{name}.json")
    report = place / "report.html"
    write_atomically(
        report, page([explain(result) for result in results], "A correct and a broken release").encode()
    )
    if as_json:
        correct, broken = (result.to_dict() for result in results)
        typer.echo(json.dumps({"correct": correct, "broken": broken, "report": str(report)}))
        return
    typer.echo(
        f"A histogram of {_PEOPLE} bins is released with Gaussian noise. Each of {_PEOPLE} people owns a\n"
        f"bin and takes part if a hidden fair coin says so. The release claims ε = {_EPSILON:g} at "
        f"δ = {_DELTA:g}.\nThe auditor sees one release and guesses the coins.\n"
    )
    for result in results:
        right, taken = result.bound.tally
        typer.echo(
            f"{result.name}\n  {result.verdict}\n"
            f"  ({right} of the auditor's {taken} surest guesses were right)\n"
        )
    typer.echo(f"The report, with every number explained: {report.resolve()}")
    typer.echo("Next: canaria scores YOUR_SCORES.csv --delta 1e-5 --claimed 2 -o result.json")


def _audit(name: str, noise_factor: float) -> "Result":
    """Release the histogram once, with `noise_factor` times the noise that the claim needs, and audit it."""
    import numpy as np
    from scipy import optimize

    from canaria.bounds.parts import Histogram
    from canaria.bounds.result import Result
    from canaria.claims import ApproximateDP
    from canaria.claims.noise import gaussian_epsilon
    from canaria.game.ladders import ladder_of_dpsgd
    from canaria.game.scores import audit_scores
    from canaria.mechanisms import SubsampledGaussian

    signal = float(optimize.brentq(lambda mu: gaussian_epsilon(mu, _DELTA) - _EPSILON, 0.01, 10.0))
    sigma = 1 / signal
    rng = np.random.default_rng(_SEED)
    bits = rng.integers(0, 2, _PEOPLE)
    release = bits + rng.normal(scale=noise_factor * sigma, size=_PEOPLE)
    bound = audit_scores(release, bits, delta=_DELTA, rng=rng)
    one_step = SubsampledGaussian(dimension=_PEOPLE, steps=1, sample_rate=1.0, noise_multiplier=sigma)
    return Result(
        bound,
        ApproximateDP(_EPSILON, _DELTA),
        name=name,
        histogram=Histogram.of(release, bits),
        ladder=ladder_of_dpsgd(one_step, _PEOPLE, _EPSILON, bound),
        facts={
            "release": f"a histogram of {_PEOPLE} bins; stated noise: normal, standard deviation {sigma:.3f}"
        },
        seed=_SEED,
        command="canaria demo",
    )
