"""How a bound is shown: a few lines for people, JSON for programs, an exit code for both."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import typer

if TYPE_CHECKING:
    from canaria.bound import Bound


@contextmanager
def one_line_warnings() -> Iterator[None]:
    """Print the warnings of a computation as single lines on standard error, each once."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(str(warning.message) for warning in caught):
        typer.echo(f"canaria: warning: {message}", err=True)


def finish(compute: Callable[[], "Bound"], claimed: float | None, as_json: bool, **details: Any) -> NoReturn:
    """Compute a bound, show it, and leave with code 1 if the claim is refuted."""
    from canaria import _validate

    if claimed is not None:
        _validate.nonnegative("claimed", claimed)
    with one_line_warnings():
        bound = compute()
    refuted = None if claimed is None else bound.refutes(claimed)
    typer.echo(result_json(bound, claimed, refuted, details) if as_json else in_words(bound, claimed))
    raise typer.Exit(1 if refuted else 0)


def result_json(bound: "Bound", claimed: float | None, refuted: bool | None, details: dict[str, Any]) -> str:
    """The result as JSON, which `canaria verify` can check."""
    from canaria._version import __version__
    from canaria.bound import plain

    claim = None if claimed is None else plain(claimed)
    record = {**bound.to_dict(), "claimed": claim, "refuted": refuted, **details}
    return json.dumps({**record, "canaria": __version__}, allow_nan=False)


def in_words(bound: "Bound", claimed: float | None) -> str:
    """The result for people."""
    right, taken = bound.tally
    rows = [
        ("guesses", f"{right} of {taken} right, {bound.evidence.elements} elements"),
        ("estimate", f"{bound.estimate:.3f} (no confidence)"),
        ("method", bound.method),
        ("rule", bound.rule),
        ("ε grid", bound.grid),
        ("adjacency", bound.adjacency),
        ("about", bound.about),
        *(("assumes", line) for line in bound.assumptions),
    ]
    lines = [
        f"ε ≥ {bound.epsilon_text} at δ = {bound.delta:g}, with {100 * bound.confidence:.10g} % confidence"
    ]
    if claimed is not None:
        verdict = "is refuted" if bound.refutes(claimed) else "is not refuted"
        lines.append(f"the claim ε = {claimed:g} {verdict}")
    shown = ""
    for name, value in rows:
        if value is not None:
            lines.append(f"  {name if name != shown else '':<10} {value}")
            shown = name
    return "\n".join(lines)
