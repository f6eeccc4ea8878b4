"""A result as plain text, for `print` and the command line."""

from collections.abc import Iterator

from canaria._core.rounding import percent, rounded_down
from canaria.bounds.result import Result


def text_of(result: Result) -> str:
    """A result as text: the bound, the verdicts, the bounds under each assumption, and the facts.

    Args:
        result: The result.

    Example:
        >>> from canaria import Counts, lower_bound
        >>> from canaria.report import text_of
        >>> text_of(lower_bound(Counts(90, 100, 100)).result()).splitlines()[0]
        'ε ≥ 1.630 at δ = 0, with 95% confidence'
    """
    return "\n".join([*_verdicts(result), *_rungs(result), *_facts(result)])


def _verdicts(result: Result) -> Iterator[str]:
    """The lines that matter most, the most serious first."""
    bound = result.bound
    yield from (f"training was NOT what was stated: {one}" for one in result.contradictions)
    if result.misstated is not None:
        yield result.misstated.answer
        yield from (f"  what to do: {advice}" for advice in result.misstated.advice)
    yield from (f"note: {remark}" for remark in result.remarks)
    shown = f"ε ≥ {bound.epsilon_text} at δ = {bound.delta:g}, with {percent(bound.confidence)}% confidence"
    yield bound.sentence if bound.condition else shown
    if result.coverage:
        yield result.coverage
    if result.claim is not None:
        rung = result.refuting_rung
        refuted = "" if rung is None else f"; it is refuted {rung.assumes}"
        yield f"{result.promise} is {result.answer}{result.reserved}{refuted}"
    # Next to a note, "matches" would read as if the note did not matter.
    silent = not result.contradictions and not result.remarks
    if result.conformance is not None and result.conformance.conforms and silent:
        yield result.conformance.answer
    if result.diagnosis:
        yield f"why no more: {result.diagnosis}"


def _rungs(result: Result) -> Iterator[str]:
    if result.rungs:
        bound, width = result.bound, max(len(rung.epsilon) for rung in result.rungs)
        sure = f"{percent(bound.confidence)}% confidence"
        yield f"what is shown at δ = {bound.delta:g}, each line with {sure}"
        yield from (f"  {rung.epsilon:<{width}}  {rung.reason}" for rung in result.rungs)


def _facts(result: Result) -> Iterator[str]:
    """One line for each fact. Consecutive facts with the same name show it once."""
    bound = result.bound
    right, taken = bound.tally
    facts = [
        ("guesses", f"{right} of {taken} right, {bound.evidence.elements} elements"),
        ("estimate", f"{rounded_down(bound.estimate)} (no guarantee)"),
        ("method", bound.method),
        ("rule", bound.rule),
        ("ε grid", bound.grid),
        ("conformance", None if result.conformance is None else str(result.conformance)),
        ("adjacency", bound.adjacency),
        ("about", bound.about),
        *result.facts.items(),
        *(("assumes", line) for line in bound.assumptions),
    ]
    shown = ""
    for name, value in facts:
        if value is not None:
            lines = value.replace("\n", f"\n{'':<14}")
            yield f"  {name if name != shown else '':<11} {lines}"
            shown = name
