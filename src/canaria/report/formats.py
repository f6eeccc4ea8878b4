"""Writes reports and comparisons to files. The file's ending decides the format."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from canaria._core.errors import InputError, shown
from canaria._core.files import write_atomically
from canaria.report.comparison import Comparison
from canaria.report.section import Section

_REPORTS: Final = (".html", ".htm", ".md", ".txt")
_COMPARISONS: Final = (*_REPORTS, ".csv", ".svg")
_COLUMNS: Final = 100
"""The width of a text report, in characters."""


def require_known(out: Path) -> None:
    """Refuse an ending in which no report can be written, before anything is computed."""
    if out.suffix.lower() not in _REPORTS:
        raise InputError(
            f"a report is HTML (.html), Markdown (.md) or text (.txt), got {shown(str(out))}; for a PDF, "
            "print the HTML page from a browser"
        )
    _require_page(out)


def require_comparable(out: Path) -> None:
    """Refuse an ending in which no comparison can be written, before anything is computed."""
    if out.suffix.lower() not in _COMPARISONS:
        raise InputError(
            "a comparison is HTML (.html), Markdown (.md), text (.txt), CSV (.csv) or a picture (.svg), got "
            f"{shown(str(out))}"
        )
    _require_page(out)


def _require_page(out: Path) -> None:
    if out.suffix.lower() in (".html", ".htm"):
        from canaria.report.page import require_page

        require_page()


def write_report(out: Path, sections: Sequence[Section], title: str | None = None) -> None:
    """Write a report in the format of the file's ending, atomically."""
    require_known(out)
    write_atomically(out, _report(out.suffix.lower(), sections, title).encode())


def write_comparison(out: Path, comparison: Comparison, title: str | None = None) -> None:
    """Write a comparison in the format of the file's ending, atomically."""
    require_comparable(out)
    write_atomically(out, _comparison(out.suffix.lower(), comparison, title).encode())


def _report(ending: str, sections: Sequence[Section], title: str | None) -> str:
    if ending == ".md":
        from canaria.report.markdown import markdown

        return markdown(sections, title)
    if ending == ".txt":
        from rich.console import Console

        from canaria.report.terminal import show

        written = StringIO()
        written.write(f"{shown(title)[1:-1]}\n\n" if title else "")
        show(sections, Console(file=written, width=_COLUMNS, color_system=None))
        return written.getvalue()
    from canaria.report.page import page

    return page(sections, title)


def _comparison(ending: str, comparison: Comparison, title: str | None) -> str:
    if ending == ".md":
        from canaria.report.markdown import markdown_of_comparison

        return markdown_of_comparison(comparison, title)
    if ending in (".html", ".htm"):
        from canaria.report.page import page_of_comparison

        return page_of_comparison(comparison, title)
    if ending == ".svg":
        return comparison.chart.svg
    return comparison.to_csv() if ending == ".csv" else f"{comparison}\n"
