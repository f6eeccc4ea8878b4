"""The report in the terminal."""

from collections.abc import Iterable
from typing import Any, Final

from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from canaria.report import words
from canaria.report.section import Section, rounded_down
from canaria.results import Histogram

_COLOURS: Final = {True: "red", False: "green", None: "blue"}
_WIDTH: Final = 40
_LEVELS: Final = " ▁▂▃▄▅▆▇█"


def show(section: Section, console: Console | None = None) -> None:
    """Print what the page shows."""
    screen = console or Console()
    for part in _parts(section):
        screen.print(part)


def _parts(section: Section) -> list[Any]:
    result, bound = section.result, section.result.bound
    verdict = Text(result.verdict, style="bold")
    return [
        Panel(
            Group(verdict, Text(section.meaning)),
            title=Text(result.name),
            border_style=_COLOURS[result.refuted],
        ),
        _titled("The bound", _bars(_marks(section))),
        _titled("Evidence", _facts(section)),
        _titled("By confidence", _curve(section), words.BY_CONFIDENCE),
        _titled(
            "By number of guesses",
            _guesses(section),
            words.PROJECTED if section.projected else words.BY_GUESSES,
        ),
        *(
            []
            if result.histogram is None
            else [_titled("Scores", _histogram(result.histogram), words.SCORES)]
        ),
        *_gaps(section),
        *_conformance(section),
        _titled("What must be true", Text("\n".join(f"• {line}" for line in bound.assumptions))),
        _titled("Repeat it", _provenance(section)),
    ]


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
    top = max((value for _, value in marks if value < 1e9), default=1.0) or 1.0
    rows = [
        (name, "█" * max(0, round(_WIDTH * min(value, top) / top)), rounded_down(value))
        for name, value in marks
    ]
    return _rows(_table("", "", ""), rows)


def _facts(section: Section) -> Table:
    result, bound = section.result, section.result.bound
    right, taken = bound.tally
    rows = [
        ("guesses", f"{right} of {taken} right, among {bound.evidence.elements} elements"),
        ("method", bound.method),
        ("rule", bound.rule),
        ("adjacency", f"{bound.adjacency}. {section.adjacency}"),
        ("about", bound.about),
        ("fixed before", section.fixed),
        *result.facts.items(),
    ]
    return _rows(_table("", ""), [(name, value) for name, value in rows if value])


def _curve(section: Section) -> Table:
    rows = [
        (f"{100 * confidence:.10g} %", rounded_down(epsilon)) for confidence, epsilon in section.by_confidence
    ]
    return _rows(_table("confidence", "ε ≥"), rows)


def _guesses(section: Section) -> Table:
    step = max(1, len(section.by_guesses) // 8)
    rows = [(str(k), str(v), rounded_down(e)) for k, v, e in section.by_guesses[::step]]
    return _rows(_table("guesses", "right", "ε of this count alone"), rows)


def _histogram(histogram: Histogram) -> Table:
    top = max(*histogram.included, *histogram.excluded, 1)
    lines = [
        (name, "".join(_LEVELS[-(-(len(_LEVELS) - 1) * count // top)] for count in counts))
        for name, counts in (("included", histogram.included), ("excluded", histogram.excluded))
    ]
    ends = f"{histogram.edges[0]:.3g} … {histogram.edges[-1]:.3g}"
    return _rows(_table("", ""), [*lines, ("score", ends)])


def _gaps(section: Section) -> list[Any]:
    ladder = section.result.ladder
    if ladder is None:
        return []
    rows = [(ladder.top, f"{ladder.epsilon:.3f}", "")]
    rows += [(drop.gap, f"{drop.end - drop.start:+.3f}", drop.advice) for drop in section.drops]
    rows.append(("the bound", section.result.bound.epsilon_text, ""))
    table = _rows(_table("", "ε", "how to narrow it"), rows)
    return [_titled("Where the rest is lost", table, f"Computed from: {ladder.how}.")]


def _conformance(section: Section) -> list[Any]:
    found = section.result.conformance
    if found is None:
        return []
    return [_titled("Conformance", Text(str(found)), words.CONFORMANCE)]


def _provenance(section: Section) -> Table:
    result = section.result
    rows = [
        ("command", result.command),
        ("seed", None if result.seed is None else str(result.seed)),
        ("versions", ", ".join(f"{name} {value}" for name, value in result.versions.items())),
        ("checksum", result.to_dict()["checksum"]),
    ]
    return _rows(_table("", ""), [(name, value) for name, value in rows if value])
