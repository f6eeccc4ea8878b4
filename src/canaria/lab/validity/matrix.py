"""The matrix of auditors and cases: tables for people, rows for programs, heat maps."""

import csv
import json
from dataclasses import dataclass
from io import StringIO
from typing import Any, Final

from canaria._core.rounding import percent
from canaria.lab.charts import heat_map, pictures
from canaria.lab.validity._cell import Cell


@dataclass(frozen=True)
class Matrix:
    """The outcome of a run of the laboratory.

    Attributes:
        cells: One cell for each auditor and case.

    Example:
        >>> from canaria.lab.validity import laboratory
        >>> matrix = laboratory(["top:20"], ["rr-1", "rr-2"], audits=20, claims=0).run()
        >>> matrix.auditors, len(matrix.cells), matrix.over_claiming
        (('top:20',), 2, ())
    """

    cells: tuple[Cell, ...]

    @property
    def auditors(self) -> tuple[str, ...]:
        """The names of the auditors, in order."""
        return tuple(dict.fromkeys(cell.auditor for cell in self.cells))

    def of(self, auditor: str) -> tuple[Cell, ...]:
        return tuple(cell for cell in self.cells if cell.auditor == auditor)

    @property
    def over_claiming(self) -> tuple[str, ...]:
        """The auditors that are flagged, without the controls."""
        return tuple(dict.fromkeys(cell.auditor for cell in self.cells if cell.flagged and not cell.control))

    @property
    def failing(self) -> tuple[str, ...]:
        """The auditors that gave no bound in some audit."""
        return tuple(dict.fromkeys(cell.auditor for cell in self.cells if cell.errors))

    @property
    def missed(self) -> tuple[str, ...]:
        """The controls that were not flagged, because there were too few audits."""
        controls = dict.fromkeys(cell.auditor for cell in self.cells if cell.control)
        return tuple(name for name in controls if not any(cell.flagged for cell in self.of(name)))

    def __str__(self) -> str:
        """A table with a line per case if there is one auditor, else with a line per auditor."""
        table = _aligned(_AUDITORS, self._auditor_rows())
        if len(self.auditors) == 1:
            table = _aligned(_CASES, [_case_row(cell) for cell in self.cells])
        return "\n".join([_heading(self.cells[0]), "", *table, "", self.verdict])

    @property
    def verdict(self) -> str:
        """One sentence about each auditor that fails, or about all if none does."""
        sentences = [_accusation(self.of(name)) for name in self.over_claiming]
        failed = [cell for cell in self.cells if cell.errors]
        if failed:
            sentences.append(
                f"{sum(cell.errors for cell in failed)} audits gave no bound; the first, by "
                f"{failed[0].auditor} in {failed[0].case.name}: {failed[0].error}."
            )
        if self.missed:
            sentences.append(f"Too few audits to flag a control: {', '.join(self.missed)}.")
        if not self.over_claiming and not self.failing:
            sentences.insert(
                0, "No auditor claims more than the truth too often, as far as these audits show."
            )
        return " ".join(sentences)

    def to_json(self) -> str:
        """All cells and the verdict, as JSON."""
        record = {
            "over-claiming": self.over_claiming,
            "failing": self.failing,
            "missed": self.missed,
            "cells": [cell.to_dict() for cell in self.cells],
        }
        return json.dumps(record, allow_nan=False, ensure_ascii=False)

    def files(self) -> dict[str, bytes]:
        """The files of a run by name: a table of the cells, heat maps of false claims and of tightness."""
        rows = [cell.to_dict() for cell in self.cells]
        table = StringIO()
        writer = csv.DictWriter(table, list(rows[0]), delimiter="\t", lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        found = {"cells.tsv": table.getvalue().encode()}
        charts = {"false-claims": self.rates_chart()}
        if any(cell.tightness is not None for cell in self.cells):
            charts["tightness"] = self.tightness_chart()
        for name, chart in charts.items():
            found[f"{name}.vl.json"] = chart.to_json().encode()
            found |= {f"{name}.{ending}": content for ending, content in pictures(chart).items()}
        return found

    def rates_chart(self) -> Any:
        """A heat map of the rates of false claims, for every auditor in every case."""
        return heat_map(
            [
                {
                    **_place(cell),
                    "value": cell.rate / cell.nominal,
                    "text": f"{100 * cell.rate:.1f}",
                    "marked": cell.excessive,
                    "seen": "{:,} of {:,}".format(*cell.seen),
                }
                for cell in self.cells
            ],
            "False claims, in percent of audits",
            f"nominal: {_share(self.cells[0].nominal)}; framed: beyond chance\n"
            "half, half-counted: the bits are not fair, and no auditor is to blame",
            "rate over nominal",
            [0, 1, 2],
            ["#4a90c2", "#f4f4f0", "#c0392b"],
        )

    def tightness_chart(self) -> Any:
        """A heat map of the mean bound divided by the truth."""
        return heat_map(
            [
                {
                    **_place(cell),
                    "value": cell.tightness,
                    "text": f"{cell.tightness:.2f}",
                    "marked": False,
                    "seen": f"mean of {cell.answered:,} bounds",
                }
                for cell in self.cells
                if cell.tightness is not None
            ],
            "Mean bound over the true ε",
            "more is better, as long as the auditor is valid",
            "mean bound / truth",
            [0, 1],
            ["#f4f4f0", "#2d7d46"],
        )

    def _auditor_rows(self) -> list[list[str]]:
        return [_auditor_row(self.of(name)) for name in self.auditors]


def _place(cell: Cell) -> dict[str, str]:
    """The position of a cell in a heat map, and the description shown there."""
    return {"row": cell.case.name, "column": cell.auditor, "about": cell.case.about}


_COUNTED: Final = ("false", "of", "95% interval", "tightness", "verdict")
_AUDITORS: Final = ["auditor", "audits", "claims", "worst case", *_COUNTED]
_CASES: Final = ["case", "what it is", "ε", "δ", *_COUNTED]
_TEXT: Final = {"auditor", "case", "what it is", "worst case", "verdict"}


def _heading(cell: Cell) -> str:
    return (
        f"False claims at {percent(cell.confidence)}% confidence: up to {_share(cell.nominal)} is allowed. "
        "Flagged: chance explains as much\nin one of 30,000 cells. Tightness: mean bound over true epsilon."
    )


def _auditor_row(cells: tuple[Cell, ...]) -> list[str]:
    fair = [cell for cell in cells if cell.case.fair] or list(cells)
    worst = _worst(fair)
    shown = [cell.tightness for cell in fair if cell.tightness is not None]
    flagged = sum(cell.flagged for cell in fair)
    verdict = f"{worst.verdict} in {flagged} of {len(fair)} cases" if flagged else worst.verdict
    return [
        f"{worst.auditor} (control)" if worst.control else worst.auditor,
        f"{sum(cell.audits for cell in cells):,}",
        f"{sum(cell.claims for cell in cells):,}",
        worst.case.name,
        *_rate(worst),
        f"{sum(shown) / len(shown):.2f}" if shown else "",
        verdict,
    ]


def _worst(cells: list[Cell]) -> Cell:
    """The cell that is least explained by chance; of several, the one with the highest rate."""
    return min(cells, key=lambda cell: (cell.chance, -cell.rate))


def _case_row(cell: Cell) -> list[str]:
    return [
        cell.case.name,
        cell.case.about,
        f"{cell.case.epsilon:.4g}",
        f"{cell.case.delta:g}",
        *_rate(cell),
        "" if cell.tightness is None else f"{cell.tightness:.2f}",
        cell.verdict,
    ]


def _rate(cell: Cell) -> tuple[str, str, str]:
    low, high = cell.interval
    return _share(cell.rate), f"{cell.seen[1]:,}", f"{100 * low:.2f} to {100 * high:.2f}"


def _accusation(cells: tuple[Cell, ...]) -> str:
    fair = [cell for cell in cells if cell.case.fair]
    flagged = [cell for cell in fair if cell.flagged]
    worst = _worst(flagged)
    return (
        f"{worst.auditor} OVER-CLAIMS in {len(flagged)} of {len(fair)} cases, worst in {worst.case.name} "
        f"({worst.case.about}): {_share(worst.rate)} of its claims are false where "
        f"{_share(worst.nominal)} may be."
    )


def _share(rate: float) -> str:
    return f"{100 * rate:.3g}%"


def _aligned(names: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(names, *rows, strict=True)]
    return [
        "  ".join(
            value.ljust(width) if name in _TEXT else value.rjust(width)
            for name, value, width in zip(names, row, widths, strict=True)
        ).rstrip()
        for row in [names, *rows]
    ]
