"""The charts of the report, as Vega-Lite specifications made by Altair.

Text and lines take the colour of the page (`currentColor`), so a chart follows its dark or light theme.
"""

import math
from importlib import import_module
from typing import Any, Final

from canaria._core.rounding import percent, rounded_down
from canaria.report.section import Section

_BLUE: Final = "#3b7dd8"
_ORANGE: Final = "#e07b39"
_PURPLE: Final = "#8a63d2"
_GREY: Final = "#8a8f98"
_SEPARATE: Final = "\u2060"
"""Of no width: rows of the same name stay apart, and no name is one that Vega or JavaScript knows."""
_CONFIG: Final = {
    "background": "transparent",
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "domainColor": "currentColor",
        "tickColor": "currentColor",
        "gridColor": "currentColor",
        "gridOpacity": 0.12,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 220,
    },
    "legend": {
        "labelColor": "currentColor",
        "titleColor": "currentColor",
        "orient": "top",
        "labelFontSize": 12,
        "labelLimit": 300,
    },
    "text": {"color": "currentColor", "fontSize": 12},
}


def charts(section: Section) -> dict[str, dict[str, Any]]:
    """The charts of a section as Vega-Lite specifications; a chart with nothing to show is left out.

    Args:
        section: The explained result.

    Returns:
        The specifications, by name.

    """
    made = {
        "claim": _claim(section),
        "rungs": _rungs(section),
        "confidence": _confidence(section),
        "guesses": _guesses(section),
        "scores": _scores(section),
        "gaps": _gaps(section),
    }
    return {name: _finished(chart) for name, chart in made.items() if chart is not None}


def _finished(chart: Any) -> dict[str, Any]:
    sized = chart.properties(width="container", autosize={"type": "fit-x", "contains": "padding"})
    spec: dict[str, Any] = sized.configure(**_CONFIG).to_dict()
    return spec


def _altair() -> Any:
    return import_module("altair")


def _rows(values: list[dict[str, Any]]) -> Any:
    return _altair().Data(values=values)


def _finite(value: float) -> float:
    return min(value, 750.0)


def _marks(section: Section) -> list[dict[str, Any]]:
    """What is compared: the bound, the estimate and the claim, as far as they are finite."""
    result = section.result
    marks = [
        (f"bound ({percent(result.bound.confidence)}% confidence)", result.bound.epsilon, _BLUE),
        ("estimate (no guarantee)", result.bound.estimate, _GREY),
        ("claim", math.inf if result.claimed is None else result.claimed, _PURPLE),
    ]
    return [
        {"what": what, "epsilon": value, "label": rounded_down(value), "colour": colour}
        for what, value, colour in marks
        if math.isfinite(value)
    ]


def _from_zero(values: list[float]) -> Any:
    """An axis of epsilon from 0, with room for a label after the longest bar."""
    alt = _altair()
    top = 1.25 * max(values) or 1.0
    return alt.Scale(domain=[0.0, top], nice=False)


def _claim(section: Section) -> Any:
    """The bound, the estimate and the claim as bars."""
    alt, values = _altair(), _marks(section)
    y = alt.Y("what:N", title=None, sort=[row["what"] for row in values])
    scale = _from_zero([row["epsilon"] for row in values])
    x = alt.X("epsilon:Q", title="ε", scale=scale, axis=alt.Axis(tickCount=6))
    tooltip = [alt.Tooltip("what:N"), alt.Tooltip("label:N", title="ε")]
    base = alt.Chart(_rows(values)).encode(x=x, y=y)
    colour = alt.Color("colour:N", scale=None)
    bars = base.mark_bar(height=16, cornerRadiusEnd=3).encode(color=colour, tooltip=tooltip)
    labels = base.mark_text(align="left", dx=5).encode(text="label:N")
    return alt.layer(bars, labels).properties(height=32 * len(values))


def _rungs(section: Section) -> Any:
    """A forest plot: each rung from its lower bound on, or as an interval, against the claim."""
    result = section.result
    if not result.rungs:
        return None
    alt = _altair()
    ends = [end for rung in result.rungs for end in (rung.least, rung.most) if end is not None]
    claimed = [] if result.claimed is None else [result.claimed]
    top = 1.25 * max([end for end in (*ends, *claimed) if math.isfinite(end)], default=0.0) or 1.0
    names = [f"{place}. {rung.name}" for place, rung in enumerate(result.rungs, start=1)]
    values = [
        {
            "what": name,
            "low": min(rung.least, top),
            "high": min(top if rung.most is None else rung.most, top),
            "open": rung.most is None or rung.most > top,
            "label": rung.epsilon,
            "assumes": rung.reason,
        }
        for name, rung in zip(names, result.rungs, strict=True)
        if rung.least is not None
    ]
    y = alt.Y("what:N", title=None, sort=names, scale=alt.Scale(domain=names))
    scale = alt.Scale(domain=[0.0, top], nice=False)
    x = alt.X("low:Q", title="ε", scale=scale, axis=alt.Axis(tickCount=6))
    tooltip = [alt.Tooltip("label:N", title="shown"), alt.Tooltip("assumes:N")]
    base = alt.Chart(_rows(values)).encode(y=y, tooltip=tooltip)
    lines = base.mark_rule(strokeWidth=3, color=_BLUE).encode(x=x, x2="high:Q")
    starts = base.mark_point(filled=True, size=70, opacity=1, color=_BLUE).encode(x=x)
    whither = alt.datum.open
    arrows = base.transform_filter(whither).mark_point(shape="triangle-right", filled=True, size=60)
    closed = base.transform_filter(~whither).mark_point(filled=True, size=70, opacity=1, color=_BLUE)
    marks = [
        lines,
        starts,
        arrows.encode(x=alt.X("high:Q"), color=alt.value(_BLUE)),
        closed.encode(x=alt.X("high:Q")),
    ]
    if claimed and math.isfinite(claimed[0]):
        told = [{"claim": claimed[0], "what": f"claim: ε = {claimed[0]:.4g}"}]
        colour = alt.Color("what:N", title=None, scale=alt.Scale(range=[_PURPLE]))
        rule = alt.Chart(_rows(told)).mark_rule(strokeDash=[6, 4], strokeWidth=1.5)
        marks.append(rule.encode(x=alt.X("claim:Q"), color=colour, tooltip=["what:N"]))
    return alt.layer(*marks).properties(height=34 * len(names))


def _with_lines(section: Section, chart: Any) -> Any:
    """The reported bound and the claim as horizontal lines."""
    alt = _altair()
    lines = [row for row in _marks(section) if row["colour"] != _GREY]
    names, colours = [row["what"] for row in lines], [row["colour"] for row in lines]
    colour = alt.Color("what:N", title=None, scale=alt.Scale(domain=names, range=colours))
    tooltip = [alt.Tooltip("what:N"), alt.Tooltip("label:N", title="ε")]
    rules = alt.Chart(_rows(lines)).mark_rule(strokeDash=[6, 4], strokeWidth=1.5)
    rules = rules.encode(y="epsilon:Q", color=colour, tooltip=tooltip)
    return alt.layer(rules, chart).properties(height=230)


def _confidence(section: Section) -> Any:
    alt = _altair()
    values = [
        {
            "confidence": f"{percent(confidence)}%",
            "epsilon": _finite(epsilon),
            "bound": rounded_down(epsilon),
        }
        for confidence, epsilon in section.by_confidence
    ]
    axis = alt.Axis(labelAngle=-45, labelOverlap=False)
    x = alt.X("confidence:O", title="confidence", sort=None, axis=axis)
    line = alt.Chart(_rows(values)).mark_line(color=_GREY, point={"color": _GREY, "size": 40})
    y = alt.Y("epsilon:Q", title="lower bound on ε")
    return _with_lines(section, line.encode(x=x, y=y, tooltip=["confidence:N", "bound:N"]))


def _guesses(section: Section) -> Any:
    alt = _altair()
    values = [
        {
            "guesses": guesses,
            "right": f"{right} ({right / guesses:.1%})",
            "epsilon": _finite(epsilon),
            "bound of this count alone": rounded_down(epsilon),
        }
        for guesses, right, epsilon in section.by_guesses
    ]
    if not values:
        return None
    x = alt.X("guesses:Q", title="guesses (log scale)", scale=alt.Scale(type="log", nice=False))
    line = alt.Chart(_rows(values)).mark_line(color=_GREY, point={"color": _GREY, "size": 25})
    y = alt.Y("epsilon:Q", title="lower bound on ε")
    tooltip = ["guesses:Q", "right:N", "bound of this count alone:N"]
    chart = line.encode(x=x, y=y, tooltip=tooltip)
    clearest = [row for row in values if row["guesses"] == section.result.bound.tally.taken]
    if clearest:
        marked = alt.Chart(_rows(clearest)).mark_point(color=_ORANGE, size=110, strokeWidth=2)
        chart = alt.layer(chart, marked.encode(x=x, y=y, tooltip=tooltip))
    return _with_lines(section, chart)


def _scores(section: Section) -> Any:
    histogram = section.result.histogram
    if histogram is None:
        return None
    alt = _altair()
    edges = histogram.edges
    values = [
        {"low": low, "high": high, "count": count, "element": name}
        for name, counts in (("included", histogram.included), ("excluded", histogram.excluded))
        for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True)
    ]
    colour = alt.Color(
        "element:N", title=None, scale=alt.Scale(domain=["included", "excluded"], range=[_ORANGE, _BLUE])
    )
    return (
        alt.Chart(_rows(values))
        .mark_bar(opacity=0.65)
        .encode(
            x=alt.X(
                "low:Q", title="score", scale=alt.Scale(zero=False, nice=False), axis=alt.Axis(tickCount=8)
            ),
            x2="high:Q",
            y=alt.Y("count:Q", title="elements", stack=None),
            y2=alt.datum(0),
            color=colour,
            tooltip=[
                "element:N",
                "count:Q",
                *(alt.Tooltip(f"{end}:Q", format=".3g") for end in ("low", "high")),
            ],
        )
        .properties(height=230)
    )


def _gaps(section: Section) -> Any:
    """From the top of the ladder down to the bound."""
    ladder = section.result.ladder
    if ladder is None:
        return None
    alt, bound = _altair(), section.result.bound.epsilon
    values = [
        _bar(ladder.top, 0.0, ladder.epsilon, _PURPLE, rounded_down(ladder.epsilon)),
        *(_bar(drop.gap, drop.end, drop.start, _ORANGE, drop.lost) for drop in section.drops),
        _bar("the bound", 0.0, bound, _BLUE, rounded_down(bound)),
    ]
    for place, row in enumerate(values):
        row["what"] = _SEPARATE * (place + 1) + row["what"]
    y = alt.Y("what:N", title=None, sort=None)
    scale = _from_zero([max(row["low"], row["high"]) for row in values])
    x = alt.X("low:Q", title="ε", scale=scale, axis=alt.Axis(tickCount=6))
    base = alt.Chart(_rows(values))
    bars = base.mark_bar(height=18, cornerRadius=2).encode(
        x=x,
        x2="high:Q",
        y=y,
        color=alt.Color("colour:N", scale=None),
        tooltip=[alt.Tooltip("what:N"), alt.Tooltip("label:N", title="ε")],
    )
    labels = base.transform_calculate(far="max(datum.low, datum.high)").mark_text(align="left", dx=5)
    labels = labels.encode(x="far:Q", y=y, text="label:N")
    return alt.layer(bars, labels).properties(height=30 * len(values))


def _bar(what: str, low: float, high: float, colour: str, label: str) -> dict[str, Any]:
    return {"what": what, "low": low, "high": high, "colour": colour, "label": label}


def _tooltips(layout: str, *names: str) -> list[Any]:
    return [_altair().Tooltip(f"{name}:Q", format=layout) for name in names]
