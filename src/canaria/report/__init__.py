"""Reports: a result explained, in the terminal and as a page.

A report is a function of the result alone: the same result gives the same page on any machine and any day.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from canaria.results import Result

__all__ = ["page_of"]


def page_of(results: "Sequence[Result]", title: str | None = None) -> str:
    """The HTML of a report on one or several results.

    Args:
        results: The results.
        title: The title of the page; by default the name of the result, or the number of audits.

    Returns:
        A page that needs no other file.

    """
    from canaria.report.page import page
    from canaria.report.section import explain

    return page([explain(result) for result in results], title)
