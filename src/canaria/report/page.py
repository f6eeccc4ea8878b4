"""The report as one HTML page that needs no other file: styles, charts and their library are inside.

All text of results is escaped by Jinja; the data of charts is JSON in a block that is not a script. A content
security policy allows only our two scripts, by their hashes, and forbids loading anything.
"""

import base64
import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from canaria._core.rounding import percent, rounded_down
from canaria._version import __version__
from canaria.report import words
from canaria.report.charts import charts
from canaria.report.section import Section, at_once


def page(sections: Sequence[Section], title: str | None = None) -> str:
    """The HTML of a report on one or several results.

    Args:
        sections: The explained results.
        title: The title of the page; by default the name of the result, or the number of audits.

    Returns:
        A page that needs no other file.

    """
    from jinja2 import Environment
    from markupsafe import Markup

    results = [section.result for section in sections]
    drawn = {index: charts(section) for index, section in enumerate(sections, start=1)}
    library, program = _library(), _resource("page.js")
    specifications = {f"chart-{i}-{name}": spec for i, specs in drawn.items() for name, spec in specs.items()}
    environment = Environment(autoescape=True, trim_blocks=True)
    environment.filters["unbroken"] = _unbroken
    template = environment.from_string(_resource("page.html"))

    def chart(index: int, name: str, label: str) -> Any:
        if name not in drawn[index]:
            return ""
        figure = '<figure><div class="chart" id="chart-{}-{}" role="img" aria-label="{}"></div></figure>'
        return Markup(figure).format(index, name, label)  # noqa: S704 (format escapes)

    def trusted(text: str) -> Any:
        return Markup(text)  # noqa: S704 (our own files, and JSON without "<")

    return template.render(
        title=title or (results[0].name if len(results) == 1 else f"{len(results)} audits"),
        sections=sections,
        at_once=at_once(results),
        words=words,
        chart=chart,
        down=rounded_down,
        percent=percent,
        small=lambda p: f"{p:.3g}" if p > 1e-300 else "below 1e-300",
        version=__version__,
        date=max(result.date for result in results),
        style=trusted(_resource("page.css")),
        specifications=trusted(_json(specifications)),
        library=trusted(library),
        program=trusted(program),
        script_hashes=trusted(f"{_hash(library)} {_hash(program)}"),
    )


def _unbroken(text: str) -> str:
    """Text whose formulas stay on one line."""
    return text.replace(" = ", "\u00a0=\u00a0")


def _json(data: object) -> str:
    """JSON that cannot end its script block or start a comment in it."""
    return json.dumps(data, allow_nan=False).replace("<", "\\u003c")


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _resource(name: str) -> str:
    return files("canaria.report").joinpath(name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script."""
    import vl_convert

    return str(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;"))
