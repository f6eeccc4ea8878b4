"""Several results side by side: a table, a forest plot, and numbers for a spreadsheet."""

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from canaria._core import markup
from canaria._core.errors import InputError, printable, shown
from canaria._core.kinds import plain
from canaria._core.rounding import percent, rounded_down
from canaria.bounds.bound import Bound
from canaria.bounds.result import Result
from canaria.report import brief
from canaria.report.chart import Chart
from canaria.report.section import Section, told_apart
from canaria.report.svg import BLUE, GREY, PURPLE, Key, Scale, arrow, dot, grid, line, named_row, ring

_ROW: Final = 40
_FOOT: Final = 40
_HEADROOM: Final = 1.2
_LONGEST: Final = 40
"""Largest length of a name in a table, in characters."""
_CELLS: Final = 36
"""Width of the forest plot in the terminal, in characters."""


@dataclass(frozen=True)
class Row:
    """One result of a comparison, and its name in it."""

    name: str
    result: Result

    @property
    def claim(self) -> str:
        return "–" if self.result.claimed is None else f"ε = {self.result.claimed:.6g}"

    @property
    def bound(self) -> str:
        """The bound, for a table; with its family, if it is about one."""
        bound = self.result.bound
        family = f" (family of {bound.family})" if bound.condition else ""
        return f"ε ≥ {bound.epsilon_text}{family}"

    @property
    def guesses(self) -> str:
        right, taken = self.result.bound.tally
        return f"{right} of {taken}"

    @property
    def answer(self) -> str:
        return brief.answer(self.result)

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data, for JSON and CSV."""
        bound = self.result.bound
        return {
            "name": self.name,
            "epsilon": plain(bound.epsilon),
            "delta": bound.delta,
            "confidence": bound.confidence,
            "claimed": _short_number(self.result.claimed),
            "verdict": self.answer,
            "estimate": plain(bound.estimate),
            "correct": bound.tally.correct,
            "guesses": bound.tally.taken,
            "elements": bound.evidence.elements,
            "method": bound.method,
            "rule": bound.rule,
            "family": None if bound.family is None else str(bound.family),
            "adjacency": bound.adjacency,
            "date": self.result.date,
        }


@dataclass(frozen=True)
class Comparison:
    """Several results side by side. Notebooks display it."""

    rows: tuple[Row, ...]

    @property
    def title(self) -> str:
        return f"{len(self.rows)} audits compared"

    @property
    def note(self) -> str:
        """The confidence in all bounds at once, by the union bound, and differences that limit comparison."""
        # In decimals: as doubles, 1 - 0.95 is a little more than 0.05.
        wrong = sum(1 - Decimal(repr(row.result.bound.confidence)) for row in self.rows)
        sure = percent(float(max(Decimal(0), 1 - wrong)), 2)
        note = f"Each bound holds with its own confidence; all of them at once with at least {sure}%."
        if len({row.result.bound.delta for row in self.rows}) > 1:
            note += " Their δ differ, so their ε cannot be compared."
        if len({row.result.bound.condition for row in self.rows}) > 1:
            note += " Some hold only for mechanisms of a family, others for any mechanism."
        if len({row.result.bound.adjacency == "replace" for row in self.rows}) > 1:
            note += " Their adjacencies differ."
        return note

    @property
    def chart(self) -> Chart:
        """A forest plot: each bound as a half-line of possible ε, with its estimate and its claim."""
        scale, height = Scale(0.0, self._top), _ROW * len(self.rows) + 4
        body, keys = grid(scale, height, "ε"), [Key("at least", BLUE, dashed=False)]
        for place, row in enumerate(self.rows):
            body += _drawn(row, place, scale)
        if any(math.isfinite(row.result.bound.estimate) for row in self.rows):
            keys.append(Key("estimate (no guarantee)", GREY, dashed=False))
        if any(row.result.claimed is not None for row in self.rows):
            keys.append(Key("claim", PURPLE, dashed=False))
        about = "Lower bounds on ε of several audits, with estimates and claims"
        return Chart(about=about, body=tuple(body), height=height + _FOOT, keys=tuple(keys))

    @property
    def _top(self) -> float:
        """The end of the axis, beyond all numbers shown."""
        shown = [
            value
            for row in self.rows
            for value in (row.result.bound.epsilon, row.result.bound.estimate, row.result.claimed)
            if value is not None and math.isfinite(value)
        ]
        return _HEADROOM * max(shown, default=0.0) or 1.0

    def to_csv(self) -> str:
        """The numbers as CSV, one line for each result."""
        written = io.StringIO()
        records = [row.to_dict() for row in self.rows]
        writer = csv.DictWriter(written, fieldnames=list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({key: _inert(value) for key, value in record.items()} for record in records)
        return written.getvalue()

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        head = ("audit", "claim", "bound", "guesses right", "elements", "verdict")
        return head, [
            (
                _short(row.name),
                row.claim,
                row.bound,
                row.guesses,
                str(row.result.bound.evidence.elements),
                row.answer,
            )
            for row in self.rows
        ]

    def __str__(self) -> str:
        """A table and a text forest plot."""
        head, rows = self._table()
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        table = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in (head, *rows)
        ]
        plotted = [f"{_short(row.name):<{widths[0]}}  {_plotted(row, self._top)}" for row in self.rows]
        ends = f"{'ε':<{widths[0]}}  0{f'{self._top:.3g}':>{_CELLS - 1}}"
        legend = "├──▶ at least; ◆ claim"
        return "\n".join([*table, "", *plotted, ends, legend, "", self.note])

    def _repr_html_(self) -> str:
        head, rows = self._table()
        return self.chart._repr_html_() + markup.tabulated(head, rows) + markup.paragraph(self.note)


def compare(results: Sequence[Result], files: Sequence[str] | None = None) -> Comparison:
    """Put results side by side; `files` are used to distinguish results with the same name.

    Nothing is selected: the largest of several bounds is not a bound. To combine audits of one model, use
    `canaria.combine`.
    """
    if not results:
        raise InputError("a comparison must have at least one result, got none")
    names = told_apart([result.name for result in results], files)
    rows = (Row(printable(name), result) for name, result in zip(names, results, strict=True))
    return Comparison(tuple(rows))


def named(results: object) -> list[Result]:
    """Convert results or bounds, in a list or by name, to results with these names."""
    by_name = isinstance(results, Mapping)
    if not by_name and (isinstance(results, str) or not isinstance(results, Sequence)):
        raise InputError(
            f"results must be a list of results, or a dict of them by name, got {shown(results)}"
        )
    pairs = list(results.items()) if by_name else [(None, one) for one in results]  # type: ignore[attr-defined]
    found = []
    for name, one in pairs:
        result = one.result() if isinstance(one, Bound) else one
        if not isinstance(result, Result):
            raise InputError(
                f"results must be results or bounds, got {shown(one)}; read files by canaria.load"
            )
        found.append(result if name is None else replace(result, name=str(name)))
    return found


def side_by_side(sections: Sequence[Section]) -> Comparison:
    """The results of a report side by side, under the report's names."""
    return Comparison(tuple(Row(section.name, section.result) for section in sections))


def _drawn(row: Row, place: int, scale: Scale) -> list[str]:
    result, down = row.result, place * _ROW + 28
    start = scale.at(min(result.bound.epsilon, scale.high))
    told = f"{row.name}: {row.bound}"
    drawn = [
        named_row(place * _ROW + 15, row.name, row.bound.removeprefix("ε ")),
        line((start, down), (100, down), title=told, stroke=BLUE, stroke_width=3),
        dot(start, down, BLUE, title=told),
        arrow(100, down, BLUE),
    ]
    if math.isfinite(result.bound.estimate):
        estimate = f"estimate (no guarantee): ε = {rounded_down(result.bound.estimate)}"
        drawn.append(ring(scale.at(result.bound.estimate), down, GREY, title=estimate))
    if result.claimed is not None and math.isfinite(result.claimed):
        at = scale.at(result.claimed)
        drawn.append(
            line((at, down - 9), (at, down + 9), title=f"claim: {row.claim}", stroke=PURPLE, stroke_width=4)
        )
    return drawn


def _plotted(row: Row, top: float) -> str:
    """A line of the forest plot in the terminal."""

    def at(value: float) -> int:
        return min(_CELLS - 1, int(_CELLS * value / top))

    start = at(row.result.bound.epsilon)
    cells = ["·"] * start + ["├"] + ["─"] * (_CELLS - start - 1) + ["▶"]
    if row.result.claimed is not None and math.isfinite(row.result.claimed):
        cells[at(row.result.claimed)] = "◆"
    return "".join(cells)


def _short_number(value: float | None) -> float | str | None:
    return None if value is None else plain(float(f"{value:.6g}"))


def _short(name: str) -> str:
    """A name that fits into a table. Long names lose the middle, because they usually differ at the ends."""
    plain_name = " ".join(name.split()) or "…"
    half = _LONGEST // 2
    return plain_name if len(plain_name) <= _LONGEST else f"{plain_name[:half]}…{plain_name[1 - half :]}"


def _inert(value: object) -> object:
    """Text that spreadsheets do not interpret as a formula."""
    return f"'{value}" if isinstance(value, str) and value.lstrip()[:1] in ("=", "+", "-", "@") else value
