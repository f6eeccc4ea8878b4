"""Reports: a result explained, in the terminal, as a page and as Markdown.

A report is a function of the result alone: the same result gives the same page on any machine and any day.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canaria.report.section import Section
    from canaria.results import Result

__all__ = ["page_of", "write_report_of"]


def page_of(results: "Sequence[Result]", title: str | None = None) -> str:
    """The HTML of a report on one or several results.

    Args:
        results: The results.
        title: The title of the page; by default the name of the result, or the number of audits.

    Returns:
        A page that needs no other file.

    Example:
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.report import page_of
        >>> page_of([Result(lower_bound(Counts(90, 100, 100)))]).startswith("<!doctype html>")
        True

    """
    from canaria.report.page import page

    return page(_explained(results), title)


def write_report_of(results: "Sequence[Result]", path: Path, title: str | None = None) -> None:
    """Write a report on one or several results.

    Args:
        results: The results.
        path: Where to write it; the ending says how: `.html`, `.md` or `.txt`.
        title: The title; by default the name of the result, or the number of audits.

    Raises:
        InputError: If the ending is another one, or if the file cannot be written.

    Example:
        >>> import tempfile, pathlib
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.report import write_report_of
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "report.md"
        >>> write_report_of([Result(lower_bound(Counts(90, 100, 100)), name="survey")], path)
        >>> path.read_text().splitlines()[0]
        '## survey'

    """
    from canaria.report.formats import require_known, write_report

    require_known(path)
    write_report(path, _explained(results), title)


def _explained(results: "Sequence[Result]") -> "list[Section]":
    from canaria.report.names import told_apart
    from canaria.report.section import explain

    names = told_apart([result.name for result in results])
    return [explain(result, name=name) for result, name in zip(results, names, strict=True)]
