"""A chart, for a page, for a notebook or as a file of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from canaria._core.errors import InputError, shown
from canaria._core.files import write_atomically
from canaria.report.svg import Key, legend, tag, text

_WIDTH: Final = 640
_LEFT, _RIGHT, _TOP = 44, 12, 26
"""Room around a curve: for the numbers beside it, for half of its last number, and for its title."""
_KEY: Final = 20
"""Pixels of a line of the legend."""
_FONT: Final = "system-ui, sans-serif"
_DARK: Final = "@media (prefers-color-scheme: dark) { svg { color: #e4e8ec } }"
_IN_NOTEBOOKS: Final = {
    "rows": "margin:0;max-width:640px",
    "curve": "margin:0;max-width:640px;padding:0 12px 0 44px",
}
_LEGENDS: Final = {"rows": "margin:0 0 8px;font-size:13px", "curve": "margin:0 0 26px -36px;font-size:13px"}


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A drawing whose width is a matter of where it is shown; it needs no script.

    In a notebook it shows itself.

    Attributes:
        about: What it shows, for those who cannot see it.
        body: Its elements; places across are percentages.
        height: Its height in pixels, with the axis below.
        keys: What its colours mean.
        kind: "rows", or "curve" for one with an axis beside it.

    """

    about: str
    body: tuple[str, ...]
    height: float
    keys: tuple[Key, ...] = ()
    kind: str = "rows"

    @property
    def figure(self) -> str:
        """The chart as an element of our page, which has its style."""
        return tag("figure", legend(self.keys), self._drawn(class_="chart"), class_=self.kind)

    def _repr_html_(self) -> str:
        drawn = self._drawn(
            style="display:block;overflow:visible", fill="currentColor", font_size=12, font_family=_FONT
        )
        about = legend(self.keys, _LEGENDS[self.kind], "margin-right:18px")
        return tag("figure", about, drawn, style=_IN_NOTEBOOKS[self.kind])

    def _drawn(self, **style: object) -> str:
        named = {"role": "img", "aria_label": self.about}
        return tag("svg", *self.body, title="", width="100%", height=f"{self.height:g}", **named, **style)

    @property
    def svg(self) -> str:
        """The chart as a file of its own, with its legend above."""
        left, right, top = (_LEFT, _RIGHT, _TOP) if self.kind == "curve" else (0, 0, 0)
        top += _KEY * len(self.keys)
        wide, high = _WIDTH - left - right, f"{self.height:g}"
        inside = tag("svg", *self.body, x=left, y=top, width=wide, height=high, overflow="visible")
        return tag(
            "svg",
            tag("style", _DARK),
            *_listed(self.keys),
            inside,
            xmlns="http://www.w3.org/2000/svg",
            width=_WIDTH,
            height=f"{self.height + top + 4:g}",
            role="img",
            aria_label=self.about,
            fill="currentColor",
            font_size=12,
            font_family=_FONT,
        )

    def save(self, path: str | Path) -> Path:
        """Write the chart as SVG, at once or not at all.

        Args:
            path: Where to write it; it ends in `.svg`.

        Returns:
            The path.

        Raises:
            InputError: If the ending is another one, or if the file cannot be written.

        """
        out = Path(path)
        if out.suffix.lower() != ".svg":
            raise InputError(f"a chart is written as SVG (.svg), got {shown(str(out))}")
        write_atomically(out, self.svg.encode())
        return out


def _listed(keys: Iterable[Key]) -> list[str]:
    """A legend as lines of a drawing."""
    drawn = []
    for place, key in enumerate(keys):
        down = _KEY * place + 10
        drawn.append(key.sample(x=2, y=down - 5))
        drawn.append(text(key.name, "32", down + 4))
    return drawn
