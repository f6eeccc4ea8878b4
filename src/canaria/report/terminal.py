"""The report in the terminal."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from canaria._core.rounding import percent, rounded_down
from canaria.bounds.conformance import Conformance, in_words
from canaria.bounds.parts import Histogram
from canaria.report import brief, words
from canaria.report.comparison import side_by_side
from canaria.report.section import Section

_WIDTH: Final = 40
_LEVELS: Final = " ▁▂▃▄▅▆▇█"


def show(sections: Sequence[Section], console: Console | None = None) -> None:
    """Print the content of the page, by default to standard output."""
    screen = console or Console()
    for section in sections:
        for part in _parts(section):
            screen.print(part)
    if len(sections) > 1:
        screen.print(_titled("All together", Text(side_by_side(sections).note)))
    screen.print(_titled("How to read this", Text(words.HOW_TO_READ)))


def _parts(section: Section) -> list[Any]:
    result = section.result
    assumptions = [f"• {line.replace('`', '')}" for line in result.bound.assumptions]
    parts = [
        Panel(
            Group(
                Text(result.verdict, style="bold"),
                *(Text(f"{about}: {text}") for about, text in brief.points(result)),
            ),
            title=Text(section.name),
            border_style="red" if result.alarming else "blue",
        ),
        _titled("The bound", _bars(_marks(section))),
        *([_titled("Under more assumptions", _rungs(section), section.rungs_note)] * bool(result.rungs)),
        _titled("Evidence", _evidence(section)),
        *(
            [_titled("From the guesses to the bound", _derivation(section), words.DERIVED)]
            * bool(section.derivation)
        ),
        _titled("By confidence", _curve(section), section.confidence_note),
    ]
    if section.by_guesses:
        parts.append(_titled("By number of guesses", _guesses(section), section.guesses_note))
    if result.histogram is not None:
        parts.append(_titled("Scores", _histogram(result.histogram), words.SCORES))
    if section.ladder_note:
        parts.append(_titled("Where the rest is lost", _gaps(section), section.ladder_note))
    if result.conformance is not None:
        parts.append(_titled("Conformance", _conformance(result.conformance), words.CONFORMANCE))
    parts.append(_titled("What must be true", Text("\n".join(assumptions))))
    if result.facts or result.bound.rule:
        parts.append(_titled("As stated by the auditor (not recomputed)", _facts(section)))
    parts.append(_titled("Repeat it", _provenance(section)))
    return parts


def _titled(title: str, body: Any, note: str | None = None) -> Padding:
    lines: list[Any] = [Text(title, style="bold"), Padding(body, (0, 0, 0, 2))]
    if note:
        lines.append(Padding(Text(note, style="dim"), (0, 0, 0, 2)))
    return Padding(Group(*lines), (1, 0, 0, 0))


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=any(columns))
    for column in columns:
        table.add_column(Text(column), style="" if column else None, overflow="fold")
    return table


def _rows(table: Table, rows: Iterable[Iterable[str]]) -> Table:
    for row in rows:
        table.add_row(*map(Text, row))
    return table


def _marks(section: Section) -> list[tuple[str, float]]:
    result = section.result
    marks = [("bound", result.bound.epsilon), ("estimate", result.bound.estimate)]
    return marks if result.claimed is None else [*marks, ("claim", result.claimed)]


def _bars(marks: list[tuple[str, float]]) -> Table:
    top = max((value for _, value in marks if math.isfinite(value)), default=1.0) or 1.0
    rows = [
        (name, rounded_down(value), "█" * round(_WIDTH * value / top) if math.isfinite(value) else "")
        for name, value in marks
    ]
    return _rows(_table("", "", ""), rows)


def _rungs(section: Section) -> Table:
    return _rows(_table("", ""), [(rung.epsilon, rung.reason) for rung in section.result.rungs])


def _evidence(section: Section) -> Table:
    bound = section.result.bound
    right, taken = bound.tally
    rows = [
        ("guesses", f"{right} of {taken} right, among {bound.evidence.elements} elements"),
        ("method", bound.method),
        ("family", _family(section)),
        ("grid of ε", bound.grid),
        ("adjacency", f"{bound.adjacency}. {section.adjacency}"),
        ("about", bound.about),
        ("fixed in advance", section.fixed),
    ]
    return _rows(_table("", ""), [(name, value) for name, value in rows if value])


def _family(section: Section) -> str | None:
    family = section.result.bound.family
    condition = f": ε is bounded if {section.condition}" if section.condition else ""
    return None if family is None else f"{family}{condition}"


def _facts(section: Section) -> Table:
    result = section.result
    rule = [("rule", section.rule)] if section.rule else []
    return _rows(_table("", ""), [*rule, *result.facts.items()])


def _derivation(section: Section) -> Table:
    return _rows(_table("", "ε"), [(step, rounded_down(epsilon)) for step, epsilon in section.derivation])


def _curve(section: Section) -> Table:
    rows = [
        (f"{percent(confidence)}%", rounded_down(epsilon)) for confidence, epsilon in section.by_confidence
    ]
    return _rows(_table("confidence", "ε ≥"), rows)


def _guesses(section: Section) -> Table:
    """Some points of the curve, its last, and the one with the strongest evidence."""
    points = section.by_guesses
    chosen = {*points[:: max(1, len(points) // 8)], points[-1]}
    chosen |= {point for point in points if point[0] == section.result.bound.tally.taken}
    rows = [(str(k), str(v), rounded_down(e)) for k, v, e in sorted(chosen)]
    return _rows(_table("guesses", "right", "ε of this count alone"), rows)


def _histogram(histogram: Histogram) -> Table:
    top = max(*histogram.included, *histogram.excluded, 1)
    lines = [
        (name, "".join(_LEVELS[-(-(len(_LEVELS) - 1) * count // top)] for count in counts))
        for name, counts in (("included", histogram.included), ("excluded", histogram.excluded))
    ]
    ends = f"{histogram.edges[0]:.3g} … {histogram.edges[-1]:.3g}"
    return _rows(_table("", ""), [*lines, ("score", ends)])


def _gaps(section: Section) -> Table:
    ladder = section.result.ladder
    if ladder is None:
        return _table("")
    rows = [(ladder.top, rounded_down(ladder.epsilon), "")]
    rows += [(f"{drop.gap} takes", drop.lost, drop.advice) for drop in section.drops]
    rows.append(("the bound", section.result.bound.epsilon_text, ""))
    return _rows(_table("", "ε", "how to narrow it"), rows)


def _conformance(found: Conformance) -> Group:
    parts = [(name, in_words(value)) for name, value in found.parts.items()]
    return Group(Text(str(found)), _rows(_table("", ""), parts))


def _provenance(section: Section) -> Table:
    result = section.result
    rows = [
        ("command", result.command),
        ("seed", None if result.seed is None else str(result.seed)),
        ("versions", ", ".join(f"{name} {value}" for name, value in result.versions.items())),
        ("checksum", section.checksum),
    ]
    return _rows(_table("", ""), [(name, value) for name, value in rows if value])
