"""The charts of the report, as SVG inside `<figure>`."""

import math
from collections.abc import Iterable
from html import escape
from itertools import pairwise
from typing import Final, NamedTuple

from canaria._core.rounding import percent, rounded_down
from canaria.report.section import Section
from canaria.report.svg import (
    BLUE,
    GREY,
    ORANGE,
    PURPLE,
    Key,
    Scale,
    across,
    fitted,
    grid,
    legend,
    line,
    side,
    tag,
    text,
)

_ROW: Final = 40
"""Pixels of a row: its name, and below it the bar."""
_HEIGHT: Final = 200
_FOOT: Final = 40
"""Pixels for the numbers and the title below an axis."""
_LARGEST: Final = 750.0
"""An infinite bound is drawn here, beyond the largest that a grid can show."""


def charts(section: Section) -> dict[str, str]:
    """The charts of a section; a chart with nothing to show is left out.

    Args:
        section: The explained result.

    Returns:
        `<figure>` elements, by name.

    """
    made = {
        "claim": _claim(section),
        "rungs": _rungs(section),
        "confidence": _confidence(section),
        "guesses": _guesses(section),
        "scores": _scores(section),
        "gaps": _gaps(section),
    }
    return {name: chart for name, chart in made.items() if chart}


class _Bar(NamedTuple):
    what: str
    low: float
    high: float
    colour: str
    label: str


def _figure(about: str, body: Iterable[str], height: float, keys: list[Key], kind: str = "rows") -> str:
    drawing = tag(
        "svg", *body, class_="chart", width="100%", height=f"{height:g}", role="img", aria_label=about
    )
    return tag("figure", legend(keys), drawing, class_=kind)


def _marks(section: Section) -> list[_Bar]:
    """What is compared: the bound, the estimate and the claim, as far as they are finite."""
    result = section.result
    marks = [
        (f"bound ({percent(result.bound.confidence)}% confidence)", result.bound.epsilon, BLUE),
        ("estimate (no guarantee)", result.bound.estimate, GREY),
        ("claim", math.inf if result.claimed is None else result.claimed, PURPLE),
    ]
    return [
        _Bar(what, 0.0, value, colour, rounded_down(value))
        for what, value, colour in marks
        if math.isfinite(value)
    ]


def _named(place: int, what: str, label: str) -> str:
    """The name of a row and its number, above what is drawn for it."""
    name = fitted(what, 24.0 - 0.7 * len(label))
    number = tag("tspan", escape(label), dx="8", font_weight="600")
    return tag("text", escape(name), number, x="0", y=place * _ROW + 15)


def _bars(about: str, bars: list[_Bar]) -> str:
    """Bars below each other, on an axis of epsilon from 0."""
    scale = Scale(0.0, max((max(bar.low, bar.high) for bar in bars), default=0.0) * 1.03 or 1.0)
    height = _ROW * len(bars) + 4
    body = grid(scale, height, "ε")
    for place, bar in enumerate(bars):
        start, end = sorted((scale.at(bar.low), scale.at(bar.high)))
        size = {"x": across(start), "width": across(end - start), "y": place * _ROW + 21, "height": 15}
        told = f"{bar.what}: ε = {bar.label}"
        body.append(_named(place, bar.what, bar.label))
        body.append(tag("rect", title=told, class_="bar", rx=2, fill=bar.colour, **size))
    return _figure(about, body, height + _FOOT, [])


def _claim(section: Section) -> str:
    return _bars("The bound, the estimate and the claim as bars", _marks(section))


def _rungs(section: Section) -> str:
    """A forest plot: each rung from its lower bound on, or as an interval, against the claim."""
    result = section.result
    if not result.rungs:
        return ""
    claimed = [value for value in (result.claimed,) if value is not None and math.isfinite(value)]
    ends = [end for rung in result.rungs for end in (rung.least, rung.most) if end is not None]
    top = 1.25 * max((end for end in (*ends, *claimed) if math.isfinite(end)), default=0.0) or 1.0
    scale, height = Scale(0.0, top), _ROW * len(result.rungs) + 4
    body = grid(scale, height, "ε")
    keys = [Key(f"claim: ε = {value:.4g}", PURPLE) for value in claimed]
    body += [
        _rule((scale.at(value), 0), (scale.at(value), height), key.name, PURPLE)
        for key, value in zip(keys, claimed, strict=True)
    ]
    for place, rung in enumerate(result.rungs):
        body.append(_named(place, f"{place + 1}. {rung.name}", rung.epsilon))
        if rung.least is None:
            continue
        down, told = place * _ROW + 28, f"{rung.epsilon} {rung.reason}"
        most = top if rung.most is None else rung.most
        start, end = scale.at(rung.least), scale.at(most)
        drawn = [line((start, down), (end, down), stroke=BLUE, stroke_width=3), _point(start, down)]
        drawn.append(_point(end, down) if rung.most is not None and most <= top else _arrow(end, down))
        body.append(tag("g", *drawn, title=told))
    return _figure("What is shown of ε under each assumption, and the claim", body, height + _FOOT, keys)


def _point(share: float, down: float, colour: str = BLUE, radius: float = 4.5, title: str = "") -> str:
    return tag("circle", title=title, cx=across(share), cy=f"{down:.4g}", r=radius, fill=colour)


def _arrow(share: float, down: float) -> str:
    """The end of a line that has no upper end."""
    head = tag("path", d="M-9 -6L0 0L-9 6Z", fill=BLUE)
    return tag("svg", head, x=across(share), y=down, overflow="visible")


def _rule(start: tuple[float, float], end: tuple[float, float], title: str, colour: str) -> str:
    return line(start, end, title=title, stroke=colour, stroke_dasharray="6 4", stroke_width=1.5)


class _Dot(NamedTuple):
    across: float
    epsilon: float
    told: str


def _curve(
    about: str, section: Section, dots: list[_Dot], below: list[str], marked: list[_Dot], foot: int = _FOOT
) -> str:
    """A curve of bounds, and the reported bound and the claim as horizontal lines."""
    rules = [bar for bar in _marks(section) if bar.colour != GREY]
    top = max((*(min(dot.epsilon, _LARGEST) for dot in dots), *(bar.high for bar in rules)), default=0.0)
    body, scale = side(top or 1.0, _HEIGHT, "lower bound on ε")

    def down(epsilon: float) -> float:
        return _HEIGHT * (1 - scale.at(min(epsilon, _LARGEST)) / 100)

    body += below
    body += [
        _rule((0, down(bar.high)), (100, down(bar.high)), f"{bar.what}: ε = {bar.label}", bar.colour)
        for bar in rules
    ]
    places = [(dot.across, down(dot.epsilon)) for dot in dots]
    body += [
        line(start, end, stroke=GREY, stroke_width=2, stroke_linecap="round")
        for start, end in pairwise(places)
    ]
    body += [_point(*place, GREY, 3.5, dot.told) for place, dot in zip(places, dots, strict=True)]
    ring = {"r": 6, "fill": "none", "stroke": ORANGE, "stroke_width": 2}
    body += [
        tag("circle", title=dot.told, cx=across(dot.across), cy=f"{down(dot.epsilon):.4g}", **ring)
        for dot in marked
    ]
    keys = [Key(bar.what, bar.colour) for bar in rules]
    return _figure(about, body, _HEIGHT + foot, keys, "curve")


def _confidence(section: Section) -> str:
    points = section.by_confidence
    dots, below = [], [line((0, _HEIGHT), (100, _HEIGHT), stroke="currentColor")]
    for place, (confidence, epsilon) in enumerate(points):
        share, sure = 100 * (place + 0.5) / len(points), f"{percent(confidence)}%"
        dots.append(_Dot(share, epsilon, f"{sure} confidence: ε ≥ {rounded_down(epsilon)}"))
        label = text(sure, "0", 0.0, text_anchor="end", transform="rotate(-45)")
        below.append(tag("svg", label, x=across(share), y=_HEIGHT + 14, overflow="visible"))
    below.append(text("confidence", "50%", _HEIGHT + 66, text_anchor="middle"))
    return _curve("Lower bound on ε by confidence", section, dots, below, [], foot=72)


def _guesses(section: Section) -> str:
    points = section.by_guesses
    if not points:
        return ""
    sizes = [guesses for guesses, _, _ in points]
    scale = Scale(min(sizes), max(sizes), logarithmic=True)
    dots = [
        _Dot(
            scale.at(guesses),
            epsilon,
            f"{guesses} guesses, {right} right ({right / guesses:.1%}): "
            f"ε ≥ {rounded_down(epsilon)} from this count alone",
        )
        for guesses, right, epsilon in points
    ]
    clearest = [
        dot for dot, size in zip(dots, sizes, strict=True) if size == section.result.bound.tally.taken
    ]
    below = grid(scale, _HEIGHT, "guesses (log scale)")
    return _curve("Lower bound on ε by number of guesses", section, dots, below, clearest)


def _scores(section: Section) -> str:
    """Two histograms over each other."""
    found = section.result.histogram
    if found is None:
        return ""
    scale, top = Scale(found.edges[0], found.edges[-1]), max(*found.included, *found.excluded, 1)
    body, high = side(top, _HEIGHT, "elements")
    body += grid(scale, _HEIGHT, "score")
    for name, counts, colour in (("included", found.included, ORANGE), ("excluded", found.excluded, BLUE)):
        bins = [
            _bin(
                scale, ends, count, high.at(count), f"{name}: {count}, scores {ends[0]:.3g} to {ends[1]:.3g}"
            )
            for *ends, count in zip(found.edges[:-1], found.edges[1:], counts, strict=True)
            if count
        ]
        body.append(tag("g", *bins, fill=colour, fill_opacity=0.65))
    keys = [Key("included", ORANGE, dashed=False), Key("excluded", BLUE, dashed=False)]
    about = "Histogram of the scores of included and excluded elements"
    return _figure(about, body, _HEIGHT + _FOOT, keys, "curve")


def _bin(scale: Scale, ends: list[float], count: int, share: float, told: str) -> str:
    start, end = map(scale.at, ends)
    tall = _HEIGHT * share / 100
    size = {
        "x": across(start),
        "width": across(end - start),
        "y": f"{_HEIGHT - tall:.4g}",
        "height": f"{tall:.4g}",
    }
    return tag("rect", title=told, **size)


def _gaps(section: Section) -> str:
    """From the top of the ladder down to the bound."""
    ladder = section.result.ladder
    if ladder is None:
        return ""
    bound = min(section.result.bound.epsilon, _LARGEST)
    bars = [
        _Bar(ladder.top, 0.0, ladder.epsilon, PURPLE, rounded_down(ladder.epsilon)),
        *(_Bar(drop.gap, drop.end, drop.start, ORANGE, drop.lost) for drop in section.drops),
        _Bar("the bound", 0.0, bound, BLUE, section.result.bound.epsilon_text),
    ]
    return _bars("From the claim down to the bound, gap by gap", bars)
