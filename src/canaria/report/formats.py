"""The formats of a report and of a comparison, by the ending of the file that it is written to."""

from collections.abc import Callable, Sequence
from io import StringIO
from pathlib import Path
from typing import Final

from canaria._core.errors import InputError, shown
from canaria._core.files import write_atomically
from canaria.report.comparison import Comparison
from canaria.report.section import Section

_COLUMNS: Final = 100
"""The width of a report as text."""


def _html(sections: Sequence[Section], title: str | None) -> str:
    from canaria.report.page import page

    return page(sections, title)


def _markdown(sections: Sequence[Section], title: str | None) -> str:
    from canaria.report.markdown import markdown

    return markdown(sections, title)


def _text(sections: Sequence[Section], title: str | None) -> str:
    from rich.console import Console

    from canaria.report.terminal import show

    written = StringIO()
    written.write(f"{shown(title)[1:-1]}\n\n" if title else "")
    show(sections, Console(file=written, width=_COLUMNS, color_system=None))
    return written.getvalue()


_FORMATS: Final[dict[str, Callable[[Sequence[Section], str | None], str]]] = {
    ".html": _html,
    ".htm": _html,
    ".md": _markdown,
    ".txt": _text,
}


def _compared_html(comparison: Comparison, title: str | None) -> str:
    from canaria.report.page import page_of_comparison

    return page_of_comparison(comparison, title)


def _compared_markdown(comparison: Comparison, title: str | None) -> str:
    from canaria.report.markdown import markdown_of_comparison

    return markdown_of_comparison(comparison, title)


_COMPARISONS: Final[dict[str, Callable[[Comparison, str | None], str]]] = {
    ".html": _compared_html,
    ".htm": _compared_html,
    ".md": _compared_markdown,
    ".txt": lambda comparison, _: f"{comparison}\n",
    ".csv": lambda comparison, _: comparison.to_csv(),
    ".svg": lambda comparison, _: comparison.chart.svg,
}


def require_known(out: Path) -> None:
    """Refuse a report that could not be written in its format, before anything is computed.

    Args:
        out: Where the report is to be written.

    Raises:
        InputError: If the ending is another one (a page named .pdf would open nowhere), or if it is that of
            a page and the extra `report` is not installed.

    """
    if out.suffix.lower() not in _FORMATS:
        raise InputError(
            f"a report is HTML (.html), Markdown (.md) or text (.txt), got {shown(str(out))}; for a PDF, "
            "print the HTML page from a browser"
        )
    _require_page(out)


def require_comparable(out: Path) -> None:
    """Refuse a comparison that could not be written in its format, before anything is computed.

    Args:
        out: Where the comparison is to be written.

    Raises:
        InputError: If the ending is another one, or if it is that of a page and the extra `report` is not
            installed.

    """
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
    """Write a report in the format that its ending names, at once or not at all.

    Args:
        out: Where to write it: `.html`, `.md` or `.txt`.
        sections: The explained results.
        title: The title; by default the name of the result, or the number of audits.

    Raises:
        InputError: If the ending names no format, or if the file cannot be written.

    """
    require_known(out)
    write_atomically(out, _FORMATS[out.suffix.lower()](sections, title).encode())


def write_comparison(out: Path, comparison: Comparison, title: str | None = None) -> None:
    """Write a comparison in the format that its ending names, at once or not at all.

    Args:
        out: Where to write it: `.html`, `.md`, `.txt`, `.csv` or `.svg`.
        comparison: The results.
        title: The title; by default the number of audits.

    Raises:
        InputError: If the ending names no format, or if the file cannot be written.

    """
    require_comparable(out)
    write_atomically(out, _COMPARISONS[out.suffix.lower()](comparison, title).encode())
