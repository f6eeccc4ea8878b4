"""Charts: one Altair specification for pictures and for pages."""

from importlib import import_module
from typing import Any

from canaria._core.extras import needed_for


def require_charts() -> None:
    """Raise an error before any work that ends in charts, if the extra is not installed."""
    with needed_for("a chart", "lab"):
        import_module("altair")
        import_module("vl_convert")


def line_chart(
    rows: list[dict[str, Any]], title: str, subtitle: str, x: str, y: str, log_x: bool = True
) -> Any:
    """Means over x with a band of one standard error, one colour per series.

    Rows hold x, series, mean and error; a row with `panel` goes to the panel of that name.
    """
    alt = _altair()
    values = [{**row, "low": row["mean"] - row["error"], "high": row["mean"] + row["error"]} for row in rows]
    data = alt.Data(values=values)
    series = list(dict.fromkeys(row["series"] for row in rows))
    legend = alt.Legend(orient="bottom", columns=2, labelLimit=420, symbolOpacity=1)
    shared = {
        "x": alt.X("x:Q", title=x, scale=alt.Scale(type="log" if log_x else "linear", nice=False)),
        "color": alt.Color("series:N", title=None, sort=series, legend=legend),
    }
    height = alt.Scale(zero=False)
    numbers = [alt.Tooltip(f"{key}:Q", format=".4g") for key in ("x", "mean", "error")]
    band = alt.Chart().mark_area(opacity=0.2)
    band = band.encode(y=alt.Y("low:Q", title=y, scale=height), y2="high:Q", **shared)
    line = alt.Chart().mark_line(point=True)
    line = line.encode(y=alt.Y("mean:Q", title=y, scale=height), tooltip=["series:N", *numbers], **shared)
    chart: Any = alt.layer(band, line).properties(width=420, height=280)
    if any("panel" in row for row in rows):
        panels = list(dict.fromkeys(row["panel"] for row in rows))
        chart = chart.facet(column=alt.Column("panel:N", title=None, sort=panels), data=data)
        chart = chart.resolve_scale(y="independent")
    else:
        chart = chart.properties(data=data)
    return chart.properties(title=alt.TitleParams(title, subtitle=subtitle.split("\n")))


def heat_map(
    rows: list[dict[str, Any]],
    title: str,
    subtitle: str,
    legend: str,
    values: list[float],
    colours: list[str],
) -> Any:
    """A table in colours: rows hold row, column, value, text, marked (framed), about and seen."""
    alt = _altair()
    scale = alt.Scale(domain=values, range=colours, clamp=True)
    places = {
        "x": alt.X("column:N", title=None, sort=None, axis=alt.Axis(orient="top", labelAngle=-45)),
        "y": alt.Y("row:N", title=None, sort=None),
    }
    chart = alt.Chart(alt.Data(values=rows))
    cells = chart.mark_rect(strokeWidth=2).encode(
        color=alt.Color("value:Q", title=legend, scale=scale, legend=alt.Legend(orient="bottom")),
        stroke=alt.condition("datum.marked", alt.value("black"), alt.value(None)),
        tooltip=["row:N", "about:N", "column:N", "text:N", "seen:N"],
        **places,
    )
    strong = alt.condition(
        "abs(datum.value - 1) > 0.9 && datum.value > 1", alt.value("white"), alt.value("black")
    )
    text = chart.mark_text(fontSize=9).encode(text="text:N", color=strong, **places)
    size = {kind: 24 * len(dict.fromkeys(row[kind] for row in rows)) for kind in ("row", "column")}
    return alt.layer(cells, text).properties(
        width=int(1.5 * size["column"]),
        height=size["row"],
        title=alt.TitleParams(title, subtitle=subtitle.split("\n")),
    )


def pictures(chart: Any) -> dict[str, bytes]:
    """The chart as SVG and PNG, by file ending."""
    with needed_for("a picture of a chart", "lab"):
        import vl_convert

    svg = vl_convert.vegalite_to_svg(chart.to_json())
    return {"svg": svg.encode(), "png": vl_convert.svg_to_png(svg, scale=2)}


def _altair() -> Any:
    with needed_for("a chart", "lab"):
        return import_module("altair")
