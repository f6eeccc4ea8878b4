"""Reports: a result explained in the terminal, as a page and as Markdown.

A report is a function of the result alone: the same result always gives the same page.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from canaria.report.text import text_of

if TYPE_CHECKING:
    from canaria.bounds import Bound, Result
    from canaria.report.chart import Chart
    from canaria.report.comparison import Comparison
    from canaria.report.section import Section

__all__ = ["chart_of", "compare", "notebook_of", "page_of", "text_of", "write_report_of"]


def page_of(results: "Sequence[Result]", title: str | None = None) -> str:
    """Render the HTML report on one or several results, as a page that needs no other file.

    Args:
        results: The results.
        title: The title of the page; by default the name of the result, or the number of audits.

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
        path: The file. Its suffix decides the format: `.html`, `.md` or `.txt`.
        title: The title of the page; by default the name of the result, or the number of audits.

    Example:
        ```python
        write_report_of([first, second], Path("report.html"), title="Two audits")
        ```
    """
    from canaria.report.formats import require_known, write_report

    require_known(path)  # before the results are explained, which takes longer
    write_report(path, _explained(results), title)


def chart_of(result: "Result", what: str | None = None) -> "Chart":
    """Draw one chart of a result; a notebook shows it, and `save` writes it as SVG.

    Args:
        result: The result.
        what: "claim", "rungs", "confidence", "guesses", "scores" or "gaps"; by default "rungs" for a training
            audit, and "claim" for any other.

    Raises:
        InputError: If the result has no such chart.

    Example:
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.report import chart_of
        >>> chart_of(Result(lower_bound(Counts(90, 100, 100)))).about
        'The bound, the estimate and the claim as bars'
    """
    from canaria._core.errors import InputError, shown
    from canaria.report.charts import charts

    (section,) = _explained([result])
    drawn = charts(section)
    chosen = ("rungs" if "rungs" in drawn else "claim") if what is None else what
    if chosen not in drawn:
        raise InputError(f"what must be one of {', '.join(drawn)} for this result, got {shown(what)}")
    return drawn[chosen]


def compare(results: "Sequence[Result | Bound] | Mapping[str, Result | Bound]") -> "Comparison":
    r"""Put results side by side: a table, a forest plot with their claims, and CSV.

    Args:
        results: The results, or bounds, in a list or by name.

    Example:
        >>> from canaria import Counts, Result, lower_bound
        >>> results = [Result(lower_bound(Counts(right, 100, 100)), name=str(right)) for right in (60, 90)]
        >>> print(str(compare(results)).partition("\n\n")[0])
        audit  claim  bound      guesses right  elements  verdict
        60     –      ε ≥ 0.051  60 of 100      100       no claim
        90     –      ε ≥ 1.630  90 of 100      100       no claim
    """
    from canaria.report.comparison import compare, named

    return compare(named(results))


def notebook_of(result: "Result") -> str:
    """Render a result as HTML for a notebook.

    Args:
        result: The result.

    Example:
        >>> from canaria import Counts, Result, lower_bound
        >>> from canaria.report import notebook_of
        >>> "ε is at least 1.630" in notebook_of(Result(lower_bound(Counts(90, 100, 100))))
        True
    """
    from canaria.report.notebook import shown_in_notebook

    return shown_in_notebook(result)


def _explained(results: "Sequence[Result]") -> "list[Section]":
    from canaria.report.section import explain, told_apart

    names = told_apart([result.name for result in results])
    return [explain(result, name=name) for result, name in zip(results, names, strict=True)]
