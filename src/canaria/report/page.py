"""The report as one self-contained HTML page without scripts; styles and charts are embedded.

Jinja and the charts escape all text of results. The content security policy allows only this style, by its
hash, and forbids scripts and loading of anything.
"""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from canaria._core.extras import needed_for
from canaria._core.rounding import percent, rounded_down
from canaria._version import __version__
from canaria.report import brief, words
from canaria.report.charts import charts
from canaria.report.comparison import Comparison, side_by_side
from canaria.report.section import Section, title_of


def require_page() -> None:
    """Raise an error if the extra is not installed, before anything is computed."""
    with needed_for("an HTML report", "report"):
        import jinja2  # noqa: F401


def page(sections: Sequence[Section], title: str | None = None) -> str:
    """Render the HTML report on one or several results."""
    compared = side_by_side(sections)
    return _rendered(title or title_of(sections), compared, sections, summary=len(sections) > 1)


def page_of_comparison(comparison: Comparison, title: str | None = None) -> str:
    """Render a comparison of results as HTML: the table and the forest plot."""
    return _rendered(title or comparison.title, comparison, (), summary=True)


def _rendered(title: str, comparison: Comparison, sections: Sequence[Section], *, summary: bool) -> str:
    require_page()
    from jinja2 import Environment
    from markupsafe import Markup

    def trusted(text: str) -> Any:
        return Markup(text)  # noqa: S704 (the style of this package, and charts that escape what they show)

    style = _resource("page.css")
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["unbroken"] = _unbroken
    return environment.from_string(_resource("page.html")).render(
        title=title,
        sections=sections,
        charts=[
            {name: trusted(chart.figure) for name, chart in charts(section).items()} for section in sections
        ],
        comparison=comparison if summary else None,
        forest=trusted(comparison.chart.figure),
        words=words,
        brief=brief,
        down=rounded_down,
        percent=percent,
        small=lambda p: f"{p:.3g}" if p > 1e-300 else "below 1e-300",
        version=__version__,
        date=max(row.result.date for row in comparison.rows),
        style=trusted(style),
        style_hash=trusted(_hash(style)),
    )


def _unbroken(text: str) -> str:
    """Text with non-breaking spaces in formulas."""
    return text.replace(" = ", "\u00a0=\u00a0")


def _hash(style: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


def _resource(name: str) -> str:
    return files("canaria.report").joinpath(name).read_text(encoding="utf-8")
