"""Draws SVG for the report when it is made, so that no script is needed.

One drawing fits every width: horizontal positions are percentages, vertical ones are pixels, and text has a
fixed size, so it never shrinks on a phone. Text and axes take the colour of the page (`currentColor`), so
charts follow its dark or light theme. Marks have a `<title>`, which browsers show as a tooltip.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape as escape_html
from typing import Final, NamedTuple

from canaria._core.errors import printable

BLUE: Final = "#3b7dd8"
ORANGE: Final = "#e07b39"
PURPLE: Final = "#8a63d2"
GREY: Final = "#8a8f98"

_ROOM: Final = 24.0
"""Width of text, in em, that fits on the narrowest phone, 360 px; tested in tests/report/test_page.py."""
_TICK_ROOM: Final = 34
"""Total number of characters of an axis's labels that fit on the same phone."""


def escape(words: str) -> str:
    """Text as markup. Unprintable characters, which XML does not allow, become spaces."""
    return escape_html(printable(words))


def tag(name: str, *inside: str, title: str = "", **attributes: object) -> str:
    """Make an element of markup, with `title` as its tooltip.

    Attributes are escaped; `inside` must already be markup. In attribute names, underscores stand for
    hyphens, and a trailing one is removed (`class_`).

    Example:
        >>> tag("rect", title="<b>", x="5%", stroke_width=2)
        '<rect x="5%" stroke-width="2"><title>&lt;b&gt;</title></rect>'
    """
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(v))}"' for key, v in attributes.items()
    )
    told = f"<title>{escape(title)}</title>" if title else ""
    return f"<{name}{listed}>{told}{''.join(inside)}</{name}>"


def text(words: str, x: str, y: float, **attributes: object) -> str:
    """Make a line of text."""
    return tag("text", escape(words), title="", x=x, y=f"{y:g}", **attributes)


def line(
    start: tuple[float, float], end: tuple[float, float], *, title: str = "", **attributes: object
) -> str:
    """Draw a line between two points, each given as a percentage across and pixels down."""
    (x1, y1), (x2, y2) = start, end
    return tag(
        "line", title=title, x1=across(x1), y1=f"{y1:.4g}", x2=across(x2), y2=f"{y2:.4g}", **attributes
    )


def across(share: float) -> str:
    """A horizontal position, as a percentage."""
    return f"{share:.4g}%"


def fitted(words: str, room: float = _ROOM) -> str:
    """Shorten text to one line that fits on a phone, with an ellipsis.

    Letters count with the width of the widest of their kind, since the reader's font is not known.

    >>> fitted("interference"), fitted("W" * 100)
    ('interference', 'WWWWWWWWWWWWWWWWWWWWWWWW…')
    """
    kept, used, words = "", 0.0, " ".join(words.split())
    for letter in words:
        used += _width(letter)
        if used > room:
            return kept.rstrip() + "…"
        kept += letter
    return kept


def _width(letter: str) -> float:
    narrow = letter in "ε≥≤≈" or (letter.isascii() and not letter.isupper() and letter not in "mw@%&")
    return 0.62 if narrow else 1.0


class Tick(NamedTuple):
    """A number on an axis, with its label."""

    value: float
    label: str


@dataclass(frozen=True)
class Scale:
    """Maps numbers to positions on an axis, from 0 at `low` to 100 at `high`."""

    low: float
    high: float
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """The position of a number; the middle if the axis has no length."""
        low, high, here = (math.log(v) if self.logarithmic else v for v in (self.low, self.high, value))
        return 50.0 if high <= low else 100.0 * (min(max(here, low), high) - low) / (high - low)

    @property
    def ticks(self) -> list[Tick]:
        """Round numbers on the axis, as many as fit on a phone."""
        for most in (6, 5, 4, 3, 2):
            found = self._decades(most) if self.logarithmic else round_numbers(self.low, self.high, most)
            if sum(len(tick.label) + 2 for tick in found) <= _TICK_ROOM:
                return found
        return []

    def _decades(self, most: int) -> list[Tick]:
        """1, 2 and 5 times powers of ten; if those are too many, only powers, or every second or third."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for digits, every in (((1, 2, 5), 1), ((1,), 1), ((1,), 2), ((1,), 3)):
            values = [digit * 10.0**power for power in powers[::every] for digit in digits]
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) <= most:
                return [Tick(value, _short(value, 1.0)) for value in inside]
        return []


def round_numbers(low: float, high: float, most: int = 6) -> list[Tick]:
    """At most `most` multiples of 1, 2 or 5 times a power of ten, from low to high.

    >>> [tick.label for tick in round_numbers(0.0, 2.3)]
    ['0', '0.5', '1', '1.5', '2']
    """
    span = high - low
    if not span > 0 or low + span / most in (low, high):
        return []
    power = 10.0 ** math.floor(math.log10(span / most))
    steps = (digit * power for digit in (1, 2, 5, 10, 20))
    step = next(step for step in steps if math.floor(high / step) - math.ceil(low / step) < most)
    multiples = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [Tick(multiple * step, _short(multiple * step, step)) for multiple in multiples]


def _short(value: float, step: float) -> str:
    """A number with enough digits to distinguish it from its neighbours: 300, 2000, 20k, 0.5, 1e-07."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if 1e4 <= abs(value) < 1e13 and abs(value) >= size and step >= size / 10:
            return f"{value / size:.6g}{unit}"
    digits = 1 if value == 0 else math.floor(math.log10(abs(value))) - math.floor(math.log10(step)) + 2
    if 1 <= abs(value) < 1e4:
        digits = max(digits, len(str(int(abs(value)))))
    return f"{value:.{max(1, min(digits, 12))}g}"


def grid(scale: Scale, height: float, title: str) -> list[str]:
    """Draw the horizontal axis: vertical lines at round numbers, their labels and the title."""
    drawn = [line((0, height), (100, height), stroke="currentColor")]
    for tick in scale.ticks:
        place = scale.at(tick.value)
        drawn += [
            line((place, 0), (place, height), stroke="currentColor", opacity=0.12),
            text(tick.label, across(place), height + 16, text_anchor="middle"),
        ]
    return [*drawn, text(title, "50%", height + 33, text_anchor="middle")]


def side(top: float, height: float, title: str) -> tuple[list[str], Scale]:
    """Draw the vertical axis, from 0 to a round number of at least `top`, and return its scale."""
    ticks = round_numbers(0.0, top, 5)
    step = ticks[1].value if len(ticks) > 1 else top
    scale = Scale(0.0, step * math.ceil(top / step - 1e-9))
    drawn = [text(title, "-36", -10.0)]
    for tick in round_numbers(0.0, scale.high * (1 + 1e-9), 6):
        down = height * (1 - scale.at(tick.value) / 100)
        drawn += [
            line((0, down), (100, down), stroke="currentColor", opacity=0.12),
            text(tick.label, "-6", down + 4, text_anchor="end"),
        ]
    return drawn, scale


def named_row(down: float, what: str, label: str) -> str:
    """Draw the name of a row and its number, above the row's marks."""
    name = fitted(what, _ROOM - 0.7 * len(label))
    number = tag("tspan", escape(label), dx="8", font_weight="600")
    return tag("text", escape(name), number, x="0", y=f"{down:g}")


def dot(share: float, down: float, colour: str, *, radius: float = 4.5, title: str = "") -> str:
    """Draw a point."""
    return tag("circle", title=title, cx=across(share), cy=f"{down:.4g}", r=radius, fill=colour)


def ring(share: float, down: float, colour: str, *, radius: float = 4.5, title: str = "") -> str:
    """Draw a point that does not hide marks below it."""
    drawn = {"fill": "none", "stroke": colour, "stroke_width": 2}
    return tag("circle", title=title, cx=across(share), cy=f"{down:.4g}", r=radius, **drawn)


def arrow(share: float, down: float, colour: str) -> str:
    """Draw the arrow at the end of an unbounded line."""
    head = tag("path", d="M-9 -6L0 0L-9 6Z", fill=colour)
    return tag("svg", head, x=across(share), y=f"{down:g}", overflow="visible")


class Key(NamedTuple):
    """An entry of a legend: a dashed line or a coloured area, and its name."""

    name: str
    colour: str
    dashed: bool = True

    def sample(self, **where: object) -> str:
        """Draw a sample of the line or of the area."""
        dashes = {"stroke_dasharray": "6 4", "stroke_width": 1.5} if self.dashed else {"stroke_width": 10}
        drawn = line((0, 5), (100, 5), stroke=self.colour, **dashes)
        return tag("svg", drawn, title="", width=22, height=10, aria_hidden="true", **where)


def legend(keys: Sequence[Key]) -> str:
    """The legend as text that wraps on narrow screens; empty if there are no keys."""
    entries = [tag("span", key.sample(), f" {escape(key.name)}") for key in keys]
    return tag("figcaption", *entries) if entries else ""
