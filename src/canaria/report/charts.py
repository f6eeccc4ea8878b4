"""The charts of a result."""

import math
from itertools import pairwise
from typing import Final, NamedTuple

from canaria._core.rounding import percent, rounded_down
from canaria.report import svg
from canaria.report.chart import Chart
from canaria.report.section import Section

_ROW: Final = 40
"""Height of a row in pixels: its name, with the bar below."""
_HEIGHT: Final = 200
_FOOT: Final = 40
"""Height in pixels of the numbers and the title below an axis."""
_LARGEST: Final = 750.0
"""An infinite bound is drawn at this value, beyond the largest that a grid can show."""


def charts(section: Section) -> dict[str, Chart]:
    """The charts of a section by name, except those with nothing to show."""
    made = {
        "claim": _claim(section),
        "rungs": _rungs(section),
        "confidence": _confidence(section),
        "guesses": _guesses(section),
        "scores": _scores(section),
        "gaps": _gaps(section),
    }
    return {name: chart for name, chart in made.items() if chart is not None}


class _Bar(NamedTuple):
    what: str
    low: float
    high: float
    colour: str
    label: str


def _marks(section: Section) -> list[_Bar]:
    """The finite ones of the bound, the estimate and the claim."""
    result = section.result
    marks = [
        (f"bound ({percent(result.bound.confidence)}% confidence)", result.bound.epsilon, svg.BLUE),
        ("estimate (no guarantee)", result.bound.estimate, svg.GREY),
        ("claim", math.inf if result.claimed is None else result.claimed, svg.PURPLE),
    ]
    return [
        _Bar(what, 0.0, value, colour, rounded_down(value))
        for what, value, colour in marks
        if math.isfinite(value)
    ]


def _bars(about: str, bars: list[_Bar]) -> Chart:
    """Horizontal bars on an axis of epsilon from 0."""
    scale = svg.Scale(0.0, max((max(bar.low, bar.high) for bar in bars), default=0.0) * 1.03 or 1.0)
    height = _ROW * len(bars) + 4
    body = svg.grid(scale, height, "ε")
    for place, bar in enumerate(bars):
        start, end = sorted((scale.at(bar.low), scale.at(bar.high)))
        size = {
            "x": svg.across(start),
            "width": svg.across(end - start),
            "y": place * _ROW + 21,
            "height": 15,
        }
        told = f"{bar.what}: ε = {bar.label}"
        body.append(svg.named_row(place * _ROW + 15, bar.what, bar.label))
        body.append(svg.tag("rect", title=told, rx=2, fill=bar.colour, **size))
    return Chart(about=about, body=tuple(body), height=height + _FOOT)


def _claim(section: Section) -> Chart:
    return _bars("The bound, the estimate and the claim as bars", _marks(section))


def _rungs(section: Section) -> Chart | None:
    """A forest plot: each rung as a half-line from its lower bound, or as an interval, and the claim."""
    result = section.result
    if not result.rungs:
        return None
    claimed = [value for value in (result.claimed,) if value is not None and math.isfinite(value)]
    ends = [end for rung in result.rungs for end in (rung.least, rung.most) if end is not None]
    top = 1.25 * max((end for end in (*ends, *claimed) if math.isfinite(end)), default=0.0) or 1.0
    scale, height = svg.Scale(0.0, top), _ROW * len(result.rungs) + 4
    body = svg.grid(scale, height, "ε")
    keys = [svg.Key(f"claim: ε = {value:.4g}", svg.PURPLE) for value in claimed]
    body += [
        _rule((scale.at(value), 0), (scale.at(value), height), key.name, svg.PURPLE)
        for key, value in zip(keys, claimed, strict=True)
    ]
    for place, rung in enumerate(result.rungs):
        body.append(svg.named_row(place * _ROW + 15, f"{place + 1}. {rung.name}", rung.epsilon))
        if rung.least is None:
            continue
        down, told = place * _ROW + 28, f"{rung.epsilon} {rung.reason}"
        most = top if rung.most is None else rung.most
        start, end = scale.at(rung.least), scale.at(most)
        drawn = [
            svg.line((start, down), (end, down), stroke=svg.BLUE, stroke_width=3),
            svg.dot(start, down, svg.BLUE),
        ]
        closed = rung.most is not None and most <= top
        drawn.append(svg.dot(end, down, svg.BLUE) if closed else svg.arrow(end, down, svg.BLUE))
        body.append(svg.tag("g", *drawn, title=told))
    about = "What is shown of ε under each assumption, and the claim"
    return Chart(about=about, body=tuple(body), height=height + _FOOT, keys=tuple(keys))


def _rule(start: tuple[float, float], end: tuple[float, float], title: str, colour: str) -> str:
    return svg.line(start, end, title=title, stroke=colour, stroke_dasharray="6 4", stroke_width=1.5)


class _Dot(NamedTuple):
    across: float
    epsilon: float
    told: str


def _curve(
    about: str, section: Section, dots: list[_Dot], below: list[str], marked: list[_Dot], foot: int = _FOOT
) -> Chart:
    """A curve of bounds, with the reported bound and the claim as horizontal lines."""
    rules = [bar for bar in _marks(section) if bar.colour != svg.GREY]
    top = max((*(min(one.epsilon, _LARGEST) for one in dots), *(bar.high for bar in rules)), default=0.0)
    body, scale = svg.side(top or 1.0, _HEIGHT, "lower bound on ε")

    def down(epsilon: float) -> float:
        return _HEIGHT * (1 - scale.at(min(epsilon, _LARGEST)) / 100)

    body += below
    body += [
        _rule((0, down(bar.high)), (100, down(bar.high)), f"{bar.what}: ε = {bar.label}", bar.colour)
        for bar in rules
    ]
    places = [(one.across, down(one.epsilon)) for one in dots]
    body += [
        svg.line(start, end, stroke=svg.GREY, stroke_width=2, stroke_linecap="round")
        for start, end in pairwise(places)
    ]
    body += [
        svg.dot(*place, svg.GREY, radius=3.5, title=one.told) for place, one in zip(places, dots, strict=True)
    ]
    body += [svg.ring(one.across, down(one.epsilon), svg.ORANGE, radius=6, title=one.told) for one in marked]
    keys = tuple(svg.Key(bar.what, bar.colour) for bar in rules)
    return Chart(about=about, body=tuple(body), height=_HEIGHT + foot, keys=keys, kind="curve")


def _confidence(section: Section) -> Chart:
    points = section.by_confidence
    dots, below = [], [svg.line((0, _HEIGHT), (100, _HEIGHT), stroke="currentColor")]
    for place, (confidence, epsilon) in enumerate(points):
        share, sure = 100 * (place + 0.5) / len(points), f"{percent(confidence)}%"
        dots.append(_Dot(share, epsilon, f"{sure} confidence: ε ≥ {rounded_down(epsilon)}"))
        label = svg.text(sure, "0", 0.0, text_anchor="end", transform="rotate(-45)")
        below.append(svg.tag("svg", label, x=svg.across(share), y=_HEIGHT + 14, overflow="visible"))
    below.append(svg.text("confidence", "50%", _HEIGHT + 66, text_anchor="middle"))
    return _curve("Lower bound on ε by confidence", section, dots, below, [], foot=72)


def _guesses(section: Section) -> Chart | None:
    points = section.by_guesses
    if not points:
        return None
    sizes = [guesses for guesses, _, _ in points]
    scale = svg.Scale(min(sizes), max(sizes), logarithmic=True)
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
        one for one, size in zip(dots, sizes, strict=True) if size == section.result.bound.tally.taken
    ]
    below = svg.grid(scale, _HEIGHT, "guesses (log scale)")
    return _curve("Lower bound on ε by number of guesses", section, dots, below, clearest)


def _scores(section: Section) -> Chart | None:
    """Two overlaid histograms."""
    found = section.result.histogram
    if found is None:
        return None
    scale, top = svg.Scale(found.edges[0], found.edges[-1]), max(*found.included, *found.excluded, 1)
    body, high = svg.side(top, _HEIGHT, "elements")
    body += svg.grid(scale, _HEIGHT, "score")
    for name, counts, colour in (
        ("included", found.included, svg.ORANGE),
        ("excluded", found.excluded, svg.BLUE),
    ):
        bins = [
            _bin(
                scale, ends, count, high.at(count), f"{name}: {count}, scores {ends[0]:.3g} to {ends[1]:.3g}"
            )
            for *ends, count in zip(found.edges[:-1], found.edges[1:], counts, strict=True)
            if count
        ]
        body.append(svg.tag("g", *bins, fill=colour, fill_opacity=0.65))
    keys = (svg.Key("included", svg.ORANGE, dashed=False), svg.Key("excluded", svg.BLUE, dashed=False))
    about = "Histogram of the scores of included and excluded elements"
    return Chart(about=about, body=tuple(body), height=_HEIGHT + _FOOT, keys=keys, kind="curve")


def _bin(scale: svg.Scale, ends: list[float], count: int, share: float, told: str) -> str:
    start, end = map(scale.at, ends)
    tall = _HEIGHT * share / 100
    size = {
        "x": svg.across(start),
        "width": svg.across(end - start),
        "y": f"{_HEIGHT - tall:.4g}",
        "height": f"{tall:.4g}",
    }
    return svg.tag("rect", title=told, **size)


def _gaps(section: Section) -> Chart | None:
    """Bars from the top of the ladder down to the bound."""
    ladder = section.result.ladder
    if ladder is None:
        return None
    bound = min(section.result.bound.epsilon, _LARGEST)
    bars = [
        _Bar(ladder.top, 0.0, ladder.epsilon, svg.PURPLE, rounded_down(ladder.epsilon)),
        *(_Bar(drop.gap, drop.end, drop.start, svg.ORANGE, drop.lost) for drop in section.drops),
        _Bar("the bound", 0.0, bound, svg.BLUE, section.result.bound.epsilon_text),
    ]
    return _bars("From the claim down to the bound, gap by gap", bars)
