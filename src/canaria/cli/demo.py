"""`canaria demo`: two real audits, one of a correct mechanism and one of a broken one."""

from typing import TYPE_CHECKING, Final

import typer

from canaria.cli._options import AsJson

if TYPE_CHECKING:
    from canaria.bound import Bound

_PEOPLE: Final = 2000
_EPSILON: Final = 2.0
_DELTA: Final = 1e-5


def demo(as_json: AsJson = False) -> None:
    """Audit a correct and a broken noisy histogram and say what was found.

    Example: canaria demo
    """
    import json

    correct, broken = _audit(noise_factor=1.0), _audit(noise_factor=0.25)
    if as_json:
        typer.echo(json.dumps({"correct": correct.to_dict(), "broken": broken.to_dict()}))
        return
    typer.echo(
        f"A histogram of {_PEOPLE} bins is released with Gaussian noise. Each of {_PEOPLE} people owns a\n"
        f"bin and takes part if a hidden fair coin says so. The release claims ε = {_EPSILON:g} at "
        f"δ = {_DELTA:g}.\nThe auditor sees one release and guesses the coins.\n"
    )
    _tell("noise as claimed", correct)
    _tell("noise four times too small (a bug)", broken)
    typer.echo("Next: canaria scores YOUR_SCORES.csv --delta 1e-5 --claimed 2")


def _audit(noise_factor: float) -> "Bound":
    """Release the histogram once, with the noise that the claim needs times a factor, and audit it."""
    import numpy as np
    from scipy import optimize

    from canaria.audit import audit_scores
    from canaria.evidence.tradeoff import gaussian_epsilon

    signal = float(optimize.brentq(lambda mu: gaussian_epsilon(mu, _DELTA) - _EPSILON, 0.01, 10.0))
    rng = np.random.default_rng(20250)
    bits = rng.integers(0, 2, _PEOPLE)
    release = bits + rng.normal(scale=noise_factor / signal, size=_PEOPLE)
    return audit_scores(release, bits, delta=_DELTA, rng=rng)


def _tell(name: str, bound: "Bound") -> None:
    verdict = "REFUTED" if bound.refutes(_EPSILON) else "not refuted"
    right, taken = bound.tally
    typer.echo(
        f"{name}\n"
        f"  ε ≥ {bound.epsilon_text} with {100 * bound.confidence:g} % confidence; "
        f"the claim ε = {_EPSILON:g} is {verdict}\n"
        f"  ({right} of its {taken} surest guesses were right)\n"
    )
