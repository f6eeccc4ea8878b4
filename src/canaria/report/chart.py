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
"""Margins of a curve: for the numbers beside it, for half of its last number, and for its title."""
_KEY: Final = 20
"""Height of a legend entry in pixels."""
_FONT: Final = "system-ui, sans-serif"
_DARK: Final = "@media (prefers-color-scheme: dark) { svg { color: #e4e8ec } }"


@dataclass(frozen=True, kw_only=True, repr=False)
class Chart:
    """A drawing that fits any width and needs no script. Notebooks display it.

    Attributes:
        about: A description for readers who cannot see the chart.
        body: The elements of the drawing. Horizontal positions are percentages.
        height: The height in pixels, including the axis.
        keys: The legend.
        kind: "rows", or "curve" for a chart with a vertical axis.
    """

    about: str
    body: tuple[str, ...]
    height: float
    keys: tuple[Key, ...] = ()
    kind: str = "rows"

    def __repr__(self) -> str:
        return f"<Chart: {self.about}>"

    @property
    def figure(self) -> str:
        """The chart as an element of the HTML page, which provides the style."""
        drawn = tag(
            "svg",
            *self.body,
            title="",
            width="100%",
            height=f"{self.height:g}",
            **self._named,
            class_="chart",
        )
        return tag("figure", legend(self.keys), drawn, class_=self.kind)

    def _repr_html_(self) -> str:
        # The text takes the colour of the notebook, whose theme may differ from the system's.
        return self._drawn()

    @property
    def svg(self) -> str:
        """The chart as a stand-alone file, with its legend above."""
        return self._drawn(tag("style", _DARK))

    @property
    def _named(self) -> dict[str, str]:
        return {"role": "img", "aria_label": self.about}

    def _drawn(self, *before: str) -> str:
        left, right, top = (_LEFT, _RIGHT, _TOP) if self.kind == "curve" else (0, 0, 0)
        top += _KEY * len(self.keys)
        wide, high = _WIDTH - left - right, f"{self.height:g}"
        inside = tag("svg", *self.body, x=left, y=top, width=wide, height=high, overflow="visible")
        return tag(
            "svg",
            *before,
            *_listed(self.keys),
            inside,
            xmlns="http://www.w3.org/2000/svg",
            width=_WIDTH,
            height=f"{self.height + top + 4:g}",
            **self._named,
            fill="currentColor",
            font_size=12,
            font_family=_FONT,
        )

    def save(self, path: str | Path) -> Path:
        """Write the chart as SVG, atomically.

        Args:
            path: The file to write, which must end in `.svg`.
        """
        out = Path(path)
        if out.suffix.lower() != ".svg":
            raise InputError(f"a chart is written as SVG (.svg), got {shown(str(out))}")
        write_atomically(out, self.svg.encode())
        return out


def _listed(keys: Iterable[Key]) -> list[str]:
    """The legend as elements of a drawing."""
    drawn = []
    for place, key in enumerate(keys):
        down = _KEY * place + 10
        drawn.append(key.sample(x=2, y=down - 5))
        drawn.append(text(key.name, "32", down + 4))
    return drawn
