"""A result in a notebook: the verdict, its meaning, and a picture."""

from typing import Final

from canaria.bounds.result import Result
from canaria.report import brief
from canaria.report.charts import charts
from canaria.report.section import explain
from canaria.report.svg import escape

_BOX: Final = "max-width:640px;margin:0 0 12px;padding:2px 12px;border-left:5px solid {colour}"
_ALARM, _CALM = "#b42332", "#3b5b92"


def shown_in_notebook(result: Result) -> str:
    """The HTML of a result, without a script or a style sheet; all text of the result is escaped."""
    drawn = charts(explain(result))
    points = "".join(f"<p><b>{escape(about)}:</b> {escape(text)}</p>" for about, text in brief.points(result))
    box = _BOX.format(colour=_ALARM if result.alarming else _CALM)
    picture = drawn.get("rungs") or drawn["claim"]
    return f'<div style="{box}"><p><b>{escape(result.verdict)}</b></p>{points}</div>{picture._repr_html_()}'
