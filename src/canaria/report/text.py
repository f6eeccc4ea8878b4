"""A result as text for people: what `print` and the command line show."""

from canaria._core.rounding import percent, rounded_down
from canaria.bounds.result import Result


def text_of(result: Result) -> str:
    """A result as text: the bound, the verdicts, what is shown under which assumption, and the facts.

    Args:
        result: The result.

    Returns:
        The lines; `print(result)` shows them.

    Example:
        >>> from canaria import Counts, lower_bound
        >>> from canaria.report import text_of
        >>> text_of(lower_bound(Counts(90, 100, 100)).result()).splitlines()[0]
        'ε ≥ 1.630 at δ = 0, with 95% confidence'

    """
    bound = result.bound
    right, taken = bound.tally
    rows = [
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
    sure = f"{percent(bound.confidence)}% confidence"
    lines = [f"training was NOT what was stated: {one}" for one in result.contradictions]
    if result.misstated is not None:
        lines.append(result.misstated.answer)
        lines += [f"  what to do: {advice}" for advice in result.misstated.advice]
    lines += [f"note: {remark}" for remark in result.remarks]
    shown = f"ε ≥ {bound.epsilon_text} at δ = {bound.delta:g}, with {sure}"
    lines.append(bound.sentence if bound.condition else shown)
    if result.coverage:
        lines.append(result.coverage)
    if result.claim is not None:
        lines.append(f"{result.promise} is {result.answer}{result.reserved}")
    if (rung := result.refuting_rung) is not None:
        lines[-1] += f"; it is refuted {rung.assumes}"
    # Beside a note, "matches" would be read as if the note did not matter.
    silent = not result.contradictions and not result.remarks
    if result.conformance is not None and result.conformance.conforms and silent:
        lines.append(result.conformance.answer)
    if result.diagnosis:
        lines.append(f"why no more: {result.diagnosis}")
    if result.rungs:
        width = max(len(rung.epsilon) for rung in result.rungs)
        lines.append(f"what is shown at δ = {bound.delta:g}, each line with {sure}")
        lines += [f"  {rung.epsilon:<{width}}  {rung.reason}" for rung in result.rungs]
    shown = ""
    for name, value in rows:
        if value is not None:
            lines.append(f"  {name if name != shown else '':<11} {value}")
            shown = name
    return "\n".join(lines)
